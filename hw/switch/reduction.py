"""The reduction unit of one port: contributions in, one answer a session out."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.alu.alu import ReductionAlu, ResultRounder
from dysharp.hw.alu.reductions import Arithmetic
from dysharp.hw.config import Config
from dysharp.hw.errors import ConfigError
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.memory import Ram
from dysharp.hw.packet import FLIT_BITS, Cmd, Header, Status
from dysharp.hw.share import place
from dysharp.hw.switch.answer import AnswerEngine
from dysharp.hw.switch.crosspoint import Contribution
from dysharp.hw.switch.error_answer import Fault, smaller_status
from dysharp.hw.switch.session import SessionId, session_stream
from dysharp.hw.switch.session_table import Completion, SessionTable, Stray

__all__ = ["LogEntry", "ReductionEvents", "ReductionUnit", "reduction_block", "reduction_unit"]


class LogEntry(data.Struct):
    """A contribution that counts, in the order of accumulation; a pulse.

    Members
    -------
    valid : one is accepted in this cycle
    maddr, stage : as in the contribution, which copies them from the request
    source : port that it came in at
    """

    valid: 1
    maddr: 48
    stage: 1
    source: 7


class ReductionEvents(data.Struct):
    """What happens, for counters.

    Members
    -------
    accepted : a contribution counts
    late, unexpected, surplus, wrong_length : one is dropped, and why; see :class:`Stray`
    poisoned : one that counts came poisoned
    answered : a session is answered, by a result or an ERR
    """

    accepted: 1
    late: 1
    unexpected: 1
    surplus: 1
    wrong_length: 1
    poisoned: 1
    answered: 1


class ReductionUnit(Component):
    """Collects the answers to the replicas of a port's requests and answers each request once.

    A session is reserved before the first replica leaves. It then expects one answer from every
    port that got a replica: MM_RSP, whose first is loaded and whose others are added in the order
    of arrival; MM_ACK, which is only counted; or ERR. When the last one has come, the source gets
    MM_RSP with the sums rounded once, or MM_ACK; or ERR with the smallest status, if a GPU
    answered ERR, a contribution was poisoned (6), or the counts do not add up (1).

    A contribution from a port that is not expected, of a wrong length, late, or one too many is
    dropped and changes nothing. Contributions never wait for answers or requests: every session
    keeps its result in its own accumulators, and answers read them in cycles left free.

    Latency: from the last flit of the last contribution to the header of the answer: five cycles
    and those of the adder. Throughput: one flit of contributions and one of answers each cycle. A
    flit waits while its accumulators are still in the adder, at most for its latency, which takes
    two short contributions to one session, one behind the other.

    Parameters
    ----------
    ports : ports of the switch plane
    sessions : sessions, at most 256
    chunk_flits : DATA flits of a chunk
    arithmetic : types, and depth of the adders

    Source
    ------
    The DySHARP paper's reduction units: one a port, 64 KB of accumulators. What it leaves open is
    decided in ``docs/reduction.md``.
    """

    reserve: stream.Interface
    """In(stream of session_request)."""
    session: Any
    """Out(SessionId), what is reserved when ``reserve`` is taken."""
    i: stream.Interface
    """In(stream of Contribution)."""
    port: Signal
    """In, this port; constant."""
    o: stream.Interface
    """Out(FlitStream), answers to this port's GPU."""
    log: Any
    """Out(LogEntry)."""
    fault: Any
    """Out(Fault), a pulse for each dropped or poisoned contribution and each wrong sum."""
    occupied: Signal
    """Out, sessions in use."""
    events: Any
    """Out(ReductionEvents)."""

    def __init__(self, *, ports: int, sessions: int, chunk_flits: int, arithmetic: Arithmetic):
        self.ports, self.sessions, self.chunk_flits = ports, sessions, chunk_flits
        self.arithmetic = arithmetic
        super().__init__(
            {
                "reserve": In(session_stream(ports)),
                "session": Out(SessionId),
                "i": In(stream.Signature(Contribution)),
                "port": In(7),
                "o": Out(FlitStream),
                "log": Out(LogEntry),
                "fault": Out(Fault),
                "occupied": Out(range(sessions + 1)),
                "events": Out(ReductionEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``reduction_<ports>x<sessions>x<chunk flits>_<of the arithmetic>``."""
        return f"reduction_{self.ports}x{self.sessions}x{self.chunk_flits}_{self.arithmetic.name}"

    def elaborate(self, platform):
        """Find (the session), decide and add, write back; then answer."""
        m = Module()
        table = SessionTable(ports=self.ports, sessions=self.sessions)
        alu = ReductionAlu(**self.arithmetic.options)
        rounder = ResultRounder(dtypes=self.arithmetic.dtypes)
        words = Ram(
            width=alu.accumulator_bits, depth=self.sessions * self.chunk_flits, transparent=True
        )
        finished = Fifo(shape=Completion, depth=max(2, self.sessions))
        answers = AnswerEngine(chunk_flits=self.chunk_flits, rounder=rounder)
        m.submodules.table = place(table)
        m.submodules.alu = place(alu)
        m.submodules.accumulators = place(words)
        m.submodules.finished = place(finished)
        m.submodules.answers = place(answers)
        m.d.comb += [
            self.session.eq(table.session),
            self.occupied.eq(table.occupied),
        ]
        connect(m, flipped(self.reserve), table.reserve)
        self._accumulate(m, table, alu, words, finished, answers)
        self._answer(m, table, finished, answers, words)
        return m

    def _accumulate(self, m: Module, table, alu, words, finished, answers) -> None:
        word_bits = ceil_log2(self.chunk_flits)
        address_shape = word_bits + ceil_log2(self.sessions)

        # Find: the header names the session; each DATA flit reads the accumulators it is added to.
        flit = self.i.payload.flit
        arriving: Any = Signal(Header)
        at_header = Signal(init=1)
        found: Any = Signal(SessionId)
        word = Signal(word_bits)
        address = Signal(address_shape)
        in_adder, accept, reads = Signal(), Signal(), Signal()
        m.d.comb += [
            arriving.eq(flit.data),
            address.eq(Cat(word, found.session)),
            self.i.ready.eq(at_header | ~in_adder),
            accept.eq(self.i.valid & self.i.ready),
            table.find_en.eq(accept & at_header),
            table.find.session.eq(arriving.replica_tag.session),
            table.find.generation.eq(arriving.replica_tag.generation),
        ]
        with m.If(accept):
            m.d.sync += [at_header.eq(flit.last), word.eq(Mux(at_header, 0, word + 1))]
            with m.If(at_header):
                m.d.sync += found.eq(table.find)

        # Decide at the header, keep the decision for the rest; count at the last flit.
        is_here, is_header, is_last, is_poisoned = (
            Signal(name=name) for name in ("is_here", "is_header", "is_last", "is_poisoned")
        )
        operand = Signal(FLIT_BITS)
        here_address = Signal(address_shape)
        header: Any = Signal(Header)
        source = Signal(7)
        accepted, held = Signal(), Signal()
        m.d.sync += [
            is_here.eq(accept),
            is_header.eq(at_header),
            is_last.eq(flit.last),
            is_poisoned.eq(flit.last & flit.poison),
            operand.eq(flit.data),
            here_address.eq(address),
        ]
        with m.If(accept & at_header):
            m.d.sync += [header.eq(arriving), source.eq(self.i.payload.source)]
        is_error = header.cmd == Cmd.ERR
        counts = Signal()
        m.d.comb += [
            table.claim.id.session.eq(header.replica_tag.session),
            table.claim.id.generation.eq(header.replica_tag.generation),
            table.claim.source.eq(source),
            table.claim.flits.eq(header.len),
            table.claim.is_error.eq(is_error),
            accepted.eq(Mux(is_header, table.verdict.accept, held)),
            counts.eq(is_here & is_last & accepted),
            table.commit.eq(counts),
            table.commit_count.eq(header.multimem.count),
            table.commit_status.eq(_status(header, is_error, is_poisoned)),
        ]
        with m.If(is_here & is_header):
            m.d.sync += held.eq(table.verdict.accept)

        # Add; the result is written when it comes out, and a session finishes behind it.
        adds = Signal()
        m.d.comb += [
            adds.eq(is_here & ~is_header & accepted & ~is_error),
            alu.attr.eq(table.verdict.attr),
            alu.load.eq(table.verdict.fresh),
            alu.operand.eq(operand),
            alu.accumulator.eq(words.read_data),
        ]
        writing, completing = adds, table.completes
        write_address, completion = here_address, table.completion
        conflicts = [is_here & ~is_header & (here_address == address)]
        for stage in range(1, alu.latency + 1):
            writing = _delayed(m, writing, f"writing{stage}")
            write_address = _delayed(m, write_address, f"address{stage}")
            completing = _delayed(m, completing, f"completing{stage}")
            completion = _delayed(m, completion, f"completion{stage}")
            if stage < alu.latency:
                conflicts.append(writing & (write_address == address))
        m.d.comb += [
            in_adder.eq(Cat(conflicts).any()),
            words.write_en.eq(writing),
            words.write_addr.eq(write_address),
            words.write_data.eq(alu.result),
            finished.i.valid.eq(completing),
            finished.i.payload.eq(completion),
        ]

        # A flit that is only loaded leaves the read port to the answers.
        m.d.comb += [
            reads.eq(accept & ~at_header & ~table.verdict.fresh),
            answers.word_granted.eq(answers.word_wanted & ~reads),
            words.read_en.eq(reads | answers.word_wanted),
            words.read_addr.eq(Mux(reads, address, Cat(answers.word, answers.word_session))),
        ]
        strays = is_here & is_header & ~table.verdict.accept
        self._report(m, table, header, source, counts, strays, is_poisoned)

    def _answer(self, m: Module, table, finished, answers, words) -> None:
        m.d.comb += [
            answers.port.eq(self.port),
            table.record_en.eq(answers.record_en),
            table.record_session.eq(finished.o.payload.id.session),
            answers.record.eq(table.record),
            answers.accumulator.eq(words.read_data),
            table.release.eq(answers.release),
            table.released.eq(answers.released),
        ]
        connect(m, finished.o, answers.i)
        connect(m, answers.o, flipped(self.o))

    def _report(self, m: Module, table, header, source, counts, strays, is_poisoned) -> None:
        address = header.multimem
        poisoned = counts & is_poisoned
        m.d.comb += [
            self.log.valid.eq(counts),
            self.log.maddr.eq(address.maddr),
            self.log.stage.eq(address.stage),
            self.log.source.eq(source),
            self.fault.valid.eq(strays | poisoned | table.miscounted),
            self.fault.status.eq(Mux(strays | table.miscounted, Status.MALFORMED, Status.POISONED)),
            self.fault.answered.eq(~strays),
            self.fault.cmd.eq(Value.cast(header.cmd)),
            self.fault.addr.eq(header.addr),
            self.events.accepted.eq(counts),
            self.events.poisoned.eq(poisoned),
            self.events.answered.eq(table.release),
        ]
        for stray in Stray:
            if stray is not Stray.NONE:
                event = self.events[stray.name.lower()]
                m.d.comb += event.eq(strays & (table.verdict.stray == stray))


def _delayed(m: Module, value, name: str):
    later = Signal.like(value, name=name)
    m.d.sync += later.eq(value)
    return later


def _status(header, is_error, is_poisoned):
    """Status that a contribution brings into its session; an ERR without one is malformed."""
    given = Value.cast(header.multimem.attr)
    given = Mux(is_error, Mux(given.any(), given, Status.MALFORMED), Status.OK)
    return smaller_status(given, Mux(is_poisoned, Status.POISONED, Status.OK))


def reduction_unit(
    *, ports: int, sessions: int, chunk_flits: int, arithmetic: Arithmetic, order: str
) -> ReductionUnit:
    """The reduction unit for an order of accumulation.

    Parameters
    ----------
    ports, sessions, chunk_flits, arithmetic : as in :class:`ReductionUnit`
    order : ``arrival``

    Raises
    ------
    ConfigError
        For an order that is not built.
    """
    if order != "arrival":
        rule = f"Order must be arrival, the only one built so far, not {order!r}"
        raise ConfigError("switch.order", order, rule)
    return ReductionUnit(
        ports=ports, sessions=sessions, chunk_flits=chunk_flits, arithmetic=arithmetic
    )


def reduction_block(config: Config) -> ReductionUnit:
    """One port's reduction unit, as a block of its own."""
    return reduction_unit(
        ports=config.ports,
        sessions=config.switch.sessions,
        chunk_flits=config.chunk_flits,
        arithmetic=config.arithmetic,
        order=config.switch.order,
    )
