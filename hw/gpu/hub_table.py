"""The Hub's tables: objects, and the rows of each object's local experts."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.axi import ADDR_BITS
from dysharp.hw.gpu.hub_records import LIDX_BITS, OBJECT_BITS, ROW_BITS
from dysharp.hw.memory import Ram
from dysharp.hw.register_map import WORD_BITS
from dysharp.hw.registers import gpu_experts, gpu_objects
from dysharp.hw.share import place

__all__ = ["HubTable", "Quota"]


class Quota(data.Struct):
    """Rows of one expert of one object.

    Members
    -------
    capacity : how many it has
    used : how many are given away; the next LIdx
    """

    capacity: LIDX_BITS
    used: LIDX_BITS


class HubTable(Component):
    """Object entries and expert rows, written by the control port and read by the Hub.

    ``valid``, ``base`` and ``size`` are flip-flops that are compared all at once; the rest is
    memory. A write of an expert's ``capacity`` restarts its LIdx at 0. Entries of one object may
    change while others are in use: ``valid`` is cleared first and set last.

    Latency: address to object combinational; entry, row0 and quota one cycle after their enable.
    A write of ``used`` waits while ``used_ready`` is low, in cycles in which the control port
    writes.

    Parameters
    ----------
    objects : entries, a power of two up to 16
    slots : local experts that an object can have, a power of two up to 1024

    An expert's index is ``{object, slot}``.
    """

    csr_objects: Any
    """In(window_port), object table."""
    csr_experts: Any
    """In(window_port), rows of the local experts."""
    maddr: Signal
    """In, a multimem address."""
    hit: Signal
    """Out, an object has it."""
    object: Signal
    """Out, which one, the lowest."""
    delta: Signal
    """Out, bytes from the object's base."""
    size: Signal
    """Out, bytes of the object."""
    entry_en: Signal
    """In, read entry ``entry_object``."""
    entry_object: Signal
    """In."""
    entry: Any
    """Out, a whole entry of the window."""
    row0_en: Signal
    """In, read the first row of expert ``row0_index``."""
    row0_index: Signal
    """In."""
    row0: Signal
    """Out."""
    quota_en: Signal
    """In, read the quota of expert ``quota_index``."""
    quota_index: Signal
    """In."""
    quota: Any
    """Out(Quota)."""
    used_en: Signal
    """In, set how many rows expert ``used_index`` has given away."""
    used_index: Signal
    """In."""
    used: Signal
    """In, how many."""
    used_ready: Signal
    """Out, it is set in this cycle."""

    def __init__(self, *, objects: int, slots: int):
        for noun, value, most in (("Objects", objects, 16), ("Slots", slots, 1024)):
            if not 1 <= value <= most or value.bit_count() != 1:
                raise ValueError(f"{noun} must be a power of two in 1..{most}, not {value!r}")
        self.objects, self.slots = objects, slots
        self.object_window = gpu_objects(objects=objects)
        self.expert_window = gpu_experts(objects=objects, slots=slots)
        index = ceil_log2(objects * slots)
        super().__init__(
            {
                "csr_objects": In(self.object_window.port),
                "csr_experts": In(self.expert_window.port),
                "maddr": In(ADDR_BITS),
                "hit": Out(1),
                "object": Out(OBJECT_BITS),
                "delta": Out(ADDR_BITS),
                "size": Out(ADDR_BITS),
                "entry_en": In(1),
                "entry_object": In(OBJECT_BITS),
                "entry": Out(self.object_window.layout),
                "row0_en": In(1),
                "row0_index": In(index),
                "row0": Out(ROW_BITS),
                "quota_en": In(1),
                "quota_index": In(index),
                "quota": Out(Quota),
                "used_en": In(1),
                "used_index": In(index),
                "used": In(LIDX_BITS),
                "used_ready": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_table_<objects>x<slots>``."""
        return f"hub_table_{self.objects}x{self.slots}"

    def elaborate(self, platform):
        """The object window with its comparators, then the two tables of the experts."""
        m = Module()
        self._match(m)
        self._entries(m)
        self._experts(m)
        return m

    def _match(self, m: Module) -> None:
        csr, window = self.csr_objects, self.object_window
        for k in reversed(range(self.objects)):
            valid = Signal(name=f"valid{k}")
            base, size = (Signal(ADDR_BITS, name=f"{name}{k}") for name in ("base", "size"))
            with m.If(csr.write_en & (csr.index == k)):
                with m.If(csr.word == window["control"].word):
                    m.d.sync += valid.eq(csr.write_data[0])
                for name, held in (("base", base), ("size", size)):
                    for part in range(2):
                        bits = held[part * WORD_BITS : (part + 1) * WORD_BITS]
                        with m.If(csr.word == window[name].word + part):
                            m.d.sync += bits.eq(csr.write_data)
            delta = Signal(ADDR_BITS + 1, name=f"delta{k}")
            m.d.comb += delta.eq(self.maddr - base)
            with m.If(valid & ~delta[-1] & (delta < size)):
                m.d.comb += [
                    self.hit.eq(1),
                    self.object.eq(k),
                    self.delta.eq(delta),
                    self.size.eq(size),
                ]

    def _entries(self, m: Module) -> None:
        """Words beside each other for the Hub, and once more word by word for reading back."""
        csr, window = self.csr_objects, self.object_window
        words = 1 << window.word_bits
        m.submodules.entries = place(
            ram := Ram(width=words * WORD_BITS, depth=self.objects, granularity=WORD_BITS)
        )
        m.submodules.read_back = place(
            copy := Ram(width=WORD_BITS, depth=self.objects * words, transparent=True)
        )
        place_of_word = Cat(csr.word, csr.index)[: len(copy.write_addr)]
        m.d.comb += [
            ram.write_en.eq(Mux(csr.write_en, 1 << csr.word, 0)),
            ram.write_addr.eq(csr.index),
            ram.write_data.eq(csr.write_data.replicate(words)),
            ram.read_en.eq(self.entry_en),
            ram.read_addr.eq(self.entry_object),
            Value.cast(self.entry).eq(ram.read_data),
            copy.write_en.eq(csr.write_en),
            copy.write_addr.eq(place_of_word),
            copy.write_data.eq(csr.write_data),
            copy.read_en.eq(1),
            copy.read_addr.eq(place_of_word),
            csr.read_data.eq(copy.read_data),
        ]

    def _experts(self, m: Module) -> None:
        csr, window = self.csr_experts, self.expert_window
        depth = self.objects * self.slots
        m.submodules.row0_table = place(row0 := Ram(width=ROW_BITS, depth=depth))
        m.submodules.quotas = place(
            quota := Ram(width=2 * LIDX_BITS, depth=depth, granularity=LIDX_BITS)
        )
        write_row0, write_capacity = Signal(), Signal()
        m.d.comb += [
            write_row0.eq(csr.write_en & (csr.word == window["row0"].word)),
            write_capacity.eq(csr.write_en & (csr.word == window["capacity"].word)),
            csr.read_data.eq(0),
            row0.write_en.eq(write_row0),
            row0.write_addr.eq(csr.index),
            row0.write_data.eq(csr.write_data),
            row0.read_en.eq(self.row0_en),
            row0.read_addr.eq(self.row0_index),
            self.row0.eq(row0.read_data),
            self.used_ready.eq(~write_capacity),
            quota.write_en.eq(Mux(write_capacity, 0b11, self.used_en << 1)),
            quota.write_addr.eq(Mux(write_capacity, csr.index, self.used_index)),
            quota.write_data.eq(
                Mux(
                    write_capacity,
                    csr.write_data[:LIDX_BITS],
                    Cat(self.used, self.used),
                )
            ),
            quota.read_en.eq(self.quota_en),
            quota.read_addr.eq(self.quota_index),
            Value.cast(self.quota).eq(quota.read_data),
        ]
