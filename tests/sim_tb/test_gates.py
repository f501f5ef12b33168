"""Gates on arrays give what the simulator gives one by one."""

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib.wiring import Component, In, Out
from amaranth.sim import Simulator

from dysharp.sim_tb.gates import Gates


class Mixture(Component):
    """Arithmetic, choice and constants, over up to 64 bits."""

    a: In(64)
    b: In(5)
    sum: Out(64)
    chosen: Out(3)

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.sum.eq(self.a + self.b * 3)
        with m.If(self.a < 1 << 40):
            m.d.comb += self.chosen.eq(5)
        with m.Else():
            m.d.comb += self.chosen.eq(self.b[2:] ^ 1)
        return m


class Register(Component):
    a: In(1)
    o: Out(1)

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.o.eq(self.a)
        return m


def test_the_same_as_the_simulator():
    rng = np.random.default_rng(1)
    a = rng.integers(0, 1 << 64, 101, dtype=np.uint64) >> rng.integers(0, 40, 101).astype(np.uint64)
    b = rng.integers(0, 32, 101)
    dut, wanted = Mixture(), []

    async def process(ctx):
        for x, y in zip(a, b, strict=True):
            ctx.set(dut.a, int(x))
            ctx.set(dut.b, int(y))
            wanted.append((ctx.get(dut.sum), ctx.get(dut.chosen)))

    simulator = Simulator(dut)
    simulator.add_testbench(process)
    simulator.run()
    got = Gates(Mixture())(a=a, b=b)
    assert list(zip(got["sum"].tolist(), got["chosen"].tolist(), strict=True)) == wanted
    assert len({chosen for _, chosen in wanted}) > 2


def test_a_single_number_stands_for_all():
    got = Gates(Mixture())(a=[1, 2, 3], b=2)
    assert got["sum"].tolist() == [7, 8, 9]


def test_registers_are_refused():
    with pytest.raises(ValueError, match="Unit must be combinational"):
        Gates(Register())
