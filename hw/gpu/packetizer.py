"""Turns instructions, their lists and their data into packets."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.gpu.instruction import Instruction
from dysharp.hw.gpu.list_packer import ListHead
from dysharp.hw.link.fifo import Skid
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import FLIT_BITS, Header, Status, tx_flits
from dysharp.hw.share import place

__all__ = [
    "LOCAL_BITS",
    "Completion",
    "Packetizer",
    "PacketizerEvents",
    "QueuedInstruction",
    "SentPacket",
]

LOCAL_BITS = 12


class QueuedInstruction(data.Struct):
    """An instruction that waits for its packet.

    Members
    -------
    instruction : as given
    fault : why it is refused, or 0
    listed : a list was requested for it
    """

    instruction: Instruction
    fault: Status
    listed: 1


class SentPacket(data.Struct):
    """What is kept of a packet until its answer.

    Members
    -------
    tag : local part of its tag
    id : the instruction's
    loads : MM_RSP is due, else MM_ACK
    static : the number of answers is the switch's to know
    count : entries sent
    flits : DATA flits wanted, if it loads
    """

    tag: LOCAL_BITS
    id: 16
    loads: 1
    static: 1
    count: 7
    flits: 5


class Completion(data.Struct):
    """An instruction that completes without an answer.

    Members
    -------
    id : the instruction's
    fault : 0, or why it was refused
    zeros : DATA flits of +0 that it gets, 0 for none
    """

    id: 16
    fault: Status
    zeros: 5


class PacketizerEvents(data.Struct):
    """Pulses, one an instruction.

    Members
    -------
    packets : a packet begins
    refused : an instruction completes with a fault and sends nothing
    empty : an instruction completes without a fault and sends nothing, as its list names nobody
    """

    packets: 1
    refused: 1
    empty: 1


class Packetizer(Component):
    """Sends one packet an instruction, in order: HDR, TX flits, DATA flits.

    An instruction that is refused, or whose list names nobody, sends nothing: its list and its
    data are taken off the streams and a :class:`Completion` tells the result (a load of nothing
    is +0). A posted store completes when its last flit has entered the output register.

    Data of an instruction ends with ``last``. If that disagrees with ``flits``, the packet is
    padded with zeros or cut, and its last flit is marked poison, as a parser would do; the next
    instruction's data is not touched.

    Latency: two cycles from instruction to HDR at ``o``. Throughput: one flit a cycle, no bubble
    between packets as long as instructions, lists, data and tags are there. Once HDR has left,
    only ``data`` can hold the packet up.

    Parameters
    ----------
    room_bits : bits of ``room``

    Source
    ------
    Wire format v1; paper (static NVLS is the empty list).
    """

    i: stream.Interface
    """In(stream of QueuedInstruction), taken when its packet has left."""
    list: stream.Interface
    """In(stream of ListHead), one for each instruction with ``listed``."""
    tx: stream.Interface
    """In(stream of 128 bits), their TX flits."""
    data: stream.Interface
    """In(FlitStream), DATA of the stores."""
    tag: stream.Interface
    """In(stream of the tag's local part), taken by packets that expect an answer."""
    o: stream.Interface
    """Out(FlitStream)."""
    sent: stream.Interface
    """Out(stream of SentPacket), to be taken at once, with the HDR of a packet that is answered."""
    done: stream.Interface
    """Out(stream of Completion)."""
    events: Any
    """Out(PacketizerEvents)."""
    room: Signal
    """In, beats of results that can still be reserved."""

    def __init__(self, *, room_bits: int):
        if room_bits < 1:
            raise ValueError(f"Room bits must be at least 1, not {room_bits!r}")
        self.room_bits = room_bits
        super().__init__(
            {
                "i": In(stream.Signature(QueuedInstruction)),
                "list": In(stream.Signature(ListHead)),
                "tx": In(stream.Signature(FLIT_BITS)),
                "data": In(FlitStream),
                "tag": In(stream.Signature(LOCAL_BITS)),
                "room": In(room_bits),
                "o": Out(FlitStream),
                "sent": Out(stream.Signature(SentPacket)),
                "done": Out(stream.Signature(Completion)),
                "events": Out(PacketizerEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``packetizer_<room_bits>``."""
        return f"packetizer_{self.room_bits}"

    def elaborate(self, platform):
        """HDR and its conditions, then the states of a packet, then what ends it."""
        m = Module()
        out = Skid(shape=Flit)
        m.submodules.out = place(out)
        instruction = self.i.p.instruction
        count, ready = Signal(7), Signal()
        fault = Signal(Status)
        skip, may_send, finish = Signal(), Signal(), Signal()
        need = Signal(5)
        lists = Signal(range(17))
        m.d.comb += [
            ready.eq(self.i.valid & (~self.i.p.listed | self.list.valid)),
            count.eq(Mux(self.i.p.listed, self.list.p.count, 0)),
            lists.eq(tx_flits(count)),
            fault.eq(self.i.p.fault),
            skip.eq((fault != Status.OK) | ~instruction.static & (count == 0)),
            need.eq(Mux(instruction.loads, instruction.flits, 1)),
            may_send.eq(
                Mux(instruction.answered, self.tag.valid & (self.room >= need), self.done.ready)
            ),
        ]
        connect(m, out.o, flipped(self.o))
        with m.If(self.i.p.listed & self.list.p.fault):
            m.d.comb += fault.eq(Status.POISONED)

        lists_left, data_left = Signal(range(17)), Signal(5)
        data_over, poison = Signal(), Signal()
        with m.FSM():
            with m.State("HDR"):
                m.d.sync += [
                    lists_left.eq(lists),
                    data_left.eq(instruction.flits),
                    data_over.eq(~instruction.gives_data),
                    poison.eq(0),
                ]
                with m.If(ready & skip & self.done.ready):
                    with m.If((lists != 0) | instruction.gives_data):
                        m.next = "DROP"
                    with m.Else():
                        m.d.comb += finish.eq(1)
                with m.Elif(ready & ~skip & may_send):
                    m.d.comb += [
                        out.i.valid.eq(1),
                        out.i.p.data.eq(self._header(m, count, lists)),
                        out.i.p.last.eq((lists == 0) & ~instruction.gives_data),
                    ]
                    with m.If(out.i.ready):
                        m.d.comb += [
                            self.sent.valid.eq(instruction.answered),
                            self.events.packets.eq(1),
                        ]
                        with m.If(lists != 0):
                            m.next = "TX"
                        with m.Elif(instruction.gives_data):
                            m.next = "DATA"
                        with m.Else():
                            m.d.comb += finish.eq(1)
            with m.State("TX"):
                is_end = lists_left == 1
                m.d.comb += [
                    out.i.valid.eq(self.tx.valid),
                    out.i.p.data.eq(self.tx.payload),
                    out.i.p.last.eq(is_end & data_over),
                    self.tx.ready.eq(out.i.ready),
                ]
                with m.If(self.tx.valid & out.i.ready):
                    m.d.sync += lists_left.eq(lists_left - 1)
                    with m.If(is_end & data_over):
                        m.d.comb += finish.eq(1)
                        m.next = "HDR"
                    with m.Elif(is_end):
                        m.next = "DATA"
            with m.State("DATA"):
                is_end = data_left == 1
                bad_end = ~data_over & (self.data.p.last != is_end)
                m.d.comb += [
                    out.i.valid.eq(data_over | self.data.valid),
                    out.i.p.data.eq(Mux(data_over, 0, self.data.p.data)),
                    out.i.p.last.eq(is_end),
                    out.i.p.poison.eq(
                        is_end & (poison | bad_end | ~data_over & self.data.p.poison)
                    ),
                    self.data.ready.eq(~data_over & out.i.ready),
                ]
                with m.If(out.i.valid & out.i.ready):
                    m.d.sync += [
                        data_left.eq(data_left - 1),
                        data_over.eq(data_over | self.data.p.last),
                        poison.eq(poison | bad_end | ~data_over & self.data.p.poison),
                    ]
                    with m.If(is_end & (data_over | self.data.p.last)):
                        m.d.comb += finish.eq(1)
                        m.next = "HDR"
                    with m.Elif(is_end):
                        m.next = "DROP"
            with m.State("DROP"):
                m.d.comb += [self.tx.ready.eq(lists_left != 0), self.data.ready.eq(~data_over)]
                with m.If(self.tx.valid & self.tx.ready):
                    m.d.sync += lists_left.eq(lists_left - 1)
                with m.If(self.data.valid & self.data.ready):
                    m.d.sync += data_over.eq(self.data.p.last)
                with m.If((lists_left == 0) & data_over):
                    m.d.comb += finish.eq(1)
                    m.next = "HDR"

        m.d.comb += [
            self.i.ready.eq(finish),
            self.list.ready.eq(finish & self.i.p.listed),
            self.tag.ready.eq(self.sent.valid),
            self.sent.p.tag.eq(self.tag.payload),
            self.sent.p.id.eq(instruction.id),
            self.sent.p.loads.eq(instruction.loads),
            self.sent.p.static.eq(instruction.static),
            self.sent.p.count.eq(count),
            self.sent.p.flits.eq(instruction.flits),
            self.done.valid.eq(finish & (skip | ~instruction.answered)),
            self.events.refused.eq(finish & skip & (fault != Status.OK)),
            self.events.empty.eq(finish & skip & (fault == Status.OK)),
            self.done.p.id.eq(instruction.id),
            self.done.p.fault.eq(fault),
            self.done.p.zeros.eq(
                Mux(instruction.loads & (fault == Status.OK), instruction.flits, 0)
            ),
        ]
        return m

    def _header(self, m: Module, count: Value, lists: Value) -> Value:
        """Flit 0. A load's flits wanted are the lowest address bits; posted packets have tag 0."""
        instruction = self.i.p.instruction
        header: Any = Signal(Header)
        address = header.multimem
        length = lists + Mux(instruction.gives_data, instruction.flits, 0)
        m.d.comb += [
            header.len.eq(length),
            Value.cast(header.cmd).eq(instruction.op),
            header.tx.eq(1),
            header.tag.local.eq(Mux(instruction.answered, self.tag.payload, 0)),
            address.maddr.eq(instruction.maddr),
            address.stage.eq(instruction.stage),
            address.count.eq(count),
            Value.cast(address.attr).eq(instruction.attr),
        ]
        with m.If(instruction.loads):
            m.d.comb += address.maddr[:4].eq(instruction.flits - 1)
        return Value.cast(header)
