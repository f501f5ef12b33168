"""Queues: order, full throughput, the latency they state, and no path from ready to ready."""

import random

import pytest
from amaranth.sim import Simulator

from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.link.fifo import Bypass, Fifo, Skid
from dysharp.hw.memory import MEMORY_STYLES, Ram, memory_style

QUEUES = [
    pytest.param(lambda: Fifo(shape=16, depth=2), id="fifo2"),
    pytest.param(lambda: Fifo(shape=16, depth=5), id="fifo5"),
    pytest.param(lambda: Fifo(shape=16, depth=8), id="fifo8"),
    pytest.param(lambda: Skid(shape=16), id="skid"),
]
BYPASS = pytest.param(lambda: Bypass(shape=16), id="bypass")


def run(component, bench, style="inferred"):
    with memory_style(style):
        sim = Simulator(component)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()


@pytest.mark.parametrize("queue", [*QUEUES, BYPASS])
@pytest.mark.parametrize("style", ["inferred", "flipflops"])
def test_order_is_kept_under_random_stalls(queue, style):
    dut = queue()
    rng = random.Random(7)
    sent, received = [], []

    async def bench(ctx):
        for cycle in range(3000):
            busy = (0.2, 0.5, 0.9)[cycle // 1000]
            ctx.set(dut.i.valid, offered := rng.random() < busy)
            ctx.set(dut.i.payload, cycle)
            ctx.set(dut.o.ready, taken := rng.random() < 1.1 - busy)
            if offered and ctx.get(dut.i.ready):
                sent.append(cycle)
            if taken and ctx.get(dut.o.valid):
                received.append(ctx.get(dut.o.payload))
            await ctx.tick()

    run(dut, bench, style)
    assert len(received) > 500
    assert received == sent[: len(received)]


@pytest.mark.parametrize("queue", QUEUES)
def test_one_word_a_cycle_after_one_cycle(queue):
    dut = queue()
    received = []

    async def bench(ctx):
        ctx.set(dut.o.ready, 1)
        ctx.set(dut.i.valid, 1)
        for cycle in range(100):
            ctx.set(dut.i.payload, cycle)
            assert ctx.get(dut.i.ready)
            if ctx.get(dut.o.valid):
                received.append((cycle, ctx.get(dut.o.payload)))
            await ctx.tick()

    run(dut, bench)
    assert received == [(cycle, cycle - 1) for cycle in range(1, 100)]


@pytest.mark.parametrize("queue", [BYPASS])
def test_a_word_passes_in_the_cycle_in_which_it_comes(queue):
    dut = queue()

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        ctx.set(dut.o.ready, 1)
        for word in range(20):
            ctx.set(dut.i.payload, word)
            assert ctx.get(dut.i.ready) and ctx.get(dut.o.valid)
            assert ctx.get(dut.o.payload) == word
            await ctx.tick()

    run(dut, bench)


@pytest.mark.parametrize("queue", [*QUEUES, BYPASS])
def test_input_ready_does_not_follow_output_ready(queue):
    """Full, then o.ready rises: i.ready must wait for the clock."""
    dut = queue()

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for _ in range(12):
            await ctx.tick()
        assert not ctx.get(dut.i.ready)
        ctx.set(dut.o.ready, 1)
        await ctx.delay(1e-10)
        assert not ctx.get(dut.i.ready)
        await ctx.tick()
        assert ctx.get(dut.i.ready)

    run(dut, bench)


def test_fifo_level_counts_the_words_held():
    dut = Fifo(shape=4, depth=3)

    async def bench(ctx):
        ctx.set(dut.i.valid, 1)
        for level in (0, 1, 2, 3, 3):
            assert ctx.get(dut.level) == level
            await ctx.tick()

    run(dut, bench)


@pytest.mark.parametrize("style", [style for style in MEMORY_STYLES if style != "macro"])
@pytest.mark.parametrize("granularity", [None, 4])
def test_ram_is_write_through_by_granule(style, granularity):
    dut = Ram(width=8, depth=4, granularity=granularity, transparent=True)
    rng = random.Random(3)
    words = [0] * 4

    async def bench(ctx):
        enables = 1 if granularity is None else 2
        for address in range(4):
            ctx.set(dut.write_en, 2**enables - 1)
            ctx.set(dut.write_addr, address)
            await ctx.tick()
        ctx.set(dut.read_en, 1)
        for _ in range(400):
            enable, address, value = rng.randrange(2**enables), rng.randrange(4), rng.randrange(256)
            read = rng.randrange(4)
            mask = {0: 0, 1: 0x0F, 2: 0xF0, 3: 0xFF}[enable] if granularity else 0xFF * enable
            words[address] = words[address] & ~mask | value & mask
            ctx.set(dut.write_en, enable)
            ctx.set(dut.write_addr, address)
            ctx.set(dut.write_data, value)
            ctx.set(dut.read_addr, read)
            await ctx.tick()
            assert ctx.get(dut.read_data) == words[read]

    run(dut, bench, style)


def test_round_robin_grants_one_request_and_starves_none():
    dut = RoundRobin(count=5)
    rng = random.Random(1)
    waits = [0] * 5

    async def bench(ctx):
        ctx.set(dut.advance, 1)
        for _ in range(2000):
            request = rng.randrange(32)
            ctx.set(dut.request, request)
            grant = ctx.get(dut.grant)
            assert grant & request == grant and grant.bit_count() == (request != 0)
            for k in range(5):
                asked, granted = request >> k & 1, grant >> k & 1
                waits[k] = waits[k] + 1 if asked and not granted else 0
                assert waits[k] < 5
            await ctx.tick()

    run(dut, bench)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda: Fifo(shape=4, depth=1), "Depth must be at least 2, not 1"),
        (lambda: Ram(width=8, depth=0), "Depth must be at least 1, not 0"),
        (lambda: Ram(width=8, depth=2, granularity=3), "Width must be a positive multiple"),
        (lambda: RoundRobin(count=0), "Count must be at least 1, not 0"),
    ],
)
def test_constructors_say_which_rule_is_broken(build, text):
    with pytest.raises(ValueError, match=text):
        build()
