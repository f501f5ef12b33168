"""The datapath of the reduction in order ``exact``: sums that are never rounded on the way."""

from typing import Any

from amaranth import Cat, Const, Module, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.exact_lane import ExactLane
from dysharp.hw.alu.exact_word import ExactWord
from dysharp.hw.alu.format_mix import pick
from dysharp.hw.alu.integer import INTEGER_DTYPES, IntegerUnit
from dysharp.hw.alu.min_max import MIN_MAX_DTYPES, MinMaxUnit
from dysharp.hw.alu.reductions import DEFAULT_DTYPES, check_dtypes
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op
from dysharp.hw.share import place

__all__ = ["ExactAlu"]


class ExactAlu(Component):
    """Adds a flit of operands to sums that are exact, and so the same in every order.

    ``acc`` makes no difference: whatever an accumulation would round to, the exact sum is rounded
    once, to the wire's type, by :class:`~dysharp.hw.alu.exact_rounder.ExactRounder`. Minimum,
    maximum and the operations on integers are exact anyway and use the accumulators' low 128 bits.

    Latency: :attr:`latency` cycles, 2, and 1 from ``accumulator``. Throughput: one flit a cycle,
    type and operation free in each; there are no handshakes, and the pipeline never stops.

    Parameters
    ----------
    dtypes : types that are built
    ftz : f32 subnormals count as zero
    contributions : flits that are added at the most; with more the sum wraps

    Attributes
    ----------
    accumulator_bits : width of the accumulators of a flit

    Source
    ------
    Kulisch's exact accumulator, as in :class:`~dysharp.hw.alu.fixed_point.FixedPoint`.
    """

    attr: Any
    """In, type, operation and accumulation, one that is supported; with ``operand``."""
    load: Signal
    """In, the operand starts a sum; ``accumulator`` counts for nothing."""
    operand: Signal
    """In, the flit."""
    accumulator: Signal
    """In, the sum so far, :attr:`accumulator_lag` cycles, 1, after ``operand``."""
    result: Signal
    """Out, the new sum, :attr:`latency` cycles later."""

    latency = 2
    accumulator_lag = 1

    def __init__(
        self,
        *,
        dtypes: tuple[Dtype, ...] = DEFAULT_DTYPES,
        ftz: bool = False,
        contributions: int = 128,
    ):
        check_dtypes(dtypes)
        self.word = ExactWord(dtypes=dtypes, ftz=ftz, contributions=contributions)
        self.accumulator_bits = self.word.bits
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
        """``exact_alu_<types>[_ftz]_<contributions>``."""
        return f"exact_alu_{self.word.name}"

    def elaborate(self, platform):
        """A lane a sum, the units for all else, and of all results those that are asked for."""
        m = Module()
        attr: Any = Signal(Attr, name="attr_later")
        result = Signal(self.accumulator_bits)
        m.d.sync += attr.eq(self.attr)
        for lane in self.word.lanes:
            adder = ExactLane(fixed=lane.fixed)
            m.submodules[lane.name] = place(adder)
            numbers = [self.operand[lane.number_at(dtype)] for dtype in lane.dtypes]
            m.d.comb += [
                adder.select.eq(lane.select(self.attr)),
                adder.load.eq(self.load),
                adder.number.eq(pick(list(adder.select), numbers, lane.fixed.mix.bits)),
                adder.accumulator.eq(self.accumulator[lane.bits]),
            ]
            # Where lanes lie over each other, the later one has its bits only for its own types.
            with m.If(lane.select(attr).any() if lane.shares else Const(1, 1)):
                m.d.comb += result[lane.bits].eq(adder.o)
        is_sum = Cat(attr.dtype == dtype for dtype in self.word.added).any()
        other = self._unrounded(m, attr)
        with m.If(~is_sum | (attr.op != Op.ADD)):
            m.d.comb += result[:FLIT_BITS].eq(other)
        m.d.sync += self.result.eq(result)
        return m

    def _unrounded(self, m: Module, attr: Any) -> Signal:
        """Minimum, maximum, integers and bits: a flit, a cycle after the operand."""
        dtypes = self.word.dtypes
        load, operand = Signal(), Signal(FLIT_BITS)
        flit = Signal(FLIT_BITS)
        m.d.sync += [load.eq(self.load), operand.eq(self.operand)]
        m.d.comb += flit.eq(operand)
        sofar = self.accumulator[:FLIT_BITS]
        if set(dtypes) & set(MIN_MAX_DTYPES):
            min_max = MinMaxUnit(dtypes=dtypes)
            m.submodules.min_max = place(min_max)
            m.d.comb += [
                min_max.attr.eq(attr),
                min_max.load.eq(load),
                min_max.operand.eq(operand),
                min_max.accumulator.eq(sofar),
                flit.eq(min_max.result),
            ]
        if integers := [dtype for dtype in dtypes if dtype in INTEGER_DTYPES]:
            integer = IntegerUnit(dtypes=dtypes)
            m.submodules.integer = place(integer)
            m.d.comb += [
                integer.attr.eq(attr),
                integer.operand.eq(operand),
                integer.accumulator.eq(sofar),
            ]
            is_ordered = (attr.op == Op.MIN) | (attr.op == Op.MAX)
            is_integer = Cat(attr.dtype == dtype for dtype in integers).any()
            with m.If(is_integer & ~is_ordered & ~load):
                m.d.comb += flit.eq(integer.result)
        return flit
