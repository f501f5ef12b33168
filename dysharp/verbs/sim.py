"""Simulate a block's testbench, or the whole system on a batch."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.verbs.common import (
    add_config_arguments,
    add_workload_arguments,
    output_folder,
    read_config,
    read_workload,
)

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "simulate a block's testbench or the whole system"
EXAMPLES = (
    "dysharp sim --preset tiny --tokens 4",
    "dysharp sim --block parser --seed 7 --stalls 0.3",
    "dysharp sim --preset tiny --model mixtral-8x7b --tokens 2 --latency 0-400 --waves",
    "dysharp sim --preset nvl8 --trace build/trace/trace.npz",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_config_arguments(parser, preset="tiny", out="build/sim/system")
    add_workload_arguments(parser)
    parser.add_argument(
        "--block",
        default="system",
        metavar="NAME",
        help=f"the testbench to run: {', '.join(['system', *_testbenches()])} (default: "
        "%(default)s, which alone takes a batch, --latency and --out)",
    )
    parser.add_argument(
        "--trace",
        type=Path,
        default=None,
        metavar="FILE",
        help="a batch that `dysharp trace` wrote, instead of one made from the options above",
    )
    parser.add_argument(
        "--latency",
        type=_latency,
        default=(1, 1),
        metavar="N[-M]",
        help="cycles that a GPU's memory takes, or a range to draw from (default: 1)",
    )
    parser.add_argument(
        "--stalls",
        type=_probability,
        default=0.0,
        metavar="P",
        help="probability of a stall on every interface and cycle (default: %(default)s)",
    )
    parser.add_argument("--waves", action="store_true", help="also write the waveforms")


def _probability(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"Stalls must be from 0 to below 1, not {text!r}")
    return value


def _latency(text: str) -> tuple[int, int]:
    low, dash, high = text.partition("-")
    try:
        span = int(low), int(high if dash else low)
    except ValueError:
        span = -1, -1
    if not 0 <= span[0] <= span[1]:
        raise argparse.ArgumentTypeError(f"Latency must be N or N-M with N at most M, not {text!r}")
    return span


def _testbenches() -> list[str]:
    """Blocks that have a testbench: folders of sim_tb with a module named after them."""
    spec = importlib.util.find_spec("dysharp.sim_tb")
    folders = (spec.submodule_search_locations if spec else None) or []
    return sorted(
        path.parent.name
        for folder in folders
        for path in Path(folder).glob("*/*_tests.py")
        if path.name == f"{path.parent.name}_tests.py" and path.parent.name != "system"
    )


def _run_testbench(args: argparse.Namespace, config: Config) -> int:
    known = _testbenches()
    if args.block not in known:
        names = ", ".join(["system", *known])
        raise UserError(f"--block: Block must be one of {names}, not {args.block!r}")

    from dysharp.sim_tb.run import SimulationFailed, run_block

    module = f"dysharp.sim_tb.{args.block}.{args.block}_tests"
    try:
        done = run_block(
            args.block, config, module, seed=args.seed, waves=args.waves, stalls=args.stalls
        )
    except SimulationFailed as error:
        print(error)
        return 1
    for test, seconds in done.tests.items():
        print(f"passed {seconds:6.1f} s  {test}")
    print(done.path)
    return 0


def run(args: argparse.Namespace) -> int:
    """Simulate; the status is 1 if a check failed."""
    config = read_config(args)
    if args.block != "system":
        return _run_testbench(args, config)

    out_dir = output_folder(args, "build/sim/system")

    from dysharp.model.trace import read_trace
    from dysharp.sim_tb.run import SimulationFailed
    from dysharp.sim_tb.system import run_system

    trace = read_workload(args, config) if args.trace is None else read_trace(args.trace)
    try:
        result = run_system(
            config,
            trace,
            seed=args.seed,
            latency=args.latency,
            stalls=args.stalls,
            waves=args.waves,
            out_dir=out_dir,
        )
    except SimulationFailed as error:
        print(error)
        return 1
    check = result["check"]
    for line in result["shown"]:
        print(line)
    print(f"{check['values']} values compared, {check['mismatches']} mismatches")
    return 1 if check["mismatches"] else 0
