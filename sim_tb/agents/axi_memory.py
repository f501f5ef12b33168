"""An AXI4 memory with the latencies and the orders that real ones show."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dysharp.sim_tb.agents.bench import Bench, StallPattern
from dysharp.sim_tb.agents.memory import NAN_FILL, PAGE_BYTES, SparseMemory
from dysharp.sim_tb.agents.wire import Unconnected, Wire

__all__ = ["AxiMemory", "Latency"]

INCR = 1
_REQUEST = ("valid", "ready", "addr", "id", "len", "size", "burst")
_CHANNELS = {
    "aw": _REQUEST,
    "ar": _REQUEST,
    "w": ("valid", "ready", "data", "strb", "last"),
    "b": ("valid", "ready", "id", "resp"),
    "r": ("valid", "ready", "id", "data", "resp", "last"),
}


@dataclass(frozen=True)
class Latency:
    """Cycles from the end of a request to the start of its answer, each drawn anew.

    Parameters
    ----------
    low, high : int
        0 answers in the cycle after the request. ``high`` defaults to ``low``.
    """

    low: int = 0
    high: int | None = None

    def __post_init__(self):
        if not 0 <= self.low <= self.top:
            raise ValueError(f"Latency must be 0 <= low <= high, not {self.low}, {self.high}")

    @property
    def top(self) -> int:
        """The longest."""
        return self.low if self.high is None else self.high


@dataclass
class _Burst:
    id: int
    address: int
    beats: int
    size: int
    due: int = 0
    data: list[int] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)


class _Responses:
    """Bursts that wait for their latency, in the order in which they may be answered."""

    def __init__(self, latency: Latency, reorder: bool, generator: random.Random):
        self._latency = latency
        self._reorder = reorder
        self._random = generator
        self._by_id: dict[int, deque[_Burst]] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def clear(self) -> None:
        self._by_id.clear()
        self._waiting = 0

    def add(self, burst: _Burst, cycle: int) -> None:
        low, high = self._latency.low, self._latency.top
        burst.due = cycle + (low if low == high else self._random.randint(low, high))
        self._by_id.setdefault(burst.id if self._reorder else 0, deque()).append(burst)
        self._waiting += 1

    def take(self, cycle: int) -> _Burst | None:
        """A burst that is due and the oldest of its id."""
        queues = self._by_id
        if len(queues) == 1:
            (key,) = queues
            if queues[key][0].due > cycle:
                return None
        else:
            due = [key for key, queue in queues.items() if queue[0].due <= cycle]
            if not due:
                return None
            key = due[0] if len(due) == 1 else self._random.choice(due)
        queue = queues[key]
        burst = queue.popleft()
        if not queue:
            del queues[key]
        self._waiting -= 1
        return burst


class AxiMemory(SparseMemory):
    """AXI4 subordinate on ``<prefix>_awvalid ... <prefix>_rready``, backed by a sparse memory.

    A write is stored when its response goes out and a read is sampled when its address is taken,
    so a requester that does not wait for a response sees old data, as AXI allows.

    Parameters
    ----------
    bench : Bench
    prefix : str
        ``m_axi`` at a block's edge. The data width is read off the ports (128 to 1024).
    latency, write_latency : Latency
        Of reads and of writes; ``write_latency`` defaults to ``latency``.
    reorder : bool
        Answer different ids in any order. One id is always answered in order.
    stall : StallPattern or None
        For all five channels; the run's pattern for this prefix by default.
    fill : bytes
        What memory holds before it is written.

    Attributes
    ----------
    reads, writes : int
        Beats transferred.
    longest_read_wait, longest_write_wait : int
        Most cycles that an answer stood without ready.

    Throughput
    ----------
    One beat a cycle on each channel; any number of bursts outstanding.
    """

    def __init__(
        self,
        bench: Bench,
        prefix: str = "m_axi",
        *,
        latency: Latency = Latency(1),
        write_latency: Latency | None = None,
        reorder: bool = False,
        stall: StallPattern | None = None,
        fill: bytes = NAN_FILL,
    ):
        super().__init__(fill)
        self.bench = bench
        self.prefix = prefix
        self.reads = self.writes = 0
        self.longest_read_wait = self.longest_write_wait = 0
        self._stall = stall or bench.stalls(prefix)
        self._can_stall = self._stall.probability > 0
        generator = bench.random(f"memory {prefix}")
        self._read_queue = _Responses(latency, reorder, generator)
        self._write_queue = _Responses(write_latency or latency, reorder, generator)
        self._problems: list[str] = []
        channels = {name: self._channel(name) for name in _CHANNELS}
        self._aw, self._w, self._b = channels["aw"], channels["w"], channels["b"]
        self._ar, self._r = channels["ar"], channels["r"]
        self._ready = {name: channels[name]["ready"] for name in ("aw", "ar", "w")}
        if not any(channels[name]["valid"].width for name in self._ready):
            raise AttributeError(f"the top has no AXI4 port {prefix}")
        self._bytes = max(self._w["data"].width, self._r["data"].width) // 8
        self._full = (1 << self._bytes) - 1
        self._held: dict[str, tuple[int, ...]] = {}
        self._accepting: dict[str, bool] = dict.fromkeys(("aw", "ar", "w"), False)
        self._to_write: deque[_Burst] = deque()
        self._beats: deque[tuple[int, ...]] = deque()
        self._reading: _Burst | None = None
        self._beat = 0
        self._responding = False
        self._read_wait = self._write_wait = 0
        self._awvalid, self._arvalid = self._aw["valid"].read, self._ar["valid"].read
        self._wvalid = self._w["valid"].read
        self._bready, self._rready = self._b["ready"].read, self._r["ready"].read
        self._requests = {
            name: [channels[name][field].read for field in ("addr", "id", "len", "size", "burst")]
            for name in ("aw", "ar")
        }
        self._write_reads = [self._w[name].read for name in ("data", "strb", "last")]
        bench.add(self)

    def _channel(self, name: str) -> dict[str, Wire | Unconnected]:
        """Wires of a channel by the rest of their names; a requester may lack a channel."""
        find = self.bench.optional_wire
        return {
            rest: find(f"{self.prefix}_{name}{rest}", INCR if rest == "burst" else 0)
            for rest in _CHANNELS[name]
        }

    @property
    def idle(self) -> bool:
        """Nothing is under way."""
        return not (
            self._read_queue
            or self._write_queue
            or self._reading
            or self._responding
            or self._to_write
            or self._beats
        )

    def problems(self) -> Iterable[str]:
        return self._problems

    def reset(self) -> None:
        for channel, ready in self._ready.items():
            ready.write(0)
            self._accepting[channel] = False
        for wires in (self._b, self._r):
            for name, wire in wires.items():
                if name != "ready":
                    wire.write(0)
        self._held.clear()
        self._to_write.clear()
        self._beats.clear()
        self._read_queue.clear()
        self._write_queue.clear()
        self._reading = None
        self._responding = False

    def _problem(self, text: str) -> None:
        if len(self._problems) < 100:
            self._problems.append(f"{self.prefix}: {text} at cycle {self.bench.cycle}")

    def step(self) -> None:
        accepting = self._accepting
        held = self._held
        if self._awvalid():
            values = tuple(read() for read in self._requests["aw"])
            if held and "aw" in held:
                self._check_held("aw", values)
            if accepting["aw"]:
                self._to_write.append(self._request("aw", values))
            else:
                held["aw"] = values
        elif held and "aw" in held:
            self._dropped("aw")
        if self._wvalid():
            values = tuple(read() for read in self._write_reads)
            if held and "w" in held:
                self._check_held("w", values)
            if accepting["w"]:
                self._beats.append(values)
                self.writes += 1
            else:
                held["w"] = values
        elif held and "w" in held:
            self._dropped("w")
        if self._arvalid():
            values = tuple(read() for read in self._requests["ar"])
            if held and "ar" in held:
                self._check_held("ar", values)
            if accepting["ar"]:
                burst = self._request("ar", values)
                self._sample(burst)
                self._read_queue.add(burst, self.bench.cycle)
            else:
                held["ar"] = values
        elif held and "ar" in held:
            self._dropped("ar")
        if self._beats:
            self._match_beats()
        if self._responding or self._write_queue:
            self._answer_writes()
        if self._reading or self._read_queue:
            self._answer_reads()
        if self._can_stall:
            for channel in accepting:
                ready = not self._stall()
                accepting[channel] = ready
                self._ready[channel].write(int(ready))
        elif not accepting["aw"]:
            for channel in accepting:
                accepting[channel] = True
                self._ready[channel].write(1)

    def _check_held(self, channel: str, values: tuple[int, ...]) -> None:
        if self._held.pop(channel) != values:
            self._problem(f"{channel} payload changed before {channel}ready")

    def _dropped(self, channel: str) -> None:
        del self._held[channel]
        self._problem(f"{channel}valid dropped before {channel}ready")

    def _request(self, channel: str, values: tuple[int, ...]) -> _Burst:
        address, id_, length, size, kind = values
        beats, width = length + 1, 1 << size
        if width > self._bytes:
            self._problem(f"{channel}size {size} is wider than the bus")
        if kind != INCR:
            self._problem(f"{channel}burst must be INCR, not {kind}")
        if address % width:
            self._problem(f"{channel}addr {address:#x} is not aligned to {width} bytes")
        if address // PAGE_BYTES != (address + beats * width - 1) // PAGE_BYTES:
            self._problem(f"{channel}addr {address:#x}, {beats} beats: crosses 4 KB")
        return _Burst(id_, address, beats, size)

    def _sample(self, burst: _Burst) -> None:
        step = 1 << burst.size
        for beat in range(burst.beats):
            lane = (burst.address + beat * step) // self._bytes * self._bytes
            page = self.pages.get(lane // PAGE_BYTES, self.fresh)
            offset = lane % PAGE_BYTES
            burst.data.append(int.from_bytes(page[offset : offset + self._bytes], "little"))

    def _match_beats(self) -> None:
        while self._beats and self._to_write:
            burst = self._to_write[0]
            data, strobe, last = self._beats.popleft()
            burst.writes.append((data, strobe))
            final = len(burst.writes) == burst.beats
            if final != bool(last):
                self._problem(f"wlast is {last} in beat {len(burst.writes)} of {burst.beats}")
            if final:
                self._to_write.popleft()
                self._write_queue.add(burst, self.bench.cycle)

    def _store(self, burst: _Burst) -> None:
        step = 1 << burst.size
        for beat, (data, strobe) in enumerate(burst.writes):
            address = burst.address + beat * step
            lane = address // self._bytes * self._bytes
            allowed = ((1 << step) - 1) << (address - lane) if step < self._bytes else self._full
            if strobe & ~allowed:
                self._problem(f"wstrb {strobe:#x} outside the {step} bytes at {address:#x}")
            page, offset = self.page(lane // PAGE_BYTES), lane % PAGE_BYTES
            text = data.to_bytes(self._bytes, "little")
            if strobe == self._full:
                page[offset : offset + self._bytes] = text
            else:
                for byte in range(self._bytes):
                    if strobe >> byte & 1:
                        page[offset + byte] = text[byte]

    def _answer_writes(self) -> None:
        wires = self._b
        if self._responding:
            if not self._bready():
                self._write_wait += 1
                self.longest_write_wait = max(self.longest_write_wait, self._write_wait)
                return
            self._responding = False
            self._write_wait = 0
        burst = None
        if self._write_queue and not (self._can_stall and self._stall()):
            burst = self._write_queue.take(self.bench.cycle)
        if burst:
            self._store(burst)
            self._responding = True
            wires["valid"].write(1)
            wires["id"].write(burst.id)
        else:
            wires["valid"].write(0)

    def _answer_reads(self) -> None:
        wires = self._r
        if self._reading and wires["valid"].value == 1:
            if not self._rready():
                self._read_wait += 1
                self.longest_read_wait = max(self.longest_read_wait, self._read_wait)
                return
            self._read_wait = 0
            self.reads += 1
            self._beat += 1
            if self._beat == self._reading.beats:
                self._reading = None
        if self._reading is None and self._read_queue:
            self._reading = self._read_queue.take(self.bench.cycle)
            self._beat = 0
        if self._reading is None or (self._can_stall and self._stall()):
            wires["valid"].write(0)
            return
        burst = self._reading
        wires["valid"].write(1)
        wires["data"].write(burst.data[self._beat])
        wires["id"].write(burst.id)
        wires["last"].write(int(self._beat == burst.beats - 1))
