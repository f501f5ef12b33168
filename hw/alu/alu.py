"""The datapath of the reduction: one flit a cycle into accumulators, and out again."""

from typing import Any

from amaranth import Const, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.adder import FloatAdder
from dysharp.hw.alu.float_format import BF16, F32, narrow, widen
from dysharp.hw.alu.reductions import DEFAULT_DEPTH, DEFAULT_DTYPES, Arithmetic, dtypes_name
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype
from dysharp.hw.share import place

__all__ = ["ReductionAlu", "ResultRounder", "accumulator_bits"]

LANES = FLIT_BITS // BF16.bits
_NARROW = {Dtype.F16, Dtype.BF16, Dtype.E4M3, Dtype.E5M2}


def accumulator_bits(dtypes: tuple[Dtype, ...]) -> int:
    """Bits of a flit's accumulators: 256 if a type can be accumulated in a wider one."""
    return 2 * FLIT_BITS if _NARROW.intersection(dtypes) else FLIT_BITS


class ReductionAlu(Component):
    """Adds a flit of operands to its accumulators.

    A bf16 flit is ``lanes`` numbers; each has an f32 accumulator. The first flit of a sum is
    loaded: a NaN becomes canonical, -0 stays -0.

    Latency: :attr:`latency` cycles. Throughput: one flit a cycle; there are no handshakes, and the
    pipeline never stops.

    Parameters
    ----------
    dtypes : types that are built
    depth : latency in cycles
    ftz : f32 additions take and give zero for subnormals

    Source
    ------
    PTX ``multimem.ld_reduce.add.acc::f32`` on bf16: f32 accumulation, one rounding.
    """

    attr: Any
    """In, type, operation and accumulation, one that is supported; with ``operand``."""
    load: Signal
    """In, the operand starts a sum; ``accumulator`` counts for nothing."""
    operand: Signal
    """In, the flit."""
    accumulator: Signal
    """In, the sum so far."""
    result: Signal
    """Out, the new sum, :attr:`latency` cycles later."""

    def __init__(
        self,
        *,
        dtypes: tuple[Dtype, ...] = DEFAULT_DTYPES,
        depth: int = DEFAULT_DEPTH,
        ftz: bool = False,
    ):
        self.arithmetic = Arithmetic(dtypes=dtypes, ftz=ftz, depth=depth)
        self.latency = depth
        self.accumulator_bits = accumulator_bits(dtypes)
        super().__init__(
            {
                "attr": In(Attr),
                "load": In(1),
                "operand": In(FLIT_BITS),
                "accumulator": In(self.accumulator_bits),
                "result": Out(self.accumulator_bits),
            }
        )

    @property
    def module_name(self) -> str:
        """``alu_<of the arithmetic>``."""
        return f"alu_{self.arithmetic.name}"

    def elaborate(self, platform):
        """An adder a lane. A load adds to -0, which leaves every number as it is."""
        m = Module()
        minus_zero = Const(1 << F32.bits - 1, F32.bits)
        for lane in range(LANES):
            adder = FloatAdder(formats=(F32,), depth=min(self.latency, 5))
            m.submodules[f"add{lane}"] = place(adder)
            operand = self.operand.word_select(lane, BF16.bits)
            accumulator = self.accumulator.word_select(lane, F32.bits)
            m.d.comb += [
                adder.a.eq(Mux(self.load, minus_zero, accumulator)),
                adder.b.eq(widen(operand, source=BF16, target=F32)),
            ]
            total = adder.o
            for stage in range(self.latency - adder.latency):
                later = Signal.like(total, name=f"total{lane}_{stage}")
                m.d.sync += later.eq(total)
                total = later
            m.d.comb += self.result.word_select(lane, F32.bits).eq(total)
        return m


class ResultRounder(Component):
    """Rounds accumulators to a flit of the wire's type, once.

    Latency: :attr:`latency`, none: combinational.

    Parameters
    ----------
    dtypes : types that are built
    """

    attr: Any
    """In, type, operation and accumulation, one that is supported."""
    accumulator: Signal
    """In."""
    o: Signal
    """Out, the flit."""

    latency = 0

    def __init__(self, *, dtypes: tuple[Dtype, ...] = DEFAULT_DTYPES):
        self.dtypes = dtypes
        self.accumulator_bits = accumulator_bits(dtypes)
        super().__init__(
            {"attr": In(Attr), "accumulator": In(self.accumulator_bits), "o": Out(FLIT_BITS)}
        )

    @property
    def module_name(self) -> str:
        """``rounder_<types>``."""
        return f"rounder_{dtypes_name(self.dtypes)}"

    def elaborate(self, platform):
        """A rounding a lane."""
        m = Module()
        for lane in range(LANES):
            accumulator = Signal(F32.bits, name=f"accumulator{lane}")
            m.d.comb += [
                accumulator.eq(self.accumulator.word_select(lane, F32.bits)),
                self.o.word_select(lane, BF16.bits).eq(
                    narrow(accumulator, source=F32, target=BF16)
                ),
            ]
        return m
