"""Sessions of one port: who is free, what each expects, and what has come so far."""

from typing import Any

from amaranth import Module, Mux, Shape, Signal
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.memory import Ram
from dysharp.hw.packet import MAX_TARGETS, Attr, Cmd, Status
from dysharp.hw.share import place
from dysharp.hw.switch.error_answer import smaller_status
from dysharp.hw.switch.free_sessions import FreeSessions
from dysharp.hw.switch.reduction_ports import Timeout
from dysharp.hw.switch.retirement import Retirement
from dysharp.hw.switch.session import (
    MAX_SESSIONS,
    SESSION_COUNT_BITS,
    SessionId,
    session_stream,
)
from dysharp.hw.switch.session_timer import SessionTimer

__all__ = ["AnswerRecord", "Claim", "Completion", "SessionTable", "Stray", "Verdict"]


class Stray(enum.Enum, shape=3):
    """Why a contribution is dropped; the first one that applies."""

    NONE = 0
    LATE = 1
    """No session, none any more, an earlier use of it, or one that has timed out."""
    UNEXPECTED = 2
    """The port got no replica."""
    SURPLUS = 3
    """The port has answered already."""
    WRONG_LENGTH = 4
    """More or fewer DATA flits than were asked for."""


class Claim(data.Struct):
    """What a contribution says about itself.

    Members
    -------
    id : its session
    source : the port that it came in at
    flits : its DATA flits
    is_error : it is an ERR
    is_timeout : it is no contribution but the end of the session's time; the rest says nothing
    """

    id: SessionId
    source: 7
    flits: 5
    is_error: 1
    is_timeout: 1


class Verdict(data.Struct):
    """What the table says to it.

    Members
    -------
    accept : it counts
    stray : why not
    fresh : it is the first of its session
    attr : type, operation and accumulation of the session
    """

    accept: 1
    stray: Stray
    fresh: 1
    attr: Attr


class Completion(data.Struct):
    """A session that has all its answers, or will wait for them no longer.

    Members
    -------
    id : the session
    status : 0, or what the source gets in an ERR
    timed_out : it has not had all of them
    """

    id: SessionId
    status: Status
    timed_out: 1


class AnswerRecord(data.Struct):
    """What the answer to the source is made of."""

    local: 12
    cmd: Cmd
    count: SESSION_COUNT_BITS
    attr: Attr
    flits: 5
    maddr: 48
    stage: 1


class SessionTable(Component):
    """Records of the sessions of one port.

    A session's fixed part is written when it is reserved, its progress only by contributions; a
    flip-flop ``fresh`` a session stands for "no progress yet", so neither record has two writers.

    A session ends with its last contribution, or when a claim says that its time is over. Then it
    completes with status TIMEOUT, or a smaller one that it had, and is retired: its number is not
    used again before its missing answers have come, each of which is a stray, or
    ``free_retired`` says that they never will.

    Latency: ``claim`` presents a contribution in the cycle after ``find`` named its session;
    ``verdict`` follows in that cycle. ``commit`` takes effect for a ``find`` in the same cycle.
    ``record`` appears one cycle after ``record_en`` and holds. Throughput: a reservation, a
    contribution and an answer every cycle. Without a free session ``reserve.ready`` is low; all
    else never waits.

    Parameters
    ----------
    ports : ports of the switch plane
    sessions : sessions, at most 256
    """

    reserve: stream.Interface
    """In(stream of session_request)."""
    session: Any
    """Out(SessionId), what is reserved when ``reserve`` is taken."""
    find: Any
    """In(SessionId), read the session's records."""
    find_en: Signal
    """In."""
    claim: Any
    """In(Claim), the contribution whose session was found last; held for ``commit``."""
    verdict: Any
    """Out(Verdict)."""
    expected: Signal
    """Out, with ``verdict``: a bit for each port from which the session expects an answer."""
    dropped: Signal
    """In, the claim is a contribution that does not count; in the cycle of its first verdict."""
    commit: Signal
    """In, the claim counts; never without ``verdict.accept``."""
    commit_count: Signal
    """In, entries that it stands for."""
    commit_status: Any
    """In(Status), 0 if it is no error."""
    completes: Signal
    """Out, the session has ended: the commit is its last, or its time is over."""
    completion: Any
    """Out(Completion), valid with ``completes``."""
    miscounted: Signal
    """Out, with ``completes``: the entries do not add up to what was expected."""
    record_en: Signal
    """In, read the answer's record of session ``record_session``."""
    record_session: Signal
    """In."""
    record: Any
    """Out(AnswerRecord)."""
    answers: Signal
    """In, session ``answered`` has had its answer and its words are read; only while
    ``may_answer``."""
    answered: Any
    """In(SessionId)."""
    may_answer: Signal
    """Out."""
    tick: Signal
    """In, of the session clock."""
    overdue: stream.Interface
    """Out(stream of SessionId), a session whose time is over, to be claimed as such."""
    timeout: Any
    """Out(Timeout), with ``completes``."""
    missing: Signal
    """Out, with ``timeout``: a bit for each port that owes the session an answer."""
    free_retired: Signal
    """In, a pulse."""
    exhausted: Signal
    """Out, all sessions are retired."""
    occupied: Signal
    """Out, sessions in use."""
    retired: Signal
    """Out, those of them that are retired."""

    def __init__(self, *, ports: int, sessions: int):
        if not 2 <= ports <= 72:
            raise ValueError(f"Ports must be 2 to 72, not {ports!r}")
        if not 1 <= sessions <= MAX_SESSIONS:
            raise ValueError(f"Sessions must be 1 to {MAX_SESSIONS}, not {sessions!r}")
        self.ports, self.sessions = ports, sessions
        super().__init__(
            {
                "reserve": In(session_stream(ports)),
                "session": Out(SessionId),
                "find": In(SessionId),
                "find_en": In(1),
                "claim": In(Claim),
                "verdict": Out(Verdict),
                "expected": Out(ports),
                "dropped": In(1),
                "commit": In(1),
                "commit_count": In(range(MAX_TARGETS + 1)),
                "commit_status": In(Status),
                "completes": Out(1),
                "completion": Out(Completion),
                "miscounted": Out(1),
                "record_en": In(1),
                "record_session": In(8),
                "record": Out(AnswerRecord),
                "answers": In(1),
                "answered": In(SessionId),
                "may_answer": Out(1),
                "tick": In(1),
                "overdue": Out(stream.Signature(SessionId)),
                "timeout": Out(Timeout),
                "missing": Out(ports),
                "free_retired": In(1),
                "exhausted": Out(1),
                "occupied": Out(range(sessions + 1)),
                "retired": Out(range(sessions + 1)),
            }
        )

    @property
    def module_name(self) -> str:
        """``session_table_<ports>x<sessions>``."""
        return f"session_table_{self.ports}x{self.sessions}"

    def elaborate(self, platform):
        """Free sessions, the three records, the verdict, and progress."""
        m = Module()
        expectation = data.StructLayout(
            {
                "generation": 4,
                "ports": self.ports,
                "count": SESSION_COUNT_BITS,
                "attr": Attr,
                "flits": 5,
            }
        )
        progress = data.StructLayout(
            {
                "ports": self.ports,
                "count": range(self.ports * MAX_TARGETS + 1),
                "status": Status,
            }
        )
        address = ceil_log2(self.sessions)
        expected_ram = self._ram(m, "expected_ram", expectation)
        progress_ram = self._ram(m, "progress_ram", progress)
        answer_ram = self._ram(m, "answer_ram", AnswerRecord)
        reserved, retirement, timer = self._life(m)

        wanted = self.reserve.payload
        expected_in: Any = Signal(expectation)
        answer_in: Any = Signal(AnswerRecord)
        m.d.comb += expected_in.generation.eq(self.session.generation)
        m.d.comb += [expected_in[f].eq(wanted[f]) for f in ("ports", "count", "attr", "flits")]
        m.d.comb += [
            answer_in[f].eq(wanted[f])
            for f in ("local", "cmd", "count", "attr", "flits", "maddr", "stage")
        ]
        for ram, value in ((expected_ram, expected_in), (answer_ram, answer_in)):
            m.d.comb += [
                ram.write_en.eq(reserved),
                ram.write_addr.eq(self.session.session[:address]),
                ram.write_data.eq(value),
            ]

        expected: Any = data.View(expectation, expected_ram.read_data)
        sofar: Any = data.View(progress, progress_ram.read_data)
        m.d.comb += [
            expected_ram.read_en.eq(self.find_en),
            expected_ram.read_addr.eq(self.find.session[:address]),
            progress_ram.read_en.eq(self.find_en),
            progress_ram.read_addr.eq(self.find.session[:address]),
            answer_ram.read_en.eq(self.record_en),
            answer_ram.read_addr.eq(self.record_session[:address]),
            self.record.eq(answer_ram.read_data),
        ]

        # A live session still waits for an answer; a fresh one has had none.
        live, fresh = Signal(self.sessions), Signal(self.sessions)
        claimed = self.claim.id.session
        here = Signal(self.sessions)
        source, arrived = Signal(self.ports), Signal(self.ports)
        is_this_use, is_live, is_fresh, is_owed = (
            Signal(name=name) for name in ("is_this_use", "is_live", "is_fresh", "is_owed")
        )
        m.d.comb += [
            here.eq(1 << claimed),
            source.eq(1 << self.claim.source),
            is_this_use.eq(expected.generation == self.claim.id.generation),
            is_live.eq((live & here).any() & is_this_use),
            is_fresh.eq((fresh & here).any()),
            arrived.eq(Mux(is_fresh, 0, sofar.ports)),
            is_owed.eq((expected.ports & ~arrived & source).any()),
        ]
        stray: Any = self.verdict.stray
        with m.If(~is_live):
            m.d.comb += stray.eq(Stray.LATE)
        with m.Elif(~(expected.ports & source).any()):
            m.d.comb += stray.eq(Stray.UNEXPECTED)
        with m.Elif(~is_owed):
            m.d.comb += stray.eq(Stray.SURPLUS)
        with m.Elif(~self.claim.is_error & (self.claim.flits != expected.flits)):
            m.d.comb += stray.eq(Stray.WRONG_LENGTH)
        m.d.comb += [
            self.verdict.accept.eq((stray == Stray.NONE) & ~self.claim.is_timeout),
            self.verdict.fresh.eq(is_fresh),
            self.verdict.attr.eq(expected.attr),
            self.expected.eq(expected.ports),
        ]

        # A retired session's progress goes on too, to know when it has had everything.
        merged: Any = Signal(progress)
        expires, swallows, is_last = Signal(), Signal(), Signal()
        status = Mux(is_fresh, 0, sofar.status.as_value())
        brought = Mux(self.claim.is_timeout, Status.TIMEOUT, self.commit_status)
        m.d.comb += [
            expires.eq(self.claim.is_timeout & is_live),
            swallows.eq(self.dropped & (retirement.retired & here).any() & is_this_use & is_owed),
            merged.ports.eq(arrived | source),
            merged.count.eq(Mux(is_fresh, 0, sofar.count) + self.commit_count),
            merged.status.eq(smaller_status(status, brought)),
            is_last.eq(merged.ports == expected.ports),
            progress_ram.write_en.eq(self.commit | swallows),
            progress_ram.write_addr.eq(claimed[:address]),
            progress_ram.write_data.eq(merged),
            self.completes.eq(self.commit & is_last | expires),
            self.miscounted.eq(self.commit & is_last & (merged.count != expected.count)),
            self.completion.id.eq(self.claim.id),
            self.completion.status.eq(Mux(self.miscounted, Status.MALFORMED, merged.status)),
            self.completion.timed_out.eq(expires),
            self.timeout.valid.eq(expires),
            self.timeout.id.eq(self.claim.id),
            self.missing.eq(Mux(expires, expected.ports & ~arrived, 0)),
            retirement.session.eq(claimed),
            retirement.retires.eq(expires),
            retirement.settles.eq(swallows & is_last),
        ]
        begins = Mux(reserved, 1 << self.session.session, 0)
        ends = Mux(self.completes, here, 0)
        touched = Mux(self.commit | swallows, here, 0)
        m.d.sync += [live.eq(live & ~ends | begins), fresh.eq(fresh & ~touched | begins)]
        m.d.comb += timer.live.eq(live)
        return m

    def _ram(self, m: Module, name: str, shape) -> Ram:
        ram = Ram(width=Shape.cast(shape).width, depth=self.sessions, transparent=True)
        m.submodules[name] = place(ram)
        return ram

    def _life(self, m: Module):
        """From free over reserved to free again, or too old and retired."""
        free = FreeSessions(sessions=self.sessions)
        timer = SessionTimer(sessions=self.sessions)
        retirement = Retirement(sessions=self.sessions)
        m.submodules.free = place(free)
        m.submodules.timer = place(timer)
        m.submodules.retirement = place(retirement)
        reserved = Signal()
        m.d.comb += [
            self.reserve.ready.eq(free.available),
            self.session.eq(free.session),
            reserved.eq(self.reserve.valid & self.reserve.ready),
            free.take.eq(reserved),
            self.occupied.eq(free.occupied),
            timer.tick.eq(self.tick),
            timer.begins.eq(reserved),
            timer.begun.eq(self.session),
            retirement.looked_at.eq(timer.looked_at),
            retirement.free.eq(self.free_retired),
            retirement.answers.eq(self.answers),
            retirement.answered.eq(self.answered),
            self.may_answer.eq(retirement.may_answer),
            free.give.eq(retirement.give),
            free.given.eq(retirement.given),
            self.exhausted.eq(retirement.exhausted),
            self.retired.eq(retirement.count),
        ]
        connect(m, timer.o, flipped(self.overdue))
        return reserved, retirement, timer
