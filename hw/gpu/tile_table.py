"""TS table: at the destination, how much of each tile of tokens has arrived."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.gpu.hub_records import LIDX_BITS, OBJECT_BITS, SLOT_BITS, Written
from dysharp.hw.gpu.tracker_windows import (
    DACC_BITS,
    FLITS_BITS,
    TILE_ROW_BITS,
    TILE_TOKENS,
    fields_of,
    share_window,
    tile_window,
)
from dysharp.hw.memory import Ram
from dysharp.hw.share import place

__all__ = ["TileTable"]


class _Tile(data.Struct):
    """A tile that is followed."""

    valid: 1
    ready: 1
    object: OBJECT_BITS
    slot: SLOT_BITS
    row: TILE_ROW_BITS
    dacc: DACC_BITS


class _Share(data.Struct):
    """An expert's tokens. ``last_row`` and ``closing`` (flits of that row) if announced."""

    token_flits: FLITS_BITS
    announced: 1
    last_row: TILE_ROW_BITS
    closing: DACC_BITS


class _Kind(enum.Enum, shape=2):
    WRITTEN = 0
    FREE = 1
    FLITS = 2
    ANNOUNCE = 3


class _Step(data.Struct):
    """What goes down the pipeline: an event of the Hub, or a write of a window."""

    kind: _Kind
    object: OBJECT_BITS
    slot: SLOT_BITS
    row: TILE_ROW_BITS
    flits: FLITS_BITS
    tokens: LIDX_BITS
    entry: range(1 << 16)


class TileTable(Component):
    """Adds up the DATA flits of each tile that are in memory, and tells when it is whole.

    A tile is 128 tokens of one expert. It is whole when DAcc is 128 tokens' flits, or, for the
    last tile of an expert, those of the tokens that ``announced`` leaves for it; the announcement
    may come before, between or after the tokens. The first flits of a tile take its entry; an
    entry that another tile holds is not taken: ``lost`` tells it, and readiness of that tile must
    not be waited for (entries do not spill to memory yet). A write of ``tile`` frees an entry.

    Latency: two cycles from an event to ``tile``. Throughput: one event a cycle, but for the cycle
    after a window was written. After reset the tables are cleared, an entry a cycle; until then
    nothing is taken, and the windows must not be written.

    Parameters
    ----------
    entries : tiles followed, a power of two from 2 to 65536
    objects, slots : objects, and local experts of each, as built

    Source
    ------
    The DySHARP paper (TS table: DAcc a tile of 128 tokens, GEMM-1 row readiness).
    """

    i: stream.Interface
    """In(stream of Written)."""
    tiles: Any
    """In(window_port), see :func:`tile_window`."""
    shares: Any
    """In(window_port), see :func:`share_window`."""
    lost: Signal
    """Out, pulse."""
    clearing: Signal
    """Out, the tables are being cleared after reset; what is written meanwhile is lost."""

    def __init__(self, *, entries: int, objects: int, slots: int):
        for noun, value in (("Entries", entries), ("Slots", slots), ("Objects", objects)):
            if value < 1 or value & (value - 1):
                raise ValueError(f"{noun} must be a power of two, not {value!r}")
        if not 2 <= entries <= 1 << 16:
            raise ValueError(f"Entries must be from 2 to 65536, not {entries!r}")
        self.entries, self.objects, self.slots = entries, objects, slots
        self.tile_map = tile_window(entries=entries)
        self.share_map = share_window(objects=objects, slots=slots)
        super().__init__(
            {
                "i": In(stream.Signature(Written)),
                "tiles": In(self.tile_map.port),
                "shares": In(self.share_map.port),
                "lost": Out(1),
                "clearing": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """``tile_table_<entries>_o<objects>x<slots>``."""
        return f"tile_table_{self.entries}_o{self.objects}x{self.slots}"

    def entry_of(self, slot, row):
        """Entry of a tile: slot + row * slots modulo the entries; ints or Amaranth values.

        An :class:`int` gives an :class:`int`.
        """
        if isinstance(slot, int):
            return (slot + row * self.slots) % self.entries
        slot_bits = ceil_log2(self.slots)
        return Cat(slot[:slot_bits], row)[: ceil_log2(self.entries)]

    def elaborate(self, platform):
        """Choose a step, read tile and share, then decide and write both a cycle later."""
        m = Module()
        tile_ram = Ram(width=_Tile.as_shape().size, depth=self.entries, transparent=True)
        shown = Ram(width=_Tile.as_shape().size, depth=self.entries, transparent=True)
        share_ram = Ram(
            width=_Share.as_shape().size, depth=self.objects * self.slots, transparent=True
        )
        m.submodules.tiles = place(tile_ram)
        m.submodules.shown = place(shown)
        m.submodules.shares = place(share_ram)

        step: Any = Signal(_Step)
        held: Any = Signal(_Step)
        stepping, active = Signal(), Signal()
        clearing, cleared = Signal(init=1), Signal(range(max(self.entries, share_ram.depth)))
        m.d.comb += self.clearing.eq(clearing)
        self._choose(m, step, stepping, clearing)
        m.d.comb += [
            tile_ram.read_en.eq(stepping),
            tile_ram.read_addr.eq(step.entry),
            share_ram.read_en.eq(stepping),
            share_ram.read_addr.eq(self._share_of(step)),
        ]
        m.d.sync += [held.eq(step), active.eq(stepping)]
        with m.If(clearing):
            m.d.sync += [
                cleared.eq(cleared + 1),
                clearing.eq(cleared != max(self.entries, share_ram.depth) - 1),
            ]

        tile: Any = Signal(_Tile)
        new_tile: Any = Signal(_Tile)
        share: Any = Signal(_Share)
        new_share: Any = Signal(_Share)
        write_tile, write_share, hit = Signal(), Signal(), Signal()
        product, target = Signal(DACC_BITS), Signal(DACC_BITS)
        is_announce = held.kind == _Kind.ANNOUNCE
        last_row = (held.tokens - 1)[:LIDX_BITS] >> ceil_log2(TILE_TOKENS)
        in_last = (held.tokens - 1)[: ceil_log2(TILE_TOKENS)] + 1
        whole = share.token_flits << ceil_log2(TILE_TOKENS)
        m.d.comb += [
            tile.eq(tile_ram.read_data),
            share.eq(share_ram.read_data),
            hit.eq(
                tile.valid
                & (tile.object == held.object)
                & (tile.slot == held.slot)
                & (tile.row == held.row)
            ),
            product.eq(share.token_flits * in_last),
            target.eq(
                Mux(
                    is_announce,
                    product,
                    Mux(share.announced & (held.row == share.last_row), share.closing, whole),
                )
            ),
            new_tile.valid.eq(held.kind != _Kind.FREE),
            new_tile.object.eq(held.object),
            new_tile.slot.eq(held.slot),
            new_tile.row.eq(held.row),
            new_tile.dacc.eq(Mux(hit, tile.dacc, 0) + held.flits),
            new_tile.ready.eq((new_tile.dacc == target) & new_tile.valid & (target != 0)),
            new_share.token_flits.eq(Mux(is_announce, share.token_flits, held.flits)),
            new_share.announced.eq(is_announce),
            new_share.last_row.eq(last_row),
            new_share.closing.eq(product),
        ]
        with m.If(active):
            with m.Switch(held.kind):
                with m.Case(_Kind.WRITTEN):
                    m.d.comb += [write_tile.eq(hit | ~tile.valid), self.lost.eq(~hit & tile.valid)]
                with m.Case(_Kind.FREE):
                    m.d.comb += write_tile.eq(1)
                with m.Case(_Kind.FLITS):
                    m.d.comb += write_share.eq(1)
                with m.Case(_Kind.ANNOUNCE):
                    m.d.comb += [write_share.eq(1), write_tile.eq(hit & (held.tokens != 0))]
        for ram in (tile_ram, shown):
            m.d.comb += [
                ram.write_en.eq(write_tile | clearing & (cleared < self.entries)),
                ram.write_addr.eq(Mux(clearing, cleared, held.entry)),
                ram.write_data.eq(Mux(clearing, 0, Value.cast(new_tile))),
            ]
        m.d.comb += [
            share_ram.write_en.eq(write_share | clearing & (cleared < share_ram.depth)),
            share_ram.write_addr.eq(Mux(clearing, cleared, self._share_of(held))),
            share_ram.write_data.eq(Mux(clearing, 0, Value.cast(new_share))),
        ]
        self._show(m, shown)
        return m

    def _choose(self, m: Module, step, stepping: Signal, clearing: Signal) -> None:
        """A window's write, kept for a cycle, goes before the Hub's events."""
        wanted: Any = Signal(_Step)
        pending = Signal()
        share_writes = self.shares.write_en
        slot_bits = ceil_log2(self.slots)
        slot = self.shares.index[:slot_bits]
        last = (self.shares.write_data - 1)[:LIDX_BITS]
        is_flits = self.shares.word == self.share_map["token_flits"].word
        m.d.sync += pending.eq(
            share_writes | self.tiles.write_en & (self.tiles.word == self.tile_map["tile"].word)
        )
        m.d.sync += [
            wanted.kind.eq(
                Mux(share_writes, Mux(is_flits, _Kind.FLITS, _Kind.ANNOUNCE), _Kind.FREE)
            ),
            wanted.object.eq(self.shares.index[slot_bits:]),
            wanted.slot.eq(slot),
            wanted.row.eq(last >> ceil_log2(TILE_TOKENS)),
            wanted.flits.eq(Mux(is_flits, self.shares.write_data, 0)),
            wanted.tokens.eq(self.shares.write_data),
            wanted.entry.eq(
                Mux(
                    share_writes,
                    self.entry_of(slot, last >> ceil_log2(TILE_TOKENS)),
                    self.tiles.index,
                )
            ),
        ]
        event = self.i.p
        m.d.comb += [self.i.ready.eq(~clearing & ~pending), step.eq(wanted)]
        with m.If(~pending):
            m.d.comb += [
                step.kind.eq(_Kind.WRITTEN),
                step.object.eq(event.object),
                step.slot.eq(event.slot),
                step.row.eq(event.lidx >> ceil_log2(TILE_TOKENS)),
                step.flits.eq(event.flits),
                step.entry.eq(self.entry_of(event.slot, event.lidx >> ceil_log2(TILE_TOKENS))),
            ]
        m.d.comb += stepping.eq(pending | self.i.valid & ~clearing)

    def _share_of(self, step) -> Value:
        return Cat(step.slot[: ceil_log2(self.slots)], step.object[: ceil_log2(self.objects)])

    def _show(self, m: Module, shown: Ram) -> None:
        """The window reads from a copy of the table."""
        at_entry: Any = Signal(_Tile)
        word = Signal(len(self.tiles.word))
        register = self.tile_map["tile"]
        m.d.sync += word.eq(self.tiles.word)
        m.d.comb += [
            shown.read_en.eq(1),
            shown.read_addr.eq(self.tiles.index),
            at_entry.eq(shown.read_data),
        ]
        with m.Switch(word):
            with m.Case(register.word):
                tile = fields_of(register, self.tiles.read_data)
                m.d.comb += [
                    tile.valid.eq(at_entry.valid),
                    tile.ready.eq(at_entry.ready),
                    tile.object.eq(at_entry.object),
                    tile.slot.eq(at_entry.slot),
                ]
            with m.Case(self.tile_map["row"].word):
                m.d.comb += self.tiles.read_data.eq(at_entry.row)
            with m.Default():
                m.d.comb += self.tiles.read_data.eq(at_entry.dacc)
