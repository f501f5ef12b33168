"""What can be checked over whole operand spaces: one target for each unit and operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from amaranth import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.accumulators import ADDED, adder_formats, sum_formats, widened
from dysharp.hw.alu.adder import FloatAdder
from dysharp.hw.alu.converter import FloatConverter
from dysharp.hw.alu.float_format import BF16, E4M3, E5M2, F16, F32, F32_FTZ, F64, FloatFormat
from dysharp.hw.alu.min_max import FloatMinMax
from dysharp.hw.alu.reductions import DEFAULT_DTYPES
from dysharp.hw.packet import Dtype

__all__ = ["H200_CHECK_SUMS", "LANES", "TARGETS", "Target", "Unit"]

H200_CHECK_SUMS = {
    "bf16": (0xBECCE649EF805A16, 0x7CA4668218641974),
    "f16": (0x0F7B8F8721FC8BAB, 0x2120C61078928855),
}
"""Sum and xor over all pairs, as an NVIDIA H200's own add.rn.bf16 and add.rn.f16 gave them. The
word of one pair is mixed as in ``check.cpp``; equal sums mean the same bits on every pair."""

LANES = 64
"""Operands or pairs of a block, which are checked at once."""

_WHOLE_BITS = 32


class Unit(Component):
    """A unit under its checker's port names: ``a``, perhaps ``b``, and ``o``.

    Latency: none; the unit is combinational.

    Parameters
    ----------
    component : the unit
    operands : names of its operands' ports
    source, result : formats of operands and result
    tied : constants for its other inputs
    """

    o: Signal
    """Out."""

    def __init__(
        self,
        component: Any,
        operands: tuple[str, ...],
        source: FloatFormat,
        result: FloatFormat,
        tied: Mapping[str, int],
    ):
        self.component, self.operands, self.tied = component, operands, tied
        ports = dict(zip(("a", "b"), [In(source.bits) for _ in operands], strict=False))
        super().__init__({**ports, "o": Out(result.bits)})

    def elaborate(self, platform: object) -> Module:
        """Wires only."""
        m = Module()
        m.submodules.unit = unit = self.component
        for mine, its in zip(("a", "b"), self.operands, strict=False):
            m.d.comb += getattr(unit, its).eq(getattr(self, mine))
        for port, value in self.tied.items():
            m.d.comb += getattr(unit, port).eq(value)
        m.d.comb += self.o.eq(unit.o)
        return m


@dataclass(frozen=True)
class Target:
    """One unit, the operation it does, and the space of its operands.

    Parameters
    ----------
    name : str
        As on the command line.
    operation : str
        ``Add``, ``Min``, ``Max`` or ``Convert``, as the oracle calls it.
    source, result : FloatFormat
        Formats of operands and result.
    make : callable
        Makes the combinational unit.
    count : int
        Operands or pairs in a run by default, if the whole space is too large.
    tied : mapping
        Constants for inputs of the unit that are no operands.
    """

    name: str
    operation: str
    source: FloatFormat
    result: FloatFormat
    make: Callable[[], Any]
    count: int | None = None
    tied: Mapping[str, int] = field(default_factory=dict)

    @property
    def operands(self) -> tuple[str, ...]:
        """Ports of the unit that the space is made of."""
        return ("i",) if self.operation == "Convert" else ("a", "b")

    @property
    def noun(self) -> str:
        """What the space is made of."""
        return "pairs" if len(self.operands) == 2 else "inputs"

    @property
    def whole(self) -> int | None:
        """Size of the whole space, if it can be gone through."""
        bits = len(self.operands) * self.source.bits
        return 1 << bits if bits <= _WHOLE_BITS else None

    @property
    def space(self) -> str:
        """The space of a run by default, in words."""
        if self.whole is not None:
            return f"all {self.whole:,} {self.noun}"
        return f"{self.count or 0:,} directed random {self.noun}"

    def plan(self, count: int | None = None) -> tuple[str, int]:
        """How a run goes through the space, as ``check.cpp`` calls it, and in how many blocks.

        Parameters
        ----------
        count : int or None
            Operands or pairs that are wanted; by default the whole space or :attr:`count`.
        """
        if self.whole is None:
            return "directed", -(-(count or self.count or 0) // LANES)
        if count is None or count >= self.whole:
            return "whole", self.whole // LANES
        return "sample", -(-count // LANES)

    @property
    def h200(self) -> tuple[int, int] | None:
        """Sum and xor that an H200 gave over the whole space, if it was asked."""
        return H200_CHECK_SUMS.get(self.source.name) if self.operation == "Add" else None

    def unit(self) -> Unit:
        """The unit, ready to be turned into a checker."""
        return Unit(self.make(), self.operands, self.source, self.result, self.tied)


def _word(form: FloatFormat) -> str:
    return form.name.replace("_", "-")


def _adder(form: FloatFormat) -> Target:
    count = {"f32": 10**9, "f32_ftz": 10**9, "f64": 10**8}.get(form.name)
    return Target(
        f"{_word(form)}-add",
        "Add",
        form,
        form,
        lambda: FloatAdder(formats=(form,)),
        count=count,
    )


class AluSum(Component):
    """A sum as a :class:`~dysharp.hw.alu.alu.ReductionAlu` of all default types has it with acc 0.

    In the adder of its slots; ``a`` is an accumulator into which that number was loaded, ``o`` what
    a :class:`~dysharp.hw.alu.result_rounder.ResultRounder` makes of the sum. A sum that it would
    have to round, since the adder did not, comes out inverted.

    Latency: none; combinational.

    Parameters
    ----------
    dtype : type of the numbers
    half : in the adder of a slot's upper half
    """

    a: Signal
    """In."""
    b: Signal
    """In."""
    o: Signal
    """Out."""

    def __init__(self, dtype: Dtype, *, half: bool = False):
        self.dtype, self.half = dtype, half
        bits = ADDED[dtype].own.bits
        super().__init__({"a": In(bits), "b": In(bits), "o": Out(bits)})

    def elaborate(self, platform: object) -> Module:
        """Widen, add, round."""
        m = Module()
        own, wider = ADDED[self.dtype]
        formats = sum_formats(DEFAULT_DTYPES, half=self.half)
        known = adder_formats(formats)
        m.submodules.adder = adder = FloatAdder(formats=known, loads=True)
        m.d.comb += [
            adder.format.eq(known.index(formats[self.dtype].own)),
            adder.a.eq(widened(m, "a", self.a, self.dtype)),
            adder.b.eq(widened(m, "b", self.b, self.dtype)),
        ]
        if own == wider:
            m.d.comb += self.o.eq(adder.o)
        else:
            m.submodules.rounder = rounder = FloatConverter(source=wider, target=own)
            # Rounding twice would hide an adder that does not round to the type itself.
            same = widened(m, "o", rounder.o, self.dtype) == adder.o
            wrong = ~same & ~own.is_nan(rounder.o)
            m.d.comb += [
                rounder.i.eq(adder.o),
                self.o.eq(rounder.o ^ wrong.replicate(own.bits)),
            ]
        return m


def _alu_adder(dtype: Dtype, *, half: bool = False) -> Target:
    alone = _adder(ADDED[dtype].own)
    return replace(
        alone,
        name=f"{alone.name}-alu{'-half' if half else ''}",
        make=lambda: AluSum(dtype, half=half),
    )


def _chooser(form: FloatFormat, operation: str) -> Target:
    larger = int(operation == "Max")
    return Target(
        f"{_word(form)}-{operation.lower()}",
        operation,
        form,
        form,
        lambda: FloatMinMax(format=form),
        tied={"larger": larger},
    )


def _converter(source: FloatFormat, target: FloatFormat) -> Target:
    return Target(
        f"{_word(source)}-to-{_word(target)}",
        "Convert",
        source,
        target,
        lambda: FloatConverter(source=source, target=target),
    )


_ADDED = (BF16, F16, E4M3, E5M2, F32, F32_FTZ, F64)
_COMPARED = (BF16, F16, E4M3, E5M2)
_CONVERTED = (
    *[(F32, target) for target in _COMPARED],
    (F16, E4M3),
    (F16, E5M2),
    (BF16, F32),
    (F16, F32),
    (E4M3, F16),
    (E5M2, F16),
    (E4M3, F32),
    (E5M2, F32),
)

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *[_adder(form) for form in _ADDED],
        *[_alu_adder(dtype) for dtype in sum_formats(DEFAULT_DTYPES)],
        *[_alu_adder(dtype, half=True) for dtype in sum_formats(DEFAULT_DTYPES, half=True)],
        *[_chooser(form, way) for way in ("Min", "Max") for form in _COMPARED],
        *[_converter(source, target) for source, target in _CONVERTED],
    )
}
"""The targets by name."""
