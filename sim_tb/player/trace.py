"""A trace as requests: the batch that cocotb and the demo run, on the fast player."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import FLIT_BYTES, Cmd
from dysharp.model.combine import gpu_groups, partial_sums
from dysharp.model.experts import expert_output
from dysharp.model.protocol import ELEMENT_BYTES, Protocol
from dysharp.model.trace import Trace
from dysharp.sim_tb.player.requests import Played, Requests, gather, ragged
from dysharp.sim_tb.player.wire import links_of
from dysharp.sim_tb.route.model import ObjectSpec

__all__ = ["arrival_log", "combined", "from_trace", "trace_objects"]


def trace_objects(trace: Trace) -> tuple[ObjectSpec, ...]:
    """The object table of a trace: one object of all GPUs."""
    layout = trace.protocol().layouts[0]
    members = set(range(layout.devices))
    return (ObjectSpec(layout.base, layout.size, members, members, layout.split, layout.slots),)


def from_trace(trace: Trace, stage: int | None = None, *, streams: int = 8) -> Requests:
    """The requests of a trace, each with what its GPUs answer.

    Parameters
    ----------
    trace : the batch
    stage : 0 for Dispatch, 1 for Combine, None for both at once, whose tokens take turns
    streams : of a port and a stage; tokens are dealt to them one by one, and a stream's are sent
        chunk by chunk

    Raises
    ------
    UserError
        For another stage, and for a block that is not of whole flits.
    """
    if stage not in (None, 0, 1) or streams < 1:
        raise UserError(f"Stage must be 0, 1 or None, not {stage!r}; streams 1 or more")
    protocol = trace.protocol()
    block = protocol.hidden * ELEMENT_BYTES
    if block % FLIT_BYTES:
        raise UserError(f"Block must be of whole flits, not of {block} bytes")
    stages = (0, 1) if stage is None else (stage,)
    return Requests.concatenate([_requests(protocol, one, streams) for one in stages])


def _requests(protocol: Protocol, stage: int, streams: int) -> Requests:
    lists, chunks = protocol.lists, protocol.chunks
    tokens = np.flatnonzero(protocol.counts > 0)
    row, chunk = np.repeat(tokens, chunks), np.tile(np.arange(chunks), len(tokens))
    layout = protocol.layouts[0]
    block = protocol.hidden * ELEMENT_BYTES
    first = chunk * protocol.chunk_bytes
    offsets = (protocol.routing.aidx[row] << layout.stride) + first
    addr = (layout.base + offsets).astype(np.uint64)
    listed = ragged(protocol.counts)
    of_row, flits = gather(listed, row), np.minimum(protocol.chunk_bytes, block - first)
    groups = gpu_groups(lists, layout.split)
    replicas = groups.number[row]
    answer_offsets = ragged(replicas)
    in_row, at = block // FLIT_BYTES, first // FLIT_BYTES
    if stage:
        depth = groups.gpus.shape[1]
        outputs = (
            expert_output(protocol.payload, protocol.factor[:, k]) for k in range(lists.shape[1])
        )
        pool = partial_sums(outputs, groups.index, depth)
        of_answer = np.repeat(np.arange(len(row)), replicas)
        rank = np.arange(len(of_answer)) - answer_offsets[of_answer]
        answers = (row[of_answer] * depth + rank) * in_row + at[of_answer]
    else:
        pool = protocol.payload
        answers = np.full(answer_offsets[-1], -1)
    source = protocol.routing.source[row]
    return Requests(
        port=source * protocol.links
        + links_of(addr, links=protocol.links, chunk_bytes=protocol.chunk_bytes),
        stream=protocol.routing.aidx[row] % streams + streams * stage,
        cmd=np.full(len(row), (Cmd.MM_LDR if stage else Cmd.MM_ST).value),
        addr=addr,
        flits=flits // FLIT_BYTES,
        pool=np.ascontiguousarray(pool).view(np.uint64).reshape(-1, 2),
        target_offsets=ragged(protocol.counts[row]),
        targets=lists[lists >= 0][of_row],
        stage=np.full(len(row), stage),
        payload=row * in_row + at,
        answer_offsets=answer_offsets,
        answers=answers,
    )


def combined(trace: Trace, requests: Requests, played: Played) -> NDArray[np.uint16]:
    """What a run of Combine brought to the sources, uint16 [T, hidden]: the batch's result.

    Parameters
    ----------
    trace, requests : as of :func:`from_trace`
    played : the run
    """
    protocol = trace.protocol()
    layout = protocol.layouts[0]
    loads = np.flatnonzero(requests.cmd == Cmd.MM_LDR.value)
    offset = requests.addr[loads].astype(np.int64) - layout.base
    row_of = np.zeros(layout.rows, np.int64)
    row_of[protocol.routing.aidx] = np.arange(trace.tokens)
    row = row_of[offset >> layout.stride]
    values = np.zeros((trace.tokens, protocol.hidden * ELEMENT_BYTES // FLIT_BYTES, 2), np.uint64)
    place = (offset & (1 << layout.stride) - 1) // FLIT_BYTES
    flits = np.diff(played.result_offsets)[loads]
    step = np.arange(flits.sum()) - np.repeat(ragged(flits)[:-1], flits)
    found = played.results[gather(played.result_offsets, loads)]
    values[np.repeat(row, flits), np.repeat(place, flits) + step] = found
    return values.reshape(trace.tokens, -1).view(np.uint16)


def arrival_log(requests: Requests, played: Played) -> NDArray[np.int64]:
    """The log as the golden model takes it: (maddr, stage, port) in the order of accumulation."""
    row, port, _ = played.log.T
    addr = requests.addr[row].astype(np.int64)
    return np.stack([addr, requests.stage[row].astype(np.int64), port], axis=1)
