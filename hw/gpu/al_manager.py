"""The AL manager: layout indices by TLB, by AL table, or, at first touch, newly given."""

from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.al_table import AL_ENTRY_BYTES, AlEntry
from dysharp.hw.axi import ADDR_BITS, ReadId, WriteId, axi4
from dysharp.hw.gpu.al_tlb import AlFlush, AlKey, AlTlb, check_tlb_shape
from dysharp.hw.gpu.hub_records import (
    AIDX_BITS,
    LIDX_BITS,
    OBJECT_BITS,
    SLOT_BITS,
    STATUS_BITS,
    record,
)
from dysharp.hw.gpu.hub_table import Quota
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.packet import Status
from dysharp.hw.share import place

__all__ = ["AlEvents", "AlManager", "AlRequest", "AlResult", "AlTouch"]

ENTRY_SHIFT = ceil_log2(AL_ENTRY_BYTES)
PENDING_WRITES = 4
"""AL table writes that memory has not answered."""
REQUESTS = 4
"""Requests under way: those in the AL-TLB, and one more."""


class AlRequest(data.Struct):
    """Which layout index is wanted.

    Members
    -------
    key : object, local expert, algebraic index
    first_touch : an unmapped entry takes the expert's next layout index
    al_base : address of the object's AL table
    rows : algebraic indices of the object
    """

    key: AlKey
    first_touch: 1
    al_base: ADDR_BITS
    rows: AIDX_BITS


class AlResult(data.Struct):
    """The answer to a request.

    Members
    -------
    status : 0, or ``UNMAPPED_INDEX`` or ``QUOTA_EXCEEDED``
    lidx : layout index, if ``status`` is 0
    """

    status: STATUS_BITS
    lidx: LIDX_BITS


class AlTouch(data.Struct):
    """A layout index that has just been given.

    Members
    -------
    object, slot, aidx : to whom
    lidx : what
    """

    object: OBJECT_BITS
    slot: SLOT_BITS
    aidx: AIDX_BITS
    lidx: LIDX_BITS


class AlEvents(data.Struct):
    """Pulses.

    Members
    -------
    hit, miss : of the AL-TLB, one a request
    walk : the AL table is read
    first_touch : a layout index is given
    full : an expert has none left; one for each entry of each packet that meets it
    memory_error : memory refused a read or a write of the AL table
    """

    hit: 1
    miss: 1
    walk: 1
    first_touch: 1
    full: 1
    memory_error: 1


class AlManager(Component):
    """Finds the layout index of every list entry, and gives new ones at first touch.

    A miss is walked: the AL table's 4 bytes at ``al_base + 4 * (slot * rows + aidx)`` are read. Bit
    31 set: bits 30:0 are the layout index. Clear, and first touch allowed: the expert's next
    layout index is taken, written to table and AL-TLB, and told on ``touch``. A walk waits for
    writes of its own entry that memory has not answered. Results keep the order of requests.

    Latency: 4 cycles at a hit; a walk adds memory's latency and 6. Throughput: a request a cycle
    at hits. Requests behind a miss wait for it, two entries of one key so cause one walk.

    Errors: ``UNMAPPED_INDEX`` if the entry is not valid and first touch is not allowed, if what it
    holds is not below the expert's capacity, or if memory refuses the read (a first touch then
    gives nothing). ``QUOTA_EXCEEDED`` if the expert has no row left. A refused write of the table
    is only told as an event.

    Parameters
    ----------
    data_width : bits of a memory beat
    entries, ways : of the AL-TLB
    objects, slots : as in :class:`~dysharp.hw.gpu.hub_table.HubTable`

    Source
    ------
    The DySHARP paper's AL manager (AL table walker, first touch).
    """

    i: stream.Interface
    """In(stream of AlRequest)."""
    o: stream.Interface
    """Out(stream of AlResult)."""
    touch: stream.Interface
    """Out(stream of AlTouch); must be taken within a bounded time that depends on nothing the Hub
    does.
    """
    flush: Any
    """In(AlFlush), to the AL-TLB."""
    quota_en: Signal
    """Out, read the quota of expert ``quota_index``."""
    quota_index: Signal
    """Out, ``{object, slot}``."""
    quota: Any
    """In(Quota), one cycle later."""
    used_en: Signal
    """Out, set how many rows expert ``used_index`` has given away."""
    used_index: Signal
    """Out, ``{object, slot}``."""
    used: Signal
    """Out, how many."""
    used_ready: Signal
    """In, it is set in this cycle."""
    m_axi: Any
    """Out(axi4), ids ``AL_WALK`` and ``AL_TABLE``; ready for every answer."""
    events: Any
    """Out(AlEvents)."""

    def __init__(self, *, data_width: int, entries: int, ways: int, objects: int, slots: int):
        check_tlb_shape(entries=entries, ways=ways, objects=objects, slots=slots)
        self.data_width, self.entries, self.ways = data_width, entries, ways
        self.objects, self.slots = objects, slots
        index = ceil_log2(objects * slots)
        super().__init__(
            {
                "i": In(stream.Signature(AlRequest)),
                "o": Out(stream.Signature(AlResult)),
                "touch": Out(stream.Signature(AlTouch)),
                "flush": In(AlFlush),
                "quota_en": Out(1),
                "quota_index": Out(index),
                "quota": In(Quota),
                "used_en": Out(1),
                "used_index": Out(index),
                "used": Out(LIDX_BITS),
                "used_ready": In(1),
                "m_axi": Out(axi4(data_width=data_width)),
                "events": Out(AlEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``al_manager_w<data width>_<entries>x<ways>_o<objects>x<slots>``."""
        return (
            f"al_manager_w{self.data_width}_{self.entries}x{self.ways}_o{self.objects}x{self.slots}"
        )

    def elaborate(self, platform):
        """Requests go beside the AL-TLB; the walker works on the one whose result is a miss."""
        m = Module()
        m.submodules.tlb = place(
            tlb := AlTlb(
                entries=self.entries, ways=self.ways, objects=self.objects, slots=self.slots
            )
        )
        m.submodules.requests = place(requests := Fifo(shape=AlRequest, depth=REQUESTS))
        m.submodules.results = place(results := Fifo(shape=AlResult, depth=2))
        m.d.comb += [
            tlb.flush.eq(self.flush),
            tlb.i.valid.eq(self.i.valid & requests.i.ready),
            requests.i.valid.eq(self.i.valid & tlb.i.ready),
            self.i.ready.eq(requests.i.ready & tlb.i.ready),
            tlb.i.payload.eq(self.i.p.key),
            requests.i.payload.eq(self.i.payload),
        ]
        connect(m, results.o, flipped(self.o))

        request = requests.o.payload
        key = request.key
        entry, word = Signal(ADDR_BITS), record(AlEntry)
        read_failed, finish = Signal(), Signal()
        status, lidx = Signal(STATUS_BITS), Signal(LIDX_BITS)
        hit, miss = Signal(), Signal()
        m.d.comb += [
            hit.eq(tlb.o.valid & tlb.o.p.hit),
            miss.eq(tlb.o.valid & ~tlb.o.p.hit),
            results.i.valid.eq(hit | finish),
            results.i.p.lidx.eq(Mux(finish, lidx, tlb.o.p.lidx)),
            results.i.p.status.eq(Mux(finish, status, 0)),
            tlb.o.ready.eq(results.i.valid & results.i.ready),
            requests.o.ready.eq(tlb.o.ready),
            self.events.hit.eq(hit & tlb.o.ready),
        ]
        axi = self.m_axi
        product = Signal(SLOT_BITS + AIDX_BITS)
        index = Cat(key.slot[: ceil_log2(self.slots)], key.object[: ceil_log2(self.objects)])
        pending, pending_full = self._pending(m, entry)
        write_free, start_write = self._table_write(m, entry, lidx)
        m.d.comb += [
            self.quota_index.eq(index),
            self.used_index.eq(index),
            self.used.eq(self.quota.used + 1),
            tlb.fill.key.eq(key),
            tlb.fill.lidx.eq(lidx),
            axi.rready.eq(1),
            axi.arid.eq(ReadId.AL_WALK),
            axi.araddr.eq(entry),
            axi.arsize.eq(ENTRY_SHIFT),
            axi.arburst.eq(1),
            self.touch.p.object.eq(key.object),
            self.touch.p.slot.eq(key.slot),
            self.touch.p.aidx.eq(key.aidx),
            self.touch.p.lidx.eq(lidx),
        ]

        with m.FSM():
            with m.State("IDLE"):
                with m.If(miss):
                    m.d.comb += self.events.miss.eq(1)
                    m.d.sync += [
                        product.eq(key.slot[: ceil_log2(self.slots)] * request.rows),
                    ]
                    m.next = "ADDRESS"
            with m.State("ADDRESS"):
                m.d.sync += entry.eq(request.al_base + ((product + key.aidx) << ENTRY_SHIFT))
                m.d.comb += self.quota_en.eq(1)
                m.next = "WALK"
            with m.State("WALK"):
                m.d.comb += axi.arvalid.eq(~pending)
                with m.If(axi.arvalid & axi.arready):
                    m.d.comb += self.events.walk.eq(1)
                    m.next = "WAIT"
            with m.State("WAIT"):
                lane = entry[2 : ceil_log2(self.data_width // 8)]
                with m.If(axi.rvalid):
                    m.d.sync += [
                        word.eq(axi.rdata.word_select(lane, 32)),
                        read_failed.eq(axi.rresp[1]),
                    ]
                    m.next = "DECIDE"
            with m.State("DECIDE"):
                m.d.sync += status.eq(Status.UNMAPPED_INDEX.value)
                with m.If(read_failed):
                    m.d.comb += self.events.memory_error.eq(1)
                    m.next = "ANSWER"
                with m.Elif(word.valid & (word.lidx < self.quota.capacity)):
                    m.d.sync += lidx.eq(word.lidx)
                    m.next = "FILL"
                with m.Elif(word.valid | ~request.first_touch):
                    m.next = "ANSWER"
                with m.Elif(self.quota.used < self.quota.capacity):
                    m.d.sync += lidx.eq(self.quota.used)
                    m.next = "GIVE"
                with m.Else():
                    m.d.comb += self.events.full.eq(1)
                    m.d.sync += status.eq(Status.QUOTA_EXCEEDED.value)
                    m.next = "ANSWER"
            with m.State("GIVE"):
                m.d.comb += self.used_en.eq(write_free & ~pending_full)
                with m.If(self.used_en & self.used_ready):
                    m.d.comb += [start_write.eq(1), self.events.first_touch.eq(1)]
                    m.next = "TOUCH"
            with m.State("TOUCH"):
                m.d.comb += self.touch.valid.eq(1)
                with m.If(self.touch.ready):
                    m.next = "FILL"
            with m.State("FILL"):
                m.d.comb += tlb.fill.valid.eq(1)
                m.d.sync += status.eq(0)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += finish.eq(1)
                with m.If(tlb.o.ready):
                    m.next = "IDLE"
        with m.If(axi.bvalid & axi.bresp[1]):
            m.d.comb += self.events.memory_error.eq(1)
        self._push_pending(m, start_write, entry)
        return m

    def _pending(self, m: Module, entry):
        """Whether a write of ``entry`` is unanswered, and whether no more may start."""
        self._addresses = Array(
            Signal(ADDR_BITS - 2, name=f"pending{k}") for k in range(PENDING_WRITES)
        )
        self._head, self._tail = (
            Signal(range(PENDING_WRITES), name=f"pending_{end}") for end in ("head", "tail")
        )
        self._unanswered = Signal(PENDING_WRITES)
        same = [self._addresses[k] == entry[2:] for k in range(PENDING_WRITES)]
        return (Cat(same) & self._unanswered).any(), self._unanswered.all()

    def _push_pending(self, m: Module, start, entry) -> None:
        m.d.comb += self.m_axi.bready.eq(1)
        with m.If(start):
            m.d.sync += [
                self._addresses[self._tail].eq(entry[2:]),
                self._unanswered.bit_select(self._tail, 1).eq(1),
                self._tail.eq(self._tail + 1),
            ]
        with m.If(self.m_axi.bvalid):
            m.d.sync += [
                self._unanswered.bit_select(self._head, 1).eq(0),
                self._head.eq(self._head + 1),
            ]

    def _table_write(self, m: Module, entry, lidx):
        """Address and data of the one write that is being handed over."""
        axi = self.m_axi
        start = Signal()
        lane = Signal(ceil_log2(self.data_width // 32))
        new_entry = record(AlEntry)
        m.d.comb += [new_entry.lidx.eq(lidx), new_entry.valid.eq(1)]
        with m.If(axi.awready):
            m.d.sync += axi.awvalid.eq(0)
        with m.If(axi.wready):
            m.d.sync += axi.wvalid.eq(0)
        with m.If(start):
            m.d.sync += [
                axi.awvalid.eq(1),
                axi.awaddr.eq(entry),
                axi.wvalid.eq(1),
                axi.wdata.eq(Value.cast(new_entry).replicate(self.data_width // 32)),
                lane.eq(entry[2:]),
            ]
        m.d.comb += [
            axi.awid.eq(WriteId.AL_TABLE),
            axi.awsize.eq(ENTRY_SHIFT),
            axi.awburst.eq(1),
            axi.wlast.eq(1),
            axi.wstrb.eq(0b1111 << (lane << 2)),
        ]
        return ~axi.awvalid & ~axi.wvalid, start
