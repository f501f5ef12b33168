"""Generate Verilog and RTLIL of a preset, whole or one block, with a JSON beside it."""

from __future__ import annotations

import argparse

from dysharp.verbs.common import (
    add_block_argument,
    add_config_arguments,
    output_folder,
    read_config,
)

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "generate Verilog and RTLIL"
EXAMPLES = (
    "dysharp gen --preset nvl8",
    "dysharp gen --preset nvl32 --block switch --format verilog --out build/nvl32",
    "dysharp gen --preset tiny --set switch.sessions=4 --block gpu",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    add_config_arguments(parser, out="build/gen/PRESET", seed=False)
    add_block_argument(parser)
    parser.add_argument(
        "--format",
        action="append",
        choices=("verilog", "rtlil"),
        dest="formats",
        help="what to write; may be repeated (default: both)",
    )


def run(args: argparse.Namespace) -> int:
    """Generate, and print what was written."""
    config = read_config(args)
    out_dir = output_folder(args, f"build/gen/{config.name}")

    from dysharp.hw.generate import FORMATS, generate

    formats = tuple(args.formats or FORMATS)
    manifest = generate(config, args.block, out_dir, formats=formats)
    for form in formats:
        print(manifest[form])
    print(out_dir / f"{manifest['top']}.json")
    return 0
