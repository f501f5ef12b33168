"""One call from a configuration and a trace to a checked and measured result."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.model.trace import Trace, write_trace
from dysharp.sim_tb.build import build_root, locked
from dysharp.sim_tb.run import default_seed, run_block

__all__ = ["run_system"]

TESTS = "dysharp.sim_tb.system.system_tests"
LONG_RUN = 20_000
"""Flits of a trace above which compiling with -Os pays."""


def run_system(
    config: Config,
    trace: Trace,
    *,
    seed: int | None = None,
    latency: int | tuple[int, int] = 1,
    stalls: float = 0.0,
    waves: bool = False,
    optimize: bool | None = None,
    out_dir: Path | None = None,
) -> dict[str, Any]:
    """Run a trace through the RTL of switch and GPUs and compare all that can be seen.

    Parameters
    ----------
    config : Config
    trace : Trace
        The batch: routing, payload, placement and policies; the order of accumulation is
        ``config``'s.
    seed : int or None
        Of stalls and memory latencies; :func:`~dysharp.sim_tb.run.default_seed` by default.
    latency : int or (int, int)
        Cycles that a memory takes, or the range that each access draws from.
    stalls : float
        Stall probability on every interface.
    waves : bool
        Keep the waveforms, as ``waves.vcd`` in ``out_dir``.
    optimize : bool or None
        Compile with -Os; by default if the trace is long.
    out_dir : Path or None
        Where trace and waves go; a folder under ``build/sim`` by default.

    Returns
    -------
    dict
        ``check`` {values, mismatches}, ``cycles`` and ``utilisation`` {dispatch, combine},
        ``shown`` (the first mismatches in words), ``links`` (the limiting link and the flits on
        each), ``counters`` (registers by name), ``seconds``, ``path`` (log and raw result).

    Raises
    ------
    UserError
        If the trace is for another shape of system.
    SimulationFailed
        If the system stands still or an agent saw a protocol violation. A mismatch is not an
        exception: it is counted.
    """
    if trace.config.gpus != config.gpus or trace.config.chunk_bytes != config.chunk_bytes:
        raise UserError(
            f"Trace must be for {config.gpus} GPUs and {config.chunk_bytes}-byte chunks, not "
            f"{trace.config.gpus} and {trace.config.chunk_bytes} "
            f"(it was made for {trace.config.name}: give its --preset, or make it anew)"
        )
    trace = trace.under(config)
    seed = default_seed() if seed is None else seed
    span = (latency, latency) if isinstance(latency, int) else latency
    folder = build_root() / "traces" if out_dir is None else Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"trace-{_digest(trace)}.npz"
    with locked(path):
        write_trace(trace, path)
    progress = folder / f"progress-{threading.get_native_id()}"
    with _bar(progress):
        run = run_block(
            "system",
            config,
            TESTS,
            seed=seed,
            params={"trace": str(path.resolve()), "latency": span},
            env={"DYSHARP_PROGRESS": str(progress.resolve())},
            stalls=stalls,
            waves=waves,
            separate=("gpu_", "port_"),
            optimize=_is_long(trace) if optimize is None else optimize,
        )
    result = json.loads((run.path / "result.json").read_text())
    result["path"] = str(run.path)
    if waves and out_dir is not None and (run.path / "dump.vcd").exists():
        shutil.move(run.path / "dump.vcd", folder / "waves.vcd")
    return result


def _digest(trace: Trace) -> str:
    return hashlib.sha256(json.dumps(trace.header(), sort_keys=True).encode()).hexdigest()[:12]


def _is_long(trace: Trace) -> bool:
    return trace.protocol().packet_flits(0) > LONG_RUN


@contextmanager
def _bar(path: Path) -> Iterator[None]:
    """Show a progress bar, if there is a terminal, fed from the file that the simulation writes."""
    from tqdm import tqdm

    stop = threading.Event()

    def watch() -> None:
        with tqdm(unit="chunk", disable=None, leave=False, desc="simulating") as bar:
            while not stop.wait(0.3):
                if path.exists() and (text := path.read_text().split()):
                    bar.total = int(text[1])
                    bar.update(int(text[0]) - bar.n)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        path.unlink(missing_ok=True)
