"""The datapath of the reduction: one flit a cycle into accumulators, and out again."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.adder import FloatAdder
from dysharp.hw.alu.float_format import BF16, F32, narrow, widen
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op
from dysharp.hw.share import place

__all__ = ["ACCUMULATOR_BITS", "SUPPORTED", "ReductionAlu", "ResultRounder", "is_supported"]

LANES = FLIT_BITS // BF16.bits
ACCUMULATOR_BITS = LANES * F32.bits
"""Accumulators of one flit."""

SUPPORTED: tuple[tuple[Dtype, Op, int], ...] = ((Dtype.BF16, Op.ADD, 1),)
"""(dtype, op, acc) that the switch reduces; anything else is refused with ERR 5 at the ingress."""


def is_supported(attr):
    """Whether a resolved ``attr`` is one that :class:`ReductionAlu` computes."""
    return Cat(
        (attr.dtype == dtype) & (attr.op == op) & (attr.acc == acc) for dtype, op, acc in SUPPORTED
    ).any()


class ReductionAlu(Component):
    """Adds a flit of operands to its accumulators.

    A bf16 flit is ``lanes`` numbers; each has an f32 accumulator. The first flit of a sum is
    loaded: a NaN becomes canonical, -0 stays -0.

    Latency: :attr:`latency` cycles. Throughput: one flit a cycle; there are no handshakes, and the
    pipeline never stops.

    Parameters
    ----------
    lanes : numbers a flit

    Source
    ------
    PTX ``multimem.ld_reduce.add.acc::f32`` on bf16: f32 accumulation, one rounding.
    """

    attr: Any
    """In, type, operation and accumulation, one of :data:`SUPPORTED`; with ``operand``."""
    load: Signal
    """In, the operand starts a sum; ``accumulator`` counts for nothing."""
    operand: Signal
    """In, the flit."""
    accumulator: Signal
    """In, the sum so far."""
    result: Signal
    """Out, the new sum, :attr:`latency` cycles later."""

    latency = FloatAdder.latency

    def __init__(self, *, lanes: int = LANES):
        if lanes < 1:
            raise ValueError(f"Lanes must be at least 1, not {lanes!r}")
        self.lanes = lanes
        super().__init__(
            {
                "attr": In(Attr),
                "load": In(1),
                "operand": In(lanes * BF16.bits),
                "accumulator": In(lanes * F32.bits),
                "result": Out(lanes * F32.bits),
            }
        )

    @property
    def module_name(self) -> str:
        """``reduction_alu_<lanes>``."""
        return f"reduction_alu_{self.lanes}"

    def elaborate(self, platform):
        """An adder a lane. A load adds to -0, which leaves every number as it is."""
        m = Module()
        minus_zero = Const(1 << F32.bits - 1, F32.bits)
        for lane in range(self.lanes):
            adder = FloatAdder(format=F32)
            m.submodules[f"add{lane}"] = place(adder)
            operand = self.operand.word_select(lane, BF16.bits)
            accumulator = self.accumulator.word_select(lane, F32.bits)
            m.d.comb += [
                adder.a.eq(Mux(self.load, minus_zero, accumulator)),
                adder.b.eq(widen(operand, source=BF16, target=F32)),
                self.result.word_select(lane, F32.bits).eq(adder.o),
            ]
        return m


class ResultRounder(Component):
    """Rounds accumulators to a flit of the wire's type, once.

    Latency: none, combinational.

    Parameters
    ----------
    lanes : numbers a flit
    """

    attr: Any
    """In, type, operation and accumulation, one of :data:`SUPPORTED`."""
    accumulator: Signal
    """In."""
    o: Signal
    """Out, the flit."""

    def __init__(self, *, lanes: int = LANES):
        if lanes < 1:
            raise ValueError(f"Lanes must be at least 1, not {lanes!r}")
        self.lanes = lanes
        super().__init__(
            {"attr": In(Attr), "accumulator": In(lanes * F32.bits), "o": Out(lanes * BF16.bits)}
        )

    @property
    def module_name(self) -> str:
        """``result_rounder_<lanes>``."""
        return f"result_rounder_{self.lanes}"

    def elaborate(self, platform):
        """A rounding a lane."""
        m = Module()
        for lane in range(self.lanes):
            accumulator = Signal(F32.bits, name=f"accumulator{lane}")
            m.d.comb += [
                accumulator.eq(self.accumulator.word_select(lane, F32.bits)),
                self.o.word_select(lane, BF16.bits).eq(
                    narrow(accumulator, source=F32, target=BF16)
                ),
            ]
        return m
