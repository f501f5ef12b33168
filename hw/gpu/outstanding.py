"""Packets that wait for their answer, and the results that the answers bring."""

from typing import Any

from amaranth import Array, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.gpu.instruction import Result
from dysharp.hw.gpu.packetizer import LOCAL_BITS, SentPacket
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.memory import Ram
from dysharp.hw.packet import Cmd, Header, Status
from dysharp.hw.share import place
from dysharp.hw.switch.parser import FlitKind, ParsedFlit

__all__ = ["Outstanding", "OutstandingEvents"]


class OutstandingEvents(data.Struct):
    """Pulses, one a packet.

    Members
    -------
    answered : an answer completed its instruction
    faulted : among them, with a fault
    unknown : an answer that nobody waits for was dropped
    """

    answered: 1
    faulted: 1
    unknown: 1


class _Due(data.Struct):
    """A :class:`SentPacket` without its tag, which is its place."""

    id: 16
    loads: 1
    static: 1
    count: 7
    flits: 5


class Outstanding(Component):
    """Gives out tags, matches answers and holds results until they are taken.

    A tag is the place of its packet in the table. It is given out again only after its one answer
    has come whole. Each packet reserves the beats of its result before it leaves (``room``), so
    an answer is always taken at once, whatever ``o`` does.

    A result leaves when its answer has come whole, so that no data of a failed load is ever seen.
    Results leave in the order of the answers.

    Latency: two cycles from an answer's last flit to ``o``. Throughput: one flit a cycle in, one
    beat a cycle out.

    Errors
    ------
    ERR: its status. MALFORMED: an answer of the wrong kind, with a count other than sent (unless
    the packet was static), an MM_RSP with more or fewer DATA flits than wanted, an ERR without a
    status. POISONED: the answer's last flit is poison. An answer whose tag is not in use, and one
    that is none of a multimem packet, is dropped and counted.

    Parameters
    ----------
    entries : packets that wait for an answer, 1 to 4096
    beats : beats of results, reserved or held, at least 16

    Source
    ------
    Wire format v1 (a local tag is not used again before its one answer).
    """

    tag: stream.Interface
    """Out(stream of the tag's local part), a tag that may be used."""
    sent: stream.Interface
    """In(stream of SentPacket), always taken."""
    i: stream.Interface
    """In(stream of ParsedFlit), always taken."""
    o: stream.Interface
    """Out(stream of Result)."""
    room: Signal
    """Out, beats that can be reserved."""
    events: data.View
    """Out(OutstandingEvents)."""

    def __init__(self, *, entries: int, beats: int):
        if not 1 <= entries <= 1 << LOCAL_BITS:
            raise ValueError(f"Entries must be from 1 to {1 << LOCAL_BITS}, not {entries!r}")
        if beats < 16:
            raise ValueError(f"Beats must be at least 16, not {beats!r}")
        self.entries, self.beats = entries, beats
        super().__init__(
            {
                "tag": Out(stream.Signature(LOCAL_BITS)),
                "sent": In(stream.Signature(SentPacket)),
                "i": In(stream.Signature(ParsedFlit)),
                "room": Out(range(beats + 1)),
                "o": Out(stream.Signature(Result)),
                "events": Out(OutstandingEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``outstanding_<entries>_b<beats>``."""
        return f"outstanding_{self.entries}_b{self.beats}"

    def elaborate(self, platform):
        """Tags and table, then the answer a cycle behind its table entry, then the results."""
        m = Module()
        table = Ram(width=_Due.as_shape().size, depth=self.entries)
        m.submodules.table = place(table)
        sent, flit = self.sent.p, self.i.p
        header: Any = Signal(Header)
        in_use = Array(Signal(name=f"in_use{k}") for k in range(self.entries))
        freed = Signal(range(self.entries))
        free = Signal()
        self._tags(m, freed, free)

        due: Any = Signal(_Due)
        m.d.comb += [
            self.sent.ready.eq(1),
            self.i.ready.eq(1),
            header.eq(flit.data),
            table.write_en.eq(self.sent.valid),
            table.write_addr.eq(sent.tag),
            table.write_data.eq(Value.cast(sent)[LOCAL_BITS:]),
            table.read_en.eq(self.i.valid & (flit.kind == FlitKind.HDR)),
            table.read_addr.eq(header.tag.local),
            due.eq(table.read_data),
        ]
        with m.If(self.sent.valid):
            m.d.sync += in_use[sent.tag].eq(1)

        # One cycle later: the entry is there, for the packet's first flit and all others.
        held: Any = Signal(ParsedFlit)
        answer: Any = Signal(Header)
        valid, known, is_end = Signal(), Signal(), Signal()
        just_freed = is_end & (freed == header.tag.local)
        m.d.sync += [valid.eq(self.i.valid), held.eq(flit)]
        with m.If(table.read_en):
            m.d.sync += [
                answer.eq(header),
                known.eq(
                    (header.tag.local < self.entries)
                    & in_use[header.tag.local]
                    & ~just_freed
                    & _expected(header)
                ),
            ]
        fault = self._fault(m, answer, due, held)
        m.d.comb += [
            is_end.eq(valid & held.last & known),
            free.eq(is_end),
            freed.eq(answer.tag.local),
            self.events.answered.eq(is_end),
            self.events.faulted.eq(is_end & (fault != Status.OK)),
            self.events.unknown.eq(valid & held.last & ~known),
        ]
        with m.If(is_end):
            m.d.sync += in_use[freed].eq(0)
        self._results(m, valid & known, held, due, fault, is_end)
        return m

    def _tags(self, m: Module, freed: Signal, free: Signal) -> None:
        """Each tag once from a counter, after that as they come back."""
        m.submodules.tags = place(tags := Fifo(shape=LOCAL_BITS, depth=max(2, self.entries)))
        fresh = Signal(range(self.entries + 1))
        is_fresh = fresh != self.entries
        m.d.comb += [
            tags.i.valid.eq(free),
            tags.i.payload.eq(freed),
            self.tag.valid.eq(is_fresh | tags.o.valid),
            self.tag.payload.eq(Mux(is_fresh, fresh, tags.o.payload)),
            tags.o.ready.eq(~is_fresh & self.tag.ready),
        ]
        with m.If(is_fresh & self.tag.ready):
            m.d.sync += fresh.eq(fresh + 1)

    def _fault(self, m: Module, answer, due, held) -> Any:
        """What is wrong with an answer; final on its last flit."""
        status = Value.cast(answer.multimem.attr)
        expected = Mux(due.loads, Cmd.MM_RSP.value, Cmd.MM_ACK.value)
        fault = Signal(Status)
        with m.If(answer.cmd == Cmd.ERR):
            m.d.comb += Value.cast(fault).eq(Mux(status == 0, Status.MALFORMED.value, status))
        with m.Elif(Value.cast(answer.cmd) != expected):
            m.d.comb += fault.eq(Status.MALFORMED)
        with m.Elif(~due.static & (answer.multimem.count != due.count)):
            m.d.comb += fault.eq(Status.MALFORMED)
        with m.Elif(answer.len != Mux(due.loads, due.flits, 0)):
            m.d.comb += fault.eq(Status.MALFORMED)
        with m.Elif(held.last & held.poison):
            m.d.comb += fault.eq(Status.POISONED)
        return fault

    def _results(self, m: Module, valid: Value, held, due, fault, is_end: Signal) -> None:
        """A ring that shows only whole results; a fault takes back the data written before it."""
        ring = Ram(width=Result.as_shape().size, depth=self.beats, transparent=True)
        m.submodules.ring = place(ring)
        head, start, tail, next_head, next_tail, place_now = (
            Signal(range(self.beats), name=name)
            for name in ("head", "start", "tail", "next_head", "next_tail", "place_now")
        )
        level, reserved = Signal(range(self.beats + 1)), Signal(range(self.beats + 1))
        is_data, write, leave = Signal(), Signal(), Signal()
        beat: Any = Signal(Result)
        good = fault == Status.OK
        beats_of = Mux(due.loads, due.flits, 1)
        written = Signal(5)
        new_written = Mux(is_end & ~good, 1, written + 1)
        m.d.comb += [
            is_data.eq((held.kind == FlitKind.DATA) & good),
            write.eq(valid & (is_data | is_end)),
            place_now.eq(Mux(is_data, tail, start)),
            next_tail.eq(_after(place_now, self.beats)),
            beat.id.eq(due.id),
            beat.fault.eq(fault),
            beat.data.eq(Mux(is_data, held.data, 0)),
            beat.has_data.eq(is_data),
            beat.last.eq(is_end),
            ring.write_en.eq(write),
            ring.write_addr.eq(place_now),
            ring.write_data.eq(beat),
        ]
        with m.If(write):
            m.d.sync += [tail.eq(next_tail), written.eq(new_written)]
        with m.If(is_end):
            m.d.sync += [start.eq(next_tail), written.eq(0)]

        m.d.comb += [
            leave.eq(self.o.valid & self.o.ready),
            next_head.eq(Mux(leave, _after(head, self.beats), head)),
            ring.read_en.eq(1),
            ring.read_addr.eq(next_head),
            self.o.valid.eq(level != 0),
            Value.cast(self.o.payload).eq(ring.read_data),
            self.room.eq(self.beats - reserved),
        ]
        asked = Mux(self.sent.valid, Mux(self.sent.p.loads, self.sent.p.flits, 1), 0)
        unused = Mux(is_end, beats_of - new_written, 0)
        m.d.sync += [
            head.eq(next_head),
            level.eq(level + Mux(is_end, new_written, 0) - leave),
            reserved.eq(reserved + asked - unused - leave),
        ]


def _expected(header) -> Value:
    """An answer that a multimem packet can get; it has ``tx``, as its request had.

    An ERR without is a plain response, which any GPU can send to any tag.
    """
    cmd = header.cmd
    return header.tx & ((cmd == Cmd.MM_ACK) | (cmd == Cmd.MM_RSP) | (cmd == Cmd.ERR))


def _after(pointer: Value, depth: int) -> Value:
    return Mux(pointer == depth - 1, 0, pointer + 1)
