"""Where contributions come in: each is told its worth, and its session's progress is kept."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.packet import FLIT_BITS, MAX_DATA_FLITS, Attr, Cmd, Header, Status
from dysharp.hw.share import place
from dysharp.hw.switch.crosspoint import Contribution
from dysharp.hw.switch.error_answer import Fault, smaller_status
from dysharp.hw.switch.reduction_ports import LogEntry, ReductionEvents, Timeout
from dysharp.hw.switch.session import SessionId, session_stream
from dysharp.hw.switch.session_table import AnswerRecord, Completion, SessionTable, Stray

__all__ = [
    "Intake",
    "Operand",
    "Upcoming",
    "finished_session",
]


class Operand(data.Struct):
    """A DATA flit of a contribution that counts; a pulse.

    Members
    -------
    valid : there is one in this cycle
    session, source, word : whose it is: of which session, from which port, which flit of the chunk
    fresh : it is the first contribution to its session
    attr : type, operation and accumulation
    data : the flit
    """

    valid: 1
    session: 8
    source: 7
    word: range(MAX_DATA_FLITS)
    fresh: 1
    attr: Attr
    data: FLIT_BITS


class Upcoming(data.Struct):
    """The DATA flit at the input, for what must be read a cycle ahead of its :class:`Operand`.

    Members
    -------
    taken : it is taken in this cycle
    session, word, fresh : as in the operand that it becomes, if it counts
    """

    taken: 1
    session: 8
    word: range(MAX_DATA_FLITS)
    fresh: 1


def finished_session(ports: int) -> data.StructLayout:
    """A session that has all its answers or timed out, and what is left to do.

    Parameters
    ----------
    ports : ports of the switch plane

    Members
    -------
    completion : the session and its status
    ports : a bit for each port that was asked
    attr : type, operation and accumulation
    flits : DATA flits of every contribution, if the status is 0; none for a store
    """
    return data.StructLayout({"completion": Completion, "ports": ports, "attr": Attr, "flits": 5})


class Intake(Component):
    """Sessions of one port and the contributions to them.

    A contribution's header names its session; a cycle later the table's verdict says whether it
    counts. If so, its DATA flits appear at ``o`` and its last flit brings the session forward. If
    not, it is dropped and told by ``fault`` and ``events``. A session whose time is over takes the
    place of a header for one cycle; a contribution that stops half way keeps it from that.

    Latency: one cycle from ``i`` to ``o`` and to ``finished``. Throughput: one flit a cycle;
    ``i.ready`` is low for a DATA flit in a cycle with ``hold``, and for a header while a session
    times out.

    Parameters
    ----------
    ports : ports of the switch plane
    sessions : sessions, at most 256
    chunk_flits : DATA flits of a chunk, a power of two
    """

    reserve: stream.Interface
    """In(stream of session_request)."""
    session: Any
    """Out(SessionId), what is reserved when ``reserve`` is taken."""
    i: stream.Interface
    """In(stream of Contribution)."""
    upcoming: Any
    """Out(Upcoming), valid even if ``hold`` is high."""
    hold: Signal
    """In, the DATA flit at ``i`` waits."""
    o: Any
    """Out(Operand)."""
    finishes: Signal
    """Out, a session has all its answers or has timed out; a pulse."""
    finished: Any
    """Out(finished_session), valid with ``finishes``."""
    record_en: Signal
    """In, read the answer's record of session ``record_session``."""
    record_session: Signal
    """In."""
    record: Any
    """Out(AnswerRecord), one cycle later, and held."""
    answers: Signal
    """In, session ``answered`` is answered; only while ``may_answer``."""
    answered: Any
    """In(SessionId)."""
    may_answer: Signal
    """Out."""
    tick: Signal
    """In, of the session clock."""
    timeout: Any
    """Out(Timeout)."""
    missing: Signal
    """Out, with ``timeout``: a bit for each port that owes the session an answer."""
    free_retired: Signal
    """In, a pulse."""
    exhausted: Signal
    """Out, all sessions are retired."""
    log: Any
    """Out(LogEntry)."""
    fault: Any
    """Out(Fault), a pulse for each dropped or poisoned contribution and each wrong sum."""
    occupied: Signal
    """Out, sessions in use."""
    retired: Signal
    """Out, those of them that are retired."""
    events: Any
    """Out(ReductionEvents)."""

    def __init__(self, *, ports: int, sessions: int, chunk_flits: int):
        if not 2 <= chunk_flits <= MAX_DATA_FLITS or chunk_flits & chunk_flits - 1:
            raise ValueError(
                f"Chunk flits must be a power of two from 2 to {MAX_DATA_FLITS}, "
                f"not {chunk_flits!r}"
            )
        self.ports, self.sessions, self.chunk_flits = ports, sessions, chunk_flits
        super().__init__(
            {
                "reserve": In(session_stream(ports)),
                "session": Out(SessionId),
                "i": In(stream.Signature(Contribution)),
                "upcoming": Out(Upcoming),
                "hold": In(1),
                "o": Out(Operand),
                "finishes": Out(1),
                "finished": Out(finished_session(ports)),
                "record_en": In(1),
                "record_session": In(8),
                "record": Out(AnswerRecord),
                "answers": In(1),
                "answered": In(SessionId),
                "may_answer": Out(1),
                "tick": In(1),
                "timeout": Out(Timeout),
                "missing": Out(ports),
                "free_retired": In(1),
                "exhausted": Out(1),
                "log": Out(LogEntry),
                "fault": Out(Fault),
                "occupied": Out(range(sessions + 1)),
                "retired": Out(range(sessions + 1)),
                "events": Out(ReductionEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``intake_<ports>x<sessions>x<chunk flits>``."""
        return f"intake_{self.ports}x{self.sessions}x{self.chunk_flits}"

    def elaborate(self, platform):
        """Find the session at the header; decide a cycle later, and keep the decision."""
        m = Module()
        table = SessionTable(ports=self.ports, sessions=self.sessions)
        m.submodules.table = place(table)
        connect(m, flipped(self.reserve), table.reserve)
        m.d.comb += [
            self.session.eq(table.session),
            self.occupied.eq(table.occupied),
            table.record_en.eq(self.record_en),
            table.record_session.eq(self.record_session),
            self.record.eq(table.record),
            table.answers.eq(self.answers),
            table.answered.eq(self.answered),
            self.may_answer.eq(table.may_answer),
            table.tick.eq(self.tick),
            self.timeout.eq(table.timeout),
            self.missing.eq(table.missing),
            table.free_retired.eq(self.free_retired),
            self.exhausted.eq(table.exhausted),
            self.retired.eq(table.retired),
        ]

        # Find: the header names the session, which stays the one of all that follows. One that
        # has waited too long is found between two packets.
        flit = self.i.payload.flit
        arriving: Any = Signal(Header)
        at_header = Signal(init=1)
        accept = Signal()
        header: Any = Signal(Header)
        source = Signal(7)
        word = Signal(ceil_log2(self.chunk_flits))
        found = table.overdue.payload
        gives_up = Signal()
        m.d.comb += [
            table.overdue.ready.eq(at_header),
            gives_up.eq(table.overdue.valid & at_header),
            self.i.ready.eq(Mux(at_header, ~table.overdue.valid, ~self.hold)),
            accept.eq(self.i.valid & self.i.ready),
            table.find_en.eq((accept | gives_up) & at_header),
            table.find.session.eq(arriving.replica_tag.session),
            table.find.generation.eq(arriving.replica_tag.generation),
            self.upcoming.taken.eq(accept & ~at_header),
            self.upcoming.session.eq(header.replica_tag.session),
            self.upcoming.word.eq(word),
            self.upcoming.fresh.eq(table.verdict.fresh),
        ]
        with m.If(gives_up):
            m.d.comb += [
                arriving.replica_tag.session.eq(found.session),
                arriving.replica_tag.generation.eq(found.generation),
            ]
        with m.Else():
            m.d.comb += arriving.eq(flit.data)
        with m.If(accept):
            m.d.sync += [at_header.eq(flit.last), word.eq(Mux(at_header, 0, word + 1))]
        with m.If(table.find_en):
            m.d.sync += [header.eq(arriving), source.eq(self.i.payload.source)]

        # Decide at the header, keep the decision for the rest; count at the last flit.
        is_here, is_header, is_last, is_poisoned = (
            Signal(name=name) for name in ("is_here", "is_header", "is_last", "is_poisoned")
        )
        is_timeout = Signal()
        operand = Signal(FLIT_BITS)
        here_word = Signal.like(word)
        m.d.sync += [
            is_here.eq(accept),
            is_timeout.eq(gives_up),
            is_header.eq(at_header),
            is_last.eq(flit.last),
            is_poisoned.eq(flit.last & flit.poison),
            operand.eq(flit.data),
            here_word.eq(word),
        ]
        is_error = header.cmd == Cmd.ERR
        accepted, held, counts, is_stray = Signal(), Signal(), Signal(), Signal()
        with m.If(is_here & is_header):
            m.d.sync += held.eq(table.verdict.accept)
        m.d.comb += [
            table.claim.id.session.eq(header.replica_tag.session),
            table.claim.id.generation.eq(header.replica_tag.generation),
            table.claim.source.eq(source),
            table.claim.flits.eq(header.len),
            table.claim.is_error.eq(is_error),
            table.claim.is_timeout.eq(is_timeout),
            accepted.eq(Mux(is_header, table.verdict.accept, held)),
            counts.eq(is_here & is_last & accepted),
            is_stray.eq(is_here & is_header & ~table.verdict.accept),
            table.dropped.eq(is_stray),
            table.commit.eq(counts),
            table.commit_count.eq(header.multimem.count),
            table.commit_status.eq(_status(header, is_error, is_poisoned)),
        ]

        m.d.comb += [
            self.o.valid.eq(is_here & ~is_header & accepted & ~is_error),
            self.o.session.eq(header.replica_tag.session),
            self.o.source.eq(source),
            self.o.word.eq(here_word),
            self.o.fresh.eq(table.verdict.fresh),
            self.o.attr.eq(table.verdict.attr),
            self.o.data.eq(operand),
            self.finishes.eq(table.completes),
            self.finished.completion.eq(table.completion),
            self.finished.ports.eq(table.expected),
            self.finished.attr.eq(table.verdict.attr),
            self.finished.flits.eq(header.len),
        ]
        self._report(m, table, header, source, counts, is_stray, is_poisoned)
        return m

    def _report(self, m: Module, table, header, source, counts, is_stray, is_poisoned) -> None:
        address = header.multimem
        poisoned = counts & is_poisoned
        is_malformed = is_stray | table.miscounted
        m.d.comb += [
            self.log.valid.eq(counts),
            self.log.maddr.eq(address.maddr),
            self.log.stage.eq(address.stage),
            self.log.source.eq(source),
            self.fault.valid.eq(is_malformed | poisoned),
            self.fault.status.eq(Mux(is_malformed, Status.MALFORMED, Status.POISONED)),
            self.fault.answered.eq(~is_stray),
            self.fault.cmd.eq(Value.cast(header.cmd)),
            self.fault.addr.eq(header.addr),
            self.events.accepted.eq(counts),
            self.events.poisoned.eq(poisoned),
            self.events.answered.eq(self.answers),
        ]
        for stray in Stray:
            if stray is not Stray.NONE:
                event = self.events[stray.name.lower()]
                m.d.comb += event.eq(is_stray & (table.verdict.stray == stray))


def _status(header, is_error, is_poisoned):
    """Status that a contribution brings into its session; an ERR without one is malformed."""
    given = Value.cast(header.multimem.attr)
    given = Mux(is_error, Mux(given.any(), given, Status.MALFORMED), Status.OK)
    return smaller_status(given, Mux(is_poisoned, Status.POISONED, Status.OK))
