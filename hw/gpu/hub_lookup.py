"""The Hub's first look at a packet: its object, its row, and whether it can be served."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.alu.reductions import dtypes_name, is_supported
from dysharp.hw.axi import ADDR_BITS
from dysharp.hw.gpu.hub_records import (
    AIDX_BITS,
    BSIZE_BITS,
    OBJECT_BITS,
    HubRequest,
    HubWork,
    Ticket,
    record,
)
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.packet import Attr, Cmd, Dtype, Header, Status, tx_flits
from dysharp.hw.registers import gpu_objects
from dysharp.hw.share import place

__all__ = ["HubLookup"]

STAGES = 3
WORK_AHEAD = 8


class _Found(data.Struct):
    """A request beside its object."""

    request: HubRequest
    hit: 1
    object: OBJECT_BITS
    delta: ADDR_BITS
    size: ADDR_BITS


class _Row(data.Struct):
    """A delta taken apart."""

    aidx: ADDR_BITS
    offset: ADDR_BITS


class HubLookup(Component):
    """Finds object, row and address of each packet, and refuses whole packets.

    If several reasons apply the smallest status wins: ``MALFORMED`` for a row that does not exist,
    an offset beyond the block, a static access beyond the object; ``UNKNOWN_OBJECT``;
    ``UNSUPPORTED`` for ATOM, MM_RED and reductions that are not built; ``POISONED``.

    A ticket is handed on when the packet is taken, so tickets have the order of requests.

    Latency: 5 cycles. Throughput: a packet a cycle.

    Parameters
    ----------
    objects : entries of the object table
    gpu_address_bit : plain addresses have their memory address below this bit
    dtypes : types that MM_LDR reduces
    """

    i: stream.Interface
    """In(stream of HubRequest)."""
    o: stream.Interface
    """Out(stream of HubWork)."""
    ticket: stream.Interface
    """Out(stream of Ticket)."""
    maddr: Signal
    """Out, the address whose object is wanted."""
    hit: Signal
    """In, in the same cycle: an object has it."""
    object: Signal
    """In, which one."""
    delta: Signal
    """In, bytes from the object's base."""
    size: Signal
    """In, bytes of the object."""
    entry_en: Signal
    """Out, read entry ``entry_object`` of the table."""
    entry_object: Signal
    """Out."""
    entry: Any
    """In, one cycle later."""

    def __init__(self, *, objects: int, gpu_address_bit: int, dtypes: tuple[Dtype, ...]):
        if not 16 <= gpu_address_bit <= 41:
            raise ValueError(f"GPU address bit must be in 16..41, not {gpu_address_bit!r}")
        self.objects, self.gpu_address_bit, self.dtypes = objects, gpu_address_bit, dtypes
        super().__init__(
            {
                "i": In(stream.Signature(HubRequest)),
                "o": Out(stream.Signature(HubWork)),
                "ticket": Out(stream.Signature(Ticket)),
                "maddr": Out(ADDR_BITS),
                "hit": In(1),
                "object": In(OBJECT_BITS),
                "delta": In(ADDR_BITS),
                "size": In(ADDR_BITS),
                "entry_en": Out(1),
                "entry_object": Out(OBJECT_BITS),
                "entry": In(gpu_objects(objects=objects).layout),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_lookup_<objects>_a<address bit>_<types>``."""
        return f"hub_lookup_{self.objects}_a{self.gpu_address_bit}_{dtypes_name(self.dtypes)}"

    def elaborate(self, platform):
        """A pipeline that never stops: packets enter only while the queue at its end has room."""
        m = Module()
        m.submodules.work = place(work := Fifo(shape=HubWork, depth=WORK_AHEAD))
        request = self.i.payload
        enter, has_room = Signal(), Signal()
        m.d.comb += [
            has_room.eq(work.level < WORK_AHEAD - STAGES),
            enter.eq(self.i.valid & self.ticket.ready & has_room),
            self.i.ready.eq(enter),
            self.ticket.valid.eq(self.i.valid & has_room),
            self.maddr.eq(request.addr[:ADDR_BITS] & ~0xF),
        ]
        ticket = self.ticket.p
        m.d.comb += [
            ticket.cmd.eq(request.cmd),
            ticket.tx.eq(request.tx),
            ticket.tag.eq(request.tag),
            ticket.addr.eq(request.addr),
            ticket.link.eq(request.link),
        ]

        # Object found.
        found, found_valid = record(_Found), Signal()
        m.d.sync += [
            found_valid.eq(enter),
            found.request.eq(request),
            found.hit.eq(self.hit),
            found.object.eq(self.object),
            found.delta.eq(self.delta),
            found.size.eq(self.size),
        ]
        m.d.comb += [self.entry_en.eq(found_valid), self.entry_object.eq(found.object)]

        # Entry read.
        read, read_valid = record(_Found), Signal()
        m.d.sync += [read_valid.eq(found_valid), read.eq(found)]

        # Row and offset.
        last, last_valid, row = record(_Found), Signal(), record(_Row)
        entry = Signal.like(self.entry)
        stride = self.entry.layout.stride
        m.d.sync += [
            last_valid.eq(read_valid),
            last.eq(read),
            entry.eq(self.entry),
            row.aidx.eq(read.delta >> stride),
            row.offset.eq(read.delta & ((1 << stride) - 1)),
        ]
        m.d.comb += work.i.valid.eq(last_valid)
        self._decide(m, last, row, entry, work.i.payload)
        connect(m, work.o, flipped(self.o))
        return m

    def _decide(self, m: Module, found, row, entry, work) -> None:
        request = found.request
        header = record(Header)
        m.d.comb += [header.addr.eq(request.addr), header.tx.eq(request.tx)]
        address = header.multimem
        cmd = request.cmd
        loads, stores, listed = Signal(), Signal(), Signal()
        flits = Signal(5)
        bsize, vbase = Signal(BSIZE_BITS), Signal(ADDR_BITS)
        m.d.comb += [
            loads.eq((cmd == Cmd.RD) | (cmd == Cmd.MM_LDR)),
            stores.eq((cmd == Cmd.MM_ST) | (cmd == Cmd.MM_STP)),
            listed.eq(request.tx & (address.count != 0)),
            flits.eq(Mux(loads, request.addr[:4] + 1, request.data_flits)),
            bsize.eq(Mux(address.stage, entry.bsize1, entry.bsize0)),
            vbase.eq(Mux(address.stage, entry.vbase1, entry.vbase0)),
        ]

        attr = record(Attr)
        supported, fits, in_block, in_object = (
            Signal(name=name) for name in ("supported", "fits", "in_block", "in_object")
        )
        m.d.comb += [
            attr.eq(Mux(Value.cast(address.attr) == 0, entry.layout.attr, address.attr)),
            supported.eq(
                (cmd == Cmd.RD)
                | (cmd == Cmd.WR)
                | (cmd == Cmd.WRP)
                | stores
                | (cmd == Cmd.MM_LDR) & is_supported(attr, self.dtypes)
            ),
            in_block.eq((row.aidx < entry.rows) & (row.offset + (flits << 4) <= bsize)),
            in_object.eq(found.delta + (flits << 4) <= found.size),
            fits.eq(Mux(listed, in_block, in_object)),
        ]
        with m.If(request.tx & found.hit & ~fits):
            m.d.comb += work.status.eq(Status.MALFORMED.value)
        with m.Elif(request.tx & ~found.hit):
            m.d.comb += work.status.eq(Status.UNKNOWN_OBJECT.value)
        with m.Elif(~supported):
            m.d.comb += work.status.eq(Status.UNSUPPORTED.value)
        with m.Elif(request.poison):
            m.d.comb += work.status.eq(Status.POISONED.value)

        plain = request.addr[4 : self.gpu_address_bit] << 4
        m.d.comb += [
            work.load.eq(loads),
            work.reduce.eq(cmd == Cmd.MM_LDR),
            work.listed.eq(listed),
            work.count.eq(address.count),
            work.lists.eq(tx_flits(address.count)),
            work.flits.eq(flits),
            work.place.eq(Mux(request.tx, vbase + Mux(listed, row.offset, found.delta), plain)),
            work.object.eq(found.object),
            work.aidx.eq(row.aidx[:AIDX_BITS]),
            work.bsize.eq(bsize >> 4),
            work.rows.eq(entry.rows),
            work.al_base.eq(entry.al_base),
            work.slots.eq(entry.layout.slots),
            work.split.eq(entry.layout.split),
            work.attr.eq(attr),
            work.first_touch.eq(stores & ~address.stage & ~entry.layout.preloaded),
            work.counted.eq(stores & ~address.stage & listed),
        ]
