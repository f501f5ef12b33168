"""Make a trace: which packets a batch sends, and what memory and results must hold after it."""

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

HELP = "make a trace of a batch, with what it must result in"
EXAMPLES = (
    "dysharp trace --preset nvl8 --model deepseek-v3 --tokens 8",
    "dysharp trace --preset tiny --model mixtral-8x7b --routing topk_idx.npy --out build/mine",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_config_arguments(parser, out="build/trace")
    add_workload_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Make the trace and print where it is and what it holds."""
    config = read_config(args)
    out_dir = output_folder(args, "build/trace")
    trace = read_workload(args, config)
    path = trace.save(out_dir / "trace.npz")
    print(f"{trace.tokens} tokens, {trace.packets} packets, {trace.flits} flits")
    print(path)
    return 0
