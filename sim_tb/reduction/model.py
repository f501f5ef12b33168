"""A golden model of one reduction unit, written from what docs/reduction.md asks for.

It knows sessions, not pipelines. It is told what crosses the unit's inputs, in order, and says what
must come out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from dysharp.hw.packet import Cmd, Dtype, Op, Packet, Status
from dysharp.hw.parameters import ORDERS
from dysharp.model.flits import reduce_flits
from dysharp.model.numerics import attr_bits, row_of

__all__ = [
    "BF16_ADD",
    "GENERATIONS",
    "Contribution",
    "ReductionModel",
    "Request",
    "reduce_contributions",
]

BF16_ADD = attr_bits(Dtype.BF16, Op.ADD, 1)
GENERATIONS = 16


@dataclass
class Request:
    """What is reserved.

    Attributes
    ----------
    counts : dict of int to int
        Entries that each expected port stands for.
    flits : int
        DATA flits of the result; 0 for a store.
    attr : int
        What a load reduces; a store has none.
    pushes : bool
        Without a result: it is a push reduction, not a store.
    """

    local: int
    counts: dict[int, int]
    flits: int
    maddr: int
    stage: int
    attr: int = BF16_ADD
    pushes: bool = False

    @property
    def cmd(self) -> Cmd:
        """Of the request."""
        return Cmd.MM_LDR if self.flits else Cmd.MM_RED if self.pushes else Cmd.MM_ST

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def dtype(self) -> Dtype:
        """Type of the elements."""
        return row_of(self.attr)[0]

    def record(self) -> dict[str, int]:
        """As the ingress says it."""
        return {
            "local": self.local,
            "cmd": self.cmd.value,
            "ports": sum(1 << port for port in self.counts),
            "count": self.count,
            "attr": self.attr if self.flits else 0,
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
    operands: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """Source and data, in the order of arrival."""


@dataclass
class _Retired:
    """A session that timed out, and the ports whose answers are still to come."""

    generation: int
    missing: set[int]


class ReductionModel:
    """Sessions of one port, as docs/reduction.md has them.

    It has no clock: it is told when a session has timed out, and when software frees them.

    Parameters
    ----------
    port : int
        The port that the requests came in at.
    order : str
        ``arrival``: as the contributions came; ``rank``: by ascending source; ``exact``: summed
        without a limit and rounded once.
    ftz : bool
        f32 subnormals count as zero.

    Attributes
    ----------
    tally : Counter
        Contributions by what became of them: ``accepted``, or why they were dropped.
    retired : dict of int to _Retired
        Sessions whose number must not be used yet, by their number.
    """

    def __init__(self, port: int, *, order: str = "arrival", ftz: bool = False):
        if order not in ORDERS:
            raise ValueError(f"Order must be one of {', '.join(ORDERS)}, not {order!r}")
        self.port, self.order, self.ftz = port, order, ftz
        self.sessions: dict[int, _Session] = {}
        self.retired: dict[int, _Retired] = {}
        self.last_generation: dict[int, int] = {}
        self.tally: Counter[str] = Counter()

    def reserve(self, request: Request, session: int, generation: int) -> None:
        """Start a session; it must be free and its generation the next one."""
        assert session not in self.sessions, f"session {session} is given away twice"
        assert session not in self.retired, f"session {session} is given away while retired"
        last = self.last_generation.get(session, GENERATIONS - 1)
        assert generation == (last + 1) % GENERATIONS, f"generation {generation} after {last}"
        self.last_generation[session] = generation
        self.sessions[session] = _Session(request, generation)

    def contribute(self, packet: Packet, source: int) -> tuple[str, Packet | None]:
        """What becomes of a contribution, and the answer if it is the last one."""
        outcome, answer = self._contribute(packet, source)
        self.tally[outcome] += 1
        return outcome, answer

    def time_out(self, number: int, generation: int) -> tuple[set[int], Packet]:
        """A session's time is over: the ports that have not answered, and the answer."""
        session = self.sessions.pop(number)
        assert session.generation == generation, f"generation {generation} of session {number}"
        missing = session.request.counts.keys() - session.arrived
        self.retired[number] = _Retired(generation, missing)
        session.statuses.add(Status.TIMEOUT.value)
        return set(missing), self._answer(session)

    def free_retired(self) -> None:
        """Software says that nothing will come any more."""
        self.retired.clear()

    def arrive(self, contribution: Contribution) -> None:
        """Its header comes: if it is late, a retired session may have waited for it."""
        number, generation = contribution.session, contribution.generation & 0xF
        retired = self.retired.get(number)
        if retired is None or retired.generation != generation:
            return
        retired.missing.discard(contribution.source)
        if not retired.missing:
            del self.retired[number]

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
            session.operands.append((source, packet.data))
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
            data = reduce_contributions(
                session.operands, request.attr, order=self.order, ftz=self.ftz
            )
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


def reduce_contributions(
    operands: Sequence[tuple[int, tuple[int, ...]]], attr: int, *, order: str, ftz: bool = False
) -> tuple[int, ...]:
    """The result of a session.

    Parameters
    ----------
    operands : source and data of each contribution, as they arrived
    attr, order, ftz : what is reduced, and how
    """
    if order == "rank":
        operands = sorted(operands, key=lambda operand: operand[0])
    return reduce_flits([data for _, data in operands], attr, exact=order == "exact", ftz=ftz)
