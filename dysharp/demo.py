"""The main job from end to end: system simulation, check, traffic, area, report."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dysharp import report as reports
from dysharp.hw.config import Config

if TYPE_CHECKING:
    from dysharp.model.trace import Trace

__all__ = ["run_demo"]

AREA_OF = "system"
"""The switch plane and all of its GPUs' parts."""
STAGES = ("dispatch", "combine")


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
    config: Config, trace: Trace, *, seed: int, waves: bool, out_dir: Path
) -> tuple[dict[str, Any], list[str]]:
    """Run a batch through the RTL, check it, measure it and write the report.

    Parameters
    ----------
    config : Config
    trace : Trace
        The batch.
    seed : int
        Of whatever the testbench draws; the trace has its own.
    waves : bool
        Also write the waveforms.
    out_dir : Path
        Where report.json, report.md, report.png, the trace and the area's files go.

    Returns
    -------
    report : dict
        Keys as in :data:`dysharp.report.KEYS`.
    shown : list of str
        The first mismatches in words.

    Raises
    ------
    UserError
        For a tool that is missing.
    SimulationFailed
        If the system stands still or breaks a protocol.
    """
    from dysharp.sim_tb.system import run_system
    from dysharp.synth.area import report as area_report

    beside = ThreadPoolExecutor(max_workers=1)
    try:
        measured = beside.submit(area_report, config, AREA_OF, out_dir=out_dir / "area")
        with _step("simulating Dispatch and Combine"):
            result = run_system(config, trace, seed=seed, waves=waves, out_dir=out_dir)
        with _step("measuring the area"):
            area = measured.result().summary()
    finally:
        # Who presses Ctrl-C does not wait for the other half.
        beside.shutdown(wait=False, cancel_futures=True)
    traffic = trace.traffic()
    report = {
        "preset": config.name,
        "seed": seed,
        "tools": reports.tool_versions(),
        "trace": {"tokens": trace.tokens, "packets": trace.packets, "flits": trace.flits},
        "check": result["check"],
        # A Dispatch that went wrong leaves no Combine to measure.
        "cycles": {stage: result["cycles"].get(stage, 0) for stage in STAGES},
        "utilisation": {stage: result["utilisation"].get(stage, 0.0) for stage in STAGES},
        "traffic": {
            "deepep_flits": traffic.deepep_flits,
            "dysharp_flits": traffic.dysharp_flits,
            "saved": traffic.saved,
        },
        "area": area,
    }
    reports.write(report, out_dir, title=f"{trace.model.name} on {config.name}")
    return report, result["shown"]
