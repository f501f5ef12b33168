"""Answers of finished sessions to the source."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import Attr, Cmd, Header, Status
from dysharp.hw.share import place
from dysharp.hw.switch.session import SessionId
from dysharp.hw.switch.session_table import AnswerRecord, Completion

__all__ = ["AnswerEngine"]

_OUTPUT_DEPTH = 4


class _Joined(data.Struct):
    """What goes beside a word through the rounder."""

    is_header: 1
    last: 1
    header: Header


class AnswerEngine(Component):
    """Makes the one answer of each finished session, in the order in which they finish.

    MM_RSP with the sums, rounded once; MM_ACK; or ERR with the status. The accumulators are read
    only in cycles that contributions leave free, and the session is given back with the last read.

    Latency: three cycles from ``i`` to the header at ``o``, and the rounder's, if nothing is ahead.
    Throughput: one flit a cycle while ``word_granted``; no bubble between answers.

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
    release: Signal
    """Out, session ``released`` is free again."""
    released: Any
    """Out(SessionId)."""
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
                "release": Out(1),
                "released": Out(SessionId),
                "o": Out(FlitStream),
            }
        )

    @property
    def module_name(self) -> str:
        """``answer_engine_<chunk flits>_<of the rounder>``."""
        return f"answer_engine_{self.chunk_flits}_{self.rounder.module_name}"

    def elaborate(self, platform):
        """Fetch a record, issue its flits one by one, and join them with what was read."""
        m = Module()
        rounder = self.rounder
        depth = _OUTPUT_DEPTH + rounder.latency
        output = Fifo(shape=Flit, depth=depth)
        m.submodules.output = place(output)
        m.submodules.rounder = place(rounder)

        current: Any = Signal(Completion)
        is_current = Signal()
        beat = Signal(5)
        beats_left = Signal(5)
        has_room = Signal()
        is_header, is_last = Signal(), Signal()
        issue, finish = Signal(), Signal()
        is_error = current.status != Status.OK

        # Flits between the read and the queue: one is joined, others are in the rounder.
        joining = Signal(1 + rounder.latency)
        in_between = sum(joining[1:], start=Value.cast(joining[0]))
        m.d.comb += [
            has_room.eq(output.level + in_between < depth),
            is_header.eq(beat == 0),
            beats_left.eq(Mux(is_error, 0, self.record.flits)),
            is_last.eq(beat == beats_left),
            self.word_wanted.eq(is_current & has_room & ~is_header),
            self.word_session.eq(current.id.session),
            self.word.eq(beat - 1),
            issue.eq(is_current & has_room & (is_header | self.word_granted)),
            finish.eq(issue & is_last),
            self.release.eq(finish),
            self.released.eq(current.id),
            self.i.ready.eq(~is_current | finish),
            self.record_en.eq(self.i.valid & self.i.ready),
        ]
        with m.If(issue):
            m.d.sync += beat.eq(Mux(is_last, 0, beat + 1))
        with m.If(self.i.ready):
            m.d.sync += [is_current.eq(self.i.valid), current.eq(self.i.payload)]

        joined: Any = Signal(_Joined)
        attr: Any = Signal(Attr)
        m.d.sync += joining.eq(Cat(issue, joining))
        with m.If(issue):
            m.d.sync += [
                joined.is_header.eq(is_header),
                joined.last.eq(is_last),
                joined.header.eq(self._header(m, current, is_error, beats_left)),
                attr.eq(self.record.attr),
            ]
        m.d.comb += [rounder.attr.eq(attr), rounder.accumulator.eq(self.accumulator)]
        for stage in range(rounder.latency):
            later = Signal.like(joined, name=f"joined{stage + 1}")
            m.d.sync += later.eq(joined)
            joined = later
        m.d.comb += [
            output.i.valid.eq(joining[-1]),
            output.i.payload.data.eq(Mux(joined.is_header, Value.cast(joined.header), rounder.o)),
            output.i.payload.last.eq(joined.last),
        ]
        connect(m, output.o, flipped(self.o))
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
        with m.Elif(self.record.is_load):
            m.d.comb += header.cmd.eq(Cmd.MM_RSP)
        with m.Else():
            m.d.comb += header.cmd.eq(Cmd.MM_ACK)
        return Value.cast(header)
