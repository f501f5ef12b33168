"""Tests of the reduction unit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import cocotb
import numpy as np

from dysharp.hw.alu.exact import ExactAlu
from dysharp.hw.alu.exact_rounder import ExactRounder
from dysharp.hw.packet import Dtype, Op, Packet
from dysharp.model.numerics import attr_bits, elements, flit
from dysharp.sim_tb.agents import FlitPacket
from dysharp.sim_tb.reduction.env import ReductionEnv
from dysharp.sim_tb.reduction.model import Contribution, Request


@cocotb.test()
async def random_sessions(dut):
    """Stores and loads of every length and set of ports, with errors and strays among them."""
    tb = ReductionEnv(dut)
    tb.errors = 0.15
    await tb.start()
    for _ in range(tb.bench.params.get("requests", 300)):
        tb.ask(tb.request())
    await tb.finish()
    accepted = tb.model.tally["accepted"]
    assert accepted > 300 and len(tb.model.tally) == 5, tb.model.tally
    assert tb.pulses["poisoned"] > 0


@cocotb.test()
async def sum_follows_arrival(dut):
    """256 + 1 + -256 + 1 is 1, 2 or 0 in f32 by the order of arrival at bf16's last bit."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    big, minus_big, one = 0x4C00, 0xCC00, 0x3F80  # 2**25, -2**25, 1
    for order in (
        [big, one, minus_big, one],
        [big, minus_big, one, one],
        [one, one, big, minus_big],
    ):
        tb.ask(Request(local=1, counts=dict.fromkeys(range(4), 1), flits=1, maddr=0, stage=1))
        await tb.bench.until(lambda: bool(tb.issued), limit=50)
        request, session, generation = tb.issued.pop()
        for source, value in enumerate(order):
            tb.send(Contribution(source, session, generation, request, 1, (value,)))
        await tb.finish()
    assert tb.scoreboard.matched == 3


def f32_bits(*values: float) -> list[int]:
    """Bit patterns of f32 numbers."""
    return np.array(values, np.float32).view(np.uint32).tolist()


async def f32_sum(tb: ReductionEnv, numbers: Sequence[int], order: Sequence[int]) -> int:
    """What comes of the numbers, one from each port, in an order of arrival; the same a lane."""
    answers: list[Packet] = []
    observe = tb.scoreboard.observe

    def keep(received: FlitPacket) -> Packet:
        answers.append(observe(received))
        return answers[-1]

    counts = dict.fromkeys(range(len(numbers)), 1)
    attr = attr_bits(Dtype.F32, Op.ADD, 0)
    tb.ask(Request(local=1, counts=counts, flits=1, maddr=0, stage=1, attr=attr))
    await tb.bench.until(lambda: bool(tb.issued), limit=50)
    request, session, generation = tb.issued.pop()
    for source in order:
        data = (flit([numbers[source]] * 4, Dtype.F32),)
        tb.send(Contribution(source, session, generation, request, 1, data))
    tb.scoreboard.observe = keep
    await tb.finish()
    tb.scoreboard.observe = observe
    (answer,) = answers
    (lane, *others) = elements(answer.data[0], Dtype.F32)
    assert others == [lane] * 3
    return lane


@cocotb.test()
async def known_sum_in_every_order(dut):
    """1e8, 1, -1e8 and 1 in f32 from four ports, in all 24 orders of arrival.

    Each as the golden model has it: by order ``arrival`` more than one value, by ``rank`` one, by
    ``exact`` 2.
    """
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    numbers = f32_bits(1e8, 1, -1e8, 1)
    sums = {await f32_sum(tb, numbers, order) for order in permutations(range(4))}
    assert tb.scoreboard.matched == 24
    kind = tb.config["switch"]["order"]
    assert len(sums) > 1 if kind == "arrival" else len(sums) == 1
    assert kind != "exact" or sums == set(f32_bits(2))


@cocotb.test()
async def edges_of_exact_sums(dut):
    """Ties that a bit far below decides, and sums as far up as four numbers reach, and back."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    least, most = 1, 0x7F7F_FFFF
    tie = f32_bits(2**24, 1)
    cases = {
        (*tie, least, 0): f32_bits(2**24 + 2)[0],
        (*tie, 0, 0): f32_bits(2**24)[0],
        (*tie, least | 1 << 31, 0): f32_bits(2**24)[0],
        (most, most, most, most): 0x7F80_0000,
        (most, most, most | 1 << 31, least): most,
        (most | 1 << 31,) * 4: 0xFF80_0000,
        (least, most | 1 << 31, least, most): 2 * least,
        (1 << 31,) * 4: 1 << 31,
    }
    for numbers, wanted in cases.items():
        for order in tb.random.sample(list(permutations(range(4))), 4):
            got = await f32_sum(tb, numbers, order)
            assert tb.config["switch"]["order"] != "exact" or got == wanted, (numbers, order, got)


@cocotb.test()
async def first_is_loaded(dut):
    """-0 alone stays -0 and a NaN becomes the canonical one, whatever the session held before."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    for value in (0x7F80, 0x8000, 0xFFC1, 0x0001):
        for _ in range(tb.sessions):
            tb.ask(Request(local=3, counts={1: 1}, flits=tb.chunk_flits, maddr=0, stage=1))
        await tb.bench.until(lambda: len(tb.issued) == tb.sessions, limit=500)
        for request, session, generation in tb.issued:
            data = (sum(value << 16 * lane for lane in range(8)),) * tb.chunk_flits
            tb.send(Contribution(1, session, generation, request, 1, data))
        tb.issued.clear()
        await tb.finish()


@cocotb.test()
async def latency_as_documented(dut):
    """From the last flit in to the header out, for every length, idle; not of order ``rank``."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    exact = tb.config["switch"]["order"] == "exact"
    inside = ExactAlu.latency + ExactRounder.latency if exact else tb.config["alu_depth"]
    for flits in range(1, tb.chunk_flits + 1):
        tb.ask(tb.request(flits=flits))
        await tb.bench.until(lambda: bool(tb.issued), limit=50)
        request, session, generation = tb.issued.pop()
        for source in request.counts:
            tb.send(tb.contribution(request, session, generation, source))
        tb.sink.first_cycle = -1
        await tb.finish()
        cycles = tb.sink.first_cycle - tb.monitor.last_cycle
        if not tb.bench.stall_probability and tb.config["switch"]["order"] != "rank":
            assert cycles == 5 + inside, f"{cycles} cycles, {flits} flits"


@cocotb.test()
async def strays_change_nothing(dut):
    """Late, unexpected, surplus and of the wrong length: dropped, counted, logged as a fault."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    tb.ask(Request(local=9, counts={0: 2, 3: 5}, flits=4, maddr=0x1000, stage=1))
    tb.ask(Request(local=10, counts={0: 1, 1: 1}, flits=0, maddr=0x2000, stage=0))
    await tb.bench.until(lambda: len(tb.issued) == 2, limit=50)
    (load, first, generation), (store, second, _) = tb.issued

    def answer(request, session, source, **changes):
        contribution = tb.contribution(request, session, generation, source)
        for name, value in changes.items():
            setattr(contribution, name, value)
        tb.send(contribution)

    answer(load, first, 1)  # unexpected
    answer(load, first, 0, generation=(generation + 15) % 16)  # late
    answer(load, tb.sessions - 1, 0)  # late: never reserved
    answer(load, first, 0, data=(1, 2, 3))  # wrong length
    answer(load, first, 0, data=())  # wrong length: an acknowledgement of a load
    answer(store, second, 0, data=(1,))  # wrong length: data for a store
    answer(load, first, 0)
    answer(load, first, 0)  # surplus
    answer(load, first, 0, status=4, data=())  # surplus
    answer(store, second, 1)
    answer(store, second, 0)
    answer(load, first, 3)
    answer(load, first, 3)  # late: the session has ended
    answer(store, second, 0)  # late
    await tb.finish()
    assert tb.model.tally == {
        "accepted": 4, "late": 4, "unexpected": 1, "surplus": 2, "wrong_length": 3,
    }  # fmt: skip
    assert tb.faults == {1: 10} and tb.scoreboard.matched == 2


@cocotb.test()
async def smallest_status_wins(dut):
    """ERR, poison and a wrong sum of counts meet once; the answer has the smallest status."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    cases = [
        ([9, 4, 0], None, None),  # 4
        ([0, 8, 0], 0, None),  # 6: poisoned
        ([0, 4, 0], 0, None),  # 4
        ([9, 0, 0], None, 2),  # 1: counts
        ([0, 0, 0], 2, 2),  # 1
        ([0, 0, 0], 1, None),  # 6
        ([0, 0, 0], None, None),  # none
    ]
    for flits in (0, 2):
        for statuses, poisoned, miscounted in cases:
            tb.ask(Request(local=9, counts={0: 2, 1: 3, 3: 5}, flits=flits, maddr=5, stage=0))
            await tb.bench.until(lambda: bool(tb.issued), limit=50)
            request, session, generation = tb.issued.pop()
            for source, status, place in zip((0, 1, 3), statuses, range(3), strict=True):
                contribution = tb.contribution(request, session, generation, source)
                contribution.poison = place == poisoned
                contribution.count += place == miscounted
                if status:
                    contribution.status, contribution.data = status, ()
                tb.send(contribution)
            await tb.finish()
    assert tb.faults == {1: 4, 6: 6}


@cocotb.test()
async def requests_wait_for_sessions(dut):
    """With all sessions taken requests wait, contributions do not; each end lets one request in."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    for _ in range(tb.sessions + 5):
        tb.ask(tb.request(flits=tb.chunk_flits))
    await tb.bench.cycles(200)
    assert len(tb.issued) == tb.sessions and len(tb.requests) == 5
    assert tb.bench.wire("occupied").read() == tb.sessions
    for count in range(1, 6):
        request, session, generation = tb.issued.pop(tb.random.randrange(tb.sessions))
        for source in request.counts:
            tb.send(tb.contribution(request, session, generation, source))
        await tb.bench.until(lambda left=5 - count: len(tb.requests) == left, limit=500)
    for request, session, generation in tb.issued:
        for source in request.counts:
            tb.send(tb.contribution(request, session, generation, source))
    await tb.finish()
    assert tb.scoreboard.matched == tb.sessions + 5
    assert tb.bench.wire("occupied").read() == 0


@cocotb.test()
async def contributions_never_wait_for_answers(dut):
    """While the link takes no answer, every session's contributions are absorbed at full speed."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    tb.sink.paused = True
    await tb.start()
    for _ in range(tb.sessions):
        tb.ask(tb.request(ports=tb.ports, flits=tb.chunk_flits))
    await tb.bench.until(lambda: len(tb.issued) == tb.sessions, limit=500)
    for source in range(tb.ports):
        for request, session, generation in tb.issued:
            tb.send(tb.contribution(request, session, generation, source))
    await tb.source.drained()
    if not tb.bench.stall_probability:
        flits = tb.sessions * tb.ports * (1 + tb.chunk_flits)
        assert tb.monitor.stalled == 0
        assert tb.monitor.last_cycle - tb.monitor.first_cycle + 1 == flits
    await tb.bench.cycles(100)
    assert tb.scoreboard.matched == 0
    tb.sink.paused = False
    await tb.finish()
    assert tb.scoreboard.matched == tb.sessions


@cocotb.test()
async def one_flit_a_cycle(dut):
    """Without stalls contributions never wait, and answers keep up with them."""
    tb = ReductionEnv(dut)
    await tb.start()
    for _ in range(150):
        tb.ask(tb.request(ports=tb.ports, flits=tb.chunk_flits))
    await tb.finish()
    monitor = tb.monitor
    if not tb.bench.stall_probability:
        assert monitor.stalled == 0
        cycles = monitor.last_cycle - monitor.first_cycle + 1
        assert cycles <= monitor.taken + 20, f"{cycles} cycles for {monitor.taken} flits"
        assert tb.sink.last_cycle - monitor.last_cycle < 6 * (1 + tb.chunk_flits)


@cocotb.test()
async def acknowledgements_collapse(dut):
    """One-flit contributions, one a cycle, each a session of its own or of the same."""
    tb = ReductionEnv(dut)
    tb.window = 1
    await tb.start()
    for _ in range(200):
        tb.ask(tb.request(flits=0))
    await tb.finish()
    assert tb.scoreboard.matched == 200
    if not tb.bench.stall_probability:
        assert tb.monitor.stalled == 0


@cocotb.test()
async def short_chunks_wait_for_the_adder(dut):
    """Contributions of one to three flits to one session, one behind the other."""
    tb = ReductionEnv(dut)
    tb.window = 1
    await tb.start()
    for _ in range(120):
        tb.ask(tb.request(ports=tb.ports, flits=tb.random.randint(1, 3)))
    await tb.finish()
    assert tb.scoreboard.matched == 120


@cocotb.test()
async def reset_in_a_session(dut):
    """Reset forgets all sessions; what follows is as after the first one."""
    tb = ReductionEnv(dut)
    await tb.start()
    for _ in range(3):
        for _ in range(60):
            tb.ask(tb.request())
        await tb.bench.cycles(random.Random(tb.bench.seed).randint(20, 200))
        await tb.bench.reset()
    for _ in range(60):
        tb.ask(tb.request())
    await tb.finish()
    assert tb.scoreboard.matched == 60
