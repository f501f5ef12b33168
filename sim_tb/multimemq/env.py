"""The agents round a MultimemQ: an SM, the list memory, and a switch that answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.sim_tb.agents import (
    AxiMemory,
    Bench,
    FlitPacket,
    FlitSink,
    FlitSource,
    Latency,
    StreamSink,
    StreamSource,
)
from dysharp.sim_tb.multimemq.golden import Expected, Job, expected, list_bytes

__all__ = ["Answer", "MultimemQEnv", "right_answer"]


@dataclass
class Answer:
    """What the switch says to a packet, and what the instruction must see.

    Attributes
    ----------
    packet : Packet or None
        None: no answer, for now.
    fault : Status
        The result's fault; its data is the packet's if there is none.
    poison : bool
        The last flit is marked.
    """

    packet: Packet | None
    fault: int = 0
    poison: bool = False


@dataclass
class _Open:
    """An instruction that has no result yet."""

    number: int
    job: Job
    plan: Expected
    answer: Answer | None = None
    beats: list[int] = field(default_factory=list)


class MultimemQEnv:
    """Drives instructions, checks every packet and every result.

    Parameters
    ----------
    dut
        cocotb's handle of block ``multimemq``.
    answer : callable
        Packet to :class:`Answer`; :func:`right_answer` by default.
    delay : (int, int)
        Cycles that the switch takes; drawn anew for each packet, so answers overtake each other.
    """

    def __init__(
        self,
        dut: Any,
        *,
        answer: Callable[[MultimemQEnv, Packet], Answer] | None = None,
        delay: tuple[int, int] = (1, 60),
    ):
        self.bench = bench = Bench(dut)
        self.chunk_bytes = int(bench.manifest["config"]["chunk_bytes"])
        self.outstanding = int(bench.manifest["config"]["gpu"]["outstanding"])
        low, high = bench.params.get("latency", [1, 1])
        self.memory = AxiMemory(bench, latency=Latency(low, high))
        self.issue = StreamSource(bench, "inst")
        self.data = FlitSource(bench, "inst_data")
        self.results = StreamSink(bench, "result", on_record=self._on_result)
        self.link = FlitSink(bench, "tx", on_packet=self._on_packet)
        self.answers = FlitSource(bench, "rx")
        self.choose = bench.random("multimemq")
        self.delay = delay
        self.events = {
            name: _Counter(bench, f"events_{name}")
            for name in (
                "packets",
                "answered",
                "faulted",
                "unknown",
                "malformed",
                "refused",
                "empty",
            )
        }
        self._answer = answer or right_answer
        self._to_send: deque[_Open] = deque()
        self._open: dict[int, _Open] = {}
        self._tags: dict[int, _Open] = {}
        self._due: list[tuple[int, Answer]] = []
        self._next_list = 0x10000
        self._number = 0
        self.packets: list[tuple[Packet, FlitPacket]] = []
        self.complete = 0
        self.most_tags = 0
        bench.add(self)

    def reset(self) -> None:
        """Forget all instructions; called by the bench."""
        for waiting in (self._to_send, self._open, self._tags, self._due):
            waiting.clear()

    def problems(self) -> Iterable[str]:
        return ()

    def step(self) -> None:
        """Send the answers that are due."""
        for entry in [entry for entry in self._due if entry[0] <= self.bench.cycle]:
            self._due.remove(entry)
            self.send_answer(entry[1])

    def place_list(self, ids: Sequence[int], *, offset: int | None = None) -> int:
        """Lay a list in memory, at any even address; a third lies across 4 KB."""
        page = self._next_list
        self._next_list += 0x2000
        if offset is None:
            offset = self.choose.choice(
                [
                    0x1000 - 2 * self.choose.randint(0, len(ids)),
                    2 * self.choose.randrange(0x800),
                    2 * self.choose.randrange(8),
                ]
            )
        self.memory.write_bytes(page + offset, list_bytes(ids))
        return page + offset

    def put(self, job: Job, *, poison: bool = False, plan: Expected | None = None) -> None:
        """Issue an instruction with its data; its list is laid in memory unless it has one."""
        fields = job.fields
        if "list_addr" not in fields:
            fields["list_addr"] = self.place_list(job.ids)
        number = self._number
        self._number = (number + 1) % (1 << 16)
        plan = plan or expected(job, chunk_bytes=self.chunk_bytes)
        entry = _Open(number, job, plan)
        self._open[number] = entry
        if plan.packet:
            self._to_send.append(entry)
        self.issue.send(fields, id=number)
        if job.data:
            self.data.send(job.data, poison=[0] if poison else [])

    async def finish(self, *, limit: int = 60_000) -> None:
        """Wait until every instruction is complete, and check the agents."""
        await self.bench.until(
            lambda: not self._open and not self._to_send, limit=limit, what=self._state()
        )
        await self.bench.cycles(20)
        self.bench.check()

    def _state(self) -> str:
        return "completion of all instructions"

    def _on_packet(self, flits: FlitPacket) -> None:
        packet = Packet.decode(flits.flits, poison=flits.poison[-1])
        if not self._to_send:
            self.bench.fail(f"a packet that no instruction asked for: {packet}")
            return
        entry = self._to_send.popleft()
        wanted = entry.plan.packet
        assert wanted is not None
        wanted.tag_local = packet.tag_local if entry.job.answered else 0
        if packet != wanted or any(flits.poison[:-1]):
            self.bench.fail(f"instruction {entry.number} sent\n  {packet}\nnot\n  {wanted}")
        self.packets.append((packet, flits))
        if not entry.job.answered:
            return
        if packet.tag_local in self._tags or packet.tag_local >= self.outstanding:
            self.bench.fail(f"tag {packet.tag_local:#x} is in use, or none")
        self._tags[packet.tag_local] = entry
        self.most_tags = max(self.most_tags, len(self._tags))
        answer = self._answer(self, packet)
        if answer.packet is not None:
            self._due.append((self.bench.cycle + self.choose.randint(*self.delay), answer))

    def send_answer(self, answer: Answer) -> None:
        """Give an answer to the link; its tag is free from now on."""
        packet = answer.packet
        assert packet is not None
        entry = self._tags.pop(packet.tag_local, None)
        if entry is not None:
            entry.answer = answer
        flits = packet.encode()
        self.answers.send(flits, poison=[len(flits) - 1] if answer.poison else [])

    def _on_result(self, record: dict[str, int]) -> None:
        entry = self._open.get(record["id"])
        if entry is None:
            self.bench.fail(f"a result of id {record['id']} that nobody waits for")
            return
        if record["has_data"]:
            entry.beats.append(record["data"])
        if not record["last"]:
            return
        fault, beats = self._wanted(entry)
        if record["fault"] != fault or entry.beats != beats:
            got = [f"{beat:#x}" for beat in entry.beats]
            self.bench.fail(
                f"instruction {entry.number} ({entry.job.fields}) ended with fault "
                f"{record['fault']} and {got}, not {fault} and {[f'{beat:#x}' for beat in beats]}"
            )
        del self._open[record["id"]]
        self.complete += 1

    def _wanted(self, entry: _Open) -> tuple[int, list[int]]:
        if entry.plan.packet is None:
            return entry.plan.fault.value, list(entry.plan.beats)
        if not entry.job.answered:
            return 0, []
        if entry.answer is None or entry.answer.packet is None:
            self.bench.fail(f"instruction {entry.number} ended before its answer")
            raise AssertionError
        if entry.answer.fault:
            return int(entry.answer.fault), []
        return 0, list(entry.answer.packet.data)


class _Counter:
    """Counts pulses of an event."""

    def __init__(self, bench: Bench, name: str):
        self.count = 0
        self._read = bench.wire(name).read
        bench.add(self)

    def reset(self) -> None:
        self.count = 0

    def problems(self) -> Iterable[str]:
        return ()

    def step(self) -> None:
        self.count += self._read()


def right_answer(env: MultimemQEnv, packet: Packet) -> Answer:
    """The collapsed ack, or the reduced chunk."""
    flits = (packet.maddr & 15) + 1 if packet.cmd is Cmd.MM_LDR else 0
    count = packet.count or env.choose.randint(1, 8)
    return Answer(
        Packet.multimem(
            Cmd.MM_RSP if flits else Cmd.MM_ACK,
            maddr=packet.maddr,
            stage=packet.stage,
            count=count,
            data=[env.choose.getrandbits(128) for _ in range(flits)],
            port=env.choose.getrandbits(7),
            local=packet.tag_local,
        )
    )


def error_answer(packet: Packet, status: Status | int) -> Answer:
    """ERR with ``status``."""
    status = int(status.value if isinstance(status, Status) else status)
    return Answer(
        Packet.multimem(
            Cmd.ERR,
            maddr=packet.maddr,
            stage=packet.stage,
            count=packet.count,
            attr=status,
            local=packet.tag_local,
        ),
        status or Status.MALFORMED.value,
    )
