"""Sources, sinks and monitors of flit streams.

A flit stream is AXI4-Stream by name: ``<prefix>_tdata/_tvalid/_tready/_tlast/_tuser``, where
``tuser`` marks poison.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from cocotb.triggers import Event

from dysharp.sim_tb.agents.bench import Bench, StallPattern
from dysharp.sim_tb.agents.handshake import Monitor, Sink, Source
from dysharp.sim_tb.agents.wire import Wire

__all__ = ["FlitMonitor", "FlitPacket", "FlitSink", "FlitSource", "LinkMonitor"]

FLIT_FIELDS = ("tdata", "tlast", "tuser")


@dataclass
class FlitPacket:
    """Flits up to and with the one that had ``tlast``.

    Attributes
    ----------
    flits : list of int
        128-bit values in order.
    poison : list of bool
        ``tuser`` of each flit.
    first_cycle, last_cycle : int
        When the first and the last flit were transferred.
    """

    flits: list[int] = field(default_factory=list)
    poison: list[bool] = field(default_factory=list)
    first_cycle: int = -1
    last_cycle: int = -1

    @property
    def poisoned(self) -> bool:
        """Whether any flit was marked."""
        return any(self.poison)


class FlitSource(Source):
    """Sends packets as flits on ``<prefix>_t*``.

    Parameters
    ----------
    bench : Bench
    prefix : str
    stall : StallPattern or None
        When valid is held back between flits; the run's pattern for this prefix by default.

    Throughput
    ----------
    One flit a cycle, without a bubble between packets.
    """

    def __init__(self, bench: Bench, prefix: str, *, stall: StallPattern | None = None):
        super().__init__(bench, prefix, "tvalid", "tready", FLIT_FIELDS, stall)

    def send(self, flits: Iterable[int], *, poison: Iterable[int] = ()) -> None:
        """Queue one packet; ``poison`` lists the indices of the flits to mark."""
        data = list(flits)
        marked = set(poison)
        for index, flit in enumerate(data):
            self._put((flit, int(index == len(data) - 1), int(index in marked)))

    def feed(self, packets: Iterable[Iterable[int]]) -> None:
        """Send packets from an iterator that is advanced only when the last packet has left."""
        self._feed(
            [(flit, int(index == len(data) - 1), 0) for index, flit in enumerate(data)]
            for data in map(list, packets)
        )


class FlitSink(Sink):
    """Takes packets from ``<prefix>_t*`` and checks that offers are stable.

    Parameters
    ----------
    bench : Bench
    prefix : str
    stall : StallPattern or None
        When ready is low; the run's pattern for this prefix by default.
    on_packet : callable or None
        Called with each :class:`FlitPacket` in place of queueing it.

    Attributes
    ----------
    packets : deque of FlitPacket
        Whole packets not yet fetched by :meth:`receive`.
    """

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        stall: StallPattern | None = None,
        on_packet: Callable[[FlitPacket], object] | None = None,
    ):
        super().__init__(bench, prefix, "tvalid", "tready", FLIT_FIELDS, stall)
        self.packets: deque[FlitPacket] = deque()
        self._collect = _Collector(bench, on_packet or self._keep)
        self._arrived = Event()

    def _keep(self, packet: FlitPacket) -> None:
        self.packets.append(packet)
        self._arrived.set()

    def _accept(self, payload: list[int]) -> None:
        self._collect(payload)

    def reset(self) -> None:
        super().reset()
        self._collect.clear()

    async def receive(self) -> FlitPacket:
        """Wait for the next packet."""
        while not self.packets:
            self._arrived.clear()
            await self._arrived.wait()
        return self.packets.popleft()


class _Collector:
    """Puts flits together to packets."""

    def __init__(self, bench: Bench, on_packet: Callable[[FlitPacket], object]):
        self._bench = bench
        self._on_packet = on_packet
        self._packet = FlitPacket()

    def clear(self) -> None:
        self._packet = FlitPacket()

    def __call__(self, payload: list[int]) -> None:
        packet = self._packet
        packet.flits.append(payload[0])
        packet.poison.append(bool(payload[2]))
        if packet.first_cycle < 0:
            packet.first_cycle = self._bench.cycle
        if payload[1]:
            packet.last_cycle = self._bench.cycle
            self._packet = FlitPacket()
            self._on_packet(packet)


class FlitMonitor(Monitor):
    """Watches ``<prefix>_t*`` between two parts of the design, or beside a source or a sink.

    Attributes
    ----------
    taken : int
        Flits transferred.
    stalled : int
        Cycles in which a flit was offered and not taken.
    first_cycle, last_cycle : int
        Of the first and the last transfer; -1 before there was one.
    packets : list of FlitPacket
        All of them, unless ``on_packet`` was given.
    """

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        on_packet: Callable[[FlitPacket], object] | None = None,
    ):
        super().__init__(bench, prefix, "tvalid", "tready", FLIT_FIELDS)
        self.packets: list[FlitPacket] = []
        self._accept = _Collector(bench, on_packet or self.packets.append)


class LinkMonitor:
    """Checks the link rule: request and response streams together bring one flit a cycle.

    Each stream has a register of its own before the link, and a flit may wait in it. The rule is
    about loading: in no cycle does a new flit appear on both.

    Parameters
    ----------
    bench : Bench
    request, response : str
        Prefixes of the two streams of one direction of one port.

    Attributes
    ----------
    flits : int
        Transferred on both.
    first_cycle, last_cycle : int
    """

    def __init__(self, bench: Bench, request: str, response: str):
        self.bench = bench
        self.name = f"{request} + {response}"
        self.flits = 0
        self.first_cycle = self.last_cycle = -1
        self._problems: list[str] = []
        self._streams: list[list[Any]] = []
        for prefix in (request, response):
            valid: Wire = bench.wire(f"{prefix}_tvalid")
            ready: Wire = bench.wire(f"{prefix}_tready")
            self._streams.append([valid.read, ready.read, False])
        bench.add(self)

    def problems(self) -> Iterable[str]:
        return self._problems

    def reset(self) -> None:
        for stream in self._streams:
            stream[2] = False

    def step(self) -> None:
        loaded = 0
        for stream in self._streams:
            valid, ready, waiting = stream
            if not valid():
                stream[2] = False
                continue
            loaded += not waiting
            stream[2] = not ready()
            if not stream[2]:
                self.flits += 1
                self.last_cycle = self.bench.cycle
                if self.first_cycle < 0:
                    self.first_cycle = self.last_cycle
        if loaded > 1:
            self._problems.append(f"{self.name}: two flits loaded at cycle {self.bench.cycle}")
