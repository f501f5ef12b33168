"""An AL-TLB, its ports driven step by step, and what it may and must answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from dysharp.hw.gpu.al_tlb import AlKey
from dysharp.sim_tb.agents import Bench, StreamSink, StreamSource

__all__ = ["Key", "TlbEnv"]


class Key(NamedTuple):
    """What is looked up."""

    object: int
    slot: int
    aidx: int


class _Fills:
    """Drives ``fill`` and ``flush`` for one cycle each; notes what has been filled and flushed."""

    def __init__(self, bench: Bench, known: dict[Key, int]):
        self._valid, self._key, self._lidx = (
            bench.wire(f"fill_{name}") for name in ("valid", "key", "lidx")
        )
        self._flush = {
            name: bench.wire(f"flush_{name}") for name in ("object", "by_object", "whole")
        }
        self._known = known
        self.queue: deque[tuple[Any, ...]] = deque()
        self._driven: tuple[Any, ...] | None = None
        bench.add(self)

    def problems(self) -> Iterable[str]:
        return ()

    def reset(self) -> None:
        self.queue.clear()
        self._driven = None
        for wire in (self._valid, self._flush["by_object"], self._flush["whole"]):
            wire.write(0)
        self._known.clear()

    def step(self) -> None:
        """What was driven took effect at this edge."""
        if self._driven:
            kind, *values = self._driven
            if kind == "fill":
                self._known[values[0]] = values[1]
            elif values[0] is None:
                self._known.clear()
            else:
                for key in [key for key in self._known if key.object == values[0]]:
                    del self._known[key]
        self._driven = self.queue.popleft() if self.queue else None
        kind, *values = self._driven or ("none",)
        self._valid.write(int(kind == "fill"))
        self._flush["by_object"].write(int(kind == "flush" and values[0] is not None))
        self._flush["whole"].write(int(kind == "flush" and values[0] is None))
        if kind == "fill":
            key, lidx = values
            bits = AlKey.const(key._asdict()).as_bits()
            self._key.write(bits)
            self._lidx.write(lidx)
        elif kind == "flush" and values[0] is not None:
            self._flush["object"].write(values[0])


class TlbEnv:
    """Checks that no answer is wrong and that what must be known is.

    A TLB may forget, so a miss is allowed unless the test says otherwise; a hit must give the
    layout index that was filled last and not flushed since.

    Attributes
    ----------
    known : dict
        What has been filled and not flushed.
    results : list
        ``(key, hit, lidx)`` in order.
    """

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        self.known: dict[Key, int] = {}
        self.source = StreamSource(bench, "i")
        self.sink = StreamSink(bench, "o", on_record=self._result)
        self._fills = _Fills(bench, self.known)
        self._asked: deque[Key] = deque()
        self.results: list[tuple[Key, int, int]] = []

    def look(self, key: Key) -> None:
        """Queue a lookup."""
        self._asked.append(key)
        self.source.send(object=key.object, slot=key.slot, aidx=key.aidx)

    def fill(self, key: Key, lidx: int) -> None:
        """Queue a fill, one a cycle."""
        self._fills.queue.append(("fill", key, lidx))

    def flush(self, number: int | None) -> None:
        """Queue a flush of an object, or of all."""
        self._fills.queue.append(("flush", number))

    def _result(self, record: dict[str, int]) -> None:
        if not self._asked:
            self.bench.fail("a result too many")
        key = self._asked.popleft()
        hit, lidx = record["hit"], record["lidx"]
        self.results.append((key, hit, lidx))
        if hit and self.known.get(key) != lidx:
            self.bench.fail(f"{key}: hit with LIdx {lidx:#x}, known is {self.known.get(key)}")

    async def settle(self) -> list[tuple[Key, int, int]]:
        """Wait until all queued fills and flushes are done and all lookups answered."""
        await self.bench.until(
            lambda: not self._asked and not self._fills.queue, limit=50_000, what="all results"
        )
        await self.bench.cycles(3)
        found, self.results = self.results, []
        return found
