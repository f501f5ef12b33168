"""Accumulators back to a flit of the wire's type."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.accumulators import ADDED, SLOT_BITS, accumulator_bits
from dysharp.hw.alu.converter import FloatConverter
from dysharp.hw.alu.float_format import FloatFormat
from dysharp.hw.alu.reductions import DEFAULT_DTYPES, check_dtypes, dtypes_name
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op
from dysharp.hw.share import place

__all__ = ["ResultRounder"]


class ResultRounder(Component):
    """Rounds the accumulators of a :class:`~dysharp.hw.alu.alu.ReductionAlu` to the wire's type.

    To nearest, ties to even. An fp8 result is finite or NaN: what is larger than the largest finite
    number, an infinity too, becomes that number with its sign, in every operation.

    Latency: :attr:`latency`, none: combinational.

    Parameters
    ----------
    dtypes : types that are built

    Source
    ------
    PTX ``cvt.rn`` and ``cvt.rn.satfinite``.
    """

    attr: Any
    """In, type, operation and accumulation, one that is supported."""
    accumulator: Signal
    """In."""
    o: Signal
    """Out, the flit."""

    latency = 0

    def __init__(self, *, dtypes: tuple[Dtype, ...] = DEFAULT_DTYPES):
        check_dtypes(dtypes)
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
        """Every number of the flit by its type and by where its sum stands."""
        m = Module()
        flit = self.accumulator[:FLIT_BITS]
        is_added = self.attr.op == Op.ADD
        with m.Switch(self.attr.dtype):
            for dtype in self.dtypes:
                if dtype not in ADDED or ADDED[dtype].own.bits == SLOT_BITS:
                    continue
                own, wider = ADDED[dtype]
                with m.Case(dtype):
                    numbers = [
                        self._number(m, k, is_added, own, wider)
                        for k in range(FLIT_BITS // own.bits)
                    ]
                    m.d.comb += self.o.eq(Cat(numbers))
            with m.Default():
                m.d.comb += self.o.eq(flit)
        return m

    def _number(self, m: Module, k: int, is_added, own: FloatFormat, wider: FloatFormat) -> Value:
        """Number ``k`` of the flit."""
        converter = FloatConverter(source=wider, target=own)
        m.submodules[f"{own.name}_{k}"] = place(converter)
        m.d.comb += converter.i.eq(self.accumulator.word_select(k, wider.bits))
        flit = self.accumulator.word_select(k, own.bits)
        if own.saturates and own.infinity is not None:
            flit = Mux(own.is_infinite(flit), Cat(Const(own.largest, own.bits - 1), flit[-1]), flit)
        return Mux(is_added, converter.o, flit)
