"""Flits by link and direction: what a batch must move, whatever the cycle-by-cycle order.

Every flit counts: headers, target lists, requests and answers, on both streams together, since they
share the link. The busiest link's count is the least number of cycles in which the batch can be
done (one flit a cycle and direction).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.packet import FLIT_BYTES, Cmd, tx_flits
from dysharp.model.closed_forms import ideal_rows
from dysharp.model.instructions import target_lists
from dysharp.model.layout import DEFAULT_BASE, link_of, row_stride
from dysharp.model.placement import Placement
from dysharp.model.policies import OwnGpu, Policies
from dysharp.model.routing import Routing

if TYPE_CHECKING:
    from dysharp.model.trace import Trace

__all__ = [
    "Move",
    "Scheme",
    "Direction",
    "Rows",
    "Traffic",
    "Comparison",
    "chunks_by_link",
    "count_moves",
    "count_traffic",
    "compare_traffic",
    "compare_with_deepep",
    "remote_copies",
]


class Move(Enum):
    """How the chunks of a row travel between its source and the GPUs that it reaches."""

    MULTICAST = "multicast"
    """MM_ST, copied and pruned by the switch; the MM_ACKs collapse into one."""
    REDUCE = "reduce"
    """MM_LDR, copied and pruned; the MM_RSPs are reduced to one."""
    WRITE = "write"
    """The source sends a WR to each GPU and gets a WR_ACK from each."""
    WRITE_BACK = "write_back"
    """Each GPU sends a WR to the source and gets a WR_ACK."""


class Scheme(Enum):
    """How the tokens of a batch travel; the value is the move of each stage."""

    DYSHARP = (Move.MULTICAST, Move.REDUCE)
    """Dynamic multimem: one packet with a list in each stage."""
    DEEPEP_NORMAL = (Move.WRITE, Move.WRITE_BACK)
    """Unicast, one copy for each distinct GPU, expert outputs of a GPU added before they return:
    WR and WR_ACK in both stages."""


class Direction(Enum):
    """A link's two directions, seen from the GPU; the value indexes :attr:`Traffic.flits`."""

    UP = 0
    """GPU to switch."""
    DOWN = 1
    """Switch to GPU."""


class _List(Enum):
    """The TX flits of a packet."""

    NONE = 0
    WHOLE = 1
    PRUNED = 2


@dataclass(frozen=True)
class _Leg:
    """Packets of one command on one link of their way.

    Parameters
    ----------
    cmd, direction : what crosses which direction
    at_source : on the link of the row's source, else on that of each GPU it reaches
    copies : one for each of these GPUs, else one
    data, targets : DATA and TX flits that it has beside its header
    """

    cmd: Cmd
    direction: Direction
    at_source: bool
    copies: bool
    data: bool = False
    targets: _List = _List.NONE


_UP, _DOWN = Direction.UP, Direction.DOWN
_LEGS: dict[Move, tuple[_Leg, ...]] = {
    Move.MULTICAST: (
        _Leg(Cmd.MM_ST, _UP, True, False, data=True, targets=_List.WHOLE),
        _Leg(Cmd.MM_ST, _DOWN, False, True, data=True, targets=_List.PRUNED),
        _Leg(Cmd.MM_ACK, _UP, False, True),
        _Leg(Cmd.MM_ACK, _DOWN, True, False),
    ),
    Move.REDUCE: (
        _Leg(Cmd.MM_LDR, _UP, True, False, targets=_List.WHOLE),
        _Leg(Cmd.MM_LDR, _DOWN, False, True, targets=_List.PRUNED),
        _Leg(Cmd.MM_RSP, _UP, False, True, data=True),
        _Leg(Cmd.MM_RSP, _DOWN, True, False, data=True),
    ),
    Move.WRITE: (
        _Leg(Cmd.WR, _UP, True, True, data=True),
        _Leg(Cmd.WR, _DOWN, False, True, data=True),
        _Leg(Cmd.WR_ACK, _UP, False, True),
        _Leg(Cmd.WR_ACK, _DOWN, True, True),
    ),
    Move.WRITE_BACK: (
        _Leg(Cmd.WR, _UP, False, True, data=True),
        _Leg(Cmd.WR, _DOWN, True, True, data=True),
        _Leg(Cmd.WR_ACK, _UP, True, True),
        _Leg(Cmd.WR_ACK, _DOWN, False, True),
    ),
}


@dataclass(frozen=True, eq=False)
class Rows:
    """What travels: blocks of memory, cut into chunks.

    Parameters
    ----------
    source : GPU of each row, [T]
    entries : target ids of each row on each GPU, [T, G], as the links see them
    chunks, data : chunks of each row on each link, and DATA flits in them, [T, links]
    listed : the ids travel in TX flits; not so for a preset group and in unicast
    """

    source: NDArray[np.int64]
    entries: NDArray[np.int64]
    chunks: NDArray[np.int64]
    data: NDArray[np.int64]
    listed: bool = True


@dataclass(frozen=True, eq=False)
class Traffic:
    """Flits of one batch or of another load on the links.

    Parameters
    ----------
    flits : int64 [stage, direction, GPU, link]; stage 0 Dispatch, 1 Combine
    by_command : flits over all links and both directions, by command
    """

    flits: NDArray[np.int64]
    by_command: dict[Cmd, int]

    @property
    def total(self) -> int:
        """Flits over all links, directions and stages."""
        return int(self.flits.sum())

    def limit(self, *, fused: bool = True) -> int:
        """Least cycles: both stages at once (``fused``), or one after the other."""
        if fused:
            return int(self.flits.sum(axis=0).max(initial=0))
        return self.stage_limit(0) + self.stage_limit(1)

    def stage_limit(self, stage: int) -> int:
        """Least cycles of one stage alone."""
        return int(self.flits[stage].max(initial=0))

    def busiest(self, stage: int | None = None) -> tuple[Direction, int, int]:
        """Direction, GPU and link that set the limit, of one stage or of both at once."""
        table = self.flits.sum(axis=0) if stage is None else self.flits[stage]
        direction, gpu, link = np.unravel_index(int(table.argmax()), table.shape)
        return Direction(int(direction)), int(gpu), int(link)


@dataclass(frozen=True)
class Comparison:
    """Fused multimem against DeepEP-normal on one batch, the same treatment of own-GPU targets.

    Parameters
    ----------
    deepep_flits, dysharp_flits : over all links and directions
    saved : part of the flits that multimem does not send
    deepep_limit, dysharp_limit : least cycles
    ideal_speedup : ratio of the limits
    ideal_rows : 2d / (d + 1), counting rows alone
    remote : d, remote GPUs a token reaches, on average
    """

    deepep_flits: int
    dysharp_flits: int
    saved: float
    deepep_limit: int
    dysharp_limit: int
    ideal_speedup: float
    ideal_rows: float
    remote: float


def count_traffic(
    scheme: Scheme,
    routing: Routing,
    placement: Placement,
    *,
    block_bytes: int,
    policies: Policies | None = None,
    chunk_bytes: int = 128,
    links: int = 1,
    base: int = DEFAULT_BASE,
    stages: Collection[int] = (0, 1),
) -> Traffic:
    """Count the flits of a batch.

    Parameters
    ----------
    scheme, routing, placement, policies : what travels. Own-GPU targets go through the switch or
        stay off the links as the policy says
    block_bytes : bytes of a token, a multiple of 16
    chunk_bytes, links : of the hardware
    base : multimem address of the object. A chunk's link is that of its multimem address, in every
        scheme
    stages : what is counted, 0 Dispatch, 1 Combine

    Raises
    ------
    UserError
        If the block is no multiple of 16 bytes.
    """
    policies = policies or Policies()
    if block_bytes < FLIT_BYTES or block_bytes % FLIT_BYTES:
        raise UserError(f"Token block must be a multiple of {FLIT_BYTES} bytes, not {block_bytes}")
    lists = target_lists(routing, placement, policies)
    rows = Rows(
        routing.source,
        _entries(lists, routing, placement, policies),
        *chunks_by_link(routing.aidx, block_bytes, chunk_bytes, links, base),
    )
    return count_moves({stage: (scheme.value[stage], rows) for stage in stages})


def count_moves(moves: Mapping[int, tuple[Move, Rows]]) -> Traffic:
    """Count the flits of rows that move; ``moves`` has the move of a stage and what it moves."""
    shapes = {(rows.entries.shape[1], rows.chunks.shape[1]) for _, rows in moves.values()}
    (shape,) = shapes
    flits = np.zeros((2, 2, *shape), np.int64)
    by_command: dict[Cmd, int] = {}
    for stage, (move, rows) in moves.items():
        copies = (rows.entries > 0).astype(np.int64)
        total = rows.entries.sum(axis=1, keepdims=True)
        one = (total > 0).astype(np.int64)
        targets = {
            _List.NONE: np.zeros((1, 1), np.int64),
            _List.WHOLE: tx_flits(total) if rows.listed else np.zeros((1, 1), np.int64),
            _List.PRUNED: tx_flits(rows.entries) if rows.listed else np.zeros((1, 1), np.int64),
        }
        for leg in _LEGS[move]:
            times = copies if leg.copies else one
            table = flits[stage, leg.direction.value]
            for link in range(shape[1]):
                count = times * (1 + targets[leg.targets]) * rows.chunks[:, link, None]
                if leg.data:
                    count = count + times * rows.data[:, link, None]
                by_command[leg.cmd] = by_command.get(leg.cmd, 0) + int(count.sum())
                if leg.at_source:
                    np.add.at(table[:, link], rows.source, count.sum(axis=1))
                else:
                    table[:, link] += count.sum(axis=0)
    return Traffic(flits, by_command)


def remote_copies(routing: Routing, placement: Placement, policies: Policies) -> float:
    """``d`` of a batch: distinct other GPUs a token reaches, on average."""
    lists = target_lists(routing, placement, policies)
    away = Policies(duplicate=policies.duplicate, own_gpu=OwnGpu.LOCAL_BYPASS)
    entries = _entries(lists, routing, placement, away)
    return float((entries > 0).sum() / max(1, len(entries)))


def compare_traffic(
    routing: Routing,
    placement: Placement,
    *,
    block_bytes: int,
    policies: Policies | None = None,
    chunk_bytes: int = 128,
    links: int = 1,
) -> Comparison:
    """Count a batch under both schemes; see :func:`count_traffic`."""
    policies = policies or Policies()
    deepep, dysharp = (
        count_traffic(
            scheme,
            routing,
            placement,
            block_bytes=block_bytes,
            policies=policies,
            chunk_bytes=chunk_bytes,
            links=links,
        )
        for scheme in (Scheme.DEEPEP_NORMAL, Scheme.DYSHARP)
    )
    d = remote_copies(routing, placement, policies)
    return Comparison(
        deepep_flits=deepep.total,
        dysharp_flits=dysharp.total,
        saved=1 - dysharp.total / deepep.total if deepep.total else 0.0,
        deepep_limit=deepep.limit(),
        dysharp_limit=dysharp.limit(),
        ideal_speedup=deepep.limit() / dysharp.limit() if dysharp.limit() else 1.0,
        ideal_rows=ideal_rows(d),
        remote=d,
    )


def compare_with_deepep(config: Config, trace: "Trace") -> dict[str, int | float]:
    """Flits of a trace over all links for a report: ``deepep_flits``, ``dysharp_flits``, ``saved``.

    ``config`` gives chunk size and links; it may differ from the trace's own in other things.
    """
    found = compare_traffic(
        trace.routing,
        trace.placement,
        block_bytes=trace.block_bytes,
        policies=trace.policies,
        chunk_bytes=config.chunk_bytes,
        links=config.links,
    )
    return {
        "deepep_flits": found.deepep_flits,
        "dysharp_flits": found.dysharp_flits,
        "saved": found.saved,
    }


def _entries(
    lists: NDArray[np.int32], routing: Routing, placement: Placement, policies: Policies
) -> NDArray[np.int64]:
    """List entries of each row on each GPU, [T, G], as the links see them."""
    entries = np.zeros((len(lists), placement.gpus), np.int64)
    row, k = np.nonzero(lists >= 0)
    np.add.at(entries, (row, lists[row, k] >> placement.split), 1)
    if policies.own_gpu is OwnGpu.LOCAL_BYPASS:
        entries[np.arange(len(lists)), routing.source] = 0
    return entries


def chunks_by_link(
    aidx: NDArray[np.integer],
    block_bytes: int,
    chunk_bytes: int,
    links: int,
    base: int = DEFAULT_BASE,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Chunks, and DATA flits in them, of each row on each link, both [T, links].

    The link is an xor-fold of the address, so it is the fold of the row's address xor the fold of
    the chunk's offset, which have no bit in common.
    """
    stride = row_stride(block_bytes, chunk_bytes)
    offsets = range(0, block_bytes, chunk_bytes)
    number, data = np.zeros(links, np.int64), np.zeros(links, np.int64)
    for offset in offsets:
        link = link_of(offset, links=links, chunk_bytes=chunk_bytes)
        number[link] += 1
        data[link] += -(-min(chunk_bytes, block_bytes - offset) // FLIT_BYTES)
    first = np.array(
        [link_of(base + (int(a) << stride), links=links, chunk_bytes=chunk_bytes) for a in aidx],
        np.int64,
    )
    pick = np.arange(links) ^ first[:, None]
    return number[pick], data[pick]
