"""The figures of the arithmetic: adders, the whole ALU, and what an order of accumulation costs.

A figure that was not measured is None: delays without OpenSTA or in a library without delays, an
order that cannot be built for a configuration.
"""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from dysharp.hw.alu.adder import FloatAdder
from dysharp.hw.alu.alu import ReductionAlu
from dysharp.hw.alu.float_format import BF16, E4M3, E5M2, F16, F32, FloatFormat
from dysharp.hw.alu.reductions import supported
from dysharp.hw.config import ORDERS, Config
from dysharp.hw.errors import ConfigError, UserError
from dysharp.hw.generate import build_block
from dysharp.synth.area import report
from dysharp.synth.bench_table import ORDER_COLUMNS
from dysharp.synth.corner import Corner, read_corner
from dysharp.synth.flat import Flat, Goal, map_flat
from dysharp.synth.latency import answer_latency
from dysharp.synth.liberty import OWN_LIBRARY
from dysharp.synth.peers import FO4_PS, LIBRARY, as_dict
from dysharp.synth.registered import Registered
from dysharp.synth.throughput import flits_per_cycle
from dysharp.synth.timing import analyse, sta_version

__all__ = [
    "FORMATS",
    "OSU018",
    "PAPER_BITS",
    "Bench",
    "bench_alu",
    "find_library",
]

OSU018 = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
"""Where Debian's qflow-tech-osu018 puts the library in which the peers were measured."""
FORMATS: tuple[FloatFormat, ...] = (BF16, F16, F32, E5M2, E4M3)
"""Formats of the standalone adders."""
PAPER_BITS = 64 * 1024 * 8
"""Accumulators of a port in the DySHARP paper."""
PERIOD = 1000.0
"""Picoseconds. Any will do: what is read is how much of it is left."""


def find_library(liberty: Path | None = None) -> Path:
    """The library to measure in: the one given, else osu018 if it is installed, else our own."""
    return liberty or (OSU018 if OSU018.exists() else OWN_LIBRARY)


def bench_alu(
    config: Config,
    *,
    liberty: Path | None = None,
    speed_liberty: Sequence[Path] = (),
    out_dir: Path,
    cache: Path | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Measure adders, ALU and orders.

    Parameters
    ----------
    config : types, depth and options of the ALU, and the switch whose reduction unit is measured
    liberty : cells in which area and the adders' delays are taken, see :func:`find_library`
    speed_liberty : libraries of one corner in which the ALU's frequency is taken; ``liberty`` if
        there are none
    out_dir : folder to work in
    cache : where mapped netlists are kept by content; None keeps none
    progress : told measurements done and in all

    Returns
    -------
    dict
        ``library``; ``adders`` by format with ``ge``, ``fast_ge``, ``fo4``; ``alu`` with ``ge``,
        ``ghz``, ``corner``, ``depth``, ``flits_per_cycle``; ``orders`` with ``ge``,
        ``memory_bits``; ``peers``, and what explains them.

    Raises
    ------
    UserError
        For a library that cannot be used, and failures of the tools.
    """
    path = find_library(liberty)
    corner = read_corner([path])
    if corner.nand2 is None:
        raise UserError(f"{path}: library must have a two-input NAND with an area, to count in")
    speed = read_corner(speed_liberty) if speed_liberty else corner
    bench = Bench(config, path, corner, speed, out_dir, cache)
    work: dict[tuple[str, str], Callable[[], dict[str, Any]]] = {
        ("alu", "speed"): bench.alu_speed,
        ("alu", "area"): bench.alu_area,
        ("alu", "throughput"): bench.alu_throughput,
        **{("orders", order): partial(bench.order, order) for order in ORDERS},
        **{("adders", form.name): partial(bench.adder, form) for form in FORMATS},
    }
    done = _run_all(work, progress)
    return {
        "library": corner.name,
        "adders": {form.name: done["adders", form.name] for form in FORMATS},
        "alu": done["alu", "area"] | done["alu", "speed"] | done["alu", "throughput"],
        "orders": {order: done["orders", order] for order in ORDERS},
        "conditions": corner.conditions,
        "nand2": {"cell": corner.nand2.name, "area": corner.nand2.area},
        "config": config.to_dict(),
        "peers": as_dict(),
        "opensta": sta_version(),
    }


def _run_all(
    work: dict[tuple[str, str], Callable[[], dict[str, Any]]],
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], dict[str, Any]]:
    """Results by key; the tools run beside each other, and the first failure ends all."""
    progress(0, len(work))
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        runs = {pool.submit(job): key for key, job in work.items()}
        results = {}
        try:
            for run in as_completed(runs):
                results[runs[run]] = run.result()
                progress(len(results), len(work))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


@dataclass(frozen=True)
class Bench:
    """The measurements, and what they share."""

    config: Config
    liberty: Path
    corner: Corner
    speed: Corner
    folder: Path
    cache: Path | None

    def adder(self, form: FloatFormat) -> dict[str, Any]:
        """An adder mapped for area, and again for delay: one structure does for both."""
        name = f"adder_{form.name}"
        make = partial(FloatAdder, formats=(form,))
        ge = _rounded(self._map(make(), name, Goal.AREA, self.corner).ge)
        delay = self.delay(make(), name)
        return {"ge": ge, "fast_ge": ge, "fo4": self.fo4(delay), "delay_ps": _rounded(delay)}

    def alu_area(self) -> dict[str, Any]:
        """Area of the whole ALU by the method of the peers."""
        alu = self._alu()
        return {
            "ge": _rounded(self._map(alu, "alu", Goal.AREA, self.corner).ge),
            "depth": alu.latency,
        }

    def alu_speed(self) -> dict[str, Any]:
        """Frequency of the ALU between registers at its ports, which its area leaves out."""
        unknown = {"ghz": None, "corner": None, "period_ps": None, "critical_path": None}
        if sta_version() is None or not self.speed.has_timing:
            return unknown
        mapped = self._map(Registered(self._alu()), "alu", Goal.SPEED, self.speed)
        timing = analyse(mapped.netlist, mapped.name, self.speed, period=PERIOD)
        if timing is None:
            return unknown
        mapped.netlist.with_suffix(".path.txt").write_text(f"{timing.corner}\n{timing.path}\n")
        return {
            "ghz": round(timing.ghz, 4),
            "corner": timing.corner,
            "period_ps": _rounded(timing.shortest_period),
            "critical_path": [
                point.partition("$")[0] for point in (timing.startpoint, timing.endpoint)
            ],
        }

    def alu_throughput(self) -> dict[str, Any]:
        """Flits a cycle, from a simulation."""
        reductions = supported(self.config.arithmetic.dtypes)
        return {"flits_per_cycle": flits_per_cycle(self._alu(), reductions)}

    def order(self, order: str) -> dict[str, Any]:
        """A port's reduction unit that accumulates in this order."""
        config = replace(self.config, switch=replace(self.config.switch, order=order))
        folder = self.folder / f"reduction_{order}"
        try:
            found = report(
                config, "reduction", liberty=self.liberty, out_dir=folder, cache=self.cache
            )
        except ConfigError as error:
            return dict.fromkeys(ORDER_COLUMNS) | {"refused": str(error)}
        manifest = json.loads((folder / "rtl" / "dysharp_reduction.json").read_text())
        memories = manifest["memories"]
        # The largest memory holds what is reduced, all that are as deep are parts of it.
        depth = max(memories, key=lambda memory: memory["bits"])["depth"]
        session_bits = sum(memory["bits"] for memory in memories if memory["depth"] == depth)
        session_bits //= config.switch.sessions
        return {
            "ge": _rounded(found.total_ge),
            "memory_bits": found.memory_bits,
            "bits_a_flit": session_bits // config.chunk_flits,
            "sessions_in_64_kb": PAPER_BITS // session_bits,
            "answer_cycles": answer_latency(
                build_block("reduction", config),
                supported(config.arithmetic.dtypes)[0]._asdict(),
                ports=config.ports,
                chunk_flits=config.chunk_flits,
            ),
        }

    def _alu(self) -> ReductionAlu:
        return ReductionAlu(**self.config.arithmetic.options)

    def _map(self, component: wiring.Component, name: str, goal: Goal, corner: Corner) -> Flat:
        folder = self.folder / f"{name}_{goal.name.lower()}"
        return map_flat(component, name, corner, goal, folder=folder, cache=self.cache)

    def delay(self, component: wiring.Component, name: str) -> float | None:
        """From inputs to outputs, in picoseconds."""
        if sta_version() is None or not self.corner.has_timing:
            return None
        mapped = self._map(component, name, Goal.DELAY, self.corner)
        timing = analyse(mapped.netlist, name, self.corner, period=PERIOD, clock=None)
        return None if timing is None else timing.arrival

    def fo4(self, delay: float | None) -> float | None:
        """A delay in inverters with four of their kind behind them, in the peers' library only."""
        if delay is None or self.corner.name != LIBRARY:
            return None
        return round(delay / FO4_PS, 1)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
