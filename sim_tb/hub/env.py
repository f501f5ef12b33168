"""A Hub with its memory, its sender and its model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dysharp.hw.alu.reductions import parse_dtypes
from dysharp.hw.packet import Cmd, Packet
from dysharp.hw.registers import gpu_experts, gpu_objects
from dysharp.sim_tb.agents import (
    AxiMemory,
    Bench,
    FlitPacket,
    FlitSink,
    FlitSource,
    Latency,
    SparseMemory,
    StreamSink,
)
from dysharp.sim_tb.agents.memory import PAGE_BYTES
from dysharp.sim_tb.hub.golden import HubModel, HubObject
from dysharp.sim_tb.hub.packets import make_object
from dysharp.sim_tb.scoreboard import Scoreboard

__all__ = ["FaultyMemory", "HubEnv", "bound", "map_all"]

SLVERR = 2
EVENTS = (
    "tlb_hits",
    "tlb_misses",
    "tlb_walks",
    "first_touches",
    "full",
    "stores",
    "loads",
    "errors",
    "malformed",
    "lost_notice",
    "memory_reads",
    "memory_writes",
    "memory_errors",
)


class FaultyMemory(AxiMemory):
    """A memory that refuses bursts which touch certain addresses.

    Attributes
    ----------
    bad : list of (start, end)
        Byte addresses.
    """

    def __init__(self, bench: Bench, **options: Any):
        super().__init__(bench, **options)
        self.bad: list[tuple[int, int]] = []
        self._refuse = False

    def _is_bad(self, burst: Any, strobes: Sequence[int] | None) -> bool:
        """Only the part of a burst that is enabled counts."""
        step = 1 << burst.size
        for beat in range(burst.beats):
            lane = (burst.address + beat * step) // self._bytes * self._bytes
            wanted = strobes[beat] if strobes else None
            for start, end in self.bad:
                if wanted is None:
                    low = burst.address if beat == 0 else lane
                    if low < end and start < lane + self._bytes:
                        return True
                elif any(
                    wanted >> byte & 1 and start <= lane + byte < end for byte in range(self._bytes)
                ):
                    return True
        return False

    def _store(self, burst: Any) -> None:
        self._refuse = bool(self.bad) and self._is_bad(
            burst, [strobe for _, strobe in burst.writes]
        )
        if not self._refuse:
            super()._store(burst)

    def _answer_writes(self) -> None:
        super()._answer_writes()
        if self._responding:
            self._b["resp"].write(SLVERR if self._refuse else 0)

    def _answer_reads(self) -> None:
        super()._answer_reads()
        if self._reading is not None:
            refused = bool(self.bad) and self._is_bad(self._reading, None)
            self._r["resp"].write(SLVERR if refused else 0)


class Pulses:
    """Counts the Hub's events and keeps its error log."""

    def __init__(self, bench: Bench):
        self._wires = {name: bench.wire(f"events_{name}") for name in EVENTS}
        self._error = {
            name: bench.wire(f"error_{name}") for name in ("valid", "status", "port", "cmd", "addr")
        }
        self.counts: Counter[str] = Counter()
        self.errors: list[dict[str, int]] = []
        bench.add(self)

    def problems(self) -> Iterable[str]:
        return ()

    def reset(self) -> None:
        self.counts.clear()
        self.errors.clear()

    def step(self) -> None:
        for name, wire in self._wires.items():
            if value := wire.read():
                self.counts[name] += value
        if self._error["valid"].read():
            self.errors.append(
                {name: wire.read() for name, wire in self._error.items() if name != "valid"}
            )


class HubEnv:
    """Sends packets to link 0 and compares all answers, events and memory with the model.

    Parameters
    ----------
    dut
        cocotb's handle.
    settings
        ``latency`` [low, high], ``write_latency``, ``reorder`` of memory; before ``params``.
    """

    def __init__(self, dut: Any, **settings: Any):
        self.bench = bench = Bench(dut)
        settings = {"latency": [1, 1], "reorder": True, **bench.params, **settings}
        low, high = settings["latency"]
        write_low, write_high = settings.get("write_latency", [low, high])
        self.gpu: dict[str, Any] = bench.manifest["config"]["gpu"]
        self.links: int = bench.manifest["config"]["links"]
        self.chunk_flits = bench.manifest["config"]["chunk_bytes"] // 16
        self.objects_window = gpu_objects(objects=bench.manifest["config"]["objects"])
        self.experts_window = gpu_experts(
            objects=bench.manifest["config"]["objects"], slots=self.gpu["slots"]
        )
        self.memory = FaultyMemory(
            bench,
            latency=Latency(low, high),
            write_latency=Latency(write_low, write_high),
            reorder=settings["reorder"],
        )
        self.source = FlitSource(bench, "rx0")
        self.answers = Scoreboard(bench, "tx0")
        self.checks_answers = True
        self.sink = FlitSink(bench, "tx0", on_packet=self._answer)
        self.touches = StreamSink(bench, "touch", fields=("object", "slot", "aidx", "lidx"))
        self.written = StreamSink(bench, "written", fields=("object", "slot", "lidx", "flits"))
        self.notices = StreamSink(bench, "notify", fields=("object", "token"))
        self.pulses = Pulses(bench)
        self._window = {
            name: {
                field: bench.wire(f"{name}_{field}")
                for field in ("write_en", "index", "word", "write_data")
            }
            for name in ("objects", "experts")
        }
        self.objects: dict[int, HubObject] = {}
        self.expected = SparseMemory()
        self.dtypes = parse_dtypes(bench.manifest["config"]["dtypes"])
        self.model = HubModel(
            self.expected,
            self.objects,
            bad=self.memory.bad,
            dtypes=self.dtypes,
            ftz=bench.manifest["config"]["ftz"],
        )
        self.sent = 0

    async def start(self) -> None:
        """Reset."""
        for wires in self._window.values():
            for wire in wires.values():
                wire.write(0)
        for name in ("object", "by_object", "whole"):
            self.bench.wire(f"flush_{name}").write(0)
        await self.bench.start()

    def _answer(self, packet: FlitPacket) -> None:
        if self.checks_answers:
            self.answers.observe(packet)

    def fill_memory(self, address: int, data: bytes) -> None:
        """Put data into memory and model before they are used."""
        self.memory.write_bytes(address, data)
        self.expected.write_bytes(address, data)

    async def _write(self, window, index: int, register: str, **values: int) -> None:
        wires = self._window[window.name]
        for address, value in window.writes(index, register, **values):
            offset = address - window.base - index * window.stride
            wires["index"].write(index)
            wires["word"].write(offset // 4)
            wires["write_data"].write(value)
            wires["write_en"].write(1)
            await self.bench.cycles(1)
        wires["write_en"].write(0)

    async def bind(self, number: int, entry: HubObject, *, clear: bool = True) -> None:
        """Write an object into the tables, its ``valid`` last, and zero its AL table."""
        self.objects[number] = entry
        entry.used = [0] * len(entry.capacity)
        if clear:
            self.fill_memory(entry.al_base, bytes(4 * entry.rows * len(entry.capacity)))
        await self._write(self.objects_window, number, "control", valid=0)
        for name in ("base", "rows", "al_base", "size"):
            await self._write(self.objects_window, number, name, **{name: getattr(entry, name)})
        for stage in range(2):
            for name in ("bsize", "vbase"):
                field = f"{name}{stage}"
                await self._write(
                    self.objects_window, number, field, **{field: getattr(entry, name)[stage]}
                )
        await self._write(
            self.objects_window,
            number,
            "layout",
            stride=entry.stride,
            attr=entry.attr,
            slots=len(entry.capacity),
            split=entry.split,
            preloaded=int(entry.preloaded),
        )
        for slot, (row0, capacity) in enumerate(zip(entry.row0, entry.capacity, strict=True)):
            index = number * self.gpu["slots"] + slot
            await self._write(self.experts_window, index, "row0", row0=row0)
            await self._write(self.experts_window, index, "capacity", capacity=capacity)
        await self._write(self.objects_window, number, "control", valid=1)

    async def unbind(self, number: int) -> None:
        """Take an object out of the tables, and its translations out of the AL-TLB."""
        del self.objects[number]
        await self._write(self.objects_window, number, "control", valid=0)
        self.bench.wire("flush_object").write(number)
        self.bench.wire("flush_by_object").write(1)
        await self.bench.cycles(1)
        self.bench.wire("flush_by_object").write(0)

    def send(self, packet: Packet) -> Packet | None:
        """Send a packet; the model serves it at once, and its answer is expected."""
        self.sent += 1
        if packet.cmd not in (Cmd.MM_STP, Cmd.WRP, Cmd.NOTIFY):
            packet.tag_port, packet.tag_local = self.sent % 72, self.sent * 37 % 4096
        answer = self.model.serve(packet)
        if answer:
            self.answers.expect(answer)
        flits = packet.encode()
        self.source.send(flits, poison=[len(flits) - 1] if packet.poison else [])
        return answer

    async def settle(self, *, limit: int = 200_000) -> None:
        """Wait for all answers and for memory; compare events."""
        bench = self.bench
        await bench.until(
            lambda: not self.source.pending and not self.answers.outstanding,
            limit=limit,
            what=f"{self.answers.outstanding} answers",
        )
        calm = 0
        while calm < 40:
            await bench.cycles(1)
            calm = calm + 1 if self.memory.idle else 0
        for name, sink, wanted in (
            ("touch", self.touches, self.model.touches),
            ("written", self.written, self.model.written),
        ):
            got = list(sink.records)
            sink.records.clear()
            if got != wanted:
                pairs = enumerate(zip(got, wanted, strict=False))
                wrong = (k for k, (one, other) in pairs if one != other)
                at = next(wrong, min(len(got), len(wanted)))
                bench.fail(
                    f"{name} {at} of {len(wanted)}: expected {wanted[at : at + 1]}, "
                    f"got {got[at : at + 1]} of {len(got)}"
                )
            wanted.clear()
        if self.pulses.counts["full"] != self.model.full:
            bench.fail(f"full: expected {self.model.full}, got {self.pulses.counts['full']}")
        self.compare_memory()
        bench.check()

    def compare_memory(self) -> None:
        """Every byte of every page that either side has."""
        for number in sorted(self.memory.pages.keys() | self.expected.pages.keys()):
            want = self.expected.read_bytes(number * PAGE_BYTES, PAGE_BYTES)
            got = self.memory.read_bytes(number * PAGE_BYTES, PAGE_BYTES)
            if want != got:
                at = next(k for k in range(PAGE_BYTES) if want[k] != got[k]) & ~15
                self.bench.fail(
                    f"memory at {number * PAGE_BYTES + at:#x}: expected "
                    f"{want[at : at + 16].hex()}, got {got[at : at + 16].hex()}"
                )


async def bound(dut, **options):
    """A Hub with one object in entry 3."""
    tb = HubEnv(dut)
    await tb.start()
    entry = make_object(3, **options)
    await tb.bind(3, entry)
    return tb, entry, tb.bench.random("packets")


async def map_all(tb: HubEnv, entry) -> None:
    """Map every row at every expert by the Hub's own first touch."""
    for aidx in range(entry.rows):
        tb.send(
            Packet.multimem(
                Cmd.MM_ST,
                maddr=entry.maddr(aidx),
                targets=range(len(entry.capacity)),
                data=[aidx],
            )
        )
    await tb.settle()
