"""The AL-TLB: from (object, expert, algebraic index) to layout index, without a look at memory."""

from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.config import Config
from dysharp.hw.gpu.hub_records import AIDX_BITS, LIDX_BITS, OBJECT_BITS, SLOT_BITS, record
from dysharp.hw.link.fifo import Skid
from dysharp.hw.memory import Ram
from dysharp.hw.share import place

__all__ = ["AlFill", "AlFlush", "AlHit", "AlKey", "AlTlb", "al_tlb_block", "check_tlb_shape"]

EPOCH_BITS = 2


class AlKey(data.Struct):
    """What is looked up.

    Members
    -------
    object : entry of the object table
    slot : local expert
    aidx : algebraic index, GPU rank * ntoken + token
    """

    object: OBJECT_BITS
    slot: SLOT_BITS
    aidx: AIDX_BITS


class AlHit(data.Struct):
    """What is found.

    Members
    -------
    hit : the translation is known
    lidx : layout index, a row of the expert; meaningful if ``hit``
    """

    hit: 1
    lidx: LIDX_BITS


class AlFill(data.Struct):
    """A translation to be remembered.

    Members
    -------
    valid : in this cycle; always taken
    key, lidx : the translation
    """

    valid: 1
    key: AlKey
    lidx: LIDX_BITS


class AlFlush(data.Struct):
    """What is to be forgotten, in one cycle.

    Members
    -------
    object : which object's translations
    by_object : forget those
    whole : forget everything
    """

    object: OBJECT_BITS
    by_object: 1
    whole: 1


def check_tlb_shape(*, entries: int, ways: int, objects: int, slots: int) -> None:
    """Raise ValueError unless an :class:`AlTlb` of these parameters can be built."""
    if entries < 1:
        raise ValueError(f"Entries must be at least 1, not {entries!r}")
    if ways < 1 or entries % ways:
        raise ValueError(f"Ways must be a divisor of the {entries} entries, not {ways!r}")
    if (entries // ways).bit_count() != 1:
        raise ValueError(f"Sets must be a power of two, not {entries // ways!r}")
    for noun, value, most in (("Objects", objects, 16), ("Slots", slots, 1024)):
        if not 1 <= value <= most or value.bit_count() != 1:
            raise ValueError(f"{noun} must be a power of two in 1..{most}, not {value!r}")


class AlTlb(Component):
    """Set-associative buffer of translations.

    A lookup gives its result in order. It enters the array when its result has a place at ``o``,
    and sees all fills up to and with that cycle; what stands at ``o`` does not change any more. A
    key is filled only after it has missed and once, so no two entries have one key.

    A set is chosen by the whole key, folded, so that the local experts of one token fall into
    different sets. A fill takes a free way of its set, else one by a counter that goes on with
    each such fill.

    Flushing one object adds 1 to the object's epoch, which is part of the tag; when the epoch comes
    round, everything is forgotten. Lookups accepted after the cycle of a flush do not find what was
    flushed; a result that stands at ``o`` stays. No fill of the object may come between the flush
    and the change for which it was flushed.

    Latency: 2 cycles. Throughput: a lookup a cycle. All outputs of ``i`` come from registers.

    Parameters
    ----------
    entries : translations
    ways : entries of a set; ``entries // ways``, the sets, is a power of two. 1 is direct mapped,
        ``entries`` fully associative
    objects, slots : objects and local experts that a key can name, powers of two

    Source
    ------
    The DySHARP paper's AL-TLB: 512 entries, tagged by expert and algebraic index.
    """

    i: stream.Interface
    """In(stream of AlKey)."""
    o: stream.Interface
    """Out(stream of AlHit)."""
    fill: Any
    """In(AlFill)."""
    flush: Any
    """In(AlFlush)."""

    def __init__(self, *, entries: int, ways: int, objects: int = 16, slots: int = 64):
        check_tlb_shape(entries=entries, ways=ways, objects=objects, slots=slots)
        self.entries, self.ways = entries, ways
        self.objects, self.slots = objects, slots
        super().__init__(
            {
                "i": In(stream.Signature(AlKey)),
                "o": Out(stream.Signature(AlHit)),
                "fill": In(AlFill),
                "flush": In(AlFlush),
            }
        )

    @property
    def sets(self) -> int:
        """Sets."""
        return self.entries // self.ways

    @property
    def module_name(self) -> str:
        """``al_tlb_<entries>x<ways>_o<objects>x<slots>``."""
        return f"al_tlb_{self.entries}x{self.ways}_o{self.objects}x{self.slots}"

    def elaborate(self, platform):
        """Read all ways of a set, compare a cycle later; ``known`` is a fill of that very cycle."""
        m = Module()
        m.submodules.keys = place(keys := Skid(shape=AlKey))
        connect(m, flipped(self.i), keys.i)

        epochs = Array(Signal(EPOCH_BITS, name=f"epoch{k}") for k in range(self.objects))
        valid = Array(Signal(self.ways, name=f"valid{k}") for k in range(self.sets))

        look, waiting = Signal(), Signal()
        key = record(AlKey)
        m.d.comb += [
            key.eq(keys.o.payload),
            keys.o.ready.eq(~waiting | self.o.ready),
            look.eq(keys.o.valid & keys.o.ready),
        ]
        lookup_set, fill_set = self._set(key), self._set(self.fill.key)
        tag, fill_tag = self._tag(key, epochs), self._tag(self.fill.key, epochs)
        wanted = Signal(len(tag))
        candidates = Signal(self.ways)
        with m.If(keys.o.ready):
            m.d.sync += waiting.eq(keys.o.valid)

        victim = self._victim(m, valid[fill_set])
        overwritten = Mux(self.fill.valid & (fill_set == lookup_set), 1 << victim, 0)
        with m.If(look):
            m.d.sync += [wanted.eq(tag), candidates.eq(valid[lookup_set] & ~overwritten)]
        words = self._storage(m, look, lookup_set, fill_set, victim, Cat(fill_tag, self.fill.lidx))
        hits = Signal(self.ways)
        found = Const(0, LIDX_BITS)
        for way, word in enumerate(words):
            m.d.comb += hits[way].eq(candidates[way] & (word[: len(tag)] == wanted))
            found = found | Mux(hits[way], word[len(tag) :], 0)

        known, known_lidx = Signal(), Signal(LIDX_BITS)
        with m.If(look):
            m.d.sync += [
                known.eq(self.fill.valid & (fill_tag == tag)),
                known_lidx.eq(self.fill.lidx),
            ]

        m.d.comb += [
            self.o.valid.eq(waiting),
            self.o.p.hit.eq(known | hits.any()),
            self.o.p.lidx.eq(Mux(known, known_lidx, found)),
        ]

        wraps = Signal()
        m.d.comb += wraps.eq(
            self.flush.by_object & (epochs[self._object(self.flush)] == 2**EPOCH_BITS - 1)
        )
        with m.If(self.flush.by_object):
            m.d.sync += epochs[self._object(self.flush)].eq(epochs[self._object(self.flush)] + 1)
        with m.If(self.fill.valid):
            m.d.sync += valid[fill_set].eq(valid[fill_set] | (1 << victim))
        with m.If(self.flush.whole | wraps):
            m.d.sync += [valid[k].eq(0) for k in range(self.sets)]
        return m

    def _object(self, value):
        return value.object[: ceil_log2(self.objects)]

    def _tag(self, key, epochs):
        """All of a key, and the epoch of its object."""
        slot = key.slot[: ceil_log2(self.slots)]
        return Cat(epochs[self._object(key)], self._object(key), slot, key.aidx)

    def _set(self, key):
        """The key folded to the width of a set's number."""
        bits = ceil_log2(self.sets)
        if not bits:
            return Const(0, 1)
        folded = Const(0, bits)
        for part in (key.aidx, key.slot[: ceil_log2(self.slots)], self._object(key)):
            for low in range(0, len(part), bits):
                folded = folded ^ part[low : low + bits]
        return folded[:bits]

    def _victim(self, m: Module, valid):
        """Number of the way that a fill takes."""
        bits = max(1, ceil_log2(self.ways))
        victim, next_way = Signal(bits), Signal(bits)
        full = valid == 2**self.ways - 1
        m.d.comb += victim.eq(next_way)
        for way in reversed(range(self.ways)):
            with m.If(~valid[way]):
                m.d.comb += victim.eq(way)
        with m.If(self.fill.valid & full):
            m.d.sync += next_way.eq(Mux(next_way == self.ways - 1, 0, next_way + 1))
        return victim

    def _storage(self, m: Module, look, lookup_set, fill_set, victim, word) -> list:
        """What each way of the looked-up set holds, from the cycle after ``look`` on."""
        words = []
        for way in range(self.ways):
            write = self.fill.valid & (victim == way)
            if self.sets == 1:
                held, read = (Signal(len(word), name=f"{name}{way}") for name in ("held", "read"))
                with m.If(write):
                    m.d.sync += held.eq(word)
                with m.If(look):
                    m.d.sync += read.eq(held)
                words.append(read)
                continue
            m.submodules[f"way{way}"] = place(ram := Ram(width=len(word), depth=self.sets))
            m.d.comb += [
                ram.write_en.eq(write),
                ram.write_addr.eq(fill_set),
                ram.write_data.eq(word),
                ram.read_en.eq(look),
                ram.read_addr.eq(lookup_set),
            ]
            words.append(ram.read_data)
        return words


def al_tlb_block(config: Config) -> AlTlb:
    """The AL-TLB of a GPU, as a block of its own."""
    return AlTlb(
        entries=config.gpu.tlb_entries,
        ways=config.gpu.tlb_ways,
        objects=config.objects,
        slots=config.gpu.slots,
    )
