"""The agents round a reduction unit, its model, and the comparison of both."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from dysharp.hw.alu.reductions import parse_dtypes
from dysharp.hw.packet import Packet, Status
from dysharp.hw.switch.session import TICKS
from dysharp.sim_tb.agents import Bench, FlitPacket, FlitSink, StreamMonitor, StreamSource
from dysharp.sim_tb.elements import attrs, random_flit
from dysharp.sim_tb.reduction.model import (
    GENERATIONS,
    Contribution,
    ReductionModel,
    Request,
)
from dysharp.sim_tb.scoreboard import Scoreboard

__all__ = ["ReductionEnv"]


class _Clock:
    """Drives the session clock and software's pulse, and tells what happens because of them.

    It is stepped ahead of the monitors: a session that times out in a cycle is over for what
    comes in that cycle.
    """

    def __init__(self, env: ReductionEnv):
        self.env = env
        self.ticks = self.counted_now = 0
        self.tick = env.bench.wire("tick")
        self.free = env.bench.wire("free_retired")
        self._ticking = self._freeing = False
        bench = env.bench
        self._timeout, self._id = bench.wire("timeout_valid").read, bench.wire("timeout_id").read
        self._missing = bench.wire("missing").read
        bench.add(self)

    def reset(self) -> None:
        self.ticks = 0
        self._drive(tick=False, free=False)

    def problems(self) -> list[str]:
        return []

    def step(self) -> None:
        env = self.env
        if self._freeing:
            env.model.free_retired()
        if self._timeout():
            env.timed_out(self._id() & 0xFF, self._id() >> 8, self._missing())
        elif self._missing():
            env.bench.fail("ports are missing without a timeout")
        self.counted_now = self._ticking
        self.ticks += self._ticking
        period = env.tick_period
        self._drive(tick=bool(period) and env.bench.cycle % period == 0, free=env.frees)
        env.frees = False

    def _drive(self, *, tick: bool, free: bool) -> None:
        self._ticking, self._freeing = tick, free
        self.tick.write(tick)
        self.free.write(free)


class ReductionEnv:
    """Agents, model and scoreboard of one reduction unit.

    Contributions wait in ``todo`` and are sent in a random order; a test adds to it. With a
    ``tick_period`` sessions time out: each is held to the time that it was promised.

    Parameters
    ----------
    dut
        cocotb's handle of the top.
    port : int
        The unit's own port.
    """

    def __init__(self, dut: Any, *, port: int = 2):
        self.bench = bench = Bench(dut)
        self.config: dict[str, Any] = bench.manifest["config"]
        self.ports: int = self.config["gpus"] * self.config["links"]
        self.sessions: int = self.config["switch"]["sessions"]
        self.chunk_flits: int = self.config["chunk_bytes"] // 16
        self.port = port
        self.random = bench.random("traffic")
        self.model = self._new_model()
        self.attrs: Sequence[int] = attrs(parse_dtypes(self.config["dtypes"]))
        """What random loads reduce: everything that the build can."""
        self.todo: list[Contribution] = []
        self.window = 8
        """How far a contribution may be overtaken by later ones."""
        self.make_contributions = True
        self.errors = 0.0
        """Chance that a contribution is an error, poisoned or miscounted."""
        self.silent = 0.0
        """Chance that a contribution is kept back in ``withheld``."""
        self.withheld: list[Contribution] = []
        self.tick_period = 0
        """Cycles from tick to tick of the session clock; 0: it stands."""
        self.frees = False
        """Software frees the retired sessions in the coming cycle."""
        self.requests: list[Request] = []
        self.issued: list[tuple[Request, int, int]] = []
        self.log: list[tuple[int, int, int]] = []
        self.pulses: Counter[str] = Counter()
        self.faults: Counter[int] = Counter()
        self._expected_log: list[tuple[int, int, int]] = []
        self._expected_faults: Counter[int] = Counter()
        self._flits: list[int] = []
        self._sent: deque[Contribution] = deque()
        self._begun: dict[int, int] = {}
        self._overdue: dict[int, int] = {}
        self._expected_timeouts: list[tuple[int, int]] = []
        self.timeouts: list[tuple[int, int]] = []
        self.clock = _Clock(self)

        self.reserve = StreamSource(bench, "reserve")
        self.source = StreamSource(bench, "i", fields=("flit", "source"))
        self.scoreboard = Scoreboard(bench, "answers")
        self.sink = FlitSink(bench, "o", on_packet=self._answered)
        self.monitor = StreamMonitor(
            bench, "i", fields=("flit", "source"), on_record=self._contributed
        )
        StreamMonitor(bench, "reserve", fields=self.reserve.fields, on_record=self._reserved)
        self._session = bench.wire("session_session").read
        self._generation = bench.wire("session_generation").read
        self._events = {
            handle._name.removeprefix("events_"): bench.wire(handle._name).read
            for handle in dut
            if handle._name.startswith("events_")
        }
        self._log = {
            name: bench.wire(f"log_{name}").read for name in ("valid", "maddr", "stage", "source")
        }
        self._fault = {name: bench.wire(f"fault_{name}").read for name in ("valid", "status")}
        self._timeout_fault = {
            name: bench.wire(f"timeout_fault_{name}").read for name in ("valid", "cmd", "addr")
        }
        bench.wire("port").write(port)
        bench.add(self)

    def _new_model(self) -> ReductionModel:
        order, ftz = self.config["switch"]["order"], self.config["ftz"]
        return ReductionModel(self.port, order=order, ftz=ftz)

    async def start(self) -> None:
        await self.bench.start()

    # The bench steps this environment as its last agent.

    def reset(self) -> None:
        self.model = self._new_model()
        self.scoreboard.__init__(self.bench, "answers")
        self.todo.clear()
        self.requests.clear()
        self.issued.clear()
        self._flits.clear()
        self._sent.clear()
        for record in (
            *(self.log, self._expected_log, self.pulses, self.faults, self.withheld),
            *(self._begun, self._overdue, self._expected_timeouts, self.timeouts),
        ):
            record.clear()
        self._expected_faults.clear()

    def problems(self) -> list[str]:
        return []

    def step(self) -> None:
        if self.todo and self.source.pending < 12:
            pick = self.random.randrange(min(self.window, len(self.todo)))
            self.send(self.todo.pop(pick))
        for name, read in self._events.items():
            if read():
                self.pulses[name] += 1
        if self._log["valid"]():
            read = self._log
            self.log.append((read["maddr"](), read["stage"](), read["source"]()))
        if self._fault["valid"]():
            self.faults[self._fault["status"]()] += 1
        if self._timeout_fault["valid"]():
            read = self._timeout_fault
            self.timeouts.append((read["cmd"](), read["addr"]() & (1 << 48) - 1))
        if self.tick_period:
            self._watch_the_time()

    def _watch_the_time(self) -> None:
        """Fail if a session lives on after its time."""
        stalls = 3 if self.bench.stall_probability else 1
        patience = 20 * (self.sessions + 2) * stalls
        for number in self.model.sessions:
            if self.clock.ticks - self._begun[number] > TICKS:
                since = self._overdue.setdefault(number, self.bench.cycle)
                if self.bench.cycle - since > patience:
                    self.bench.fail(f"session {number} is overdue for {patience} cycles")

    def timed_out(self, number: int, generation: int, missing: int) -> None:
        """The unit gives a session up."""
        assert number in self.model.sessions, f"session {number} times out, but is not in use"
        ticks = self.clock.ticks - self._begun[number]
        assert ticks > TICKS, f"session {number} times out after {ticks} ticks"
        request = self.model.sessions[number].request
        ports, answer = self.model.time_out(number, generation)
        assert missing == sum(1 << port for port in ports), f"missing ports {missing:#x}"
        self._expected_timeouts.append((request.cmd.value, request.maddr))
        self.scoreboard.expect(answer)

    def send(self, contribution: Contribution) -> None:
        """Queue the flits of a contribution."""
        self._sent.append(contribution)
        flits = contribution.packet().encode()
        for index, flit in enumerate(flits):
            last = index == len(flits) - 1
            mark = last << 128 | (last and contribution.poison) << 129
            self.source.send(flit=flit | mark, source=contribution.source)

    def ask(self, request: Request) -> None:
        """Queue a reservation."""
        self.requests.append(request)
        self.reserve.send(request.record())

    def request(self, *, ports: int | None = None, flits: int | None = None) -> Request:
        """A random request: a store or a load, or one with ``flits`` as given."""
        rng = self.random
        chosen = rng.sample(range(self.ports), ports or rng.randint(1, self.ports))
        if flits is None:
            flits = rng.choice((0, rng.randint(1, 3), rng.randint(1, self.chunk_flits)))
        return Request(
            local=rng.getrandbits(12),
            counts={port: rng.randint(1, 20) for port in chosen},
            flits=flits,
            maddr=rng.getrandbits(48),
            stage=rng.getrandbits(1),
            attr=rng.choice(self.attrs),
            pushes=rng.random() < 0.3,
        )

    def contribution(self, request: Request, session: int, generation: int, source: int):
        """What ``source`` answers if all is well, any numbers in it."""
        data = tuple(random_flit(self.random, request.dtype) for _ in range(request.flits))
        count = request.counts.get(source, 1)
        return Contribution(source, session, generation, request, count, data)

    def _answered(self, received: FlitPacket) -> None:
        self.scoreboard.observe(received)

    def _reserved(self, record: dict[str, int]) -> None:
        request = self.requests.pop(0)
        session, generation = self._session(), self._generation()
        self.model.reserve(request, session, generation)
        self._begun[session] = self.clock.ticks - self.clock.counted_now
        self._overdue.pop(session, None)
        self.issued.append((request, session, generation))
        if not self.make_contributions:
            return
        for source in request.counts:
            contribution = self.contribution(request, session, generation, source)
            if self.random.random() < self.errors:
                self._spoil(contribution)
            (self.withheld if self.random.random() < self.silent else self.todo).append(
                contribution
            )
            if self.random.random() < self.errors:
                self.todo.append(self._stray(contribution))

    def _spoil(self, contribution: Contribution) -> None:
        kind = self.random.randrange(3)
        if kind == 0:
            contribution.status = self.random.choice((1, 4, 5, 6, 8, 9))
            contribution.data = ()
        elif kind == 1:
            contribution.poison = True
        else:
            contribution.count += self.random.choice((-1, 1))

    def _stray(self, like: Contribution) -> Contribution:
        rng = self.random
        stray = self.contribution(like.request, like.session, like.generation, like.source)
        kind = rng.randrange(5)
        if kind == 0:
            stray.generation = (stray.generation - rng.randint(1, 3)) % GENERATIONS
        elif kind == 1:
            others = set(range(self.ports)) - like.request.counts.keys()
            stray.source = rng.choice(sorted(others) or range(self.ports))
        elif kind == 2:
            flits = rng.choice([n for n in range(17) if n != like.request.flits])
            stray.data = tuple(random_flit(rng, like.request.dtype) for _ in range(flits))
        elif kind == 3 and self.sessions < 256:
            stray.session = rng.randrange(self.sessions, 256)
        return stray

    def _contributed(self, record: dict[str, int]) -> None:
        flit = record["flit"]
        if not self._flits:
            self.model.arrive(self._sent.popleft())
        self._flits.append(flit & (1 << 128) - 1)
        if not flit >> 128 & 1:
            return
        packet = Packet.decode(self._flits, poison=bool(flit >> 129))
        self._flits = []
        outcome, answer = self.model.contribute(packet, record["source"])
        if outcome == "accepted":
            self._expected_log.append((packet.maddr, packet.stage, record["source"]))
        else:
            self._expected_faults[Status.MALFORMED.value] += 1
        if answer:
            self.scoreboard.expect(answer)

    async def finish(self, *, limit: int = 20_000) -> None:
        """Wait until all is sent and answered, then compare everything that was counted."""
        bench = self.bench
        await bench.until(
            lambda: (
                not any(
                    (
                        *(self.requests, self.todo, self.source.pending),
                        *(self.scoreboard.outstanding, self.tick_period and self.model.sessions),
                    )
                )
            ),
            limit=limit,
            what="the last answer",
        )
        await bench.cycles(20)
        assert not self.model.sessions, f"sessions {sorted(self.model.sessions)} never ended"
        assert self.log == self._expected_log
        assert self.timeouts == self._expected_timeouts
        tally = {name: count for name, count in self.model.tally.items() if count}
        seen = {name: self.pulses[name] for name in tally}
        assert seen == tally, f"events {seen}, not {tally}"
        bench.check()
