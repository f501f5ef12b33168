"""OR table: at the source, how many experts have finished each token."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.gpu.hub_records import OBJECT_BITS, Notice
from dysharp.hw.gpu.tracker_windows import COUNT_BITS, fields_of, token_window
from dysharp.hw.memory import Ram
from dysharp.hw.share import place

__all__ = ["TokenTable"]


class _Entry(data.Struct):
    """A token that is followed."""

    valid: 1
    object: OBJECT_BITS
    token: 32
    threshold: COUNT_BITS
    n_ready: COUNT_BITS


class TokenTable(Component):
    """Counts the NOTIFYs of each token and compares with its number of experts.

    The source writes a token's threshold before its first store. nReady stops at 255. A NOTIFY for
    a token that no entry follows (never written, or its entry follows another one by now) changes
    nothing and is told by ``unmatched``: entries do not spill to memory yet.

    Latency: two cycles from a NOTIFY to ``readiness``. Throughput: one NOTIFY a cycle, but for
    cycles in which the window is written. After reset the table is cleared, an entry a cycle; until
    then nothing is taken.

    Parameters
    ----------
    entries : tokens followed, a power of two, at least 2

    Source
    ------
    The DySHARP paper (OR table: nReady and threshold a token).
    """

    i: stream.Interface
    """In(stream of Notice)."""
    window: Any
    """In(window_port), see :func:`token_window`."""
    clearing: Signal
    """Out, the table is being cleared after reset; what is written meanwhile is lost."""
    unmatched: Signal
    """Out, pulse."""

    def __init__(self, *, entries: int):
        if entries < 2 or entries & (entries - 1):
            raise ValueError(f"Entries must be a power of two of at least 2, not {entries!r}")
        self.entries = entries
        self.map = token_window(entries=entries)
        super().__init__(
            {
                "i": In(stream.Signature(Notice)),
                "window": In(self.map.port),
                "unmatched": Out(1),
                "clearing": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """``token_table_<entries>``."""
        return f"token_table_{self.entries}"

    def elaborate(self, platform):
        """Read, then add and write back a cycle later; a copy of the table serves the window."""
        m = Module()
        width = _Entry.as_shape().size
        counts = Ram(width=width, depth=self.entries, transparent=True)
        shown = Ram(width=width, depth=self.entries, transparent=True)
        m.submodules.counts = place(counts)
        m.submodules.shown = place(shown)
        window = self.window
        index_bits = ceil_log2(self.entries)
        token = Signal(32)
        started: Any = Signal(_Entry)
        start, start_index = Signal(), Signal(index_bits)
        clearing, cleared = Signal(init=1), Signal(index_bits)
        m.d.comb += self.clearing.eq(clearing)
        m.d.sync += start.eq(window.write_en & (window.word == self.map["follow"].word))
        with m.If(window.write_en):
            with m.If(window.word == self.map["token"].word):
                m.d.sync += token.eq(window.write_data)
            follow = fields_of(self.map["follow"], window.write_data)
            m.d.sync += [
                start_index.eq(window.index),
                started.valid.eq(1),
                started.token.eq(token),
                started.object.eq(follow.object),
                started.threshold.eq(follow.threshold),
            ]

        notice: Any = Signal(Notice)
        counting, hit = Signal(), Signal()
        entry: Any = Signal(_Entry)
        counted: Any = Signal(_Entry)
        m.d.comb += [
            self.i.ready.eq(~clearing & ~window.write_en),
            counts.read_en.eq(self.i.valid & self.i.ready),
            counts.read_addr.eq(self.i.p.token[:index_bits]),
            entry.eq(counts.read_data),
            hit.eq(entry.valid & (entry.object == notice.object) & (entry.token == notice.token)),
            self.unmatched.eq(counting & ~hit),
            counted.eq(entry),
            counted.n_ready.eq(Mux(entry.n_ready.all(), entry.n_ready, entry.n_ready + 1)),
        ]
        m.d.sync += [counting.eq(counts.read_en), notice.eq(self.i.payload)]
        with m.If(clearing):
            m.d.sync += [cleared.eq(cleared + 1), clearing.eq(cleared != self.entries - 1)]

        write_en, write_addr, write_data = Signal(), Signal(index_bits), Signal(_Entry)
        with m.If(clearing):
            m.d.comb += [write_en.eq(1), write_addr.eq(cleared)]
        with m.Elif(start):
            m.d.comb += [write_en.eq(1), write_addr.eq(start_index), write_data.eq(started)]
        with m.Else():
            m.d.comb += [
                write_en.eq(counting & hit),
                write_addr.eq(notice.token[:index_bits]),
                write_data.eq(counted),
            ]
        for ram in (counts, shown):
            m.d.comb += [
                ram.write_en.eq(write_en),
                ram.write_addr.eq(write_addr),
                ram.write_data.eq(write_data),
            ]

        at_entry: Any = Signal(_Entry)
        word = Signal(len(window.word))
        m.d.sync += word.eq(window.word)
        m.d.comb += [
            shown.read_en.eq(1),
            shown.read_addr.eq(window.index),
            at_entry.eq(shown.read_data),
        ]
        with m.Switch(word):
            with m.Case(self.map["token"].word):
                m.d.comb += window.read_data.eq(at_entry.token)
            with m.Case(self.map["follow"].word):
                shown_follow = fields_of(self.map["follow"], window.read_data)
                m.d.comb += [
                    shown_follow.object.eq(at_entry.object),
                    shown_follow.threshold.eq(at_entry.threshold),
                ]
            with m.Default():
                readiness = fields_of(self.map["readiness"], window.read_data)
                m.d.comb += [
                    readiness.valid.eq(at_entry.valid),
                    readiness.ready.eq(at_entry.valid & (at_entry.n_ready >= at_entry.threshold)),
                    readiness.n_ready.eq(at_entry.n_ready),
                ]
        return m
