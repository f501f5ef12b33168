"""Sums that the switch answered with, checked in the order in which it says it took them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.config import Config
from dysharp.hw.packet import FLIT_BYTES
from dysharp.model.exact import reduce_exact_array
from dysharp.model.numerics import FORMATS, row_of
from dysharp.model.numerics_array import bits_type, reduce_array

__all__ = ["check_sums"]

_BATCH = 1 << 16
"""DATA flits that are summed at a time: bounds the memory of long runs."""


def check_sums(
    config: Config,
    *,
    rows: NDArray[np.int64],
    attr: NDArray[np.uint8],
    replica_at: NDArray[np.int64],
    replica_port: NDArray[np.int64],
    source: NDArray[np.integer],
    operands: NDArray[np.int64],
    pool: NDArray[np.uint64],
    result_at: NDArray[np.int64],
    results: NDArray[np.uint64],
) -> Iterator[tuple[int, str]]:
    """Check the answers to loads; yields (row, what is wrong).

    Parameters
    ----------
    config : order and arithmetic
    rows : those to check, each answered
    attr : reduction of each row
    replica_at, replica_port : replicas of each row, and their ports, ascending
    source : the ports again, in the order in which the switch took their answers
    operands : place in ``pool`` of each replica's answer
    result_at, results : the DATA flits of each row's answer
    """
    number = np.diff(replica_at)[rows]
    flits = np.diff(result_at)[rows]
    kinds = np.stack([number, flits, attr[rows].astype(np.int64)], axis=1)
    for kind in np.unique(kinds, axis=0):
        same = rows[(kinds == kind).all(axis=1)]
        depth, length, code = (int(v) for v in kind)
        step = max(1, _BATCH // (depth * length))
        for first in range(0, len(same), step):
            batch = same[first : first + step]
            replica = replica_at[batch][:, None] + np.arange(depth)
            ports, came = replica_port[replica], source[replica].astype(np.int64)
            order = np.argsort(came, axis=1, kind="stable")
            whole = (np.take_along_axis(came, order, axis=1) == ports).all(axis=1)
            for row in batch[~whole]:
                yield int(row), "the log must name each replica's port once"
            batch, replica, order = batch[whole], replica[whole], order[whole]
            # The replica of the k-th contribution: ports ascend, so it is where k sorts to.
            rank = np.argsort(order, axis=1, kind="stable")
            if config.switch.order == "rank":
                rank = np.broadcast_to(np.arange(depth), rank.shape)
            place = operands[np.take_along_axis(replica, rank, axis=1)]
            words = pool[place[:, :, None] + np.arange(length)]
            wanted = _reduce(config, words, code)
            got = results[result_at[batch][:, None] + np.arange(length)]
            for row in batch[(got != wanted).any(axis=(1, 2))]:
                yield int(row), f"the sum of its {depth} answers is another"


def _reduce(config: Config, words: NDArray[np.uint64], attr: int) -> NDArray[np.uint64]:
    """Sums of words [n, operands, flits, 2] along the operands."""
    dtype, op, acc = row_of(attr)
    bits = FORMATS[dtype].bits
    lanes = 8 * FLIT_BYTES // bits
    elements = np.ascontiguousarray(words).view(bits_type(bits))
    elements = elements.reshape(*words.shape[:3], lanes)
    values = [elements[:, k] for k in range(elements.shape[1])]
    function = reduce_exact_array if config.switch.order == "exact" else reduce_array
    total = function(values, dtype=dtype, op=op, acc=acc, ftz=config.ftz)
    total = np.ascontiguousarray(total, bits_type(bits))
    return total.reshape(len(words), -1).view(np.uint64).reshape(len(words), -1, 2)
