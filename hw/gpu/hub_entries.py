"""The Hub's list walker: from a packet to one memory access for each entry of its list."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.gpu.al_manager import AlRequest, AlResult
from dysharp.hw.gpu.hub_records import (
    BSIZE_BITS,
    ROW_BITS,
    SLOT_BITS,
    Access,
    HubWork,
    record,
)
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.packet import FLIT_BITS, TARGET_BITS, TARGETS_PER_FLIT, Status
from dysharp.hw.share import place

__all__ = ["HubEntries"]

STAGES = 3
AHEAD = 8


class _Entry(data.Struct):
    """An access without its row, and whether an AL result belongs to it."""

    access: Access
    bsize: BSIZE_BITS - 4
    asked: 1


class HubEntries(Component):
    """Walks the list of each packet, asks for each entry's layout index, and makes addresses.

    ``VAddr = place + (row0 + LIdx) * bsize``. The slot is the low ``split`` bits of an id; a slot
    that is not in use is ``UNKNOWN_TARGET``, for this entry alone. A packet that is refused whole
    gives one access without an address, and its list is thrown away; so is a packet without a list
    one access.

    Latency: 6 cycles and the AL manager's. Throughput: an entry a cycle.

    Parameters
    ----------
    objects, slots : as in :class:`~dysharp.hw.gpu.hub_table.HubTable`

    Source
    ------
    The DySHARP paper's address formula.
    """

    i: stream.Interface
    """In(stream of HubWork)."""
    lists: stream.Interface
    """In(stream of 128 bits), TX flits."""
    ask: stream.Interface
    """Out(stream of AlRequest)."""
    answer: stream.Interface
    """In(stream of AlResult), in the order of ``ask``."""
    row0_en: Signal
    """Out, read the first row of expert ``row0_index``."""
    row0_index: Any
    """Out, ``{object, slot}``."""
    row0: Signal
    """In, one cycle later."""
    o: stream.Interface
    """Out(stream of Access)."""

    def __init__(self, *, objects: int, slots: int):
        self.objects, self.slots = objects, slots
        super().__init__(
            {
                "i": In(stream.Signature(HubWork)),
                "lists": In(stream.Signature(FLIT_BITS)),
                "ask": Out(stream.Signature(AlRequest)),
                "answer": In(stream.Signature(AlResult)),
                "row0_en": Out(1),
                "row0_index": Out(ceil_log2(objects * slots)),
                "row0": In(ROW_BITS),
                "o": Out(stream.Signature(Access)),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_entries_<objects>x<slots>``."""
        return f"hub_entries_{self.objects}x{self.slots}"

    def elaborate(self, platform):
        """Walk, wait for the layout index, compute."""
        m = Module()
        m.submodules.entries = place(entries := Fifo(shape=_Entry, depth=AHEAD))
        m.submodules.accesses = place(accesses := Fifo(shape=Access, depth=AHEAD))
        self._walk(m, entries.i)
        self._locate(m, entries.o, accesses)
        connect(m, accesses.o, flipped(self.o))
        return m

    def _walk(self, m: Module, entries) -> None:
        """One entry a cycle; of a refused packet one TX flit a cycle."""
        work = self.i.payload
        index = Signal(7)
        target, slot = Signal(TARGET_BITS), Signal(SLOT_BITS)
        seen = Signal(self.slots)
        refused, walks, drops = (Signal(name=name) for name in ("refused", "walks", "drops"))
        known, is_last, asks, present, step = (
            Signal(name=name) for name in ("known", "is_last", "asks", "present", "step")
        )
        m.d.comb += [
            refused.eq(work.status != 0),
            walks.eq(work.listed & ~refused),
            drops.eq(work.listed & refused),
            target.eq(self.lists.payload.word_select(index[:3], TARGET_BITS)),
            slot.eq(target & ((1 << work.split) - 1)),
            known.eq((target & ((1 << work.split) - 1)) < work.slots),
            is_last.eq(Mux(walks, index == work.count - 1, Mux(drops, index == work.lists - 1, 1))),
            asks.eq(walks & known),
            present.eq(self.i.valid & (self.lists.valid | ~work.listed)),
        ]

        entry, access = entries.payload, entries.payload.access
        slot_bit = slot[: ceil_log2(self.slots)]
        wants_entry = ~drops | is_last
        m.d.comb += [
            self.ask.valid.eq(present & asks & entries.ready),
            entries.valid.eq(present & wants_entry & (~asks | self.ask.ready)),
            step.eq(present & (~wants_entry | entries.ready & (~asks | self.ask.ready))),
            self.i.ready.eq(step & is_last),
            self.lists.ready.eq(
                step & work.listed & (drops | is_last | (index[:3] == TARGETS_PER_FLIT - 1))
            ),
            self.ask.p.key.object.eq(work.object),
            self.ask.p.key.slot.eq(slot),
            self.ask.p.key.aidx.eq(work.aidx),
            self.ask.p.first_touch.eq(work.first_touch),
            self.ask.p.al_base.eq(work.al_base),
            self.ask.p.rows.eq(work.rows),
            entry.asked.eq(asks),
            entry.bsize.eq(work.bsize),
            access.load.eq(work.load),
            access.reduce.eq(work.reduce),
            access.attr.eq(work.attr),
            access.vaddr.eq(work.place),
            access.flits.eq(work.flits),
            access.status.eq(Mux(walks & ~known, Status.UNKNOWN_TARGET.value, work.status)),
            access.last.eq(is_last),
            access.counted.eq(work.counted & asks & ~seen.bit_select(slot_bit, 1)),
            access.object.eq(work.object),
            access.slot.eq(slot),
        ]
        with m.If(step):
            m.d.sync += index.eq(index + 1)
            with m.If(asks):
                m.d.sync += seen.bit_select(slot_bit, 1).eq(1)
            with m.If(is_last):
                m.d.sync += [index.eq(0), seen.eq(0)]

    def _locate(self, m: Module, entries, accesses) -> None:
        """A pipeline that never stops: row0, row, product, sum."""
        entry, access = entries.payload, entries.payload.access
        enter, has_room = Signal(), Signal()
        m.d.comb += [
            has_room.eq(accesses.level < AHEAD - STAGES),
            enter.eq(entries.valid & has_room & (~entry.asked | self.answer.valid)),
            entries.ready.eq(enter),
            self.answer.ready.eq(enter & entry.asked),
            self.row0_en.eq(enter),
            self.row0_index.eq(
                Cat(access.slot[: ceil_log2(self.slots)], access.object[: ceil_log2(self.objects)])
            ),
        ]

        reading, reading_valid, bsize = record(Access), Signal(), Signal(BSIZE_BITS - 4)
        lidx = self.answer.p.lidx
        m.d.sync += [
            reading_valid.eq(enter),
            reading.eq(access),
            reading.lidx.eq(lidx),
            bsize.eq(Mux(entry.asked, entry.bsize, 0)),
        ]
        with m.If(entry.asked):
            m.d.sync += reading.status.eq(self.answer.p.status)

        adding, adding_valid = record(Access), Signal()
        row, row_bsize = Signal(ROW_BITS), Signal(BSIZE_BITS - 4)
        m.d.sync += [
            adding_valid.eq(reading_valid),
            adding.eq(reading),
            row.eq(self.row0 + reading.lidx),
            row_bsize.eq(bsize),
        ]

        done, done_valid = record(Access), Signal()
        product = Signal(ROW_BITS + BSIZE_BITS - 4)
        m.d.sync += [
            done_valid.eq(adding_valid),
            done.eq(adding),
            product.eq(row * row_bsize),
        ]
        m.d.comb += [
            accesses.i.valid.eq(done_valid),
            accesses.i.payload.eq(done),
            accesses.i.p.vaddr.eq(done.vaddr + (product << 4)),
        ]
