"""Reads target lists from memory, ahead of the packets that need them."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.axi import ADDR_BITS, PAGE_BYTES, ReadId, axi4_read
from dysharp.hw.gpu.list_packer import ListHead, ListPacker
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.packet import FLIT_BITS, MAX_TARGETS, TARGETS_PER_FLIT, tx_flits
from dysharp.hw.share import place

__all__ = ["ListFetch", "ListRequest"]


class ListRequest(data.Struct):
    """A list in memory.

    Members
    -------
    addr : byte address, even
    count : entries, at least 1
    """

    addr: ADDR_BITS
    count: 7


class _ListPlace(data.Struct):
    """Where the entries of a list lie in its beats, and how many there are."""

    start: 6
    count: 7


class ListFetch(Component):
    """Reads contiguous lists of 16-bit target ids over AXI4 and hands on TX flits.

    Lists leave in the order of the requests. Reads of one id come back in order, so no list waits
    for a later one. A read is issued only when all its beats have a place: ``rready`` follows
    nothing else.

    Latency: memory's, and five cycles. Throughput: a list takes as many cycles as its packet has
    HDR and TX flits, or fewer, as long as ``beats`` covers memory's latency.

    Errors: a read answered with SLVERR or DECERR sets ``fault`` of its list.

    Parameters
    ----------
    data_width : bits of a memory beat, 128 to 1024
    lists : lists requested and not yet handed on
    beats : memory beats that can be in flight or wait, at least those of the longest list
    flits : TX flits held ahead of the packetizer, at least those of the longest list

    Source
    ------
    AXI4 (bursts, 4 KB rule, order of an id).
    """

    i: stream.Interface
    """In(stream of ListRequest)."""
    o: stream.Interface
    """Out(stream of ListHead), once a list, when all its TX flits are there."""
    tx: stream.Interface
    """Out(stream of 128 bits), TX flits of list after list."""
    m_axi: Any
    """Out, the read channels, id ``LIST_FETCH``; no burst crosses 4 KB."""

    def __init__(self, *, data_width: int, lists: int = 32, beats: int = 32, flits: int = 32):
        if data_width not in (128, 256, 512, 1024):
            raise ValueError(f"Data width must be 128, 256, 512 or 1024, not {data_width!r}")
        longest = -(-(data_width // 8 - 2 + 2 * MAX_TARGETS) // (data_width // 8))
        if lists < 2:
            raise ValueError(f"Lists must be at least 2, not {lists!r}")
        if beats < longest:
            raise ValueError(f"Beats must be at least {longest}, not {beats!r}")
        if flits < tx_flits(MAX_TARGETS):
            raise ValueError(f"Flits must be at least {tx_flits(MAX_TARGETS)}, not {flits!r}")
        self.data_width, self.lists, self.beats, self.flits = data_width, lists, beats, flits
        super().__init__(
            {
                "i": In(stream.Signature(ListRequest)),
                "o": Out(stream.Signature(ListHead)),
                "tx": Out(stream.Signature(FLIT_BITS)),
                "m_axi": Out(axi4_read(data_width=data_width)),
            }
        )

    @property
    def module_name(self) -> str:
        """``list_fetch_w<data_width>_l<lists>_b<beats>_f<flits>``."""
        return f"list_fetch_w{self.data_width}_l{self.lists}_b{self.beats}_f{self.flits}"

    def elaborate(self, platform):
        """Requests to reads, beats to segments, segments to TX flits."""
        m = Module()
        requests = Fifo(shape=ListRequest, depth=self.lists)
        places = Fifo(shape=_ListPlace, depth=self.lists)
        beats = Fifo(shape=self.data_width + 1, depth=self.beats)
        packer = ListPacker()
        heads = Fifo(shape=ListHead, depth=self.lists)
        flits = Fifo(shape=FLIT_BITS, depth=self.flits)
        m.submodules.requests = place(requests)
        m.submodules.places = place(places)
        m.submodules.beats = place(beats)
        m.submodules.packer = place(packer)
        m.submodules.heads = place(heads)
        m.submodules.flits = place(flits)

        connect(m, flipped(self.i), requests.i)
        self._read(m, requests.o, places.i, beats)
        self._cut(m, places.o, beats.o, packer.i)
        connect(m, packer.o, heads.i)
        connect(m, packer.tx, flits.i)
        connect(m, heads.o, flipped(self.o))
        connect(m, flits.o, flipped(self.tx))
        return m

    def _read(self, m: Module, request, places, beats) -> None:
        """One read a request, two if the list lies on both sides of a 4 KB boundary."""
        ar = self.m_axi
        beat_bits = ceil_log2(self.data_width // 8)
        page_beats = PAGE_BYTES >> beat_bits
        addr = request.p.addr
        total = Signal(range(self.beats + 1))
        to_page = Signal(range(page_beats + 1))
        reserved = Signal(range(self.beats + 1))
        crosses, second, has_room, issued = Signal(), Signal(), Signal(), Signal()
        span = addr[:beat_bits] + (request.p.count << 1) + ((1 << beat_bits) - 1)
        m.d.comb += [
            total.eq(span >> beat_bits),
            to_page.eq(page_beats - addr[beat_bits:12]),
            crosses.eq(total > to_page),
            has_room.eq((reserved + total <= self.beats) & places.ready),
            ar.arvalid.eq(request.valid & (second | has_room)),
            ar.arid.eq(ReadId.LIST_FETCH),
            ar.arsize.eq(beat_bits),
            ar.arburst.eq(1),
            ar.araddr.eq(Mux(second, (addr[12:] + 1) << 12, addr[beat_bits:] << beat_bits)),
            ar.arlen.eq(Mux(second, total - to_page, Mux(crosses, to_page, total)) - 1),
            issued.eq(ar.arvalid & ar.arready),
            request.ready.eq(issued & (second | ~crosses)),
            places.valid.eq(issued & ~second),
            places.p.start.eq(addr[1:beat_bits]),
            places.p.count.eq(request.p.count),
        ]
        with m.If(issued):
            m.d.sync += second.eq(crosses & ~second)
        m.d.sync += reserved.eq(
            reserved + Mux(places.valid, total, 0) - (beats.o.valid & beats.o.ready)
        )
        m.d.comb += [
            beats.i.valid.eq(ar.rvalid),
            beats.i.payload.eq(Cat(ar.rdata, ar.rresp[1])),
            ar.rready.eq(beats.i.ready),
        ]

    def _cut(self, m: Module, where, beat, segment) -> None:
        """Beats to segments of eight entries, the first and the last of a list masked."""
        segments = self.data_width // FLIT_BITS
        started = Signal()
        next_index, index = Signal(range(segments)), Signal(range(segments))
        rest, left = Signal(7), Signal(7)
        offset = Signal(3)
        here = Signal(range(TARGETS_PER_FLIT + 1))
        is_end, step = Signal(), Signal()
        m.d.comb += [
            index.eq(Mux(started, next_index, where.p.start[3:])),
            offset.eq(Mux(started, 0, where.p.start[:3])),
            left.eq(Mux(started, rest, where.p.count)),
            here.eq(TARGETS_PER_FLIT - offset),
            is_end.eq(left <= here),
            segment.valid.eq(where.valid & beat.valid),
            segment.p.ids.eq(_word(beat.payload[: self.data_width], index)),
            segment.p.mask.eq(_ones(left) << offset),
            segment.p.last.eq(is_end),
            segment.p.fault.eq(beat.payload[-1]),
            step.eq(segment.valid & segment.ready),
            where.ready.eq(step & is_end),
            beat.ready.eq(step & (is_end | (index == segments - 1))),
        ]
        with m.If(step):
            m.d.sync += [
                started.eq(~is_end),
                next_index.eq(index + 1),
                rest.eq(left - here),
            ]


def _word(beat: Value, index: Signal) -> Value:
    return beat.word_select(index, FLIT_BITS) if len(index) else beat


def _ones(left: Value) -> Value:
    """As many ones as there are entries left, eight at most."""
    return Cat(left > k for k in range(TARGETS_PER_FLIT))
