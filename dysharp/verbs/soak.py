"""Random requests of every kind through a whole switch, in C++, each one checked.

Stores, loads, reductions and unicasts from every port at once, with stalls on every interface,
GPUs that answer late, wrongly or with poison, part of the requests damaged on their way, an object
that changes in mid-run, and resets. Every replica, answer, sum and counter is compared with the
golden model. The status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dysharp.hw.errors import UserError
from dysharp.verbs.common import natural, positive, read_config

if TYPE_CHECKING:
    from dysharp.sim_tb.player.requests import Played

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "play random requests, right and wrong ones, on a switch and check all that comes of them"
EXAMPLES = (
    "dysharp soak",
    "dysharp soak --preset nvl8 --packets 1000000 --seed 7",
    "dysharp soak --set links=2 --malformed 0.5 --stalls 0.3 --resets 2",
)


def chance(text: str) -> float:
    """A number from 0 to below 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"Value must be from 0 to below 1, not {text!r}")
    return value


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument(
        "--preset", default="tiny", metavar="NAME|FILE", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="FIELD=VALUE",
        help="change a field of the preset, such as links=2; may be repeated",
    )
    parser.add_argument(
        "--packets",
        type=positive,
        default=20_000,
        metavar="N",
        help="requests (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=natural, default=1, metavar="N", help="random seed (default: %(default)s)"
    )
    for name, value, meaning in (
        ("malformed", 0.2, "that a request is damaged or names what there is not"),
        ("stalls", 0.1, "that an interface stalls in a cycle"),
        ("faults", 0.02, "that a GPU answers ERR, and that its answer is poisoned"),
    ):
        parser.add_argument(
            f"--{name}",
            type=chance,
            default=value,
            metavar="P",
            help=f"chance {meaning} (default: %(default)s)",
        )
    parser.add_argument(
        "--changes",
        type=natural,
        default=2,
        metavar="N",
        help="changes of an object in mid-run (default: %(default)s)",
    )
    parser.add_argument(
        "--resets", type=natural, default=0, metavar="N", help="resets in mid-run (default: 0)"
    )


def run(args: argparse.Namespace) -> int:
    """Play, print one line, and the line that repeats it."""
    config = read_config(args)
    if args.packets <= args.changes:
        raise UserError(f"Packets must be more than the {args.changes} changes")

    from tqdm import tqdm

    from dysharp.sim_tb.player.build import build_player
    from dysharp.sim_tb.player.play import play
    from dysharp.sim_tb.player.soak import make_soak

    program = build_player(config)
    soak = make_soak(
        config, args.packets, seed=args.seed, malformed=args.malformed, changes=args.changes
    )
    with tqdm(desc="soak", total=args.packets, unit="", disable=None, leave=False) as bar:

        def progress(done: int) -> None:
            bar.update(done - bar.n)

        played = play(
            config,
            soak.requests,
            objects=soak.objects,
            changes=soak.changes,
            latency=(0, 60),
            stalls=args.stalls,
            faults=args.faults,
            resets=[1000 * (k + 1) for k in range(args.resets)],
            seed=args.seed,
            program=program,
            progress=progress,
        )
    print(_summary(args, played))
    print("\n".join(f"  {line}" for line in (*played.mismatches, f"again: {_repeat(args)}")))
    return 0 if played.passed else 1


def _summary(args: argparse.Namespace, played: Played) -> str:
    rate = played.cycles / played.seconds if played.seconds else 0
    return (
        f"{args.preset}: {args.packets:,} requests, {played.checked:,} packets checked, "
        f"{len(played.mismatches)} wrong, {played.cycles:,} cycles, {played.seconds:.1f} s, "
        f"{rate:,.0f} cycles/s, {played.flits_per_second:,.0f} flits/s"
    )


def _repeat(args: argparse.Namespace) -> str:
    words = ["dysharp soak --preset", args.preset, *(f"--set {one}" for one in args.overrides)]
    for name in ("packets", "seed", "malformed", "stalls", "faults", "changes", "resets"):
        words += [f"--{name}", str(getattr(args, name))]
    return " ".join(words)
