"""The clocked heart of a testbench: clock, reset, and one loop that steps every agent.

A cocotb coroutine costs several microseconds each time it is woken, so the agents are not
coroutines: a single one waits for the clock and calls each agent's ``step``. Agents sample what
stood on the wires just before the rising edge and drive what holds after it, as registers do.
"""

from __future__ import annotations

import json
import os
import random
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import Event, RisingEdge, SimTimeoutError, with_timeout

from dysharp.sim_tb.agents.wire import Unconnected, Wire

__all__ = ["Agent", "Bench", "StallPattern"]

CLOCK_PERIOD_NS = 2


class Agent(Protocol):
    """What the bench steps."""

    def reset(self) -> None:
        """Called once when reset is asserted: drive idle, forget what was in flight."""

    def step(self) -> None:
        """Called at each rising edge outside reset."""

    def problems(self) -> Iterable[str]:
        """Protocol violations seen so far, one plain sentence each."""
        ...


class StallPattern:
    """When to hold back: a repeatable random pattern.

    Parameters
    ----------
    seed : int
        Seed of this pattern alone.
    probability : float
        Chance that a stall starts in a cycle, 0 to below 1. At 0 nothing ever stalls.
    longest : int
        A stall lasts 1 to this many cycles.
    """

    def __init__(self, seed: int = 0, probability: float = 0.0, *, longest: int = 1):
        if not 0 <= probability < 1:
            raise ValueError(f"Stall probability must be from 0 to below 1, not {probability!r}")
        if longest < 1:
            raise ValueError(f"Longest stall must be at least 1 cycle, not {longest!r}")
        self.probability = probability
        self.longest = longest
        self._random = random.Random(seed)
        self._left = 0

    def __call__(self) -> bool:
        """Decide about the coming cycle: True to stall."""
        if self._left:
            self._left -= 1
            return True
        if self.probability and self._random.random() < self.probability:
            if self.longest > 1:
                self._left = self._random.randrange(self.longest)
            return True
        return False


class Bench:
    """Clock, reset, seed, parameters and agents of one cocotb test.

    Parameters
    ----------
    dut
        cocotb's handle of the top. Its clock is ``clk`` and its reset ``rst``, as
        ``hw.generate`` names them.
    clock, reset : str
        Other names for those two.

    Attributes
    ----------
    cycle : int
        Rising edges since the start.
    seed : int
        The run's seed; every random choice of a test comes from :meth:`random` or
        :meth:`stalls`, which are derived from it by name.
    params : dict
        What ``run_block(params=...)`` gave, JSON types.
    manifest : dict
        The JSON that ``hw.generate`` wrote beside the Verilog (empty for a raw Verilog file).
    """

    def __init__(self, dut: Any, *, clock: str = "clk", reset: str = "rst"):
        self.dut = dut
        self.cycle = 0
        self.seed = int(os.environ.get("DYSHARP_SEED", "1"))
        self.params: dict[str, Any] = json.loads(os.environ.get("DYSHARP_PARAMS", "{}"))
        self.stall_probability = float(os.environ.get("DYSHARP_STALLS", "0"))
        manifest = os.environ.get("DYSHARP_MANIFEST")
        self.manifest: dict[str, Any] = json.loads(Path(manifest).read_text()) if manifest else {}
        self._clock_handle = getattr(dut, clock)
        self._reset_wire = Wire(getattr(dut, reset))
        self._agents: list[Agent] = []
        self._steps: list[Callable[[], None]] = []
        self._in_reset = True
        self._timers: list[tuple[int, Event]] = []
        self._failure: BaseException | None = None

    def random(self, name: str) -> random.Random:
        """A random generator of its own for each name, derived from the seed."""
        return random.Random((self.seed << 32) ^ zlib.crc32(name.encode()))

    def stalls(self, name: str, *, probability: float | None = None, longest: int = 4):
        """A :class:`StallPattern` for the interface ``name``, at the run's stall probability."""
        chosen = self.stall_probability if probability is None else probability
        return StallPattern(self.random(f"stall {name}").getrandbits(32), chosen, longest=longest)

    def add(self, agent: Agent) -> None:
        """Step ``agent`` from now on. Agents do this themselves."""
        self._agents.append(agent)
        self._steps.append(agent.step)

    def wire(self, name: str) -> Wire:
        """Fast access to a port of the top.

        Raises
        ------
        AttributeError
            Naming the port, if the top has none of this name.
        """
        return Wire(getattr(self.dut, name))

    def optional_wire(self, name: str, fixed: int = 0) -> Wire | Unconnected:
        """As :meth:`wire`; a port that the top does not have reads as ``fixed``."""
        handle = getattr(self.dut, name, None)
        return Unconnected(fixed) if handle is None else Wire(handle)

    async def start(self, *, reset_cycles: int = 4) -> None:
        """Start the clock and come out of reset. Construct the agents first."""
        self._reset_wire.write(1)
        self._in_reset = True
        for agent in self._agents:
            agent.reset()
        Clock(self._clock_handle, CLOCK_PERIOD_NS, unit="ns").start()
        cocotb.start_soon(self._run())
        await self._finish_reset(reset_cycles)

    async def reset(self, cycles: int = 4) -> None:
        """Reset the design in the middle of a run; agents forget what was in flight."""
        self._in_reset = True
        self._reset_wire.write(1)
        for agent in self._agents:
            agent.reset()
        await self._finish_reset(cycles)

    async def _finish_reset(self, cycles: int) -> None:
        await self.cycles(cycles)
        self._reset_wire.write(0)
        self._in_reset = False
        await self.cycles(1)

    async def _run(self) -> None:
        edge = RisingEdge(self._clock_handle)
        steps = self._steps
        timers = self._timers
        while True:
            await edge
            self.cycle += 1
            if not self._in_reset:
                for step in steps:
                    step()
            if timers and timers[0][0] <= self.cycle:
                while timers and timers[0][0] <= self.cycle:
                    timers.pop(0)[1].set()

    async def cycles(self, count: int) -> None:
        """Wait for ``count`` rising edges; returns after the agents were stepped."""
        if count <= 0:
            return
        event = Event()
        self._timers.append((self.cycle + count, event))
        self._timers.sort(key=lambda timer: timer[0])
        await event.wait()

    async def until(self, condition: Callable[[], bool], *, limit: int = 100_000, what: str = ""):
        """Wait until ``condition()`` holds, looked at once a cycle.

        Raises
        ------
        AssertionError
            Naming ``what`` after ``limit`` cycles.
        """
        end = self.cycle + limit
        while not condition():
            if self.cycle >= end:
                self.fail(f"{what or 'the condition'} did not come about in {limit} cycles")
            await self.cycles(1)

    async def within(self, awaitable: Any, limit: int, *, what: str = "") -> Any:
        """Await something for at most ``limit`` cycles.

        Raises
        ------
        AssertionError
            Naming ``what`` when the time is over.
        """
        try:
            return await with_timeout(awaitable, limit * CLOCK_PERIOD_NS, "ns")
        except SimTimeoutError:
            self.fail(f"{what or 'the operation'} did not finish in {limit} cycles")

    def fail(self, message: str) -> None:
        """Fail the test with the cycle and the seed in the message."""
        raise AssertionError(f"{message} (cycle {self.cycle}, seed {self.seed})")

    def check(self) -> None:
        """Fail if any agent saw a protocol violation."""
        problems = [problem for agent in self._agents for problem in agent.problems()]
        if problems:
            more = f"\n(and {len(problems) - 10} more)" if len(problems) > 10 else ""
            self.fail("\n".join(problems[:10]) + more)
