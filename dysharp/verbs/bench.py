"""Measure the arithmetic in gate equivalents, delay and throughput, beside other people's.

`alu` measures each standalone adder, the ALU of the configuration, and a port's reduction unit in
every order of accumulation. Cells are osu018's where Debian's qflow-tech-osu018 is installed, else
our own, which have areas only. Delays need OpenSTA (`sta`). What was not measured is null.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tqdm import tqdm

from dysharp.verbs.common import add_config_arguments, output_folder, read_config

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "measure the adders, the ALU and the orders of accumulation"
EXAMPLES = (
    "dysharp bench alu",
    "dysharp bench alu --json --liberty my_cells.lib",
    "dysharp bench alu --speed-liberty logic_tt.lib.gz registers_tt.lib.gz",
    "dysharp bench alu --set dtypes=bf16 --set alu_depth=3",
)
CACHE = Path("build/synth/cache")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("what", choices=("alu",), help="what to measure")
    add_config_arguments(parser, out="build/bench/alu", seed=False)
    parser.add_argument(
        "--liberty",
        type=Path,
        default=None,
        metavar="FILE",
        help="cells for areas and the adders' delays (default: osu018 if installed, else our own)",
    )
    parser.add_argument(
        "--speed-liberty",
        type=Path,
        nargs="+",
        default=(),
        metavar="FILE",
        help="libraries of one corner for the ALU's frequency (default: those of --liberty)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def run(args: argparse.Namespace) -> int:
    """Measure, write bench.json and bench.txt, and print one of them."""
    config = read_config(args)
    out_dir = output_folder(args, "build/bench/alu")

    from dysharp.report import tool_versions
    from dysharp.synth.bench import bench_alu
    from dysharp.synth.bench_table import render

    with tqdm(desc="measuring", unit="figure", disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        result = bench_alu(
            config,
            liberty=args.liberty,
            speed_liberty=args.speed_liberty,
            out_dir=out_dir,
            cache=CACHE,
            progress=progress,
        )
    result["tools"] = tool_versions() | {"opensta": result.pop("opensta")}
    text = json.dumps(result, indent=2)
    table = render(result)
    (out_dir / "bench.json").write_text(f"{text}\n")
    (out_dir / "bench.txt").write_text(f"{table}\n")
    print(text if args.json else table)
    return 0
