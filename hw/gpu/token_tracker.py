"""The token tracker: what lets Dispatch, the experts and Combine run at once."""

from typing import Any

from amaranth import Module, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.config import Config
from dysharp.hw.gpu.al_manager import AlTouch
from dysharp.hw.gpu.hub_records import Notice, Written
from dysharp.hw.gpu.tile_table import TileTable
from dysharp.hw.gpu.token_table import TokenTable
from dysharp.hw.gpu.tracker_windows import fields_of, tracker_windows
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.packet import Cmd, Header, NotifyAddress
from dysharp.hw.share import place

__all__ = ["TokenTracker", "TokenTrackerEvents", "token_tracker_block"]

NOTICES = 16
"""NOTIFY packets that can wait for the link."""


class TokenTrackerEvents(data.Struct):
    """Pulses.

    Members
    -------
    touched : a token took its place at an expert
    notified : a NOTIFY was sent
    unmatched : a NOTIFY came for a token that is not followed
    lost : a tile found its entry taken
    refused : a NOTIFY was to be sent and found no room
    """

    touched: 1
    notified: 1
    unmatched: 1
    lost: 1
    refused: 1


class TokenTracker(Component):
    """Follows tiles of tokens as they arrive, and tokens as their experts finish.

    What is built: DAcc and readiness of GEMM-1 rows for each tile, with announced closing
    (:class:`TileTable`); nReady, threshold and readiness for each token at its source
    (:class:`TokenTable`); NOTIFY packets out, one for each write of the ``notices`` window.
    What is not built yet: TBCnt1, TBCnt2 and the TID table in memory, so a NOTIFY goes out when
    software asks and not when a tile's blocks are done, and ``touch`` is only counted; and
    spilling, so a tile or a token that finds its entry taken is told by an event and not followed.

    ``touch``, ``written`` and ``notify`` are always taken within two cycles once the tables have
    been cleared after reset (as many cycles as the largest has entries); nothing there ever waits
    for ``tx``.

    Parameters
    ----------
    objects, slots : objects, and local experts of each, as built
    ts_entries, or_entries : tiles and tokens followed, powers of two

    Source
    ------
    The DySHARP paper (token-centric tracking: TS table, OR table, NOTIFY).
    """

    touch: stream.Interface
    """In(stream of AlTouch)."""
    written: stream.Interface
    """In(stream of Written), once for each distinct expert of a packet."""
    notify: stream.Interface
    """In(stream of Notice)."""
    tx: stream.Interface
    """Out(FlitStream), NOTIFY packets, posted requests."""
    tokens: Any
    """In(window_port), see :func:`token_window`."""
    tiles: Any
    """In(window_port), see :func:`tile_window`."""
    notices: Any
    """In(window_port), see :func:`notice_window`."""
    shares: Any
    """In(window_port), see :func:`share_window`."""
    clearing: Signal
    """Out, tables are being cleared after reset; windows must not be written yet."""
    events: data.View
    """Out(TokenTrackerEvents)."""

    def __init__(self, *, objects: int, slots: int, ts_entries: int, or_entries: int):
        self.objects, self.slots = objects, slots
        self.ts_entries, self.or_entries = ts_entries, or_entries
        windows = tracker_windows(
            objects=objects, slots=slots, ts_entries=ts_entries, or_entries=or_entries
        )
        self.notice_map = windows[2]
        super().__init__(
            {
                "touch": In(stream.Signature(AlTouch)),
                "written": In(stream.Signature(Written)),
                "notify": In(stream.Signature(Notice)),
                "tx": Out(FlitStream),
                **{window.name: In(window.port) for window in windows},
                "clearing": Out(1),
                "events": Out(TokenTrackerEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``token_tracker_o<objects>x<slots>_t<ts entries>_r<or entries>``."""
        return f"token_tracker_o{self.objects}x{self.slots}_t{self.ts_entries}_r{self.or_entries}"

    def elaborate(self, platform):
        """The two tables side by side, and NOTIFYs on their way out."""
        m = Module()
        tiles = TileTable(entries=self.ts_entries, objects=self.objects, slots=self.slots)
        tokens = TokenTable(entries=self.or_entries)
        m.submodules.tile_table = place(tiles)
        m.submodules.token_table = place(tokens)
        for outer, inner in (
            (self.tokens, tokens.window),
            (self.tiles, tiles.tiles),
            (self.shares, tiles.shares),
            (self.written, tiles.i),
            (self.notify, tokens.i),
        ):
            connect(m, flipped(outer), inner)
        m.d.comb += [
            self.touch.ready.eq(1),
            self.events.touched.eq(self.touch.valid),
            self.events.unmatched.eq(tokens.unmatched),
            self.events.lost.eq(tiles.lost),
            self.clearing.eq(tiles.clearing | tokens.clearing),
        ]
        self._send(m)
        return m

    def _send(self, m: Module) -> None:
        """A NOTIFY is one flit: its token, object and GPU are the address."""
        window, register = self.notices, self.notice_map["send"]
        header: Any = Signal(Header)
        token = Signal(32)
        m.submodules.waiting = place(waiting := Fifo(shape=NotifyAddress, depth=NOTICES))
        to = fields_of(register, window.write_data)
        address = waiting.i.payload
        is_token = window.word == self.notice_map["token"].word
        with m.If(window.write_en & is_token):
            m.d.sync += token.eq(window.write_data)
        m.d.comb += [
            address.token.eq(token),
            address.object.eq(to.object),
            address.gpu.eq(to.gpu),
            waiting.i.valid.eq(window.write_en & (window.word == register.word)),
            window.read_data.eq(NOTICES - waiting.level),
            header.cmd.eq(Cmd.NOTIFY),
            header.addr.eq(waiting.o.payload),
            self.tx.valid.eq(waiting.o.valid),
            self.tx.p.data.eq(Value.cast(header)),
            self.tx.p.last.eq(1),
            waiting.o.ready.eq(self.tx.ready),
            self.events.notified.eq(self.tx.valid & self.tx.ready),
            self.events.refused.eq(waiting.i.valid & ~waiting.i.ready),
        ]


def token_tracker_block(config: Config) -> TokenTracker:
    """The token tracker of a configuration."""
    return TokenTracker(
        objects=config.objects,
        slots=config.gpu.slots,
        ts_entries=config.gpu.ts_entries,
        or_entries=config.gpu.or_entries,
    )
