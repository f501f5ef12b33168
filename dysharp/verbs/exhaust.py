"""Check an arithmetic unit over its whole operand space, in C++ round the verilated unit.

Every result is held against the host's own floating-point arithmetic. Spaces of 32 bits or less
are gone through whole, larger ones by directed random operands. For bf16 and f16 addition the check
sum over all pairs is compared with that of an NVIDIA H200. The status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from dysharp.hw.errors import UserError
from dysharp.hw.rules import suggest
from dysharp.verbs.common import natural, output_folder, positive

__all__ = ["EXAMPLES", "HELP", "add_arguments", "run"]

HELP = "check an adder, min/max or converter over its whole operand space"
EXAMPLES = (
    "dysharp exhaust --list",
    "dysharp exhaust bf16-add",
    "dysharp exhaust e4m3-add e5m2-add --json",
    "dysharp exhaust f32-add --count 10000000 --seed 7",
    "dysharp exhaust all --jobs 8 --out build/exhaust",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the verb."""
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="what to check, or all")
    parser.add_argument("--list", action="store_true", help="print the targets and stop")
    parser.add_argument(
        "--jobs",
        type=positive,
        default=None,
        metavar="N",
        help="processes (default: one a core); the operands are the same whatever it is",
    )
    parser.add_argument(
        "--seed",
        type=natural,
        default=1,
        metavar="N",
        help="of random operands (default: %(default)s)",
    )
    parser.add_argument(
        "--count",
        type=positive,
        default=None,
        metavar="N",
        help="operands or pairs; fewer than the whole space are a sample of it, half of it spread "
        "evenly and half directed random",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        metavar="FOLDER",
        help="also write exhaust.json there (default: write nothing)",
    )


def _chosen(words: Sequence[str], known: Sequence[str]) -> list[str]:
    names: dict[str, None] = {}
    for word in words:
        if word != "all" and word not in known:
            hint = suggest(word, known)
            tail = f" ({hint})" if hint else " (try: dysharp exhaust --list)"
            raise UserError(f"Target must be all or one of the list, not {word!r}{tail}")
        names.update(dict.fromkeys(known if word == "all" else [word]))
    if not names:
        raise UserError("Targets must be named, or all (try: dysharp exhaust --list)")
    return list(names)


def run(args: argparse.Namespace) -> int:
    """Check each target; the status is 1 if a result or a check sum was wrong."""
    from dysharp.sim_tb.native.targets import TARGETS

    if args.list:
        for name, target in TARGETS.items():
            print(f"{name:18}{target.space}")
        return 0
    names = _chosen(args.targets, list(TARGETS))
    folder = None if args.out is None else output_folder(args, args.out)

    from tqdm import tqdm

    from dysharp.sim_tb.native.run import check
    from dysharp.sim_tb.native.targets import LANES

    outcomes = []
    for name in names:
        with tqdm(desc=name, unit="", unit_scale=True, disable=None, leave=False) as bar:
            bar.total = TARGETS[name].plan(args.count)[1] * LANES

            def progress(checked: int, bar: tqdm = bar) -> None:
                bar.update(checked - bar.n)

            outcome = check(
                TARGETS[name], count=args.count, seed=args.seed, jobs=args.jobs, progress=progress
            )
        outcomes.append(outcome)
        if not args.json:
            print("\n".join(outcome.lines()), flush=True)
    text = json.dumps({"targets": [outcome.to_dict() for outcome in outcomes]}, indent=2)
    if args.json:
        print(text)
    if folder is not None:
        (folder / "exhaust.json").write_text(f"{text}\n")
    return 0 if all(outcome.passed for outcome in outcomes) else 1
