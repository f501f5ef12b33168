"""Simulate a block's testbench, or the whole system on a batch."""

from __future__ import annotations

import argparse

from dysharp.verbs.common import (
    add_config_arguments,
    add_workload_arguments,
    output_folder,
    read_config,
)

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "simulate a block's testbench or the whole system"
EXAMPLES = (
    "dysharp sim --preset tiny --tokens 4",
    "dysharp sim --block parser --seed 7",
    "dysharp sim --preset tiny --model mixtral-8x7b --tokens 2 --waves",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_config_arguments(parser, preset="tiny", out="build/sim")
    add_workload_arguments(parser)
    parser.add_argument(
        "--block",
        default="system",
        metavar="NAME",
        help="the testbench to run (default: %(default)s, which takes a batch)",
    )
    parser.add_argument("--waves", action="store_true", help="also write the waveforms")


def run(args: argparse.Namespace) -> int:
    """Simulate; the status is 1 if a check failed."""
    config = read_config(args)
    out_dir = output_folder(args, "build/sim")
    if args.block != "system":
        from dysharp.sim_tb.run import run_block

        return 0 if run_block(args.block, config, seed=args.seed, waves=args.waves) else 1

    from dysharp.model.trace import make_trace
    from dysharp.sim_tb.system import run_system

    trace = make_trace(config, args.model, tokens=args.tokens, routing=args.routing, seed=args.seed)
    result = run_system(config, trace, seed=args.seed, waves=args.waves, out_dir=out_dir)
    check = result["check"]
    print(f"{check['values']} values compared, {check['mismatches']} mismatches")
    return 1 if check["mismatches"] else 0
