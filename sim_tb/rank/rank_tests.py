"""What order rank promises beyond ``sim_tb/reduction``: one result for every arrival, and speed.

The environment and the model are those of the reduction unit.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import cocotb

from dysharp.hw.alu.reductions import parse_dtypes
from dysharp.hw.packet import Dtype, Op, Packet
from dysharp.model.numerics import attr_bits
from dysharp.sim_tb.agents import FlitPacket
from dysharp.sim_tb.elements import attrs
from dysharp.sim_tb.reduction.env import ReductionEnv
from dysharp.sim_tb.reduction.model import BF16_ADD, Contribution, Request

VALUES = {
    BF16_ADD: (0x4CBF, 0xCCBF, 0x3F80, 0x4000),
    attr_bits(Dtype.F32, Op.ADD, 0): (0x4CBEBC20, 0xCCBEBC20, 0x3F800000, 0x40000000),
}
"""1e8, -1e8, 1 and 2 in bf16 and in f32, in which the 1 is lost in 1e8."""


async def start(dut: Any) -> ReductionEnv:
    """An environment in which the tests make the contributions."""
    tb = ReductionEnv(dut)
    tb.attrs = attrs(parse_dtypes(tb.config["dtypes"]))
    tb.make_contributions = False
    await tb.start()
    return tb


async def reserve(tb: ReductionEnv, count: int, *, ports: int, flits: int, attr: int | None = None):
    """``count`` sessions that expect the lowest ``ports`` ports, and what they were given."""
    for number in range(count):
        counts = dict.fromkeys(range(ports), 1)
        chosen = tb.random.choice(tb.attrs) if attr is None else attr
        where: dict[str, Any] = {"local": number, "maddr": number << 7, "stage": 1}
        tb.ask(Request(counts=counts, flits=flits, attr=chosen, **where))
    await tb.bench.until(lambda: len(tb.issued) == count, limit=count + 50)
    issued = list(tb.issued)
    tb.issued.clear()
    return issued


def seen(tb: ReductionEnv) -> list[Packet]:
    """The answers that come from now on."""
    answers: list[Packet] = []
    observe = tb.scoreboard.observe

    def keep(received: FlitPacket) -> Packet:
        answers.append(observe(received))
        return answers[-1]

    tb.scoreboard.observe = keep
    return answers


def spacing(tb: ReductionEnv, flits: int) -> int:
    """Cycles that a port of a session takes: its flits, or the way through the adder."""
    return max(flits, tb.config["alu_depth"] + 2)


@cocotb.test()
async def every_arrival_gives_one_result(dut):
    """1e8 + 1 - 1e8 + 1 by ascending port is 1, in whichever of the 24 orders they come."""
    tb = await start(dut)
    for attr, (big, minus_big, one, _) in VALUES.items():
        answers = seen(tb)
        values = (big, one, minus_big, one)
        for order in permutations(range(4)):
            ((request, session, generation),) = await reserve(tb, 1, ports=4, flits=1, attr=attr)
            for source in order:
                tb.send(Contribution(source, session, generation, request, 1, (values[source],)))
            await tb.finish()
        assert len(answers) == 24
        assert {answer.data for answer in answers} == {(one,)}


@cocotb.test()
async def results_differ_by_port_not_by_time(dut):
    """The same values at other ports may give another sum: the order is really that of ports."""
    tb = await start(dut)
    for attr, (big, minus_big, one, two) in VALUES.items():
        answers = seen(tb)
        for values in permutations((big, one, minus_big, one)):
            ((request, session, generation),) = await reserve(tb, 1, ports=4, flits=1, attr=attr)
            for source in tb.random.sample(range(4), 4):
                tb.send(Contribution(source, session, generation, request, 1, (values[source],)))
            await tb.finish()
        assert {answer.data for answer in answers} == {(0,), (one,), (two,)}


@cocotb.test()
async def latency_as_documented(dut):
    """From the last flit in to the header out, for every number of ports and flits, idle."""
    tb = await start(dut)
    for ports in range(1, tb.ports + 1):
        for flits in range(1, tb.chunk_flits + 1):
            ((request, session, generation),) = await reserve(tb, 1, ports=ports, flits=flits)
            for source in tb.random.sample(range(ports), ports):
                tb.send(tb.contribution(request, session, generation, source))
            tb.sink.first_cycle = -1
            await tb.finish()
            cycles = tb.sink.first_cycle - tb.monitor.last_cycle
            promised = 6 + tb.config["alu_depth"] + (ports - 1) * spacing(tb, flits)
            if not tb.bench.stall_probability:
                assert cycles == promised, f"{cycles}, not {promised}: {ports} ports, {flits} flits"


@cocotb.test()
async def keeps_the_line_rate(dut):
    """A flit a cycle, session behind session: none waits, and the sums are never behind."""
    tb = await start(dut)
    tb.make_contributions = True
    tb.window = 1
    sessions = 100
    for _ in range(sessions):
        tb.ask(tb.request(ports=tb.ports, flits=tb.chunk_flits))
    await tb.finish()
    monitor = tb.monitor
    assert tb.scoreboard.matched == sessions
    if not tb.bench.stall_probability:
        flits = sessions * tb.ports * (1 + tb.chunk_flits)
        assert monitor.taken == monitor.last_cycle - monitor.first_cycle + 1 == flits
        assert monitor.stalled == 0
        last = 6 + tb.config["alu_depth"] + (tb.ports - 1) * spacing(tb, tb.chunk_flits)
        assert tb.sink.last_cycle - monitor.last_cycle == last + tb.chunk_flits


@cocotb.test()
async def no_cycle_between_sessions(dut):
    """With many sessions finished at once, sums are made in every single cycle."""
    tb = await start(dut)
    issued = await reserve(tb, tb.sessions, ports=tb.ports, flits=tb.chunk_flits)
    for source in range(tb.ports - 1, -1, -1):
        for request, session, generation in issued:
            tb.send(tb.contribution(request, session, generation, source))
    await tb.finish()
    if not tb.bench.stall_probability:
        walk = (tb.ports - 1) * spacing(tb, tb.chunk_flits) + tb.chunk_flits
        assert tb.monitor.stalled == 0
        assert tb.sink.last_cycle - tb.sink.first_cycle == (tb.sessions - 1) * walk + tb.chunk_flits


@cocotb.test()
async def an_answer_that_waits_holds_no_contribution(dut):
    """While the link takes nothing, sums wait for room; all come out when it does."""
    tb = await start(dut)
    tb.sink.paused = True
    for _ in range(3):
        issued = await reserve(tb, tb.sessions, ports=tb.ports, flits=tb.chunk_flits)
        for source in tb.random.sample(range(tb.ports), tb.ports):
            for request, session, generation in issued:
                tb.send(tb.contribution(request, session, generation, source))
        await tb.source.drained()
        assert tb.monitor.stalled == 0
        await tb.bench.cycles(tb.random.randint(1, 200))
        tb.sink.paused = False
        await tb.finish()
        tb.sink.paused = True


@cocotb.test()
async def errors_read_nothing(dut):
    """Sessions in error and stores pass between loads, in the order in which they finished."""
    tb = await start(dut)
    for turn in range(40):
        for flits in (tb.chunk_flits, 0, tb.random.randint(1, 3), tb.chunk_flits):
            tb.ask(tb.request(ports=tb.ports, flits=flits))
        await tb.bench.until(lambda: len(tb.issued) == 4, limit=1000)
        for place, (request, session, generation) in enumerate(tb.issued):
            for source in tb.random.sample(sorted(request.counts), tb.ports):
                contribution = tb.contribution(request, session, generation, source)
                if place == 3 and source == turn % tb.ports:
                    contribution.status, contribution.data = 8, ()
                tb.send(contribution)
        tb.issued.clear()
        if turn % 4 == 3:
            await tb.finish()
    assert tb.scoreboard.matched == 160
