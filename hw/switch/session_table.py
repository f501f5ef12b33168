"""Sessions of one port: who is free, what each expects, and what has come so far."""

from typing import Any

from amaranth import Module, Mux, Shape, Signal
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.link.fifo import Fifo
from dysharp.hw.memory import Ram
from dysharp.hw.packet import MAX_TARGETS, Attr, Cmd, Status
from dysharp.hw.share import place
from dysharp.hw.switch.error_answer import smaller_status
from dysharp.hw.switch.session import (
    MAX_SESSIONS,
    SESSION_COUNT_BITS,
    SessionId,
    session_stream,
)

__all__ = ["AnswerRecord", "Claim", "Completion", "SessionTable", "Stray", "Verdict"]


class Stray(enum.Enum, shape=3):
    """Why a contribution is dropped; the first one that applies."""

    NONE = 0
    LATE = 1
    """No session, none any more, or an earlier use of it."""
    UNEXPECTED = 2
    """The port got no replica."""
    SURPLUS = 3
    """The port has answered already."""
    WRONG_LENGTH = 4
    """More or fewer DATA flits than were asked for."""


class Claim(data.Struct):
    """What a contribution says about itself."""

    id: SessionId
    source: 7
    flits: 5
    is_error: 1


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
    """A session that has all its answers.

    Members
    -------
    id : the session
    status : 0, or what the source gets in an ERR
    """

    id: SessionId
    status: Status


class AnswerRecord(data.Struct):
    """What the answer to the source is made of."""

    local: 12
    is_load: 1
    count: SESSION_COUNT_BITS
    attr: Attr
    flits: 5
    maddr: 48
    stage: 1


class SessionTable(Component):
    """Records of the sessions of one port.

    A session's fixed part is written when it is reserved, its progress only by contributions; a
    flip-flop ``fresh`` a session stands for "no progress yet", so neither record has two writers.
    Every reservation uses a session's next generation, so an answer to an earlier use is told
    apart (for 16 uses). Free sessions are used in turn.

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
    commit: Signal
    """In, the claim counts; never without ``verdict.accept``."""
    commit_count: Signal
    """In, entries that it stands for."""
    commit_status: Any
    """In(Status), 0 if it is no error."""
    completes: Signal
    """Out, the commit is the session's last."""
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
    release: Signal
    """In, the session of ``released`` is free again."""
    released: Any
    """In(SessionId)."""
    occupied: Signal
    """Out, sessions in use."""

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
                "commit": In(1),
                "commit_count": In(range(MAX_TARGETS + 1)),
                "commit_status": In(Status),
                "completes": Out(1),
                "completion": Out(Completion),
                "miscounted": Out(1),
                "record_en": In(1),
                "record_session": In(8),
                "record": Out(AnswerRecord),
                "release": In(1),
                "released": In(SessionId),
                "occupied": Out(range(sessions + 1)),
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
        reserved = self._free_sessions(m)

        wanted = self.reserve.payload
        expected_in: Any = Signal(expectation)
        answer_in: Any = Signal(AnswerRecord)
        m.d.comb += [
            expected_in.generation.eq(self.session.generation),
            answer_in.is_load.eq(wanted.cmd == Cmd.MM_LDR),
        ]
        m.d.comb += [expected_in[f].eq(wanted[f]) for f in ("ports", "count", "attr", "flits")]
        m.d.comb += [
            answer_in[f].eq(wanted[f])
            for f in ("local", "count", "attr", "flits", "maddr", "stage")
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
        source = Signal(self.ports)
        is_live, is_fresh = Signal(), Signal()
        m.d.comb += [
            here.eq(1 << claimed),
            source.eq(1 << self.claim.source),
            is_live.eq((live & here).any() & (expected.generation == self.claim.id.generation)),
            is_fresh.eq((fresh & here).any()),
        ]
        arrived = Signal(self.ports)
        m.d.comb += arrived.eq(Mux(is_fresh, 0, sofar.ports))
        stray: Any = self.verdict.stray
        with m.If(~is_live):
            m.d.comb += stray.eq(Stray.LATE)
        with m.Elif(~(expected.ports & source).any()):
            m.d.comb += stray.eq(Stray.UNEXPECTED)
        with m.Elif((arrived & source).any()):
            m.d.comb += stray.eq(Stray.SURPLUS)
        with m.Elif(~self.claim.is_error & (self.claim.flits != expected.flits)):
            m.d.comb += stray.eq(Stray.WRONG_LENGTH)
        m.d.comb += [
            self.verdict.accept.eq(stray == Stray.NONE),
            self.verdict.fresh.eq(is_fresh),
            self.verdict.attr.eq(expected.attr),
            self.expected.eq(expected.ports),
        ]

        merged: Any = Signal(progress)
        m.d.comb += [
            merged.ports.eq(arrived | source),
            merged.count.eq(Mux(is_fresh, 0, sofar.count) + self.commit_count),
            merged.status.eq(
                smaller_status(Mux(is_fresh, 0, sofar.status.as_value()), self.commit_status)
            ),
            progress_ram.write_en.eq(self.commit),
            progress_ram.write_addr.eq(claimed[:address]),
            progress_ram.write_data.eq(merged),
            self.completes.eq(self.commit & (merged.ports == expected.ports)),
            self.miscounted.eq(self.completes & (merged.count != expected.count)),
            self.completion.id.eq(self.claim.id),
            self.completion.status.eq(Mux(self.miscounted, Status.MALFORMED, merged.status)),
        ]
        begins = Mux(reserved, 1 << self.session.session, 0)
        ends = Mux(self.completes, here, 0)
        touched = Mux(self.commit, here, 0)
        m.d.sync += [live.eq(live & ~ends | begins), fresh.eq(fresh & ~touched | begins)]
        return m

    def _ram(self, m: Module, name: str, shape) -> Ram:
        ram = Ram(width=Shape.cast(shape).width, depth=self.sessions, transparent=True)
        m.submodules[name] = place(ram)
        return ram

    def _free_sessions(self, m: Module):
        """Sessions that were never used, then those given back; whether one is taken now."""
        queue = Fifo(shape=SessionId, depth=max(2, self.sessions))
        m.submodules.free = place(queue)
        unused = Signal(range(self.sessions + 1))
        all_used = Signal()
        reserved = Signal()
        m.d.comb += [
            all_used.eq(unused == self.sessions),
            self.reserve.ready.eq(~all_used | queue.o.valid),
            reserved.eq(self.reserve.valid & self.reserve.ready),
            queue.o.ready.eq(reserved & all_used),
            queue.i.valid.eq(self.release),
            queue.i.payload.session.eq(self.released.session),
            queue.i.payload.generation.eq(self.released.generation + 1),
        ]
        with m.If(all_used):
            m.d.comb += self.session.eq(queue.o.payload)
        with m.Else():
            m.d.comb += self.session.session.eq(unused)
            with m.If(reserved):
                m.d.sync += unused.eq(unused + 1)
        m.d.sync += self.occupied.eq(self.occupied + reserved - self.release)
        return reserved
