"""A golden model of one reduction unit, written from what docs/reduction.md asks for.

It knows sessions, not pipelines. It is told what crosses the unit's inputs, in order, and says what
must come out.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from dysharp.hw.packet import Attr, Cmd, Dtype, Op, Packet, Status
from dysharp.model.numerics import reduce_bf16_array

__all__ = [
    "BF16_ADD",
    "GENERATIONS",
    "Contribution",
    "ReductionModel",
    "Request",
    "bf16_flit",
    "reduce_packets",
]

BF16_ADD = Attr.const({"dtype": Dtype.BF16, "op": Op.ADD, "acc": 1}).as_bits()
GENERATIONS = 16
SPECIALS = (0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F,
            0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF)  # fmt: skip


def bf16_flit(rng: random.Random, *, special: float = 0.2) -> int:
    """Eight bf16 numbers: any bits, and often the ones at which mistakes show."""
    lanes = [
        rng.choice(SPECIALS) if rng.random() < special else rng.getrandbits(16) for _ in range(8)
    ]
    return sum(lane << 16 * k for k, lane in enumerate(lanes))


@dataclass
class Request:
    """What is reserved.

    Attributes
    ----------
    counts : dict of int to int
        Entries that each expected port stands for.
    flits : int
        DATA flits of the result; 0 for a store.
    """

    local: int
    counts: dict[int, int]
    flits: int
    maddr: int
    stage: int

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def record(self) -> dict[str, int]:
        """As the ingress says it."""
        return {
            "local": self.local,
            "cmd": (Cmd.MM_LDR if self.flits else Cmd.MM_ST).value,
            "ports": sum(1 << port for port in self.counts),
            "count": self.count,
            "attr": BF16_ADD if self.flits else 0,
            "flits": self.flits,
            "maddr": self.maddr,
            "stage": self.stage,
        }


@dataclass
class Contribution:
    """One answer of a GPU to a replica, or something that looks like one."""

    source: int
    session: int
    generation: int
    request: Request
    count: int
    data: tuple[int, ...] = ()
    status: int = 0
    poison: bool = False

    def packet(self) -> Packet:
        cmd = Cmd.ERR if self.status else Cmd.MM_RSP if self.data else Cmd.MM_ACK
        return Packet.multimem(
            cmd,
            maddr=self.request.maddr,
            stage=self.request.stage,
            count=self.count,
            attr=self.status,
            data=self.data,
            local=self.session | (self.generation & 0xF) << 8,
            port=self.generation >> 4,
        )


@dataclass
class _Session:
    request: Request
    generation: int
    arrived: set[int] = field(default_factory=set)
    count: int = 0
    statuses: set[int] = field(default_factory=set)
    operands: list[tuple[int, ...]] = field(default_factory=list)


class ReductionModel:
    """Sessions of one port, as docs/reduction.md has them.

    Parameters
    ----------
    port : int
        The port that the requests came in at.

    Attributes
    ----------
    tally : Counter
        Contributions by what became of them: ``accepted``, or why they were dropped.
    """

    def __init__(self, port: int):
        self.port = port
        self.sessions: dict[int, _Session] = {}
        self.last_generation: dict[int, int] = {}
        self.tally: Counter[str] = Counter()

    def reserve(self, request: Request, session: int, generation: int) -> None:
        """Start a session; it must be free and its generation the next one."""
        assert session not in self.sessions, f"session {session} is given away twice"
        last = self.last_generation.get(session, GENERATIONS - 1)
        assert generation == (last + 1) % GENERATIONS, f"generation {generation} after {last}"
        self.last_generation[session] = generation
        self.sessions[session] = _Session(request, generation)

    def contribute(self, packet: Packet, source: int) -> tuple[str, Packet | None]:
        """What becomes of a contribution, and the answer if it is the last one."""
        outcome, answer = self._contribute(packet, source)
        self.tally[outcome] += 1
        return outcome, answer

    def _contribute(self, packet: Packet, source: int) -> tuple[str, Packet | None]:
        tag = packet.tag_local | packet.tag_port << 12
        number, generation = tag & 0xFF, tag >> 8 & 0xF
        session = self.sessions.get(number)
        if session is None or session.generation != generation:
            return "late", None
        if source not in session.request.counts:
            return "unexpected", None
        if source in session.arrived:
            return "surplus", None
        if packet.cmd is not Cmd.ERR and len(packet.data) != session.request.flits:
            return "wrong_length", None
        session.arrived.add(source)
        session.count += packet.count
        if packet.cmd is Cmd.ERR:
            session.statuses.add(packet.attr or Status.MALFORMED.value)
        elif packet.data:
            session.operands.append(packet.data)
        if packet.poison:
            session.statuses.add(Status.POISONED.value)
        if session.arrived != set(session.request.counts):
            return "accepted", None
        del self.sessions[number]
        if session.count != session.request.count:
            session.statuses.add(Status.MALFORMED.value)
        return "accepted", self._answer(session)

    def _answer(self, session: _Session) -> Packet:
        request = session.request
        cmd, attr, data = (Cmd.MM_RSP if request.flits else Cmd.MM_ACK), 0, ()
        if session.statuses:
            cmd, attr = Cmd.ERR, min(session.statuses)
        elif request.flits:
            data = reduce_packets(session.operands)
        return Packet.multimem(
            cmd,
            maddr=request.maddr,
            stage=request.stage,
            count=request.count,
            attr=attr,
            data=data,
            port=self.port,
            local=request.local,
        )


def reduce_packets(operands: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Sum of packets, each the same number of flits, in the order given."""
    arrays = [
        np.frombuffer(b"".join(flit.to_bytes(16, "little") for flit in data), np.uint16)
        for data in operands
    ]
    total = reduce_bf16_array(arrays).tobytes()
    return tuple(
        int.from_bytes(total[first : first + 16], "little") for first in range(0, len(total), 16)
    )
