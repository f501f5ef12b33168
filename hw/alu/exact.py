"""The datapath of the reduction in order ``exact``: sums that are never rounded on the way."""

from typing import Any

from amaranth import Cat, Const, Module, Signal, Value

from dysharp.hw.alu.exact_lane import ExactLane
from dysharp.hw.alu.exact_word import ExactWord
from dysharp.hw.alu.flit_alu import FlitAlu
from dysharp.hw.alu.format_mix import pick
from dysharp.hw.alu.reductions import DEFAULT_DTYPES
from dysharp.hw.delay import delayed
from dysharp.hw.packet import FLIT_BITS, Dtype, Op
from dysharp.hw.share import place

__all__ = ["ExactAlu"]


class ExactAlu(FlitAlu):
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

    Source
    ------
    Kulisch's exact accumulator, as in :class:`~dysharp.hw.alu.fixed_point.FixedPoint`.
    """

    latency = 2
    accumulator_lag = 1

    def __init__(
        self,
        *,
        dtypes: tuple[Dtype, ...] = DEFAULT_DTYPES,
        ftz: bool = False,
        contributions: int = 128,
    ):
        self.word = ExactWord(dtypes=dtypes, ftz=ftz, contributions=contributions)
        super().__init__(dtypes=dtypes, accumulator_bits=self.word.bits)

    @property
    def module_name(self) -> str:
        """``exact_alu_<types>[_ftz]_<contributions>``."""
        return f"exact_alu_{self.word.name}"

    def elaborate(self, platform):
        """A lane a sum, the units for all else, and of all results those that are asked for."""
        m = Module()
        attr = delayed(m, self.attr, "attr_later")
        sums = self._sums(m, attr)
        m.d.comb += self.result.eq(sums)
        others = self.unrounded(
            m,
            attr=attr,
            load=delayed(m, self.load, "load_later"),
            operand=delayed(m, self.operand, "operand_later"),
            depth=1,
        )
        if others:
            flit, latency = others
            is_sum = Cat(attr.dtype == dtype for dtype in self.word.added).any()
            with m.If(delayed(m, ~is_sum | (attr.op != Op.ADD), "is_other")):
                m.d.comb += self.result[:FLIT_BITS].eq(
                    flit if latency else delayed(m, flit, "other")
                )
        return m

    def _sums(self, m: Module, attr: Any) -> Value:
        """What the lanes make, with a register."""
        result = Signal(self.accumulator_bits)
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
        return delayed(m, result, "sums")
