"""From the options of the command line to a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.model.models import Model, get_model
from dysharp.model.trace import Trace, make_trace

__all__ = ["short_run_tokens", "make_workload", "read_placement"]

DEFAULT_ELEMENTS = 4 * 7168
"""Elements of a GPU's batch when no number of tokens is given: four tokens of DeepSeek-V3."""


def short_run_tokens(model: Model) -> int:
    """Tokens of each GPU that make a short but telling run, whatever the hidden size."""
    return max(1, round(DEFAULT_ELEMENTS / model.hidden))


def read_placement(path: Path) -> NDArray[np.integer]:
    """Read a placement map: a .npy of the logical expert in each physical slot, GPU by GPU.

    Raises
    ------
    UserError
        For a file that is no such array; what it holds is checked by the placement.
    """
    try:
        table: Any = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"{path}: Placement file must exist") from None
    except IsADirectoryError:
        raise UserError(f"{path}: Placement file must be a file, not a folder") from None
    except (OSError, ValueError, EOFError) as error:
        reason = "pickled objects are refused" if "pickle" in str(error) else str(error)
        raise UserError(f"{path}: Placement file must be a readable .npy: {reason}") from None
    if not isinstance(table, np.ndarray) or not np.issubdtype(table.dtype, np.integer):
        raise UserError(f"{path}: Placement file must hold one array of integers")
    return table


def make_workload(
    config: Config,
    model: str,
    *,
    tokens: int | None,
    routing: str,
    placement: Path | None,
    seed: int,
) -> Trace:
    """Make the trace that the options describe.

    Parameters
    ----------
    config : Config
    model : str
        A model's name.
    tokens : int or None
        Tokens of each GPU; None for all of a routing file, else for :func:`short_run_tokens`.
    routing : str
        The name of a generator, or a file of DeepEP's ``topk_idx``.
    placement : Path or None
        A placement map; None for contiguous experts.
    seed : int

    Raises
    ------
    UserError
        For whatever does not fit; the message says what to do.
    """
    known = get_model(model)
    if tokens is None and not routing.endswith((".npy", ".npz")):
        tokens = short_run_tokens(known)
    return make_trace(
        config,
        known,
        tokens,
        seed,
        routing=routing,
        phy2log=None if placement is None else read_placement(placement),
    )
