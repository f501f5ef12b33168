"""Combine's two levels of sums on whole batches: in each GPU, then in the switch."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.model.layout import ObjectLayout
from dysharp.model.numerics_array import bf16_to_f32_array, f32_to_bf16_array

__all__ = [
    "Combined",
    "Groups",
    "ArrivalMismatch",
    "gpu_groups",
    "arrival_groups",
    "partial_sums",
    "switch_sums",
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


def partial_sums(
    outputs: Iterable[NDArray[np.uint16]], index: NDArray[np.int64], depth: int
) -> NDArray[np.uint16]:
    """Each GPU's answer, uint16 [T, depth, hidden]: its entries in list order, one rounding.

    Parameters
    ----------
    outputs : for each place k of the list, the experts' outputs uint16 [T, hidden]
    index : int [T, K], group of each entry
    depth : groups
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
        with np.errstate(invalid="ignore", over="ignore"):
            sums[row[more], group[more]] += operand[more]
        sums[row[~more], group[~more]] = operand[~more]
        loaded[row, group] = True
    assert sums is not None, "a list has at least one place"
    return f32_to_bf16_array(sums)


def switch_sums(
    partials: NDArray[np.uint16],
    number: NDArray[np.int64],
    arrival: NDArray[np.int64] | None,
    chunk: int,
) -> NDArray[np.uint16]:
    """The switch's answers, uint16 [T, hidden]: the GPUs' answers in order, one rounding.

    Parameters
    ----------
    partials : uint16 [T, D, hidden], in ascending rank
    number : int [T], answers of each row
    arrival : int [T, chunks, D], order of each chunk; None for ascending rank
    chunk : elements of a chunk
    """
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
        if place:
            with np.errstate(invalid="ignore", over="ignore"):
                operand = total[row] + operand
        total[row] = operand
    return f32_to_bf16_array(total)
