"""Throughput of units that keep pace, lose flits, or lie about their latency."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth import Module, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op
from dysharp.synth.throughput import flits_per_cycle

WORK = [(Dtype.U32, Op.ADD, 0), (Dtype.U64, Op.MAX, 0), (Dtype.B32, Op.XOR, 0)]


class Unit(Component):
    """Adds with a latency of two cycles; ``busy`` takes a flit only every other cycle."""

    attr: Any
    load: Any
    operand: Any
    accumulator: Any
    result: Any

    accumulator_bits = FLIT_BITS

    def __init__(self, *, latency: int = 2, busy: bool = False):
        self.latency, self.busy = latency, busy
        bits = FLIT_BITS
        super().__init__(
            {
                "attr": In(Attr),
                "load": In(1),
                "operand": In(bits),
                "accumulator": In(bits),
                "result": Out(bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        held, free = Signal(FLIT_BITS), Signal(init=1)
        total = self.operand + self.accumulator + Value.cast(self.attr)
        if self.busy:
            m.d.sync += free.eq(~free)
        with m.If(free):
            m.d.sync += held.eq(total)
        m.d.sync += self.result.eq(held)
        return m


def test_a_flit_a_cycle() -> None:
    assert flits_per_cycle(Unit(), WORK, rounds=10) == 1


def test_a_unit_that_takes_every_other_flit() -> None:
    assert flits_per_cycle(Unit(busy=True), WORK, rounds=10) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("latency", [1, 3])
def test_a_latency_that_is_wrong(latency: int) -> None:
    """The results come, but not when they are said to."""
    assert flits_per_cycle(Unit(latency=latency), WORK, rounds=10) < 0.1
