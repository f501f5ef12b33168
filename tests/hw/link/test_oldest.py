"""The arbiter by age: against a model in random runs, and its bound by proof."""

import random

import pytest
from amaranth import Module, Signal
from amaranth.hdl import Assert, Elaboratable
from amaranth.sim import Simulator

from dysharp.hw.link.oldest import OldestFirst
from dysharp.sim_tb.formal import ProofFailed, prove

BITS = 4


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_the_oldest_of_the_last_cycle_is_granted(count):
    dut = OldestFirst(count=count, age_bits=BITS, turns=4)
    rng = random.Random(count)
    by_age = 0

    async def bench(ctx):
        nonlocal by_age
        asked, waits, since_turn = 0, [], 0
        for now in range(2000):
            request = rng.getrandbits(count) & rng.getrandbits(count)
            born = [now - rng.randrange(1 << BITS) for _ in range(count)]
            advance = rng.random() < 0.7
            ctx.set(dut.request, request)
            ctx.set(dut.now, now % (1 << BITS))
            for k, time in enumerate(born):
                ctx.set(dut.born[k], time % (1 << BITS))
            ctx.set(dut.advance, advance)
            grant = ctx.get(dut.grant)
            assert (grant != 0) == (request != 0)
            assert grant & ~request == 0 and grant & (grant - 1) == 0
            candidates = [k for k in range(count) if asked >> k & 1]
            oldest = max(candidates, key=lambda k: (waits[k], -k), default=count)
            favoured = request >> oldest & 1 and since_turn < 3
            if favoured:
                assert grant == 1 << oldest
                by_age += advance
            if advance and grant:
                since_turn = since_turn + 1 if favoured else 0
            asked, waits = request, [now - time for time in born]
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-9)
    sim.add_testbench(bench)
    sim.run()
    assert by_age > 50


class BoundHarness(Elaboratable):
    """Nobody who keeps asking waits for more grants than stated, whatever the births."""

    def __init__(self, count, turns, waits):
        self.dut = OldestFirst(count=count, age_bits=2, turns=turns)
        self.waits = waits
        dut = self.dut
        self.ports = [dut.request, dut.advance, dut.now, dut.born.as_value()]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        waited = Signal(range(self.waits + 2))
        with m.If(~dut.request[0] | dut.grant[0] & dut.advance):
            m.d.sync += waited.eq(0)
        with m.Elif(dut.advance & dut.grant.any()):
            m.d.sync += waited.eq(waited + 1)
        m.d.comb += [
            Assert(dut.grant & ~dut.request == 0),
            Assert(dut.grant & (dut.grant - 1) == 0),
            Assert(dut.grant.any() == dut.request.any()),
            Assert(waited <= self.waits),
        ]
        return m


@pytest.mark.parametrize(("count", "turns"), [(2, 2), (3, 2), (3, 3)])
def test_nobody_waits_longer_than_the_bound(count, turns):
    harness = BoundHarness(count, turns, waits=turns * count - 1)
    prove(harness, harness.ports, name=f"oldest_first_{count}_{turns}", depth=3 * turns * count)


def test_the_bound_is_not_smaller():
    harness = BoundHarness(3, 2, waits=3)
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="oldest_first_impatient", depth=18)
