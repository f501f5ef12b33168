"""The command ``dysharp``: one verb for each thing that the project does.

What a user can mend ends in one plain line on the error stream and exit status 2; a check that
found a mismatch ends in status 1.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import NoReturn

import dysharp
from dysharp.hw.errors import UserError
from dysharp.verbs import bench, demo, exhaust, gen, sim, soak, synth, trace
from dysharp.verbs.common import Verb

__all__ = ["build_parser", "main"]

VERBS: dict[str, Verb] = {
    "demo": demo,
    "gen": gen,
    "trace": trace,
    "sim": sim,
    "soak": soak,
    "synth": synth,
    "bench": bench,
    "exhaust": exhaust,
}


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; the whole usage would bury it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (try: {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="dysharp",
        description="In-switch multicast and reduction for mixture-of-experts traffic: RTL, "
        "golden model, verification and area.",
        epilog="examples:\n  dysharp demo\n  dysharp gen --preset nvl32 --block switch\n"
        "  dysharp VERB --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"dysharp {dysharp.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        sub = verbs.add_parser(
            name,
            help=verb.HELP,
            description=verb.__doc__,
            epilog="examples:\n" + "".join(f"  {line}\n" for line in verb.EXAMPLES),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.add_arguments(sub)
        sub.set_defaults(run=verb.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if left out.

    Returns
    -------
    int
        0 for success, 1 for a check that failed, 2 for what the user can mend.
    """
    args = build_parser().parse_args(argv)
    try:
        return args.run(args)
    except UserError as error:
        print(f"dysharp {args.verb}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print(f"dysharp {args.verb}: interrupted", file=sys.stderr)
        # Half-built hardware would warn of itself on the way out.
        warnings.simplefilter("ignore")
        if threading.active_count() > 1:
            # A thread at work, such as the demo's area, would be waited for.
            os._exit(130)
        return 130
    except OSError as error:
        # A full disk, a folder that cannot be written: whatever a verb has not put better.
        if error.strerror is None:
            raise
        place = f"{error.filename}: " if error.filename else ""
        print(f"dysharp {args.verb}: error: {place}{error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
