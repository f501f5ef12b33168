"""Valid-ready handshakes: what sources, sinks and monitors of every stream have in common."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from cocotb.triggers import Event

from dysharp.sim_tb.agents.bench import Bench, StallPattern

__all__ = ["Monitor", "Sink", "Source"]


class Source:
    """Drives valid and payload; transfers one item a cycle without a bubble."""

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        valid: str,
        ready: str,
        fields: Sequence[str],
        stall: StallPattern | None,
    ):
        self.bench = bench
        self.prefix = prefix
        self.sent = 0
        self.first_cycle = self.last_cycle = -1
        self._valid = bench.wire(f"{prefix}_{valid}")
        self._ready = bench.wire(f"{prefix}_{ready}")
        self._payload = [bench.wire(f"{prefix}_{name}") for name in fields]
        self._stall = stall or bench.stalls(prefix)
        self._queue: deque[tuple[int, ...]] = deque()
        self._driving = False
        self._more: Iterator[Iterable[tuple[int, ...]]] | None = None
        self._idle = Event()
        self._idle.set()
        bench.add(self)

    @property
    def pending(self) -> int:
        """Items not yet transferred."""
        return len(self._queue)

    async def drained(self) -> None:
        """Wait until all that was queued has been transferred."""
        await self._idle.wait()

    def problems(self) -> Iterable[str]:
        return ()

    def reset(self) -> None:
        self._queue.clear()
        self._more = None
        self._driving = False
        self._valid.write(0)
        for wire in self._payload:
            wire.write(0)
        self._idle.set()

    def _put(self, item: tuple[int, ...]) -> None:
        self._queue.append(item)
        self._idle.clear()

    def _feed(self, groups: Iterable[Iterable[tuple[int, ...]]]) -> None:
        self._more = iter(groups)
        self._idle.clear()

    def _refill(self) -> bool:
        """Queue the next group that has items; False if there is none."""
        while self._more is not None:
            group = next(self._more, None)
            if group is None:
                self._more = None
            else:
                self._queue.extend(group)
                if self._queue:
                    return True
        return False

    def step(self) -> None:
        queue = self._queue
        if self._driving:
            if not self._ready.read():
                return
            queue.popleft()
            self.sent += 1
            self.last_cycle = self.bench.cycle
            if self.first_cycle < 0:
                self.first_cycle = self.last_cycle
        elif not queue and self._more is None:
            return
        if not queue and not self._refill():
            if self._driving:
                self._driving = False
                self._valid.write(0)
            self._idle.set()
            return
        if self._stall():
            self._driving = False
            self._valid.write(0)
            return
        self._driving = True
        self._valid.write(1)
        for wire, value in zip(self._payload, queue[0], strict=True):
            wire.write(value)


class Sink:
    """Drives ready and checks that an offer which is not taken stays as it is."""

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        valid: str,
        ready: str,
        fields: Sequence[str],
        stall: StallPattern | None,
    ):
        self.bench = bench
        self.prefix = prefix
        self.taken = 0
        self.first_cycle = self.last_cycle = -1
        self.paused = False
        """Set to hold ready low for as long as the test wants."""
        self._valid = bench.wire(f"{prefix}_{valid}")
        self._ready = bench.wire(f"{prefix}_{ready}")
        self._payload = [bench.wire(f"{prefix}_{name}") for name in fields]
        self._reads = [wire.read for wire in self._payload]
        self._stall = stall or bench.stalls(prefix)
        self._can_stall = self._stall.probability > 0
        self._is_ready = False
        self._held: list[int] | None = None
        self._problems: list[str] = []
        bench.add(self)

    def problems(self) -> Iterable[str]:
        return self._problems

    def reset(self) -> None:
        self._ready.write(0)
        self._is_ready = False
        self._held = None

    def step(self) -> None:
        valid = self._valid.read()
        if self._held is not None:
            if not valid:
                self._problems.append(
                    f"{self.prefix}: valid dropped before ready at cycle {self.bench.cycle}"
                )
            elif (now := [read() for read in self._reads]) != self._held:
                self._problems.append(
                    f"{self.prefix}: payload changed before ready at cycle {self.bench.cycle}: "
                    f"{_hex(self._held)} to {_hex(now)}"
                )
            self._held = None
        if valid:
            payload = [read() for read in self._reads]
            if self._is_ready:
                self.taken += 1
                self.last_cycle = self.bench.cycle
                if self.first_cycle < 0:
                    self.first_cycle = self.last_cycle
                self._accept(payload)
            else:
                self._held = payload
        ready = not self.paused and not (self._can_stall and self._stall())
        if ready != self._is_ready:
            self._is_ready = ready
            self._ready.write(int(ready))

    def _accept(self, payload: list[int]) -> None:
        raise NotImplementedError


class Monitor:
    """Watches a handshake that others drive."""

    def __init__(self, bench: Bench, prefix: str, valid: str, ready: str, fields: Sequence[str]):
        self.bench = bench
        self.prefix = prefix
        self.taken = 0
        self.first_cycle = self.last_cycle = -1
        self.stalled = 0
        self._valid = bench.wire(f"{prefix}_{valid}").read
        self._ready = bench.wire(f"{prefix}_{ready}").read
        self._reads = [bench.wire(f"{prefix}_{name}").read for name in fields]
        self._held: list[int] | None = None
        self._problems: list[str] = []
        bench.add(self)

    def problems(self) -> Iterable[str]:
        return self._problems

    def reset(self) -> None:
        self._held = None

    def step(self) -> None:
        if not self._valid():
            if self._held is not None:
                self._problems.append(
                    f"{self.prefix}: valid dropped before ready at cycle {self.bench.cycle}"
                )
                self._held = None
            return
        payload = [read() for read in self._reads]
        if self._held is not None and payload != self._held:
            self._problems.append(
                f"{self.prefix}: payload changed before ready at cycle {self.bench.cycle}: "
                f"{_hex(self._held)} to {_hex(payload)}"
            )
        if self._ready():
            self._held = None
            self.taken += 1
            self.last_cycle = self.bench.cycle
            if self.first_cycle < 0:
                self.first_cycle = self.last_cycle
            self._accept(payload)
        else:
            self.stalled += 1
            self._held = payload

    def _accept(self, payload: list[int]) -> None:
        raise NotImplementedError


def _hex(values: Sequence[int]) -> str:
    return ", ".join(f"{value:#x}" for value in values)
