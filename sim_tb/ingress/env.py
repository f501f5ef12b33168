"""The crossbar's queues as the ingress sees them, and what each of them must get."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from dysharp.hw.packet import (
    Cmd,
    Header,
    MultimemAddress,
    Packet,
    PacketError,
    PruneInfo,
    ReplicaTag,
    Status,
)
from dysharp.sim_tb.agents import (
    Bench,
    FlitPacket,
    FlitSink,
    FlitSource,
    StallPattern,
    StreamSink,
)
from dysharp.sim_tb.parser.env import Frame, parse
from dysharp.sim_tb.route.model import POSTED, Decision, Fabric, ObjectSpec
from dysharp.sim_tb.scoreboard import difference

__all__ = ["IngressEnv", "Queues"]

NOW = 0x2A
"""The time that every packet is born."""
SESSION_FIELDS = ("local", "cmd", "ports", "count", "attr", "flits", "maddr", "stage")


class Queues:
    """The row of queues that an ingress writes for one class; checks what is written.

    Parameters
    ----------
    bench : Bench
    prefix : str
    ports : int
    depth : int
        Flits that each queue holds.

    Attributes
    ----------
    expected : list of deque
        For each output the packets to come, flits with ``last`` and ``poison``.
    blocked : set of int
        Outputs that take nothing.
    """

    def __init__(self, bench: Bench, prefix: str, ports: int, *, depth: int):
        self.bench = bench
        self.name = prefix
        self.ports, self.depth = ports, depth
        self.blocked: set[int] = set()
        self.drain = 1.0
        self.expected: list[deque[list[tuple[int, int, int]]]] = []
        self._values = bench.random(prefix)
        self._flit = [bench.wire(f"{prefix}_flit_{name}") for name in ("data", "last", "poison")]
        self._push = bench.wire(f"{prefix}_push")
        self._credit = bench.wire(f"{prefix}_credit")
        self.reset()
        bench.add(self)

    def problems(self) -> Iterable[str]:
        return ()

    def reset(self) -> None:
        self.expected = [deque() for _ in range(self.ports)]
        self.levels = [0] * self.ports
        self.written: list[int] = []
        """Cycles in which a flit was written anywhere."""
        self._partial: list[list[tuple[int, int, int]]] = [[] for _ in range(self.ports)]
        self._credit.write(0)

    @property
    def outstanding(self) -> int:
        """Packets still to come."""
        return sum(map(len, self.expected))

    def step(self) -> None:
        push = self._push.read()
        if push:
            self.written.append(self.bench.cycle)
            word, last, poison = (wire.read() for wire in self._flit)
            for port in range(self.ports):
                if push >> port & 1:
                    self._write(port, (word, last, poison))
        credit = 0
        for port in range(self.ports):
            if port not in self.blocked and self.levels[port] > 0:
                if self._values.random() < self.drain:
                    self.levels[port] -= 1
                    credit |= 1 << port
        self._credit.write(credit)

    def _write(self, port: int, flit: tuple[int, int, int]) -> None:
        partial = self._partial[port]
        partial.append(flit)
        self.levels[port] += 1
        if self.levels[port] > self.depth:
            self.bench.fail(f"{self.name}: queue {port} overflows")
        if not flit[1]:
            return
        self._partial[port] = []
        if not self.expected[port]:
            self.bench.fail(f"{self.name}: output {port}: unexpected packet {_show(partial)}")
        want = self.expected[port].popleft()
        if want != partial:
            text = "\n  ".join(_differences(want, partial))
            self.bench.fail(f"{self.name}: output {port}: packet differs\n  {text}\n")


def _packet(flits: Sequence[tuple[int, int, int]]) -> Packet:
    return Packet.decode([flit[0] for flit in flits], poison=bool(flits[-1][2]))


def _show(flits: Sequence[tuple[int, int, int]]) -> str:
    try:
        return str(_packet(flits))
    except PacketError as error:
        return f"of {len(flits)} flits ({error})"


def _differences(want: Sequence[Any], got: Sequence[Any]) -> list[str]:
    try:
        lines = difference(_packet(want), _packet(got))
    except PacketError as error:
        lines = [f"not a packet: {error}"]
    return lines or [
        f"flit {k}: expected {a}, got {b}"
        for k, (a, b) in enumerate(zip(want, got, strict=False))
        if a != b
    ]


class IngressEnv:
    """An ingress, what it gets, and what must come of it.

    Parameters
    ----------
    dut
        cocotb's handle; the manifest beside it tells the configuration.
    """

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        config = bench.manifest["config"]
        self.fabric = Fabric.of(config)
        self.ports = config["gpus"] * config["links"]
        self.port = 3
        self.requests = FlitSource(bench, "rx_req")
        self.responses = FlitSource(bench, "rx_rsp")
        self.queues = {
            name: Queues(bench, name, self.ports, depth=config["switch"][f"{kind}_depth"])
            for name, kind in (("req", "request"), ("rsp", "response"))
        }
        self.reserve = StreamSink(bench, "reserve", fields=SESSION_FIELDS, on_record=self._reserved)
        self.error = FlitSink(bench, "error", on_packet=self._answered)
        self._session = bench.wire("session_session"), bench.wire("session_generation")
        self._exhausted = bench.wire("exhausted")
        self.set_exhausted(False)
        for name, value in {"failed": 0, "stall_limit": 0, "now": NOW}.items():
            bench.wire(name).write(value)
        bench.wire("port").write(self.port)
        bench.wire("gpu").write(self.port // self.fabric.links)
        self._entries = [
            {name: bench.wire(f"objects_{k}_{name}") for name in ObjectSpec(0, 0).fields()}
            for k in range(config["objects"])
        ]
        for k in range(config["objects"]):
            self.set_object(k, ObjectSpec(0, 0, valid=False))
        self.clear()

    def clear(self) -> None:
        """Forget what was sent, as after a reset."""
        self._sessions: list[dict[str, int]] = []
        self._answers: list[tuple[int, int, int]] = []
        self.reserved = 0
        self._offer()

    def set_object(self, index: int, entry: ObjectSpec) -> None:
        """Fill an entry of the table."""
        self.fabric.objects[index] = entry
        for name, value in entry.fields().items():
            self._entries[index][name].write(value)

    def set_exhausted(self, exhausted: bool) -> None:
        """Say that no session will ever be free."""
        self.exhausted = exhausted
        self._exhausted.write(int(exhausted))

    def _id(self, number: int) -> tuple[int, int]:
        """Session and generation of the n-th reservation; any will do, so they jump about."""
        return number * 37 & 0xFF, number * 5 & 0xF

    def _offer(self) -> None:
        for wire, value in zip(self._session, self._id(self.reserved), strict=True):
            wire.write(value)

    def _reserved(self, record: dict[str, int]) -> None:
        if self.reserved == len(self._sessions):
            self.bench.fail(f"a session too many: {record}")
        want = self._sessions[self.reserved]
        if record != want:
            self.bench.fail(f"session {self.reserved}: expected {want}, got {record}")
        self.reserved += 1
        self._offer()

    def _answered(self, packet: FlitPacket) -> None:
        flit = packet.flits[0]
        got = Packet.decode(packet.flits)
        key = (got.tag_local, got.status.value, flit >> 64)
        if key not in self._answers or got.cmd is not Cmd.ERR or got.tag_port != self.port:
            self.bench.fail(f"an answer that nobody expects: {got}")
        self._answers.remove(key)

    def send_request(self, packet: Packet, flits: Sequence[int] | None = None) -> Decision:
        """Send a request; what route decides, or that it is malformed."""
        flits = list(flits or packet.encode())
        self.requests.send(flits)
        parsed = parse(Frame(flits), responses=False, chunk_bytes=self.fabric.chunk_bytes)
        if not parsed.flits:
            if parsed.error:
                self._answer(Status.MALFORMED, flits[0])
            return Decision(Status.MALFORMED)
        decision = self.fabric.decide(packet, self.port // self.fabric.links, flits)
        if decision.status is not Status.OK:
            if packet.cmd not in POSTED:
                self._answer(decision.status, flits[0])
            return decision
        if decision.session and self.exhausted:
            self._answer(Status.NEVER_RESERVABLE, flits[0])
            return Decision(Status.NEVER_RESERVABLE)
        header = Header.from_bits(parsed.flits[0][0])
        tag = {"local": header.tag.local, "port": self.port}
        tag_bits = tag["port"] << 12 | tag["local"]
        if packet.cmd in POSTED:
            tag_bits = 0
        elif decision.session:
            session, generation = self._id(len(self._sessions))
            self._sessions.append(decision.session)
            tag_bits = ReplicaTag.const(
                {"session": session, "generation": generation, "port": self.port}
            ).as_bits()
        clear = Header.const({"tag": {"local": -1, "port": -1}}).as_bits()
        first = parsed.flits[0][0] & ~clear
        first |= Header.const(
            {
                "tag": {"local": tag_bits & 0xFFF, "port": tag_bits >> 12},
                "crc": PruneInfo.const({"split": decision.split, "born": NOW}).as_bits(),
            }
        ).as_bits()
        self._expect("req", decision.ports, [first], parsed.flits)
        return decision

    def _expect(self, name: str, ports: Iterable[int], first: list[int], parsed: Any) -> None:
        words = first + [word for word, *_ in parsed[1:]]
        flits = [(word, last, mark) for word, (_, _, last, mark) in zip(words, parsed, strict=True)]
        for port in ports:
            self.queues[name].expected[port].append(flits)

    def _answer(self, status: Status, first: int) -> None:
        header = Header.from_bits(first)
        addr = status.value
        if header.tx:
            old = MultimemAddress.from_bits(header.addr)
            addr = (
                MultimemAddress.const(
                    {"maddr": old.maddr, "stage": old.stage, "count": old.count}
                ).as_bits()
                | status.value << 56
            )
        self._answers.append((header.tag.local, status.value, addr))

    def send_response(self, packet: Packet) -> None:
        """Send a response."""
        flits = packet.encode()
        self.responses.send(flits)
        parsed = parse(Frame(flits), responses=True, chunk_bytes=self.fabric.chunk_bytes)
        if parsed.flits and packet.tag_port < self.ports:
            self._expect("rsp", [packet.tag_port], flits[:1], parsed.flits)

    def never_stall(self) -> None:
        """Let every agent go at full speed, whatever the run's stalls are."""
        for source in (self.requests, self.responses):
            source._stall = StallPattern()
        for sink in (self.reserve, self.error):
            sink._can_stall = False

    async def finished(self, *, limit: int = 200_000) -> None:
        """Wait for all that must come, then for nothing more."""
        queues = self.queues
        await self.bench.until(
            lambda: (
                self.requests.pending == 0
                and self.responses.pending == 0
                and not queues["req"].outstanding
                and not queues["rsp"].outstanding
                and self.reserved == len(self._sessions)
                and not self._answers
            ),
            limit=limit,
            what=f"{queues['req'].outstanding} requests, {queues['rsp'].outstanding} responses, "
            f"{len(self._answers)} answers",
        )
        await self.bench.cycles(60)
        self.bench.check()
