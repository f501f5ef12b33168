"""The main job from end to end: trace, system simulation, check, traffic, area, report."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dysharp import report as reports
from dysharp.hw.config import Config

__all__ = ["run_demo"]


@contextmanager
def _step(what: str) -> Iterator[None]:
    """Say on a terminal what is going on, and how long it took."""
    if not sys.stderr.isatty():
        yield
        return
    print(f"{what} ...", end=" ", file=sys.stderr, flush=True)
    start = time.monotonic()
    try:
        yield
    except BaseException:
        print(file=sys.stderr)
        raise
    print(f"{time.monotonic() - start:.0f} s", file=sys.stderr)


def run_demo(
    config: Config,
    model: str,
    *,
    tokens: int | None,
    routing: Path | None,
    seed: int,
    waves: bool,
    out_dir: Path,
) -> dict[str, Any]:
    """Run a batch through the RTL, check it, measure it and write the report.

    Parameters
    ----------
    config : Config
    model : str
        Name of the model whose experts, top-k and hidden size are used.
    tokens : int or None
        Tokens of each GPU; None for as many as run in reasonable time.
    routing : Path or None
        A file of DeepEP's ``topk_idx`` in place of the model's own random gate.
    seed : int
        Of routing, data, stalls and memory latencies.
    waves : bool
        Also write the waveforms.
    out_dir : Path
        Where report.json, report.md, report.png, the trace and the RTL go.

    Returns
    -------
    dict
        The report, keys as in :data:`dysharp.report.KEYS`.

    Errors
    ------
    UserError
        For a model, routing file or tool that is not usable.
    """
    from dysharp.model.trace import make_trace
    from dysharp.model.traffic import compare_with_deepep
    from dysharp.sim_tb.system import run_system
    from dysharp.synth.area import report as area_report

    with _step("making the trace"):
        trace = make_trace(config, model, tokens=tokens, routing=routing, seed=seed)
        trace.save(out_dir / "trace.npz")
    with _step("simulating Dispatch and Combine"):
        result = run_system(config, trace, seed=seed, waves=waves, out_dir=out_dir)
    with _step("counting traffic"):
        traffic = compare_with_deepep(config, trace)
    with _step("measuring the area"):
        area = area_report(config, "switch", liberty=None, out_dir=out_dir / "area")
    report = {
        "preset": config.name,
        "seed": seed,
        "tools": reports.tool_versions(),
        "trace": {"tokens": trace.tokens, "packets": trace.packets, "flits": trace.flits},
        "check": result["check"],
        "cycles": result["cycles"],
        "utilisation": result["utilisation"],
        "traffic": traffic,
        "area": area,
    }
    reports.write(report, out_dir, title=f"{trace.model} on {config.name}")
    return report
