"""Parts of a script, each of some of the requests, and how they become one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.sim_tb.player.requests import gather, ragged

__all__ = ["Is", "Part", "join"]

Arrays = dict[str, NDArray[Any]]


class Is(IntFlag):
    """What a request is to the player, as script.h has it."""

    ANSWERED = 1
    LOAD = 2
    SESSION = 4
    ORDERED = 8
    POISONED = 16
    PASSES_POISON = 32
    ANSWER_POISONED = 64

    @staticmethod
    def of(flags: Mapping[Is, NDArray[np.bool_]]) -> NDArray[np.uint8]:
        """The flags of each request in one number."""
        total = sum(np.where(where, int(flag), 0) for flag, where in flags.items())
        return np.asarray(total, np.uint8)


@dataclass(frozen=True, eq=False)
class Part:
    """What the player must know of some requests, in the order of their rows.

    Parameters
    ----------
    rows : int64 [n], the requests
    status : uint8 [n], of their refusal, or 0
    attr : uint8 [n], the reduction of a load
    answer_flits : int64 [n], DATA flits of the answer
    of_row : arrays with an element a request, as script.h names them
    head_at, heads : the flits of each request up to its DATA flits
    replica_at : where each request's replicas start
    of_replica : arrays with an element a replica
    replica_head_at, replica_heads : the flits of each replica up to its DATA flits
    pool : flits that places behind the end of the requests' pool mean
    """

    rows: NDArray[np.int64]
    status: NDArray[np.uint8]
    attr: NDArray[np.uint8]
    answer_flits: NDArray[np.int64]
    of_row: Arrays
    head_at: NDArray[np.int64]
    heads: NDArray[np.uint64]
    replica_at: NDArray[np.int64]
    of_replica: Arrays
    replica_head_at: NDArray[np.int64]
    replica_heads: NDArray[np.uint64]
    pool: NDArray[np.uint64] = field(default_factory=lambda: np.zeros((0, 2), np.uint64))

    def moved(self, by: int, end: int) -> Part:
        """The part when its own pool stands so much further behind the end of the requests'."""
        at = self.of_row["data_at"]
        return replace(self, of_row=self.of_row | {"data_at": np.where(at >= end, at + by, at)})


def join(parts: Sequence[Part]) -> Part:
    """One part of all requests, in ascending order of their rows."""
    if len(parts) == 1:
        return parts[0]
    order = np.argsort(np.concatenate([part.rows for part in parts]))
    head_at, heads, _ = _interleave([(p.head_at, p.heads) for p in parts], order)
    replica_at, _, replicas = _interleave([(p.replica_at, None) for p in parts], order)
    replica_head_at, replica_heads, _ = _interleave(
        [(p.replica_head_at, p.replica_heads) for p in parts], replicas
    )

    def rows(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])[order]

    return Part(
        rows=rows("rows"),
        status=rows("status"),
        attr=rows("attr"),
        answer_flits=rows("answer_flits"),
        of_row={k: np.concatenate([p.of_row[k] for p in parts])[order] for k in parts[0].of_row},
        head_at=head_at,
        heads=heads,
        replica_at=replica_at,
        of_replica={
            k: np.concatenate([p.of_replica[k] for p in parts])[replicas]
            for k in parts[0].of_replica
        },
        replica_head_at=replica_head_at,
        replica_heads=replica_heads,
    )


def _interleave(
    parts: Sequence[tuple[NDArray[np.int64], NDArray[Any] | None]], order: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """Ragged arrays behind each other, their rows put in an order.

    Returns
    -------
    offsets, values, and where each value stood
    """
    lengths = np.concatenate([np.diff(at) for at, _ in parts])
    place = gather(ragged(lengths), order)
    values = [value for _, value in parts if value is not None]
    return ragged(lengths[order]), np.concatenate(values)[place] if values else place, place
