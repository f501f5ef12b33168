"""Take a batch of a real model through Dispatch and Combine in the RTL, check every memory word
and every result bit against the golden model, and measure cycles, traffic and area."""

from __future__ import annotations

import argparse

from dysharp.verbs.common import (
    add_config_arguments,
    add_workload_arguments,
    output_folder,
    read_config,
    read_workload,
)

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "the main job: a batch through the RTL, checked and measured"
EXAMPLES = (
    "dysharp demo",
    "dysharp demo --preset tiny --model qwen3-30b-a3b --tokens 16 --seed 3",
    "dysharp demo --routing topk_idx.npy --waves",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_config_arguments(parser, out="build/demo")
    add_workload_arguments(parser)
    parser.add_argument("--waves", action="store_true", help="also write the waveforms")


def run(args: argparse.Namespace) -> int:
    """Run the demo; the status is 1 if anything mismatched."""
    config = read_config(args)
    out_dir = output_folder(args, "build/demo")

    from dysharp.demo import run_demo
    from dysharp.report import summary
    from dysharp.sim_tb.run import SimulationFailed

    trace = read_workload(args, config)
    try:
        report, shown = run_demo(config, trace, seed=args.seed, waves=args.waves, out_dir=out_dir)
    except SimulationFailed as error:
        print(error)
        return 1
    for line in shown:
        print(line)
    print(summary(report))
    print(f"report: {out_dir / 'report.md'}")
    return 1 if report["check"]["mismatches"] else 0
