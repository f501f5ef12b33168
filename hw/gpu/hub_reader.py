"""The Hub's load side: read bursts out, and a place for all that comes back."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.gpu.hub_payload import bank_of_lane
from dysharp.hw.gpu.hub_records import Access, ReadItem
from dysharp.hw.gpu.hub_writer import Burst, BurstCut
from dysharp.hw.link.fifo import Fifo, Skid
from dysharp.hw.memory import Ram
from dysharp.hw.packet import FLIT_BITS, FLIT_BYTES, Status
from dysharp.hw.share import place

__all__ = ["HubReader"]


class _Expected(data.Struct):
    """Beats that will come, in the order of their addresses."""

    lane: 3
    flits: 5
    beats: 5


class _Item(data.Struct):
    """An entry, and whether data will come for it."""

    item: ReadItem
    reads: 1


class HubReader(Component):
    """Reads one access after the other into places that are taken before the burst leaves.

    So what memory sends is taken in every cycle, whatever waits behind. A read burst may begin
    inside of a beat and never crosses 4 KB; an access that does is two bursts. A refused read
    (SLVERR, DECERR) makes its entry ``POISONED``.

    Flit ``j`` of an access stands in bank ``j mod lanes``, so words of ``lanes`` flits come out
    aligned, whatever the address was.

    Latency: 3 cycles to the address, 2 from the last beat to ``o``. Throughput: a burst and a beat
    a cycle.

    Parameters
    ----------
    data_width : bits of a memory beat
    chunk_bytes : the longest access
    places : accesses that are under way or wait to be reduced
    """

    i: stream.Interface
    """In(stream of Access), with ``load``."""
    ar: stream.Interface
    """Out(stream of Burst)."""
    r_valid: Signal
    """In, a beat of the oldest burst has come."""
    r_data: Signal
    """In, the beat."""
    r_error: Signal
    """In, memory refused it."""
    o: stream.Interface
    """Out(stream of ReadItem), entries in order, each when its data is there."""
    word_en: Signal
    """In, read word ``word`` of the access at ``o``."""
    word: Signal
    """In."""
    word_data: Signal
    """Out, one cycle later."""

    def __init__(self, *, data_width: int, chunk_bytes: int, places: int):
        if places < 2:
            raise ValueError(f"Places must be at least 2, not {places!r}")
        self.data_width, self.chunk_bytes, self.places = data_width, chunk_bytes, places
        self.lanes = data_width // FLIT_BITS
        self.words = chunk_bytes // FLIT_BYTES // self.lanes
        super().__init__(
            {
                "i": In(stream.Signature(Access)),
                "ar": Out(stream.Signature(Burst)),
                "r_valid": In(1),
                "r_data": In(data_width),
                "r_error": In(1),
                "o": Out(stream.Signature(ReadItem)),
                "word_en": In(1),
                "word": In(4),
                "word_data": Out(data_width),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_reader_w<data width>_c<chunk bytes>_p<places>``."""
        return f"hub_reader_w{self.data_width}_c{self.chunk_bytes}_p{self.places}"

    def elaborate(self, platform):
        """Bursts out, beats into the ring of places, items out."""
        m = Module()
        m.submodules.bursts_out = place(bursts := Skid(shape=Burst))
        m.submodules.expected = place(expected := Fifo(shape=_Expected, depth=self.places))
        m.submodules.items = place(items := Fifo(shape=_Item, depth=self.places))
        m.submodules.arrived = place(arrived := Fifo(shape=1, depth=self.places))
        used = Signal(range(self.places + 1))
        head = Signal(range(self.places))
        reserve = self._issue(m, bursts.i, expected.i, items.i, used)
        banks = self._fill(m, expected.o, arrived.i)

        item = items.o.payload
        free = Signal()
        m.d.comb += [
            self.o.valid.eq(items.o.valid & (~item.reads | arrived.o.valid)),
            self.o.payload.eq(item.item),
            items.o.ready.eq(self.o.valid & self.o.ready),
            free.eq(items.o.ready & item.reads),
            arrived.o.ready.eq(free),
        ]
        connect(m, bursts.o, flipped(self.ar))
        with m.If(item.reads & arrived.o.payload):
            m.d.comb += self.o.p.status.eq(Status.POISONED.value)
        m.d.sync += used.eq(used + reserve - free)
        with m.If(free):
            m.d.sync += head.eq(Mux(head == self.places - 1, 0, head + 1))
        for bank in banks:
            m.d.comb += [
                bank.read_en.eq(self.word_en),
                bank.read_addr.eq(head * self.words + self.word),
            ]
        m.d.comb += self.word_data.eq(Cat(bank.read_data for bank in banks))
        return m

    def _issue(self, m: Module, bursts, expected, items, used):
        """Address by address; the first of an access takes its place."""
        access = self.i.payload
        m.submodules.cut = place(cut := BurstCut(data_width=self.data_width))
        second = Signal()
        reads, whole, step = (Signal(name=name) for name in ("reads", "whole", "step"))
        has_place = second | ~reads | (used != self.places) & expected.ready
        m.d.comb += [
            cut.vaddr.eq(access.vaddr),
            cut.flits.eq(access.flits),
            cut.second.eq(second),
            reads.eq(access.status == 0),
            whole.eq(~reads | second | ~cut.crosses),
            step.eq(self.i.valid & has_place & (second | items.ready) & (~reads | bursts.ready)),
            self.i.ready.eq(step & whole),
            bursts.valid.eq(step & reads),
            bursts.payload.eq(cut.burst),
            expected.valid.eq(step & reads & ~second),
            expected.p.lane.eq(cut.lane),
            expected.p.flits.eq(access.flits),
            expected.p.beats.eq(cut.beats),
            items.valid.eq(step & ~second),
            items.p.reads.eq(reads),
            items.p.item.reduce.eq(access.reduce),
            items.p.item.attr.eq(access.attr),
            items.p.item.flits.eq(access.flits),
            items.p.item.status.eq(access.status),
            items.p.item.last.eq(access.last),
        ]
        with m.If(step):
            m.d.sync += second.eq(~whole)
        return expected.valid

    def _fill(self, m: Module, expected, arrived) -> list:
        """Each lane of a beat to its bank; how an access ended once it is whole."""
        lane_bits = ceil_log2(self.lanes)
        tail = Signal(range(self.places))
        beat = Signal(5)
        failed, is_end = Signal(), Signal()
        what = expected.payload
        lane = what.lane[:lane_bits]
        m.d.comb += [
            is_end.eq(beat + 1 == what.beats),
            expected.ready.eq(self.r_valid & is_end),
            arrived.valid.eq(self.r_valid & is_end),
            arrived.payload.eq(failed | self.r_error),
        ]
        with m.If(self.r_valid):
            m.d.sync += [
                beat.eq(Mux(is_end, 0, beat + 1)),
                failed.eq(~is_end & (failed | self.r_error)),
            ]
            with m.If(is_end):
                m.d.sync += tail.eq(Mux(tail == self.places - 1, 0, tail + 1))
        turned = self.r_data
        for bit in range(lane_bits):
            turned = Mux(lane[bit], turned.rotate_right(FLIT_BITS << bit), turned)
        banks = []
        for b in range(self.lanes):
            m.submodules[f"bank{b}"] = place(
                bank := Ram(width=FLIT_BITS, depth=self.places * self.words)
            )
            wraps = bank_of_lane(b, lane, self.lanes) if lane_bits else Const(0, 1)
            word = Signal(6, name=f"word{b}")
            inside = Signal(name=f"inside{b}")
            m.d.comb += [
                word.eq(beat - wraps),
                inside.eq(~word[-1] & (word * self.lanes + b < what.flits)),
                bank.write_en.eq(self.r_valid & inside),
                bank.write_addr.eq(tail * self.words + word),
                bank.write_data.eq(turned.word_select(b, FLIT_BITS)),
            ]
            banks.append(bank)
        return banks
