"""Layout indices: which row of its expert each token has at its destination."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.model.layout import AL_VALID, ObjectLayout

__all__ = ["SlotTable", "SlotMismatch", "first_places", "token_order", "first_touch"]


class SlotMismatch(AssertionError):
    """An AL table that no order of first touches could have written."""


@dataclass(frozen=True, eq=False)
class SlotTable:
    """The layout index of every list entry.

    Parameters
    ----------
    lidx : int64 [T, K]; -1 beside an entry that names no expert, or that a full expert refused
    refused : bool [T, K], the entries that a full expert refused
    """

    lidx: NDArray[np.int64]
    refused: NDArray[np.bool_]

    def al_table(
        self, lists: NDArray[np.int32], aidx: NDArray[np.int64], layout: ObjectLayout
    ) -> NDArray[np.uint32]:
        """The AL table of one GPU after Dispatch, uint32 [slots, rows]."""
        table = np.zeros((layout.slots, layout.rows), np.uint32)
        row, k = np.nonzero((self.lidx >= 0) & (lists >> layout.split == layout.gpu))
        slot = lists[row, k] & (1 << layout.split) - 1
        table[slot, aidx[row]] = self.lidx[row, k] | AL_VALID
        return table


def first_places(lists: NDArray[np.int32]) -> NDArray[np.int64]:
    """For each entry the column of the first equal id in its row, [T, K]."""
    return np.argmax(lists[:, :, None] == lists[:, None, :], axis=2)


def token_order(
    lists: NDArray[np.int32], layouts: Sequence[ObjectLayout], *, drop: bool
) -> SlotTable:
    """Count each expert's rows in ascending algebraic index.

    Parameters
    ----------
    lists : int32 [T, K] physical ids, -1 for none, rows in ascending algebraic index
    layouts : one a GPU
    drop : refuse what exceeds an expert's capacity; else that is an error

    Raises
    ------
    UserError
        If an expert gets more tokens than its capacity and ``drop`` is not set.
    """
    capacity = _capacities(layouts)
    places = first_places(lists)
    row, k = np.nonzero((places == np.arange(lists.shape[1])) & (lists >= 0))
    ids = lists[row, k]
    order = np.argsort(ids, kind="stable")
    counts = np.bincount(ids, minlength=len(capacity))
    rank = np.arange(len(ids)) - np.repeat(np.cumsum(counts) - counts, counts)
    lidx = np.full(lists.shape, -1, np.int64)
    lidx[row[order], k[order]] = rank
    full = np.flatnonzero(counts > capacity)
    if len(full) and not drop:
        split = layouts[0].split
        gpu, slot = int(full[0]) >> split, int(full[0]) & (1 << split) - 1
        raise UserError(
            f"Tokens of GPU {gpu} slot {slot} must be at most its capacity "
            f"{capacity[full[0]]}, not {counts[full[0]]}; raise the capacity or use "
            f"overflow = drop_and_count"
        )
    lidx = np.take_along_axis(lidx, places, axis=1)
    refused = (lidx >= 0) & (lidx >= capacity[np.maximum(lists, 0)])
    return SlotTable(np.where(refused | (lists < 0), -1, lidx), refused & (lists >= 0))


def first_touch(
    lists: NDArray[np.int32],
    aidx: NDArray[np.int64],
    layouts: Sequence[ObjectLayout],
    tables: Sequence[NDArray[np.uint32]],
    *,
    drop: bool,
) -> SlotTable:
    """Read the layout indices from the AL tables that the hardware wrote, and check them.

    Each expert's indices must be 0 to n - 1, once each, n the smaller of its tokens and its
    capacity, and they must stand at algebraic indices of tokens that go to it.

    Parameters
    ----------
    lists, layouts, drop : as in :func:`token_order`
    aidx : int64 [T], algebraic index of each row
    tables : one a GPU, uint32 [slots, rows]

    Raises
    ------
    UserError
        As :func:`token_order`.
    SlotMismatch
        If a table breaks a rule; names GPU, slot, and the entry.
    """
    expected = token_order(lists, layouts, drop=drop)
    lidx = np.full(lists.shape, -1, np.int64)
    for layout, table in zip(layouts, tables, strict=True):
        table = np.asarray(table, np.uint32).reshape(layout.slots, layout.rows)
        row, k = np.nonzero((lists >= 0) & (lists >> layout.split == layout.gpu))
        slot = lists[row, k] & (1 << layout.split) - 1
        wanted = np.zeros(table.shape, bool)
        wanted[slot, aidx[row]] = True
        _check_table(layout, table, wanted)
        entry = table[slot, aidx[row]].astype(np.int64)
        lidx[row, k] = np.where(entry & AL_VALID, entry & (AL_VALID - 1), -1)
    refused = (lists >= 0) & (lidx < 0)
    if refused.any() and not expected.refused.any():
        row, k = (int(v) for v in np.argwhere(refused)[0])
        raise SlotMismatch(
            f"AL entry of AIdx {aidx[row]} target {lists[row, k]:#06x} must be "
            f"valid: its expert is not full"
        )
    return SlotTable(lidx, refused)


def _capacities(layouts: Sequence[ObjectLayout]) -> NDArray[np.int64]:
    """Capacity by physical id; ids without a slot have 0."""
    table = np.zeros((len(layouts), 1 << layouts[0].split), np.int64)
    for layout in layouts:
        table[layout.gpu, : layout.slots] = layout.capacity
    return table.ravel()


def _check_table(
    layout: ObjectLayout, table: NDArray[np.uint32], wanted: NDArray[np.bool_]
) -> None:
    valid = (table & AL_VALID) != 0
    index = table & np.uint32(AL_VALID - 1)
    stray = np.argwhere((valid & ~wanted) | (~valid & (table != 0)))
    if len(stray):
        slot, aidx = (int(v) for v in stray[0])
        raise SlotMismatch(
            f"GPU {layout.gpu} AL entry [slot {slot}, AIdx {aidx}] must be 0, "
            f"not {table[slot, aidx]:#010x}: no token of it goes there"
        )
    for slot in range(layout.slots):
        found = np.sort(index[slot][valid[slot]]).tolist()
        tokens = int(wanted[slot].sum())
        count = min(tokens, layout.capacity[slot])
        if found != list(range(count)):
            raise SlotMismatch(
                f"GPU {layout.gpu} slot {slot} must have LIdx 0 to {count - 1} once "
                f"each ({tokens} tokens, capacity {layout.capacity[slot]}), not "
                f"{found[:16]}{'...' if len(found) > 16 else ''} "
                f"({len(found)} entries)"
            )
