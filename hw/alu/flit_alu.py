"""What the ALUs of all orders of accumulation have in common."""

from typing import Any

from amaranth import Module, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.integer import INTEGER_DTYPES, IntegerUnit
from dysharp.hw.alu.min_max import MIN_MAX_DTYPES, MinMaxUnit
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op
from dysharp.hw.share import place

__all__ = ["FlitAlu"]


class FlitAlu(Component):
    """Ports of an ALU, and the units for what no order rounds: min, max, integers and bits.

    Parameters
    ----------
    dtypes : types that are built
    accumulator_bits : width of the accumulators of a flit; the units use the low 128 bits
    """

    attr: Any
    """In, type, operation and accumulation, one that is supported; with ``operand``."""
    load: Signal
    """In, the operand starts a reduction; ``accumulator`` counts for nothing."""
    operand: Signal
    """In, the flit."""
    accumulator: Signal
    """In, what was reduced so far, :attr:`accumulator_lag` cycles after ``operand``."""
    result: Signal
    """Out, what is reduced now, ``latency`` cycles after ``operand``."""

    accumulator_lag = 0

    def __init__(self, *, dtypes: tuple[Dtype, ...], accumulator_bits: int):
        self.dtypes = dtypes
        self.accumulator_bits = accumulator_bits
        super().__init__(
            {
                "attr": In(Attr),
                "load": In(1),
                "operand": In(FLIT_BITS),
                "accumulator": In(accumulator_bits),
                "result": Out(accumulator_bits),
            }
        )

    def unrounded(
        self, m: Module, *, attr: Any, load: Value, operand: Value, depth: int
    ) -> tuple[Value, int] | None:
        """Place the units that the build needs.

        Parameters
        ----------
        attr, load, operand : of the flit, in the cycle in which ``accumulator`` comes
        depth : of the integers, as in :class:`~dysharp.hw.alu.integer.IntegerUnit`

        Returns
        -------
        tuple or None
            The flit that results and after how many cycles; None if no type of the build needs a
            unit.
        """
        units: list[Any] = []
        result, latency = operand, 0
        if any(dtype in MIN_MAX_DTYPES for dtype in self.dtypes):
            m.submodules.min_max = place(compared := MinMaxUnit(dtypes=self.dtypes))
            m.d.comb += compared.load.eq(load)
            units.append(compared)
            result = compared.result
        if any(dtype in INTEGER_DTYPES for dtype in self.dtypes):
            m.submodules.integer = place(computed := IntegerUnit(dtypes=self.dtypes, depth=depth))
            m.d.comb += [
                computed.passes.eq(load | (attr.op == Op.MIN) | (attr.op == Op.MAX)),
                computed.passed.eq(result),
            ]
            units.append(computed)
            result, latency = computed.result, computed.latency
        for unit in units:
            m.d.comb += [
                unit.attr.eq(attr),
                unit.operand.eq(operand),
                unit.accumulator.eq(self.accumulator[:FLIT_BITS]),
            ]
        return (result, latency) if units else None
