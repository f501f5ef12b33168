"""The agents round a token tracker, and what its tables must hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dysharp.hw.gpu.tracker_windows import TILE_TOKENS, tracker_windows
from dysharp.hw.packet import Packet
from dysharp.hw.register_map import WORD_BITS, Window
from dysharp.sim_tb.agents import Bench, FlitPacket, FlitSink, StreamSource

__all__ = ["TileModel", "TokenTrackerEnv", "WindowDriver"]


class WindowDriver:
    """Stands for the register bank on one window port."""

    def __init__(self, bench: Bench, window: Window):
        self.bench = bench
        self.window = window
        name = window.name
        self._write_en = bench.wire(f"{name}_write_en")
        self._index = bench.wire(f"{name}_index")
        self._word = bench.optional_wire(f"{name}_word")
        self._write_data = bench.wire(f"{name}_write_data")
        self._read_data = bench.wire(f"{name}_read_data")
        bench.add(self)

    def reset(self) -> None:
        self._write_en.write(0)

    def problems(self) -> Iterable[str]:
        return ()

    def step(self) -> None:
        pass

    async def write(self, index: int, register: str, **values: int) -> None:
        """Write a register; two cycles, as the bank."""
        first = self.window[register].word
        for word, value in enumerate(self.window[register].split(**values)):
            self._index.write(index)
            self._word.write(first + word)
            self._write_data.write(value)
            self._write_en.write(1)
            await self.bench.cycles(1)
            self._write_en.write(0)
            await self.bench.cycles(1)

    async def read(self, index: int, register: str) -> dict[str, int]:
        """Read a register's fields; index and word stand for two cycles, as the bank does."""
        number, first = 0, self.window[register].word
        for word in range(self.window[register].words):
            self._index.write(index)
            self._word.write(first + word)
            await self.bench.cycles(2)
            number |= self._read_data.read() << WORD_BITS * word
        return self.window[register].unpack(number)


@dataclass(frozen=True, order=True)
class Tile:
    """128 tokens of one expert."""

    object: int
    slot: int
    row: int


class TileModel:
    """DAcc of every tile, and when a tile is whole."""

    def __init__(self):
        self.dacc: dict[Tile, int] = defaultdict(int)
        self.token_flits: dict[tuple[int, int], int] = {}
        self.announced: dict[tuple[int, int], int] = {}

    def ready(self, tile: Tile) -> bool:
        """All tokens that the tile is to have are there."""
        expert = (tile.object, tile.slot)
        tokens = TILE_TOKENS
        if expert in self.announced:
            tokens = min(tokens, self.announced[expert] - tile.row * TILE_TOKENS)
        return 0 < tokens and self.dacc[tile] == tokens * self.token_flits[expert]


class TokenTrackerEnv:
    """Drives events and windows of a token tracker."""

    EVENTS = ("touched", "notified", "unmatched", "lost", "refused")

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        config = bench.manifest["config"]
        self.objects, self.slots = config["objects"], config["gpu"]["slots"]
        self.tile_entries, self.token_entries = (
            config["gpu"]["ts_entries"],
            config["gpu"]["or_entries"],
        )
        windows = tracker_windows(
            objects=self.objects,
            slots=self.slots,
            ts_entries=self.tile_entries,
            or_entries=self.token_entries,
        )
        self.tokens, self.tiles, self.notices, self.shares = (
            WindowDriver(bench, window) for window in windows
        )
        self.touch = StreamSource(bench, "touch")
        self.written = StreamSource(bench, "written")
        self.notify = StreamSource(bench, "notify")
        self.sent: list[Packet] = []
        self.link = FlitSink(bench, "tx", on_packet=self._on_packet)
        self.events: dict[str, int] = dict.fromkeys(self.EVENTS, 0)
        self._events = {name: bench.wire(f"events_{name}").read for name in self.EVENTS}
        self.choose = bench.random("token tracker")
        bench.add(self)

    def reset(self) -> None:
        self.events = dict.fromkeys(self.EVENTS, 0)

    def problems(self) -> Iterable[str]:
        return ()

    def step(self) -> None:
        for name, read in self._events.items():
            self.events[name] += read()

    async def start(self) -> None:
        """Reset, and wait until the tables are cleared."""
        await self.bench.start()
        await self.cleared()

    async def cleared(self) -> None:
        """Wait out the clearing of the tables."""
        entries = max(self.tile_entries, self.token_entries, self.objects * self.slots)
        await self.bench.cycles(entries + 4)

    def entry_of(self, tile: Tile) -> int:
        """Entry that a tile takes."""
        return (tile.slot + tile.row * self.slots) % self.tile_entries

    async def announce(self, model: TileModel, object: int, slot: int, tokens: int) -> None:
        """Tell how many tokens an expert receives."""
        await self.shares.write(object * self.slots + slot, "announced", announced=tokens)
        model.announced[object, slot] = tokens

    async def expect_flits(self, model: TileModel, object: int, slot: int, flits: int) -> None:
        """Tell how many flits a token has; forgets an announcement."""
        await self.shares.write(object * self.slots + slot, "token_flits", token_flits=flits)
        model.token_flits[object, slot] = flits
        model.announced.pop((object, slot), None)

    async def check_tile(self, model: TileModel, tile: Tile) -> None:
        """Compare a tile's entry with the model."""
        entry = self.entry_of(tile)
        found = await self.tiles.read(entry, "tile")
        row = (await self.tiles.read(entry, "row"))["row"]
        dacc = (await self.tiles.read(entry, "dacc"))["dacc"]
        got = (found["valid"], found["object"], found["slot"], row, dacc, found["ready"])
        want = (1, tile.object, tile.slot, tile.row, model.dacc[tile], int(model.ready(tile)))
        if got != want:
            self.bench.fail(f"entry {entry} of {tile} holds {got}, not {want}")

    def _on_packet(self, packet: FlitPacket) -> None:
        self.sent.append(Packet.decode(packet.flits, poison=packet.poisoned))
