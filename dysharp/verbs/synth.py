"""Measure the area of a preset by block: gate equivalents, and memories apart in bits."""

from __future__ import annotations

import argparse
from pathlib import Path

from dysharp.verbs.common import (
    add_block_argument,
    add_config_arguments,
    output_folder,
    read_config,
)

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "measure the area, block by block"
EXAMPLES = (
    "dysharp synth --preset nvl8",
    "dysharp synth --preset nvl32 --block switch --liberty my_cells.lib",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_config_arguments(parser, out="build/synth/PRESET", seed=False)
    add_block_argument(parser)
    parser.add_argument(
        "--liberty",
        type=Path,
        default=None,
        metavar="FILE",
        help="cells to map to, instead of our own library in which a NAND2 is 1",
    )


def run(args: argparse.Namespace) -> int:
    """Synthesise, write table, JSON and picture, and print the table."""
    config = read_config(args)
    out_dir = output_folder(args, f"build/synth/{config.name}")

    from dysharp.synth.area import report

    result = report(config, args.block, liberty=args.liberty, out_dir=out_dir)
    print(result)
    return 0
