"""Options that the verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dysharp.hw.config import Config, load, preset_names
from dysharp.hw.errors import UserError
from dysharp.hw.generate import BLOCKS

if TYPE_CHECKING:
    from dysharp.model.trace import Trace

__all__ = [
    "Verb",
    "add_block_argument",
    "add_config_arguments",
    "add_workload_arguments",
    "natural",
    "output_folder",
    "positive",
    "read_config",
    "read_workload",
]

DEFAULT_MODEL = "deepseek-v3"


class Verb(Protocol):
    """What a module of a verb offers; its docstring is the verb's description."""

    @property
    def HELP(self) -> str: ...

    @property
    def EXAMPLES(self) -> tuple[str, ...]: ...

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def positive(text: str) -> int:
    """A whole number above 0."""
    return _number(text, low=1)


def natural(text: str) -> int:
    """A whole number, 0 included."""
    return _number(text, low=0)


def _number(text: str, *, low: int) -> int:
    try:
        value = int(text, 0)
    except ValueError:
        value = low - 1
    if value < low:
        raise argparse.ArgumentTypeError(
            f"Value must be an integer of at least {low}, not {text!r}"
        )
    return value


def add_config_arguments(
    parser: argparse.ArgumentParser, *, preset: str = "nvl8", out: str, seed: bool = True
) -> None:
    """``--preset``, ``--set``, ``--seed`` and ``--out``."""
    parser.add_argument(
        "--preset",
        default=preset,
        metavar="NAME|FILE",
        help=f"{', '.join(preset_names())}, or a YAML file (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="FIELD=VALUE",
        help="change a field of the preset, such as switch.sessions=16; may be repeated",
    )
    if seed:
        parser.add_argument(
            "--seed",
            type=natural,
            default=1,
            metavar="N",
            help="random seed (default: %(default)s)",
        )
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        metavar="FOLDER",
        help=f"where to write (default: {out})",
    )


def add_block_argument(parser: argparse.ArgumentParser) -> None:
    """Add the option that names one block of the hardware."""
    parser.add_argument(
        "--block",
        default="switch",
        metavar="NAME",
        help=f"which block: {', '.join(BLOCKS)} (default: %(default)s)",
    )


def add_workload_arguments(parser: argparse.ArgumentParser) -> None:
    """``--model``, ``--tokens``, and ``--routing``: which tokens go where."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="NAME",
        help="whose experts, top-k and hidden size to use (default: %(default)s)",
    )
    parser.add_argument(
        "--tokens",
        type=positive,
        default=None,
        metavar="N",
        help="tokens of each GPU (default: all of a routing file, else a short run)",
    )
    parser.add_argument(
        "--routing",
        default="auto",
        metavar="NAME|FILE",
        help="gate, uniform, normal, power_law, or a .npy or .npz with DeepEP's topk_idx, -1 for "
        "none (default: gate if the model's gate has groups, else uniform)",
    )
    parser.add_argument(
        "--placement",
        type=Path,
        default=None,
        metavar="FILE",
        help="a .npy with the logical expert in each physical slot, GPU by GPU, such as EPLB's "
        "phy2log (default: contiguous experts)",
    )


def read_workload(args: argparse.Namespace, config: Config) -> Trace:
    """The trace that the options ask for."""
    from dysharp.workload import make_workload

    return make_workload(
        config,
        args.model,
        tokens=args.tokens,
        routing=args.routing,
        placement=args.placement,
        seed=args.seed,
    )


def read_config(args: argparse.Namespace) -> Config:
    """The configuration that the options ask for."""
    return load(args.preset, args.overrides)


def output_folder(args: argparse.Namespace, default: str | Path) -> Path:
    """The folder to write to, made if it is not there."""
    folder = Path(default if args.out is None else args.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made: {error.strerror}") from None
    return folder
