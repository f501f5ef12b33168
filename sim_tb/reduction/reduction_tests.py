"""Tests of the reduction unit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations

import cocotb
import numpy as np

from dysharp.hw.alu.exact import ExactAlu
from dysharp.hw.alu.exact_rounder import ExactRounder
from dysharp.hw.packet import Cmd, Dtype, Op, Packet
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


def rounding(tb: ReductionEnv) -> int:
    """Cycles of the rounder."""
    return ExactRounder.latency if tb.config["switch"]["order"] == "exact" else 0


def f32_bits(*values: float) -> list[int]:
    """Bit patterns of f32 numbers."""
    return np.array(values, np.float32).view(np.uint32).tolist()


def seen(tb: ReductionEnv) -> list[Packet]:
    """The answers that come from now on."""
    answers: list[Packet] = []
    observe = type(tb.scoreboard).observe

    def keep(received: FlitPacket) -> Packet:
        answers.append(observe(tb.scoreboard, received))
        return answers[-1]

    tb.scoreboard.observe = keep
    return answers


async def f32_sum(tb: ReductionEnv, numbers: Sequence[int], order: Sequence[int]) -> int:
    """What comes of the numbers, one from each port, in an order of arrival; the same a lane."""
    counts = dict.fromkeys(range(len(numbers)), 1)
    attr = attr_bits(Dtype.F32, Op.ADD, 0)
    tb.ask(Request(local=1, counts=counts, flits=1, maddr=0, stage=1, attr=attr))
    await tb.bench.until(lambda: bool(tb.issued), limit=50)
    request, session, generation = tb.issued.pop()
    for source in order:
        data = (flit([numbers[source]] * 4, Dtype.F32),)
        tb.send(Contribution(source, session, generation, request, 1, data))
    answers = seen(tb)
    await tb.finish()
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
    """From the last flit in to the header out, for every length, idle; not of order ``rank``.

    At most the ALU's depth and two by order ``arrival``; its words follow without a gap.
    """
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    exact = tb.config["switch"]["order"] == "exact"
    inside = ExactAlu.latency + ExactRounder.latency if exact else tb.config["alu_depth"]
    for flits in range(tb.chunk_flits + 1):
        tb.ask(tb.request(flits=flits))
        await tb.bench.until(lambda: bool(tb.issued), limit=50)
        request, session, generation = tb.issued.pop()
        for source in request.counts:
            tb.send(tb.contribution(request, session, generation, source))
        tb.sink.first_cycle = -1
        await tb.finish()
        cycles = tb.sink.first_cycle - tb.monitor.last_cycle
        if not tb.bench.stall_probability and tb.config["switch"]["order"] != "rank":
            least = 3 + rounding(tb)
            promised = max(least, 3 + inside - flits) if flits else least
            assert cycles == promised, f"{cycles} cycles, not {promised}: {flits} flits"
            assert exact or cycles <= 2 + inside
            assert tb.sink.last_cycle - tb.sink.first_cycle == flits


class Strays:
    """A load and a store that wait for their answers, and one that answers wrongly."""

    def __init__(self, dut):
        self.tb = ReductionEnv(dut)
        self.tb.make_contributions = False

    async def start(self) -> None:
        tb = self.tb
        await tb.start()
        tb.ask(Request(local=9, counts={0: 2, 3: 5}, flits=4, maddr=0x1000, stage=1))
        tb.ask(Request(local=10, counts={0: 1, 1: 1}, flits=0, maddr=0x2000, stage=0))
        await tb.bench.until(lambda: len(tb.issued) == 2, limit=50)
        self.load, self.store = tb.issued

    def answer(self, issued: tuple[Request, int, int], source: int, **changes) -> None:
        """An answer of ``source``, with some of its fields changed."""
        contribution = self.tb.contribution(*issued, source)
        for name, value in changes.items():
            setattr(contribution, name, value)
        self.tb.send(contribution)

    def answer_rightly(self) -> None:
        """What is expected of all that are expected."""
        for issued in (self.load, self.store):
            for source in issued[0].counts:
                self.answer(issued, source)

    async def finish(self, **tally: int) -> None:
        """Both requests have had their right answers, and only these strays were seen."""
        tb = self.tb
        await tb.finish()
        seen = {name: count for name, count in tb.model.tally.items() if name != "accepted"}
        assert seen == tally and tb.model.tally["accepted"] == 4
        assert tb.faults == {1: sum(tally.values())} and tb.scoreboard.matched == 2


@cocotb.test()
async def late_contribution_changes_nothing(dut):
    """For an earlier use of a session, one never used, one that ended, one that is not built."""
    strays = Strays(dut)
    await strays.start()
    tb, (_, _, generation) = strays.tb, strays.load
    strays.answer(strays.load, 0, generation=(generation + 15) % 16)
    strays.answer(strays.load, 3, generation=(generation + 1) % 16)
    strays.answer(strays.load, 0, session=tb.sessions - 1)
    strays.answer(strays.store, 0, session=255)
    strays.answer_rightly()
    strays.answer(strays.load, 3)
    strays.answer(strays.store, 0)
    await strays.finish(late=6)


@cocotb.test()
async def foreign_port_changes_nothing(dut):
    """A port that got no replica answers: with data, without, with an error, and poisoned."""
    strays = Strays(dut)
    await strays.start()
    strays.answer(strays.load, 1)
    strays.answer(strays.load, 2, status=4, data=())
    strays.answer(strays.store, 3)
    strays.answer(strays.store, 2, poison=True)
    strays.answer_rightly()
    await strays.finish(unexpected=4)


@cocotb.test()
async def surplus_contribution_changes_nothing(dut):
    """A port that has answered answers again: the same, an error, and poisoned."""
    strays = Strays(dut)
    await strays.start()
    for issued in (strays.load, strays.store):
        strays.answer(issued, 0)
        strays.answer(issued, 0)
        strays.answer(issued, 0, status=4, data=())
        strays.answer(issued, 0, poison=True)
    strays.answer(strays.load, 3)
    strays.answer(strays.store, 1)
    await strays.finish(surplus=6)


@cocotb.test()
async def wrong_length_changes_nothing(dut):
    """Fewer flits, more, none for a load, some for a store; the port may still answer rightly."""
    strays = Strays(dut)
    await strays.start()
    for data in ((1, 2, 3), (1, 2, 3, 4, 5), (), (9,) * 16):
        strays.answer(strays.load, 0, data=data)
    strays.answer(strays.store, 1, data=(1,))
    strays.answer_rightly()
    await strays.finish(wrong_length=5)


@cocotb.test()
async def poisoned_contribution_makes_an_error(dut):
    """A contribution that counts and is poisoned: the source gets ERR 6, once, and no data."""
    strays = Strays(dut)
    await strays.start()
    tb = strays.tb
    for issued in (strays.load, strays.store):
        first, second = issued[0].counts
        strays.answer(issued, first, poison=True)
        strays.answer(issued, second)
    await tb.finish()
    assert tb.faults == {6: 2} and tb.pulses["poisoned"] == 2 and tb.scoreboard.matched == 2


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
        # A few answers wait for each other, behind the way through the adders and the rounder.
        assert tb.sink.last_cycle - monitor.last_cycle < 6 * (1 + tb.chunk_flits) + 16


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


SILENCE = 10
"""A tick period with which sessions of a small build time out soon."""


async def ask_all(tb: ReductionEnv, *requests: Request):
    """Reserve for each; what they were given."""
    for request in requests:
        tb.ask(request)
    await tb.bench.until(lambda: len(tb.issued) == len(requests), limit=50)
    issued = list(tb.issued)
    tb.issued.clear()
    return issued


def store(local: int, *ports: int, **more) -> Request:
    """A store to some ports."""
    where = {"maddr": local << 12, "stage": 0}
    return Request(local=local, counts=dict.fromkeys(ports, 2), flits=0, **where, **more)


@cocotb.test()
async def silent_port_times_out(dut):
    """A load and a store of which a port says nothing get ERR 3, in time; others their results.

    The silent port's answers come at last: they change nothing, and the sessions are free again.
    """
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    tb.tick_period = SILENCE
    await tb.start()
    load = Request(local=2, counts={0: 1, 1: 2, 3: 1}, flits=tb.chunk_flits, maddr=128, stage=1)
    stuck = await ask_all(tb, load, store(3, 1, 2))
    for issued in stuck:
        for source in issued[0].counts.keys() - {1}:
            tb.send(tb.contribution(*issued, source))
    begin = tb.bench.cycle
    while tb.model.sessions:
        (fine,) = await ask_all(tb, tb.request(ports=2))
        for source in fine[0].counts:
            tb.send(tb.contribution(*fine, source))
        await tb.bench.cycles(40)
    await tb.finish()
    period = 32 * SILENCE
    patience = 200 if tb.bench.stall_probability else 60
    assert period <= tb.bench.cycle - begin <= period + SILENCE + patience + 40
    assert sorted(cmd for cmd, _ in tb.timeouts) == [Cmd.MM_ST.value, Cmd.MM_LDR.value]
    assert tb.bench.wire("retired").read() == tb.bench.wire("occupied").read() == 2
    for issued in stuck:
        tb.send(tb.contribution(*issued, 1))
    await tb.finish()
    await tb.bench.cycles(3 * tb.sessions)
    assert tb.pulses["late"] == 2 and not tb.model.retired
    assert tb.bench.wire("retired").read() == tb.bench.wire("occupied").read() == 0


@cocotb.test()
async def three_silent_ports(dut):
    """Their late answers come one by one: only with the last one is the session free."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    tb.tick_period = SILENCE
    await tb.start()
    (issued,) = await ask_all(tb, store(1, 0, 1, 2))
    await tb.finish()
    for number, source in enumerate((2, 0, 1)):
        assert tb.bench.wire("retired").read() == 1, f"freed after {number} answers"
        tb.send(tb.contribution(*issued, source))
        tb.send(tb.contribution(*issued, source))
        await tb.finish()
        await tb.bench.cycles(3 * tb.sessions)
    assert tb.bench.wire("retired").read() == 0


@cocotb.test()
async def timeout_keeps_a_smaller_status(dut):
    """1 or 2 that a port has said stays; 4, poison and nothing become 3."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    tb.tick_period = SILENCE
    await tb.start()
    for status, answered in ((0, 3), (1, 1), (2, 2), (4, 3), (9, 3), (6, 3)):
        (one,) = await ask_all(tb, store(status, 0, 1))
        contribution = tb.contribution(*one, 0)
        contribution.status = 0 if status == 6 else status
        contribution.poison = status == 6
        tb.send(contribution)
        answers = seen(tb)
        await tb.finish()
        assert [packet.attr for packet in answers] == [answered]
        tb.send(tb.contribution(*one, 1))


@cocotb.test()
async def all_sessions_are_retired(dut):
    """Then requests wait and ``exhausted`` says so; one that gets its answers lets one in."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    tb.tick_period = 2 * SILENCE
    await tb.start()
    exhausted = tb.bench.wire("exhausted").read
    issued = await ask_all(tb, *(store(k, 0, 1) for k in range(tb.sessions)))
    for one in issued:
        tb.send(tb.contribution(*one, 1))
    await tb.bench.until(lambda: not tb.model.sessions, limit=2000)
    await tb.bench.cycles(2)
    assert exhausted() and tb.bench.wire("retired").read() == tb.sessions
    tb.ask(store(99, 3))
    await tb.bench.cycles(100)
    assert exhausted() and not tb.issued and tb.requests
    late = tb.random.choice(issued)
    tb.send(tb.contribution(*late, 1))  # again: it is the other port that is missing
    await tb.bench.cycles(100)
    assert exhausted() and not tb.issued
    tb.send(tb.contribution(*late, 0))
    await tb.bench.until(lambda: bool(tb.issued), limit=50 + 3 * tb.sessions)
    assert not exhausted()
    tb.send(tb.contribution(*tb.issued[0], 3))
    await tb.finish()


@cocotb.test()
async def software_frees_retired_sessions(dut):
    """All at once; the answers that come nevertheless are late, also for the next use."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    tb.tick_period = SILENCE
    await tb.start()
    old = await ask_all(tb, *(store(k, 0, 1) for k in range(tb.sessions)))
    for one in old:
        tb.send(tb.contribution(*one, 1))
    await tb.bench.until(lambda: not tb.model.sessions, limit=2000)
    await tb.finish()
    tb.tick_period = 0
    tb.frees = True
    await tb.bench.cycles(3 * tb.sessions + 3)
    assert tb.bench.wire("retired").read() == tb.bench.wire("occupied").read() == 0
    new = await ask_all(tb, *(store(k, 0, 1) for k in range(tb.sessions)))
    for one in old:
        tb.send(tb.contribution(*one, 0))
    for one in new:
        for source in (0, 1):
            tb.send(tb.contribution(*one, source))
    await tb.finish()
    assert tb.pulses["late"] == tb.sessions


@cocotb.test()
async def no_new_use_before_the_answer(dut):
    """While the link takes no answer, a retired session that is settled, or freed, stays in use."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    tb.tick_period = SILENCE
    tb.sink.paused = True
    await tb.start()
    issued = await ask_all(tb, *(store(k, 0) for k in range(tb.sessions)))
    await tb.bench.until(lambda: not tb.model.sessions, limit=2000)
    for one in issued[:-2]:
        tb.send(tb.contribution(*one, 0))
    await tb.source.drained()
    tb.frees = True
    await tb.bench.cycles(3 * tb.sessions)
    made = 4 + rounding(tb)  # answers that wait for the link, at most
    assert tb.bench.wire("occupied").read() >= tb.sessions - made
    tb.sink.paused = False
    await tb.finish()
    await tb.bench.cycles(3 * tb.sessions)
    assert tb.bench.wire("occupied").read() == 0


@cocotb.test()
async def no_time_no_timeout(dut):
    """While the clock stands, a session waits for ever."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    (issued,) = await ask_all(tb, store(5, 0, 1))
    tb.send(tb.contribution(*issued, 0))
    await tb.bench.cycles(3000)
    tb.send(tb.contribution(*issued, 1))
    await tb.finish()
    assert tb.scoreboard.matched == 1 and not tb.timeouts


@cocotb.test()
async def random_silence(dut):
    """Everything at once, with a clock so fast that answers come round the end of their time."""
    tb = ReductionEnv(dut)
    tb.errors, tb.silent = 0.1, 0.03
    tb.tick_period = SILENCE
    tb.window = 40
    await tb.start()
    for _ in range(tb.bench.params.get("requests", 300)):
        tb.ask(tb.request())
    while tb.requests:
        await tb.bench.cycles(tb.random.randint(1, 60))
        if tb.withheld and tb.random.random() < 0.1:
            tb.todo.append(tb.withheld.pop(tb.random.randrange(len(tb.withheld))))
        tb.frees = tb.random.random() < 0.02
    await tb.finish()
    tb.frees = True
    await tb.bench.cycles(3 * tb.sessions + 3)
    assert tb.bench.wire("occupied").read() == 0 and not tb.model.retired
    assert len(tb.timeouts) > 5 and tb.model.tally["late"] > 5


@cocotb.test()
async def every_cycle_a_contribution(dut):
    """Acknowledgements of one flit, and loads of one to all flits, without a single bubble."""
    tb = ReductionEnv(dut)
    tb.make_contributions = False
    await tb.start()
    for flits in (0, tb.chunk_flits):
        issued = []
        for _ in range(3):
            issued = await ask_all(
                tb, *(tb.request(ports=tb.ports, flits=flits) for _ in range(tb.sessions))
            )
            tb.monitor.taken = tb.monitor.stalled = 0
            tb.monitor.first_cycle = -1
            for one in issued:
                for source in one[0].counts:
                    tb.send(tb.contribution(*one, source))
            await tb.finish()
            if not tb.bench.stall_probability:
                sent = tb.sessions * tb.ports * (1 + flits)
                took = tb.monitor.last_cycle - tb.monitor.first_cycle + 1
                assert tb.monitor.stalled == 0 and took == tb.monitor.taken == sent
                behind = tb.sink.last_cycle - tb.monitor.last_cycle
                assert behind < 6 + 2 * flits + rounding(tb)


@cocotb.test()
async def stores_and_loads_mixed_keep_the_rate(dut):
    """Sixteen acknowledgements among the contributions of each load: still a flit a cycle."""
    tb = ReductionEnv(dut)
    tb.window = 1
    await tb.start()
    for number in range(40 * 5):
        flits = 0 if number % 5 else tb.chunk_flits
        tb.ask(tb.request(ports=tb.ports, flits=flits))
    await tb.finish()
    monitor = tb.monitor
    if not tb.bench.stall_probability:
        assert monitor.stalled == 0
        cycles = monitor.last_cycle - monitor.first_cycle + 1
        assert cycles == monitor.taken, f"{cycles} cycles for {monitor.taken} flits"
