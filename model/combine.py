"""Combine's two levels of sums on whole batches: in each GPU, then in the switch."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.model.exact import add_exactly_array
from dysharp.model.floats import BF16
from dysharp.model.layout import ObjectLayout
from dysharp.model.numerics_array import bf16_to_f32_array, f32_to_bf16_array
from dysharp.model.policies import Accumulation

__all__ = [
    "Combined",
    "Groups",
    "ArrivalMismatch",
    "combine_rows",
    "gpu_groups",
    "partial_sums",
    "arrival_groups",
]


class ArrivalMismatch(AssertionError):
    """A log that does not name each expected contribution once."""


@dataclass(frozen=True, eq=False)
class Combined:
    """What the sources get.

    Parameters
    ----------
    values : uint16 [T, hidden], bf16 results; +0 for a row without targets
    status : int [T], 0 or the fault of the row's loads (their data then does not exist)
    counts : int [T], entries that the answers stand for
    """

    values: NDArray[np.uint16]
    status: NDArray[np.int64]
    counts: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Groups:
    """The entries of each row by GPU, in ascending rank.

    Parameters
    ----------
    index : int [T, K], group of each entry, -1 for no entry
    gpus : int [T, D], GPU of each group, ascending, -1 beyond the last
    number : int [T], groups
    """

    index: NDArray[np.int64]
    gpus: NDArray[np.int64]
    number: NDArray[np.int64]

    def rows(self, batch: slice) -> "Groups":
        """Those of some rows."""
        return Groups(self.index[batch], self.gpus[batch], self.number[batch])


def gpu_groups(lists: NDArray[np.int32], split: int) -> Groups:
    """Sort the entries of lists [T, K] of physical ids by GPU."""
    gpu = np.where(lists < 0, -1, lists >> split)
    there = np.zeros((len(lists), max(1, int(gpu.max(initial=0)) + 1)), bool)
    row, k = np.nonzero(gpu >= 0)
    there[row, gpu[row, k]] = True
    rank = np.cumsum(there, axis=1) - 1
    number = there.sum(axis=1)
    index = np.full(lists.shape, -1, np.int64)
    index[row, k] = rank[row, gpu[row, k]]
    gpus = np.full((len(lists), max(1, int(number.max(initial=0)))), -1, np.int64)
    row, column = np.nonzero(there)
    gpus[row, rank[row, column]] = column
    return Groups(index, gpus, number)


def arrival_groups(
    log: NDArray[np.integer],
    groups: Groups,
    layout: ObjectLayout,
    aidx: NDArray[np.int64],
    *,
    chunks: int,
    chunk_bytes: int,
    links: int,
) -> NDArray[np.int64]:
    """The order in which groups were added, int [T, chunks, D], -1 beyond the last.

    Parameters
    ----------
    log : int [n, 3] of ``(maddr, stage, port)``; entries of stage 0 (acks) are passed over, and
        address bits 3:0 (the wanted flits) too
    groups, layout, aidx : of the batch
    chunks, chunk_bytes, links : shape of a block, links of a GPU
    """
    log = log.reshape(-1, 3).astype(np.int64)
    log = log[log[:, 1] == 1]
    place = (log[:, 0] & ~15) - layout.base
    row_of = np.full(layout.rows, -1, np.int64)
    row_of[aidx] = np.arange(len(aidx))
    inside = (place >= 0) & (place < layout.size)
    row = np.where(inside, row_of[np.where(inside, place >> layout.stride, 0)], -1)
    chunk = (place & (1 << layout.stride) - 1) // chunk_bytes
    group = np.argmax(groups.gpus[np.maximum(row, 0)] == (log[:, 2] // links)[:, None], axis=1)
    wrong = (row < 0) | (chunk >= chunks) | (groups.gpus[row, group] != log[:, 2] // links)
    if wrong.any():
        maddr, _, port = (int(v) for v in log[np.argmax(wrong)])
        raise ArrivalMismatch(
            f"Contribution of port {port} to maddr {maddr:#014x} must be one that was asked for"
        )
    depth = groups.gpus.shape[1]
    key = row * chunks + chunk
    order = np.argsort(key, kind="stable")
    key, group = key[order], group[order]
    number = np.bincount(key, minlength=len(aidx) * chunks)
    asked = np.repeat(groups.number, chunks)
    if (number != asked).any():
        place = int(np.argmax(number != asked))
        raise ArrivalMismatch(
            f"Contributions to row {place // chunks} chunk {place % chunks} must "
            f"be {asked[place]}, not {number[place]}"
        )
    result = np.full((len(aidx) * chunks, depth), -1, np.int64)
    result[key, np.arange(len(key)) - np.repeat(np.cumsum(number) - number, number)] = group
    once = np.sort(np.where(result < 0, depth, result), axis=1)
    expected = np.where(np.arange(depth) < asked[:, None], np.arange(depth), depth)
    if (once != expected).any():
        place = int(np.argmax((once != expected).any(axis=1)))
        raise ArrivalMismatch(
            f"Contributions to row {place // chunks} chunk {place % chunks} must "
            f"come once from each GPU"
        )
    return result.reshape(len(aidx), chunks, depth)


def combine_rows(
    outputs: Iterable[NDArray[np.uint16]],
    groups: Groups,
    accumulation: Accumulation,
    *,
    arrival: NDArray[np.int64] | None = None,
    chunk: int,
) -> NDArray[np.uint16]:
    """The sums of some rows, uint16 [T, hidden]; +0 for a row without entries.

    Parameters
    ----------
    outputs : for each place k of the list, the experts' outputs uint16 [T, hidden]
    groups : of the rows
    accumulation : order and roundings
    arrival : int [T, chunks, D], order in the switch of each chunk; None for ascending rank
    chunk : elements of a chunk
    """
    index, depth = groups.index, groups.gpus.shape[1]
    if accumulation is Accumulation.EXACT_THEN_ROUND:
        return _exact_sums(outputs, index >= 0)
    if accumulation is Accumulation.FP32_K_ORDER:
        return partial_sums(outputs, np.minimum(index, 0), 1)[:, 0]
    each_step = accumulation is Accumulation.PER_LEVEL_BF16
    partials = partial_sums(outputs, index, depth, each_step=each_step)
    if accumulation is Accumulation.GPU_LIST_THEN_EXACT:
        return _exact_sums(np.moveaxis(partials, 1, 0), groups.gpus >= 0)
    return _switch_sums(partials, groups.number, arrival, chunk, each_step=each_step)


def _add(
    total: NDArray[np.float32], operand: NDArray[np.float32], each_step: bool
) -> NDArray[np.float32]:
    with np.errstate(invalid="ignore", over="ignore"):
        total = total + operand
    return bf16_to_f32_array(f32_to_bf16_array(total)) if each_step else total


def partial_sums(
    outputs: Iterable[NDArray[np.uint16]],
    index: NDArray[np.int64],
    depth: int,
    *,
    each_step: bool = False,
) -> NDArray[np.uint16]:
    """Each GPU's answer, uint16 [T, depth, hidden]: its entries in list order, one rounding.

    ``each_step`` rounds every sum to bf16.
    """
    sums: NDArray[np.float32] | None = None
    loaded = np.zeros((len(index), depth), bool)
    for k, output in enumerate(outputs):
        if sums is None:
            sums = np.zeros((len(index), depth, output.shape[1]), np.float32)
        row = np.flatnonzero(index[:, k] >= 0)
        group = index[row, k]
        operand = bf16_to_f32_array(output[row])
        more = loaded[row, group]
        place = row[more], group[more]
        sums[place] = _add(sums[place], operand[more], each_step)
        sums[row[~more], group[~more]] = operand[~more]
        loaded[row, group] = True
    assert sums is not None, "a list has at least one place"
    return f32_to_bf16_array(sums)


def _switch_sums(
    partials: NDArray[np.uint16],
    number: NDArray[np.int64],
    arrival: NDArray[np.int64] | None,
    chunk: int,
    *,
    each_step: bool,
) -> NDArray[np.uint16]:
    """The switch's answers, uint16 [T, hidden]: the GPUs' answers in order, one rounding."""
    rows, depth, hidden = partials.shape
    total = np.zeros((rows, hidden), np.float32)
    for place in range(depth):
        row = np.flatnonzero(number > place)
        if arrival is None:
            operand = partials[row, place]
        else:
            group = np.repeat(arrival[row, :, place], chunk, axis=1)[:, :hidden]
            operand = np.take_along_axis(partials[row], group[:, None, :], axis=1)[:, 0]
        operand = bf16_to_f32_array(operand)
        total[row] = _add(total[row], operand, each_step) if place else operand
    return f32_to_bf16_array(total)


def _exact_sums(
    operands: Iterable[NDArray[np.uint16]], there: NDArray[np.bool_]
) -> NDArray[np.uint16]:
    """Sums over those ``operands[k]`` [T, hidden] that are ``there[:, k]``, rounded only once."""
    # -0 is what changes no sum.
    filled = [
        np.where(there[:, k, None], operand, np.uint16(1 << BF16.bits - 1))
        for k, operand in enumerate(operands)
    ]
    total = add_exactly_array(filled, BF16)
    return np.where(there.any(axis=1, keepdims=True), total, np.uint16(0))
