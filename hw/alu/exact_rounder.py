"""The end of a reduction in order ``exact``: sums to a flit, rounded once."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.exact_lane_rounder import ExactLaneRounder
from dysharp.hw.alu.exact_word import ExactWord
from dysharp.hw.alu.float_format import E5M2
from dysharp.hw.alu.reductions import DEFAULT_DTYPES
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op
from dysharp.hw.share import place

__all__ = ["ExactRounder"]


class ExactRounder(Component):
    """Rounds accumulators of :class:`~dysharp.hw.alu.exact.ExactAlu` to a flit of the wire's type.

    Minima, maxima and integers pass as they are, but that an infinity of e5m2 becomes the largest
    finite number, as it does in every order.

    Latency: :attr:`latency` cycles. Throughput: one flit a cycle; there are no handshakes, and the
    pipeline never stops.

    Parameters
    ----------
    dtypes, ftz, contributions : as in :class:`~dysharp.hw.alu.exact.ExactAlu`
    """

    attr: Any
    """In, type, operation and accumulation, one that is supported; with ``accumulator``."""
    accumulator: Signal
    """In."""
    o: Signal
    """Out, the flit, :attr:`latency` cycles later."""

    latency = ExactLaneRounder.latency

    def __init__(
        self,
        *,
        dtypes: tuple[Dtype, ...] = DEFAULT_DTYPES,
        ftz: bool = False,
        contributions: int = 128,
    ):
        self.word = ExactWord(dtypes=dtypes, ftz=ftz, contributions=contributions)
        self.accumulator_bits = self.word.bits
        super().__init__(
            {"attr": In(Attr), "accumulator": In(self.accumulator_bits), "o": Out(FLIT_BITS)}
        )

    @property
    def module_name(self) -> str:
        """``exact_rounder_<types>[_ftz]_<contributions>``."""
        return f"exact_rounder_{self.word.name}"

    def elaborate(self, platform):
        """A rounder a lane, beside them what passes; joined by type behind."""
        m = Module()
        attr, passing = self.attr, self._passing(m)
        for stage in range(1, self.latency + 1):
            later_attr: Any = Signal(Attr, name=f"attr{stage}")
            later_passing = Signal(FLIT_BITS, name=f"passing{stage}")
            m.d.sync += [later_attr.eq(attr), later_passing.eq(passing)]
            attr, passing = later_attr, later_passing

        sums = {
            dtype: Signal(FLIT_BITS, name=f"sum_{dtype.name.lower()}") for dtype in self.word.added
        }
        for lane in self.word.lanes:
            rounder = ExactLaneRounder(fixed=lane.fixed)
            m.submodules[lane.name] = place(rounder)
            m.d.comb += [
                rounder.select.eq(lane.select(self.attr)),
                rounder.accumulator.eq(self.accumulator[lane.bits]),
            ]
            for dtype in lane.dtypes:
                number = lane.number_at(dtype)
                m.d.comb += sums[dtype][number].eq(rounder.o)
        m.d.comb += self.o.eq(passing)
        for dtype, flit in sums.items():
            with m.If((attr.op == Op.ADD) & (attr.dtype == dtype)):
                m.d.comb += self.o.eq(flit)
        return m

    def _passing(self, m: Module) -> Value:
        """The low bits, for what the lanes do not sum."""
        flit = self.accumulator[:FLIT_BITS]
        if Dtype.E5M2 not in self.word.dtypes:
            return flit
        passing = Signal(FLIT_BITS)
        for low in range(0, FLIT_BITS, E5M2.bits):
            number = flit[low : low + E5M2.bits]
            saturates = (self.attr.dtype == Dtype.E5M2) & E5M2.is_infinite(number)
            saturated = Cat(Value.cast(E5M2.largest)[: E5M2.bits - 1], number[-1])
            m.d.comb += passing[low : low + E5M2.bits].eq(Mux(saturates, saturated, number))
        return passing
