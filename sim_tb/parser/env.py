"""What a parser must do with a frame, written from the wire format, and the agents round one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from amaranth.lib import data

from dysharp.hw.packet import Cmd, Header, MultimemAddress
from dysharp.sim_tb.agents import Bench, FlitSource, StreamSink

__all__ = ["Expected", "Faults", "Frame", "ParserEnv", "Pulses", "command_bits", "parse"]

ALL_ONES = (1 << 128) - 1
HDR, AE, TX, BE, DATA = range(5)

# The wire format once more, in its own words: a mistake in hw.packet's table is found here.
RESPONSES = {Cmd.RD_RSP, Cmd.WR_ACK, Cmd.MM_RSP, Cmd.MM_ACK, Cmd.ERR}
POSTED = {Cmd.WRP, Cmd.MM_STP, Cmd.NOTIFY, Cmd.NOP}
WITH_LIST = {Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_LDR, Cmd.MM_RED}
ALWAYS_TX = WITH_LIST | {Cmd.MM_RSP, Cmd.MM_ACK}
WITH_DATA = {Cmd.WR, Cmd.WRP, Cmd.RD_RSP, Cmd.ATOM, Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_RED, Cmd.MM_RSP}
WITH_BE = {Cmd.WR, Cmd.WRP, Cmd.MM_ST, Cmd.MM_STP}
STORES = WITH_BE | {Cmd.MM_RED}
LOADS = {Cmd.RD, Cmd.MM_LDR}


def command_bits(raw: int) -> int:
    """The command of a header, which may be reserved."""
    field = data.Layout.cast(Header)["cmd"]
    return raw >> field.offset & (1 << field.width) - 1


@dataclass
class Frame:
    """Flits up to ``tlast``, as they are sent.

    Attributes
    ----------
    flits : list of int
    poison : set of int
        Indices of the flits that carry the mark.
    """

    flits: list[int]
    poison: set[int] = field(default_factory=set)


@dataclass
class Expected:
    """What a frame becomes.

    Attributes
    ----------
    flits : list of tuple
        ``(data, kind, last, poison)`` of what is handed on; empty if it is dropped.
    error : dict or None
        The answer.
    dropped, misframed, wrong_stream : bool
    """

    flits: list[tuple[int, int, int, int]] = field(default_factory=list)
    error: dict[str, int] | None = None
    dropped: bool = False
    misframed: bool = False
    wrong_stream: bool = False


def _command(raw: int) -> Cmd | None:
    try:
        return Cmd(command_bits(raw))
    except ValueError:
        return None


def _is_well_formed(header: Any, cmd: Cmd, address: Any, chunk_bytes: int) -> bool:
    if header.tx != (cmd in ALWAYS_TX) and cmd is not Cmd.ERR:
        return False
    if header.ae and header.tx:
        return False
    if header.be and cmd not in WITH_BE:
        return False
    lists = -(-address.count // 8) if cmd in WITH_LIST else 0
    stored = header.len - header.ae - lists - header.be
    if cmd in WITH_DATA:
        if not 1 <= stored <= (8 if header.be else 16):
            return False
    elif stored:
        return False
    offset = header.addr % chunk_bytes
    if cmd in STORES:
        return offset % 16 == 0 and offset + 16 * stored <= chunk_bytes
    if cmd in LOADS:
        return offset // 16 * 16 + 16 * (offset % 16 + 1) <= chunk_bytes
    return True


def parse(frame: Frame, *, responses: bool, chunk_bytes: int) -> Expected:
    """What becomes of one frame.

    Parameters
    ----------
    frame : Frame
    responses : bool
        The stream is one of responses.
    chunk_bytes : int
    """
    raw = frame.flits[0]
    header = Header.from_bits(raw)
    address = MultimemAddress.from_bits(header.addr)
    cmd = _command(raw)
    if cmd is Cmd.NOP:
        return Expected()
    is_response = cmd in RESPONSES
    if cmd is not None and is_response == responses:
        if _is_well_formed(header, cmd, address, chunk_bytes):
            return _handed_on(frame, header, cmd, address)
    expected = Expected(dropped=True, wrong_stream=cmd is not None and is_response != responses)
    if not responses and not is_response and cmd not in POSTED:
        expected.error = {
            "tag": header.tag.as_bits(),
            "tx": header.tx,
            "status": 1,
            "maddr": address.maddr,
            "stage": address.stage,
            "count": address.count,
        }
    return expected


def _handed_on(frame: Frame, header: Any, cmd: Cmd, address: Any) -> Expected:
    wanted = header.len + 1
    lists = -(-address.count // 8) if cmd in WITH_LIST else 0
    kinds = [HDR] + [AE] * header.ae + [TX] * lists + [BE] * header.be
    kinds += [DATA] * (wanted - len(kinds))
    misframed = wanted != len(frame.flits)
    flits = frame.flits[:wanted] + [ALL_ONES] * (wanted - len(frame.flits))
    link_layer = Header.const({"crc": -1, "ack": -1}).as_bits()
    flits[0] &= ~link_layer
    poisoned = misframed or wanted - 1 in frame.poison
    expected = Expected(misframed=misframed)
    for index, (flit, kind) in enumerate(zip(flits, kinds, strict=True)):
        last = index == wanted - 1
        expected.flits.append((flit, kind, int(last), int(last and poisoned)))
    return expected


class Faults:
    """Watches the pulses ``<prefix>_valid`` and what comes with them.

    Attributes
    ----------
    seen : list of dict
        Fields of each pulse.
    """

    FIELDS = ("status", "answered", "cmd", "addr")

    def __init__(self, bench: Bench, prefix: str = "fault"):
        self._valid = bench.wire(f"{prefix}_valid")
        self._fields = {name: bench.wire(f"{prefix}_{name}") for name in self.FIELDS}
        self.seen: list[dict[str, int]] = []
        bench.add(self)

    def problems(self) -> Iterable[str]:
        return ()

    def reset(self) -> None:
        self.seen.clear()

    def step(self) -> None:
        if self._valid.read():
            self.seen.append({name: wire.read() for name, wire in self._fields.items()})


class Pulses:
    """Counts pulses by name."""

    def __init__(self, bench: Bench, names: Sequence[str]):
        self._wires = {name: bench.wire(name) for name in names}
        self.counts: Counter[str] = Counter()
        bench.add(self)

    def problems(self) -> Iterable[str]:
        return ()

    def reset(self) -> None:
        self.counts.clear()

    def step(self) -> None:
        for name, wire in self._wires.items():
            self.counts[name] += wire.read()


class ParserEnv:
    """A parser, what is sent to it, and what must come of it.

    Parameters
    ----------
    dut
        cocotb's handle. ``params``: ``responses`` and ``chunk_bytes``.

    Attributes
    ----------
    latency : int
        Cycles from ``i`` to ``o``; in a switch that of requests has none.
    """

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        self.responses = bool(bench.params.get("responses", False))
        self.chunk_bytes = int(bench.params.get("chunk_bytes", 128))
        self.latency = int(self.responses)
        self.stall_limit = bench.wire("stall_limit")
        self.stall_limit.write(0)
        self.source = FlitSource(bench, "i")
        self.sink = StreamSink(bench, "o", on_record=self._flit)
        self.errors = StreamSink(bench, "error", on_record=self._error)
        self.faults = Faults(bench)
        self.pulses = Pulses(bench, ("events_packets", "events_misframed", "events_wrong_stream"))
        self.clear()

    def clear(self) -> None:
        """Forget what was sent and seen, as after a reset."""
        self.frames: list[tuple[Frame, Expected]] = []
        self._flits: list[tuple[tuple[int, int, int, int], int]] = []
        self._errors: list[tuple[dict[str, int], int]] = []
        self.flits_seen = self.errors_seen = 0

    def send(self, frame: Frame | Sequence[int], *, stops: int | None = None) -> Expected:
        """Send a frame and note what must come of it, if the source ``stops`` after so many."""
        if not isinstance(frame, Frame):
            frame = Frame(list(frame))
        seen = Frame(frame.flits[:stops], frame.poison)
        expected = parse(seen, responses=self.responses, chunk_bytes=self.chunk_bytes)
        number = len(self.frames)
        self.frames.append((frame, expected))
        self._flits += [(flit, number) for flit in expected.flits]
        if expected.error:
            self._errors.append((expected.error, number))
        self.source.send(frame.flits, poison=frame.poison)
        return expected

    def _flit(self, record: dict[str, int]) -> None:
        got = (record["data"], record["kind"], record["last"], record["poison"])
        if self.flits_seen == len(self._flits):
            self.bench.fail(f"a flit too many: {_show(got)}")
        want, number = self._flits[self.flits_seen]
        if got != want:
            self.bench.fail(
                f"flit {self.flits_seen}: expected {_show(want)}, got {_show(got)}\n"
                + self._describe(number)
            )
        self.flits_seen += 1

    def _error(self, record: dict[str, int]) -> None:
        if self.errors_seen == len(self._errors):
            self.bench.fail(f"an answer too many: {record}")
        want, number = self._errors[self.errors_seen]
        names = want if want["tx"] else ("tag", "tx", "status")
        for name in names:
            if record[name] != want[name]:
                self.bench.fail(
                    f"answer {self.errors_seen}: {name}: expected {want[name]:#x}, "
                    f"got {record[name]:#x}\n" + self._describe(number)
                )
        self.errors_seen += 1

    def _describe(self, number: int) -> str:
        flits = self.frames[number][0].flits
        return f"of frame {number}: {len(flits)} flits, header {flits[0]:#034x}"

    async def finished(self, *, limit: int = 200_000) -> None:
        """Wait for all that must come, then for nothing more, and compare the counts."""
        bench = self.bench
        await bench.until(
            lambda: (
                self.source.pending == 0
                and self.flits_seen == len(self._flits)
                and self.errors_seen == len(self._errors)
            ),
            limit=limit,
            what=f"{len(self._flits)} flits and {len(self._errors)} answers",
        )
        await bench.cycles(40)
        expected = [frame[1] for frame in self.frames]
        counts = {
            "events_packets": sum(bool(one.flits) for one in expected),
            "events_misframed": sum(one.misframed for one in expected),
            "events_wrong_stream": sum(one.wrong_stream for one in expected),
        }
        for name, count in counts.items():
            assert self.pulses.counts[name] == count, f"{name}, seed {bench.seed}"
        dropped = [(frame, one) for frame, one in self.frames if one.dropped]
        assert len(self.faults.seen) == len(dropped), f"faults, seed {bench.seed}"
        for fault, (frame, one) in zip(self.faults.seen, dropped, strict=True):
            assert fault == {
                "status": 1,
                "answered": int(one.error is not None),
                "cmd": command_bits(frame.flits[0]),
                "addr": frame.flits[0] >> 64,
            }, f"seed {bench.seed}"
        bench.check()


def _show(flit: tuple[int, int, int, int]) -> str:
    data, kind, last, poison = flit
    names = ("HDR", "AE", "TX", "BE", "DATA")
    return f"{names[kind] if kind < 5 else kind} {data:#034x} last={last} poison={poison}"
