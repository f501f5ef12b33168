"""Sources, sinks and monitors of streams.

Two kinds: flit streams, which are AXI4-Stream by name (``<prefix>_tdata/_tvalid/_tready/_tlast/
_tuser``), and record streams (``<prefix>_valid/_ready/_<field>``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cocotb.triggers import Event

from dysharp.sim_tb.agents.bench import Bench, StallPattern
from dysharp.sim_tb.agents.wire import Wire

__all__ = [
    "FlitMonitor",
    "FlitPacket",
    "FlitSink",
    "FlitSource",
    "LinkMonitor",
    "StreamMonitor",
    "StreamSink",
    "StreamSource",
    "stream_fields",
]

FLIT_FIELDS = ("tdata", "tlast", "tuser")


@dataclass
class FlitPacket:
    """Flits up to and with the one that had ``tlast``.

    Members
    -------
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


def stream_fields(bench: Bench, prefix: str) -> tuple[str, ...]:
    """The payload fields of the record stream ``prefix``, read off the top's ports.

    A longer name that is a stream of its own (``inst_data`` beside ``inst``) is left out.
    """
    names = {handle._name for handle in bench.dut}
    start = f"{prefix}_"
    fields = []
    for name in sorted(names):
        rest = name.removeprefix(start)
        if rest == name or rest in ("valid", "ready"):
            continue
        parts = rest.split("_")
        others = (start + "_".join(parts[:end]) for end in range(1, len(parts)))
        if any(f"{other}_valid" in names or f"{other}_tvalid" in names for other in others):
            continue
        if parts[-1] in ("tdata", "tvalid", "tready", "tlast", "tuser") and len(parts) == 1:
            continue
        fields.append(rest)
    return tuple(fields)


class _Source:
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
        self._driving = False
        self._valid.write(0)
        for wire in self._payload:
            wire.write(0)
        self._idle.set()

    def _put(self, item: tuple[int, ...]) -> None:
        self._queue.append(item)
        self._idle.clear()

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
            if not queue:
                self._driving = False
                self._valid.write(0)
                self._idle.set()
                return
        elif not queue:
            return
        if self._stall():
            self._driving = False
            self._valid.write(0)
            return
        self._driving = True
        self._valid.write(1)
        for wire, value in zip(self._payload, queue[0], strict=True):
            wire.write(value)


class _Sink:
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


class _Monitor:
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


class FlitSource(_Source):
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

    def send_flit(self, data: int, *, last: bool, poison: bool = False) -> None:
        """Queue one flit just as it is, for packets that are meant to be wrong."""
        self._put((data, int(last), int(poison)))


class FlitSink(_Sink):
    """Takes packets from ``<prefix>_t*`` and checks that offers are stable.

    Parameters
    ----------
    bench : Bench
    prefix : str
    stall : StallPattern or None
        When ready is low; the run's pattern for this prefix by default.
    on_packet : callable or None
        Called with each :class:`FlitPacket` in place of queueing it.

    Members
    -------
    packets : deque of FlitPacket
        Whole packets not yet fetched by :meth:`receive`.
    """

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        stall: StallPattern | None = None,
        on_packet: Callable[[FlitPacket], None] | None = None,
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

    def __init__(self, bench: Bench, on_packet: Callable[[FlitPacket], None]):
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


class FlitMonitor(_Monitor):
    """Watches ``<prefix>_t*`` between two parts of the design, or beside a source or a sink.

    Members
    -------
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
        on_packet: Callable[[FlitPacket], None] | None = None,
    ):
        super().__init__(bench, prefix, "tvalid", "tready", FLIT_FIELDS)
        self.packets: list[FlitPacket] = []
        self._accept = _Collector(bench, on_packet or self.packets.append)


class StreamSource(_Source):
    """Sends records on ``<prefix>_valid/_ready/_<field>``.

    Parameters
    ----------
    fields : sequence of str or None
        Names of the payload ports without the prefix; read off the top by default.
    """

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        fields: Sequence[str] | None = None,
        stall: StallPattern | None = None,
    ):
        self.fields = tuple(stream_fields(bench, prefix) if fields is None else fields)
        super().__init__(bench, prefix, "valid", "ready", self.fields, stall)

    def send(self, record: Mapping[str, int] | None = None, **values: int) -> None:
        """Queue one record; fields that are not given are 0, unknown ones are an error."""
        given = {**(record or {}), **values}
        if unknown := given.keys() - set(self.fields):
            raise KeyError(f"{self.prefix} has no field {', '.join(sorted(unknown))}")
        self._put(tuple(int(given.get(name, 0)) for name in self.fields))


class StreamSink(_Sink):
    """Takes records from ``<prefix>_valid/_ready/_<field>`` and checks that offers are stable.

    Members
    -------
    records : deque of dict
        Records not yet fetched by :meth:`receive`, unless ``on_record`` was given.
    """

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        fields: Sequence[str] | None = None,
        stall: StallPattern | None = None,
        on_record: Callable[[dict[str, int]], None] | None = None,
    ):
        self.fields = tuple(stream_fields(bench, prefix) if fields is None else fields)
        super().__init__(bench, prefix, "valid", "ready", self.fields, stall)
        self.records: deque[dict[str, int]] = deque()
        self._on_record = on_record or self._keep
        self._arrived = Event()

    def _keep(self, record: dict[str, int]) -> None:
        self.records.append(record)
        self._arrived.set()

    def _accept(self, payload: list[int]) -> None:
        self._on_record(dict(zip(self.fields, payload, strict=True)))

    async def receive(self) -> dict[str, int]:
        """Wait for the next record."""
        while not self.records:
            self._arrived.clear()
            await self._arrived.wait()
        return self.records.popleft()


class StreamMonitor(_Monitor):
    """Watches a record stream that others drive; ``records`` keeps what was transferred."""

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        fields: Sequence[str] | None = None,
        on_record: Callable[[dict[str, int]], None] | None = None,
    ):
        self.fields = tuple(stream_fields(bench, prefix) if fields is None else fields)
        super().__init__(bench, prefix, "valid", "ready", self.fields)
        self.records: list[dict[str, int]] = []
        self._on_record = on_record or self.records.append

    def _accept(self, payload: list[int]) -> None:
        self._on_record(dict(zip(self.fields, payload, strict=True)))


class LinkMonitor:
    """Checks the link rule: request and response streams together bring one flit a cycle.

    Each stream has a register of its own before the link, and a flit may wait in it. The rule is
    about loading: in no cycle does a new flit appear on both.

    Parameters
    ----------
    bench : Bench
    request, response : str
        Prefixes of the two streams of one direction of one port.

    Members
    -------
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
