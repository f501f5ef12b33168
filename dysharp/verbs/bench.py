"""Measure the hardware, beside what other people report.

`alu` measures each standalone adder, the ALU of the configuration, and a port's reduction unit in
every order of accumulation, in gate equivalents, delay and throughput. Cells are osu018's where
Debian's qflow-tech-osu018 is installed, else our own, which have areas only. Delays need OpenSTA
(`sta`). What was not measured is null.

`switch` builds the switch of the configuration and runs traffic through it at line rate: how much
of its limiting link each workload uses, the speedup over unicast, latency and fairness. Every
packet is checked on the way.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dysharp.hw.errors import UserError
from dysharp.verbs.common import (
    add_config_arguments,
    natural,
    output_folder,
    positive,
    read_config,
)

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "measure the arithmetic, or the switch at line rate"
EXAMPLES = (
    "dysharp bench alu",
    "dysharp bench alu --json --liberty my_cells.lib",
    "dysharp bench alu --speed-liberty logic_tt.lib.gz registers_tt.lib.gz",
    "dysharp bench alu --set dtypes=bf16 --set alu_depth=3",
    "dysharp bench switch --preset nvl8 --json",
    "dysharp bench switch --preset nvl8 --depths 32 64 128",
)
CACHE = Path("build/synth/cache")
ONLY = {
    "alu": ("liberty", "speed_liberty"),
    "switch": ("seed", "tokens", "depths"),
}
"""Options of one kind of bench only."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("what", choices=tuple(ONLY), help="what to measure")
    add_config_arguments(parser, out="build/bench/WHAT", seed=False)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    alu = parser.add_argument_group("alu only")
    alu.add_argument(
        "--liberty",
        type=Path,
        default=None,
        metavar="FILE",
        help="cells for areas and the adders' delays (default: osu018 if installed, else our own)",
    )
    alu.add_argument(
        "--speed-liberty",
        type=Path,
        nargs="+",
        default=None,
        metavar="FILE",
        help="libraries of one corner for the ALU's frequency (default: those of --liberty)",
    )
    switch = parser.add_argument_group("switch only")
    switch.add_argument(
        "--seed", type=natural, default=None, metavar="N", help="random seed (default: 1)"
    )
    switch.add_argument(
        "--tokens",
        type=positive,
        default=None,
        metavar="N",
        help="tokens of each GPU (default: enough to measure)",
    )
    switch.add_argument(
        "--depths",
        type=positive,
        nargs="+",
        default=None,
        metavar="FLITS",
        help="also measure with queues of these depths, each of which is a build of its own",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, write bench.json and bench.txt, and print one of them."""
    for what, options in ONLY.items():
        for option in options:
            if what != args.what and getattr(args, option) is not None:
                flag = option.replace("_", "-")
                raise UserError(f"Option --{flag} must be left out but for `bench {what}`")
    out_dir = output_folder(args, Path("build/bench") / args.what)
    result, table = {"alu": _alu, "switch": _switch}[args.what](args, out_dir)
    text = json.dumps(result, indent=2)
    (out_dir / "bench.json").write_text(f"{text}\n")
    (out_dir / "bench.txt").write_text(f"{table}\n")
    print(text if args.json else table)
    return 0


def _alu(args: argparse.Namespace, out_dir: Path) -> tuple[dict[str, Any], str]:
    config = read_config(args)

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
            speed_liberty=args.speed_liberty or (),
            out_dir=out_dir,
            cache=CACHE,
            progress=progress,
        )
    result["tools"] = tool_versions() | {"opensta": result.pop("opensta")}
    return result, render(result)


def _switch(args: argparse.Namespace, out_dir: Path) -> tuple[dict[str, Any], str]:
    config = read_config(args)

    from dysharp.report import tool_versions
    from dysharp.sim_tb.bench.depths import CURVES, depth_curve
    from dysharp.sim_tb.bench.picture import draw_depths, draw_timeline
    from dysharp.sim_tb.bench.switch import bench_switch
    from dysharp.sim_tb.bench.table import render

    options = {"seed": 1 if args.seed is None else args.seed, "tokens": args.tokens}
    with tqdm(unit="run", disable=None, leave=False) as bar:

        def progress(name: str) -> None:
            bar.update(bool(bar.desc))
            bar.set_description(name)

        result = bench_switch(config, progress=progress, **options)
        if args.depths:
            result["depths"] = depth_curve(config, args.depths, progress=progress, **options)
    result["tools"] = tool_versions()
    draw_timeline(result, out_dir / "timeline")
    if args.depths:
        draw_depths({config.name: result["depths"]}, CURVES, out_dir / "depths")
    return result, render(result)
