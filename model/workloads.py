"""What a switch is measured with: the requests of every source, and the flits that they must move.

Requests are numpy arrays, a row a request, in the order in which their stream sends them. A source
has several streams; each takes one row of the batch after another, chunk by chunk, so as many rows
are on their way at once as there are streams, as when each warp of a kernel handles a token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.packet import FLIT_BYTES, Cmd
from dysharp.model.instructions import target_lists
from dysharp.model.layout import DEFAULT_BASE, link_of, row_stride
from dysharp.model.placement import Placement
from dysharp.model.policies import OwnGpu, Policies
from dysharp.model.routing import Routing
from dysharp.model.traffic import (
    Move,
    Rows,
    Scheme,
    Traffic,
    chunks_by_link,
    count_moves,
    count_traffic,
)

__all__ = [
    "Workload",
    "all_gather",
    "batch",
    "deepep",
    "incast",
    "permutation",
    "reduce_scatter",
    "uniform_unicast",
]

WRITE_BACK = 1 << 39
"""Bit of a plain address that tells the rows that return from those that go out."""
STAGES = ("dispatch", "combine")
COLUMNS = ("port", "stream", "cmd", "addr", "stage", "flits")


@dataclass(frozen=True, eq=False)
class Workload:
    """Requests and their traffic.

    Parameters
    ----------
    name : what it is
    port, stream : int64 [N], where a request enters, and its stream there
    cmd : int64 [N], :class:`~dysharp.hw.packet.Cmd`
    addr : int64 [N], multimem address of MM_ST and MM_LDR, else a plain one; without the flits
        wanted
    stage : int64 [N], 0 or 1
    flits : int64 [N], DATA flits sent or wanted
    first : int64 [N + 1], where each request's list begins in ``targets``
    targets : int64, physical ids
    traffic : flits that must cross each link
    """

    name: str
    port: NDArray[np.int64]
    stream: NDArray[np.int64]
    cmd: NDArray[np.int64]
    addr: NDArray[np.int64]
    stage: NDArray[np.int64]
    flits: NDArray[np.int64]
    first: NDArray[np.int64]
    targets: NDArray[np.int64]
    traffic: Traffic

    def __len__(self) -> int:
        return len(self.port)

    @property
    def multimem(self) -> NDArray[np.bool_]:
        """Requests with a multimem address."""
        return self.cmd != Cmd.WR.value

    @property
    def limit(self) -> int:
        """Least cycles: all requests at once."""
        return self.traffic.limit()


def batch(
    config: Config,
    routing: Routing,
    placement: Placement,
    *,
    block_bytes: int,
    streams: int,
    stages: Sequence[int] = (0, 1),
    policies: Policies | None = None,
) -> Workload:
    """Dispatch, Combine, or both at once, as dynamic multimem.

    Parameters
    ----------
    config : hardware
    routing, placement, block_bytes, policies : the batch
    streams : streams of a source for each stage. Those of Combine are numbered after Dispatch's
    stages : 0 for Dispatch's stores, 1 for Combine's loads
    """
    policies = policies or Policies()
    lists = target_lists(routing, placement, policies)
    _through_switch(policies)
    traffic = count_traffic(
        Scheme.DYSHARP,
        routing,
        placement,
        block_bytes=block_bytes,
        policies=policies,
        chunk_bytes=config.chunk_bytes,
        links=config.links,
        stages=stages,
    )
    parts = []
    sent = np.flatnonzero((lists >= 0).any(axis=1))
    chunk, maddr, size = _chunks(config, routing.aidx[sent], block_bytes)
    row = np.repeat(sent, len(size))
    source = routing.source[row]
    for stage in stages:
        parts.append(
            {
                "port": source * config.links + _link(config, maddr),
                "stream": _turn(source, row) % streams + stage * streams,
                "cmd": np.full(len(row), (Cmd.MM_LDR if stage else Cmd.MM_ST).value),
                "addr": maddr,
                "stage": np.full(len(row), stage),
                "flits": size[chunk],
                "list": row,
            }
        )
    return _build("+".join(STAGES[stage] for stage in stages), parts, lists, traffic)


def deepep(
    config: Config,
    routing: Routing,
    placement: Placement,
    *,
    block_bytes: int,
    streams: int,
    stages: Sequence[int] = (0, 1),
    policies: Policies | None = None,
) -> Workload:
    """The same batch as :func:`batch` by DeepEP-normal: a WR to and from each distinct GPU.

    As its kernels have a channel for each rank, a source has streams of its own for each GPU that
    it sends to; one stream for all would stop for the busiest of them.

    Parameters
    ----------
    config : hardware
    routing, placement, block_bytes, policies : the batch
    streams : streams of a source for each destination and stage
    stages : 0 for the copies of Dispatch, 1 for the rows of Combine
    """
    policies = policies or Policies()
    lists = target_lists(routing, placement, policies)
    _through_switch(policies)
    traffic = count_traffic(
        Scheme.DEEPEP_NORMAL,
        routing,
        placement,
        block_bytes=block_bytes,
        policies=policies,
        chunk_bytes=config.chunk_bytes,
        links=config.links,
        stages=stages,
    )
    reached = np.zeros((len(lists), placement.gpus), bool)
    row, k = np.nonzero(lists >= 0)
    reached[row, lists[row, k] >> placement.split] = True
    row, gpu = np.nonzero(reached)
    source = routing.source[row]
    size = _sizes(config, block_bytes)
    parts = []
    for stage in stages:
        sender, taker = (gpu, source) if stage else (source, gpu)
        turn = _turn(sender, row)
        order = np.repeat(np.arange(len(row)), len(size))
        chunk = np.tile(np.arange(len(size)), len(row))
        offset = (routing.aidx[row[order]] << row_stride(block_bytes, config.chunk_bytes)) + (
            chunk * config.chunk_bytes
        )
        # Rows that return from different GPUs stand beside each other at the source.
        place = offset + stage * (WRITE_BACK + (sender[order] << 32))
        parts.append(
            {
                "port": sender[order] * config.links + _link(config, DEFAULT_BASE + offset),
                "stream": (turn[order] % streams + stage * streams) * config.gpus + taker[order],
                "cmd": np.full(len(order), Cmd.WR.value),
                "addr": _plain(config, taker[order], place, _link(config, DEFAULT_BASE + offset)),
                "stage": np.full(len(order), stage),
                "flits": size[chunk],
                "list": np.full(len(order), -1),
            }
        )
    return _build("deepep", parts, lists, traffic)


def all_gather(config: Config, *, chunks: int, streams: int) -> Workload:
    """Each GPU stores ``chunks`` chunks of its own to all GPUs by the object's preset group."""
    return _static(config, "allgather", Move.MULTICAST, chunks, streams)


def reduce_scatter(config: Config, *, chunks: int, streams: int) -> Workload:
    """Each GPU loads ``chunks`` chunks that are reduced over all GPUs of the preset group."""
    return _static(config, "reduce_scatter", Move.REDUCE, chunks, streams)


def uniform_unicast(config: Config, *, chunks: int, streams: int, seed: int) -> Workload:
    """Each GPU writes ``chunks`` chunks to each other GPU, in an order of its own."""
    rng = np.random.default_rng(seed)
    others = np.arange(1, config.gpus)
    order = np.stack([rng.permutation(np.repeat(others, chunks)) for _ in range(config.gpus)])
    takers = (np.arange(config.gpus)[:, None] + order) % config.gpus
    return _unicast(config, "unicast_uniform", takers, streams)


def permutation(config: Config, *, chunks: int, streams: int, seed: int) -> Workload:
    """Each GPU writes ``chunks`` chunks to one other GPU, each to a different one."""
    rng = np.random.default_rng(seed)
    ring = rng.permutation(config.gpus)
    taker = np.empty_like(ring)
    taker[ring] = np.roll(ring, 1)
    return _unicast(config, "permutation", np.repeat(taker[:, None], chunks, axis=1), streams)


def incast(config: Config, *, chunks: int, streams: int) -> Workload:
    """Each other GPU writes ``chunks`` chunks to GPU 0."""
    takers = np.zeros((config.gpus - 1, chunks), np.int64)
    return _unicast(config, "incast", takers, streams, first=1)


def _through_switch(policies: Policies) -> None:
    if policies.own_gpu is not OwnGpu.THROUGH_SWITCH:
        raise UserError(
            "Policy own_gpu must be through_switch where packets are made; "
            "local_bypass is for traffic counts"
        )


def _static(config: Config, name: str, move: Move, chunks: int, streams: int) -> Workload:
    aidx = np.arange(config.gpus * chunks)
    source = aidx // chunks
    maddr = DEFAULT_BASE + aidx * config.chunk_bytes
    rows = Rows(
        source,
        np.ones((len(aidx), config.gpus), np.int64),
        *chunks_by_link(aidx, config.chunk_bytes, config.chunk_bytes, config.links),
        listed=False,
    )
    traffic = count_moves({int(move is Move.REDUCE): (move, rows)})
    part = {
        "port": source * config.links + _link(config, maddr),
        "stream": aidx % chunks % streams,
        "cmd": np.full(len(aidx), (Cmd.MM_LDR if move is Move.REDUCE else Cmd.MM_ST).value),
        "addr": maddr,
        "stage": np.full(len(aidx), int(move is Move.REDUCE)),
        "flits": np.full(len(aidx), config.chunk_flits),
        "list": np.full(len(aidx), -1),
    }
    return _build(name, [part], np.zeros((0, 0), np.int32), traffic)


def _unicast(
    config: Config, name: str, takers: NDArray[np.int64], streams: int, first: int = 0
) -> Workload:
    """One chunk for each taker [sources, n] of what the GPUs from ``first`` on write."""
    chunks = takers.shape[1]
    index = np.arange(takers.size)
    source, taker = first + index // chunks, takers.ravel()
    entries = np.zeros((len(index), config.gpus), np.int64)
    entries[index, taker] = 1
    offset = index * config.chunk_bytes
    link = _link(config, DEFAULT_BASE + offset)
    rows = Rows(
        source,
        entries,
        *chunks_by_link(index, config.chunk_bytes, config.chunk_bytes, config.links),
        listed=False,
    )
    traffic = count_moves({0: (Move.WRITE, rows)})
    part = {
        "port": source * config.links + link,
        "stream": index % chunks % streams,
        "cmd": np.full(len(index), Cmd.WR.value),
        "addr": _plain(config, taker, offset, link),
        "stage": np.zeros(len(index), np.int64),
        "flits": np.full(len(index), config.chunk_flits),
        "list": np.full(len(index), -1),
    }
    return _build(name, [part], np.zeros((0, 0), np.int32), traffic)


def _build(
    name: str,
    parts: list[dict[str, NDArray]],
    lists: NDArray[np.int32],
    traffic: Traffic,
) -> Workload:
    """Join the parts; each stream keeps the order of its rows."""
    table = {key: np.concatenate([part[key] for part in parts]) for key in (*COLUMNS, "list")}
    order = np.lexsort((table["stream"], table["port"]))
    table = {key: column[order].astype(np.int64) for key, column in table.items()}
    which = table.pop("list")
    counts = np.where(which >= 0, (lists >= 0).sum(axis=1)[which], 0) if len(lists) else 0 * which
    listed = which[which >= 0]
    ids = lists[listed]
    return Workload(
        name,
        **table,
        first=np.concatenate([[0], np.cumsum(counts)]),
        targets=ids[ids >= 0].astype(np.int64),
        traffic=traffic,
    )


def _turn(source: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
    """The how-manyth distinct row of its source each one is."""
    turn = np.empty(len(row), np.int64)
    for gpu in np.unique(source):
        mine = source == gpu
        turn[mine] = np.unique(row[mine], return_inverse=True)[1]
    return turn


def _sizes(config: Config, block_bytes: int) -> NDArray[np.int64]:
    """DATA flits of each chunk of a block."""
    ends = np.arange(0, block_bytes, config.chunk_bytes)
    return -(-np.minimum(config.chunk_bytes, block_bytes - ends) // FLIT_BYTES)


def _chunks(
    config: Config, aidx: NDArray[np.int64], block_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Number and multimem address of each row's chunks, and the DATA flits by number."""
    size = _sizes(config, block_bytes)
    chunk = np.tile(np.arange(len(size)), len(aidx))
    row = np.repeat(aidx, len(size)) << row_stride(block_bytes, config.chunk_bytes)
    return chunk, DEFAULT_BASE + row + chunk * config.chunk_bytes, size


def _link(config: Config, address: NDArray[np.int64]) -> NDArray[np.int64]:
    """Link of a GPU on which each address travels."""
    if config.links == 1:
        return np.zeros(len(address), np.int64)
    chunk_bytes = config.chunk_bytes
    found = [link_of(int(a), links=config.links, chunk_bytes=chunk_bytes) for a in address]
    return np.array(found, np.int64)


def _plain(
    config: Config, gpu: NDArray[np.int64], offset: NDArray[np.int64], link: NDArray[np.int64]
) -> NDArray[np.int64]:
    """A plain address at a GPU which travels on the link wanted.

    The link is an xor-fold of the whole address, so the lowest bits of the chunk number set it.
    """
    address = (gpu << config.gpu_address_bit) + offset
    return address ^ (_link(config, address) ^ link) * config.chunk_bytes
