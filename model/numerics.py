"""Arithmetic of the reduction, as a specification: what one add and one rounding do to the bits.

The scalar functions work on bit patterns in plain Python integers and are meant to be read. They
know no number format; a format is one :class:`FloatFormat`, a reduction one row of
:data:`REDUCTIONS`. The ``*_array`` functions are their twin on numpy arrays, tested equal to them,
and are what the golden model runs on whole batches.

Rules, the same in the switch and in a GPU:

- every rounding is to nearest, ties to even, and subnormals are kept;
- a NaN operand, and ``inf - inf``, give the format's one canonical NaN;
- ``x + -x`` is +0 and ``-0 + -0`` is -0;
- the first value of a sum is loaded (a NaN made canonical), not added to 0, so -0 alone stays -0;
- a sum is taken in the accumulator's format and rounded to the wire's format once.

Source: IEEE 754-2019 sections 4.3.1, 6.2, 6.3; PTX ISA ``add``, ``cvt.rn``; canonical NaNs as
NVIDIA GPUs produce them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import Dtype, Op

__all__ = [
    "FloatFormat",
    "Unpacked",
    "BF16",
    "F32",
    "Reduction",
    "REDUCTIONS",
    "reduction",
    "unpack",
    "pack",
    "convert",
    "add",
    "multiply",
    "reduce_list",
    "bf16_to_f32_array",
    "f32_to_bf16_array",
    "add_f32_array",
    "reduce_bf16_array",
]


class Unpacked(NamedTuple):
    """A number taken apart: ``(-1)**sign * significand * 2**exponent``, or ``"inf"``, ``"nan"``."""

    sign: int
    significand: int
    exponent: int
    special: str = ""


@dataclass(frozen=True)
class FloatFormat:
    """A binary interchange format with infinities.

    Parameters
    ----------
    name : name as in PTX
    exponent_bits, mantissa_bits : widths of the two fields
    nan : the canonical NaN
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    nan: int

    @property
    def bits(self) -> int:
        """Width of the whole."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 2 - (1 << self.exponent_bits - 1)

    @property
    def infinity(self) -> int:
        """Bit pattern of +infinity."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits


BF16 = FloatFormat("bf16", exponent_bits=8, mantissa_bits=7, nan=0x7FFF)
F32 = FloatFormat("f32", exponent_bits=8, mantissa_bits=23, nan=0x7FFF_FFFF)


def unpack(bits: int, form: FloatFormat) -> Unpacked:
    """Take a bit pattern apart."""
    sign = bits >> form.bits - 1 & 1
    field = bits >> form.mantissa_bits & (1 << form.exponent_bits) - 1
    mantissa = bits & (1 << form.mantissa_bits) - 1
    if field == (1 << form.exponent_bits) - 1:
        return Unpacked(sign, 0, 0, "nan" if mantissa else "inf")
    smallest = form.min_exponent - form.mantissa_bits
    if field == 0:
        return Unpacked(sign, mantissa, smallest)
    return Unpacked(sign, mantissa | 1 << form.mantissa_bits, smallest + field - 1)


def pack(value: Unpacked, form: FloatFormat) -> int:
    """Round to nearest, ties to even, and give the bit pattern. Overflow gives infinity."""
    if value.special == "nan":
        return form.nan
    sign = value.sign << form.bits - 1
    if value.special == "inf":
        return sign | form.infinity
    if value.significand == 0:
        return sign
    leading = value.significand.bit_length() - 1 + value.exponent
    last = max(leading, form.min_exponent) - form.mantissa_bits
    dropped = last - value.exponent
    if dropped <= 0:
        kept = value.significand << -dropped
    else:
        kept = value.significand >> dropped
        rest = value.significand & (1 << dropped) - 1
        half = 1 << dropped - 1
        kept += rest > half or (rest == half and kept & 1)
    # The hidden bit of `kept` adds one to the exponent field, and so does a carry out of it.
    field = last + form.mantissa_bits - form.min_exponent
    return sign | min((field << form.mantissa_bits) + kept, form.infinity)


def convert(bits: int, source: FloatFormat, target: FloatFormat) -> int:
    """The same number in another format: exact if it fits, else rounded once."""
    return pack(unpack(bits, source), target)


def add(a: int, b: int, form: FloatFormat) -> int:
    """Sum of two bit patterns of one format, rounded once."""
    x, y = unpack(a, form), unpack(b, form)
    if "nan" in (x.special, y.special):
        return form.nan
    if x.special and y.special:
        return a if x.sign == y.sign else form.nan
    if x.special or y.special:
        return a if x.special else b
    exponent = min(x.exponent, y.exponent)
    total = sum((-1) ** v.sign * (v.significand << v.exponent - exponent) for v in (x, y))
    sign = int(total < 0) if total else x.sign & y.sign
    return pack(Unpacked(sign, abs(total), exponent), form)


def multiply(a: int, b: int, form: FloatFormat) -> int:
    """Product of two bit patterns of one format, rounded once. Only the experts multiply."""
    x, y = unpack(a, form), unpack(b, form)
    sign = x.sign ^ y.sign
    if "nan" in (x.special, y.special):
        return form.nan
    if x.special or y.special:
        zero = any(not v.special and not v.significand for v in (x, y))
        return form.nan if zero else sign << form.bits - 1 | form.infinity
    return pack(Unpacked(sign, x.significand * y.significand, x.exponent + y.exponent), form)


@dataclass(frozen=True)
class Reduction:
    """One row of the table of reductions: format on the wire, format of the accumulator."""

    wire: FloatFormat
    accumulator: FloatFormat


REDUCTIONS: dict[tuple[Dtype, Op, int], Reduction] = {
    (Dtype.BF16, Op.ADD, 1): Reduction(BF16, F32),
}
"""(dtype, op, acc) of a packet's attr to what is done; anything else is refused (ERR 5)."""


def reduction(dtype: Dtype, op: Op, acc: int) -> Reduction:
    """Look up a row of :data:`REDUCTIONS`; ValueError if the combination is unsupported."""
    try:
        return REDUCTIONS[dtype, op, acc]
    except KeyError:
        raise ValueError(
            f"Reduction must be one of the supported (dtype, op, acc), "
            f"not {dtype.name} {op.name} acc={acc}"
        ) from None


def reduce_list(
    values: Iterable[int], *, dtype: Dtype = Dtype.BF16, op: Op = Op.ADD, acc: int = 1
) -> int:
    """Reduce bit patterns in the order given: load the first, combine the rest, round once.

    Parameters
    ----------
    values : at least one bit pattern of ``dtype``
    dtype, op, acc : as in a packet's attr

    Returns
    -------
    int
        Bit pattern of ``dtype``.
    """
    row = reduction(dtype, op, acc)
    operands = [convert(value, row.wire, row.accumulator) for value in values]
    if not operands:
        raise ValueError("Values must be at least one bit pattern, not none")
    total = operands[0]
    for operand in operands[1:]:
        total = add(total, operand, row.accumulator)
    return convert(total, row.accumulator, row.wire)


# The twin on arrays. Host arithmetic is IEEE f32 with subnormals; only NaNs need care.


def bf16_to_f32_array(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Widen uint16 bit patterns to f32 numbers, exactly."""
    return (np.asarray(bits, np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16_array(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round f32 numbers to bf16 bit patterns, ties to even, NaN to 0x7FFF."""
    values = np.ascontiguousarray(values, np.float32)
    bits = values.view(np.uint32)
    rounded = bits + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded += np.uint32(0x7FFF)
    rounded >>= np.uint32(16)
    result = rounded.astype(np.uint16)
    result[np.isnan(values)] = BF16.nan
    return result


def add_f32_array(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Sum of f32 bit patterns, rounded once, NaN canonical."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = a.view(np.float32) + b.view(np.float32)
    return np.where(np.isnan(total), np.uint32(F32.nan), total.view(np.uint32))


def reduce_bf16_array(operands: Sequence[NDArray[np.uint16]]) -> NDArray[np.uint16]:
    """:func:`reduce_list` of bf16, add, f32 accumulation, elementwise over equal-shaped arrays."""
    with np.errstate(invalid="ignore", over="ignore"):
        total = bf16_to_f32_array(operands[0])
        for operand in operands[1:]:
            total += bf16_to_f32_array(operand)
    return f32_to_bf16_array(total)
