"""The switch's object table: what an address belongs to, and who may be reached by it."""

from typing import Any

from amaranth import Module, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.packet import FLIT_BYTES, Attr
from dysharp.hw.registers import switch_objects

__all__ = ["ObjectEntry", "ObjectTable", "entry_of", "hits"]

_OFFSET_BITS = (FLIT_BYTES - 1).bit_length()
"""Addresses are compared in flits."""


class ObjectEntry(data.StructLayout):
    """One object, as every ingress sees it.

    Parameters
    ----------
    gpus : GPUs round the switch

    Members
    -------
    valid : the entry is in use
    base, size : multimem addresses ``base`` to ``base + size - 1``, multiples of 16
    members : a bit a GPU that may send to the object and be reached through it
    group : a bit a GPU that an empty list means
    group_size : GPUs in ``group``
    split : log2 of the slots a GPU; an id is {GPU, slot}
    slots : slots in use on every GPU
    attr : type, operation and accumulation of a packet whose own is 0
    """

    def __init__(self, *, gpus: int):
        if not 2 <= gpus <= 72:
            raise ValueError(f"GPUs must be from 2 to 72, not {gpus!r}")
        super().__init__(
            {
                "valid": 1,
                "base": 48,
                "size": 48,
                "members": gpus,
                "group": gpus,
                "group_size": range(gpus + 1),
                "split": 4,
                "slots": 11,
                "attr": Attr,
            }
        )


def hits(entries, maddr, flits) -> list[Value]:
    """A bit an entry: all of ``flits`` times 16 bytes at ``maddr`` lie inside of the object."""
    found = []
    for entry in entries:
        offset = maddr[_OFFSET_BITS:] - entry.base[_OFFSET_BITS:]
        found.append(entry.valid & (offset >= 0) & (offset + flits <= entry.size[_OFFSET_BITS:]))
    return found


def entry_of(m: Module, entries, hit) -> Any:
    """The entry that is hit; of objects that overlap, which is a mistake, the lowest."""
    entry = Signal.like(entries[0], name="entry")
    for k in reversed(range(len(entries))):
        with m.If(hit[k]):
            m.d.comb += entry.eq(entries[k])
    return entry


class ObjectTable(Component):
    """Table of objects in flip-flops, written by software and read by all ingresses at once.

    Software clears ``valid`` before it changes an entry and sets it afterwards; the other entries
    stay usable meanwhile. All entries are invalid after reset, their other fields zero.

    Latency: a write shows in ``entries`` one cycle later, ``group_size`` two; ``read_data`` follows
    in the same cycle.

    Parameters
    ----------
    gpus : GPUs round the switch
    objects : entries

    Source
    ------
    Object table of the switch: base, size, members, preset group, s, slots in use, defaults.
    """

    window: Any
    """In(window_port), see :func:`dysharp.hw.registers.switch_objects` for the words."""
    entries: Any
    """Out(array of ObjectEntry)."""

    def __init__(self, *, gpus: int, objects: int):
        if not 1 <= objects <= 16:
            raise ValueError(f"Objects must be from 1 to 16, not {objects!r}")
        self.gpus, self.objects = gpus, objects
        self.words = switch_objects(objects=objects)
        super().__init__(
            {
                "window": In(self.words.port),
                "entries": Out(data.ArrayLayout(ObjectEntry(gpus=gpus), objects)),
            }
        )

    @property
    def module_name(self) -> str:
        """``object_table_<gpus>_<objects>``."""
        return f"object_table_{self.gpus}_{self.objects}"

    def elaborate(self, platform):
        """Registers, the words that software sees of them, and one shared count of a group."""
        m = Module()
        window = self.window
        held = Signal(data.ArrayLayout(ObjectEntry(gpus=self.gpus), self.objects))
        words = [Signal(self.words.layout, name=f"words{k}") for k in range(self.objects)]
        for k in range(self.objects):
            with m.If(window.write_en & (window.index == k)):
                self._write(m, held[k])
            self._show(m, held[k], words[k])
            with m.If(window.index == k):
                m.d.comb += window.read_data.eq(Value.cast(words[k]).word_select(window.word, 32))

        # Only one entry changes at a time, so one population count serves them all.
        written, changed = Signal.like(window.index), Signal()
        group = Signal(self.gpus)
        m.d.sync += [written.eq(window.index), changed.eq(window.write_en)]
        for k in range(self.objects):
            with m.If(written == k):
                m.d.comb += group.eq(held[k].group)
                with m.If(changed):
                    m.d.sync += held[k].group_size.eq(sum(group))
        m.d.comb += self.entries.eq(held)
        return m

    def _fields(self, entry):
        """Register, field of it, and where the entry keeps the field."""
        for register in self.words.registers:
            for field in register.fields:
                yield register, field, Value.cast(entry[field.name])

    def _write(self, m: Module, entry) -> None:
        for register, field, value in self._fields(entry):
            for word in range(register.words):
                with m.If(self.window.word == register.word + word):
                    first = max(field.lsb, 32 * word)
                    end = min(field.lsb + len(value), 32 * (word + 1))
                    if first < end:
                        m.d.sync += value[first - field.lsb : end - field.lsb].eq(
                            self.window.write_data[first - 32 * word : end - 32 * word]
                        )

    def _show(self, m: Module, entry, words) -> None:
        for register, field, value in self._fields(entry):
            shown = Value.cast(words[register.name])
            m.d.comb += shown[field.lsb : field.lsb + len(value)].eq(value)
