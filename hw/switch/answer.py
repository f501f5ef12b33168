"""Answers of finished sessions to the source."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.delay import delayed
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import Attr, Cmd, Header, Status
from dysharp.hw.share import place
from dysharp.hw.switch.error_answer import Fault
from dysharp.hw.switch.session import SessionId
from dysharp.hw.switch.session_table import AnswerRecord, Completion

__all__ = ["AnswerEngine"]

_OUTPUT_DEPTH = 4


class _Beside(data.Struct):
    """What goes beside a word through the rounder, or a header in its place."""

    valid: 1
    is_header: 1
    last: 1
    header: Header


class AnswerEngine(Component):
    """Makes the one answer of each finished session, in the order in which they finish.

    MM_RSP with the sums, rounded once; MM_ACK; or ERR with the status. The accumulators are read
    only in cycles that contributions leave free. The first one is read when the header is made, so
    a header does not leave before the words can follow it; the session is given back behind the
    last read.

    Latency: two cycles from ``i`` to the header at ``o``, and the rounder's, if nothing is ahead
    and the first word is granted at once. Throughput: one flit a cycle while ``word_granted``; no
    bubble between answers.

    Parameters
    ----------
    chunk_flits : DATA flits of a chunk, a power of two
    rounder : makes flits of accumulators: ``attr``, ``accumulator``, ``o``, with ``latency`` and
        ``accumulator_bits``
    """

    i: stream.Interface
    """In(stream of Completion)."""
    port: Signal
    """In, the port that the sessions belong to; constant."""
    record_en: Signal
    """Out, read the record of ``i``'s session."""
    record: Any
    """In(AnswerRecord), one cycle later, and held."""
    word_wanted: Signal
    """Out, read accumulator word ``word`` of session ``word_session``."""
    word_granted: Signal
    """In, it is read in this cycle."""
    word_session: Signal
    """Out."""
    word: Signal
    """Out."""
    accumulator: Signal
    """In, the word, one cycle later."""
    answers: Signal
    """Out, session ``answered`` is answered, and its words are read."""
    answered: Any
    """Out(SessionId)."""
    may_answer: Signal
    """In, ``answers`` may be high in this cycle."""
    timeout_fault: Any
    """Out(Fault), a pulse for each answer to a session that timed out."""
    o: stream.Interface
    """Out(FlitStream)."""

    def __init__(self, *, chunk_flits: int, rounder: Any):
        if chunk_flits < 2 or chunk_flits & chunk_flits - 1:
            raise ValueError(f"Chunk flits must be a power of two from 2 on, not {chunk_flits!r}")
        self.chunk_flits, self.rounder = chunk_flits, rounder
        super().__init__(
            {
                "i": In(stream.Signature(Completion)),
                "port": In(7),
                "record_en": Out(1),
                "record": In(AnswerRecord),
                "word_wanted": Out(1),
                "word_granted": In(1),
                "word_session": Out(8),
                "word": Out(range(chunk_flits)),
                "accumulator": In(rounder.accumulator_bits),
                "answers": Out(1),
                "answered": Out(SessionId),
                "may_answer": In(1),
                "timeout_fault": Out(Fault),
                "o": Out(FlitStream),
            }
        )

    @property
    def module_name(self) -> str:
        """``answer_engine_<chunk flits>_<of the rounder>``."""
        return f"answer_engine_{self.chunk_flits}_{self.rounder.module_name}"

    def elaborate(self, platform):
        """Fetch a record, make the header, read the words, and join them in the queue."""
        m = Module()
        rounder = self.rounder
        depth = _OUTPUT_DEPTH + rounder.latency
        output = Fifo(shape=Flit, depth=depth)
        m.submodules.output = place(output)
        m.submodules.rounder = place(rounder)

        # A beat a cycle: the header with the read of word 0, the reads of the other words, and
        # behind the last read one more, in which its word takes the place of the next header.
        current: Any = Signal(Completion)
        is_current = Signal()
        beat, words = Signal(5), Signal(5)
        has_room, is_header, reads, steps, ends = (
            Signal(name=name) for name in ("has_room", "is_header", "reads", "steps", "ends")
        )
        is_error = current.status != Status.OK
        m.d.comb += [
            words.eq(Mux(is_error, 0, self.record.flits)),
            is_header.eq(beat == 0),
            reads.eq(beat != words),
            self.word_wanted.eq(is_current & reads & has_room),
            self.word_session.eq(current.id.session),
            self.word.eq(beat),
            steps.eq(
                is_current
                & Mux(reads, has_room & self.word_granted, self.may_answer)
                & (has_room | ~is_header)
            ),
            ends.eq(steps & ~reads),
            self.answers.eq(ends),
            self.answered.eq(current.id),
            self.i.ready.eq(~is_current | ends),
            self.record_en.eq(self.i.ready),
        ]
        with m.If(steps):
            m.d.sync += beat.eq(Mux(reads, beat + 1, 0))
        with m.If(self.i.ready):
            m.d.sync += [is_current.eq(self.i.valid), current.eq(self.i.payload)]

        # A header joins at once, a word when it has been read; both pass the rounder.
        header: Any = Signal(Header, name="header")
        read: Any = Signal(_Beside, name="read")
        beside: Any = Signal(_Beside, name="beside0")
        attr: Any = Signal(Attr)
        m.d.comb += header.eq(self._header(m, current, is_error, words))
        m.d.sync += [
            read.valid.eq(steps & reads),
            read.last.eq(beat + 1 == words),
            attr.eq(self.record.attr),
        ]
        with m.If(steps & is_header):
            m.d.comb += [
                beside.valid.eq(1),
                beside.is_header.eq(1),
                beside.last.eq(~reads),
                beside.header.eq(header),
            ]
        with m.Else():
            m.d.comb += beside.eq(read)
        m.d.comb += [rounder.attr.eq(attr), rounder.accumulator.eq(self.accumulator)]
        on_its_way = [read.valid]
        for stage in range(1, rounder.latency + 1):
            beside = delayed(m, beside, f"beside{stage}")
            on_its_way.append(beside.valid)
        m.d.comb += [
            # A header and word 0 may start at once.
            has_room.eq(output.level + sum(on_its_way) + 2 <= depth),
            output.i.valid.eq(beside.valid),
            output.i.payload.data.eq(Mux(beside.is_header, Value.cast(beside.header), rounder.o)),
            output.i.payload.last.eq(beside.last),
        ]
        connect(m, output.o, flipped(self.o))
        m.d.comb += [
            self.timeout_fault.valid.eq(steps & is_header & current.timed_out),
            self.timeout_fault.status.eq(Status.TIMEOUT),
            self.timeout_fault.answered.eq(1),
            self.timeout_fault.cmd.eq(Value.cast(self.record.cmd)),
            self.timeout_fault.addr.eq(header.addr),
        ]
        return m

    def _header(self, m: Module, current, is_error, flits) -> Value:
        header: Any = Signal(Header, name="new_header")
        address = header.multimem
        m.d.comb += [
            header.len.eq(flits),
            header.tx.eq(1),
            header.tag.port.eq(self.port),
            header.tag.local.eq(self.record.local),
            address.maddr.eq(self.record.maddr),
            address.stage.eq(self.record.stage),
            address.count.eq(self.record.count),
        ]
        with m.If(is_error):
            m.d.comb += [
                header.cmd.eq(Cmd.ERR),
                Value.cast(address.attr).eq(Value.cast(current.status)),
            ]
        with m.Elif(self.record.cmd == Cmd.MM_LDR):
            m.d.comb += header.cmd.eq(Cmd.MM_RSP)
        with m.Else():
            m.d.comb += header.cmd.eq(Cmd.MM_ACK)
        return Value.cast(header)
