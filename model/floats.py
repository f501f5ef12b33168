"""Floating-point numbers as a specification: what one operation does to the bits.

The functions work on bit patterns in plain Python integers and are meant to be read. They know no
number format; a format is one :class:`FloatFormat`. Their twin on numpy arrays is
:mod:`dysharp.model.numerics_array`.

- Every rounding is to nearest, ties to even, of the exact result; subnormals are kept unless the
  format says ``ftz``.
- A NaN operand, and ``inf - inf``, give the format's one canonical NaN.
- ``x + -x`` is +0 and ``-0 + -0`` is -0.
- In min and max a NaN loses to a number, and +0 is above -0.
- What is too large for a format becomes infinity, or its largest finite number if it saturates;
  infinities too then.

Source: IEEE 754-2019 sections 4.3.1, 6.2, 6.3, 9.6 (minimumNumber, maximumNumber); OCP 8-bit
Floating Point Specification; PTX ISA ``add``, ``min``, ``max``, ``cvt.rn.satfinite``; canonical
NaNs as NVIDIA GPUs produce them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "FloatFormat",
    "Unpacked",
    "BF16",
    "F16",
    "F32",
    "F32_FTZ",
    "F64",
    "E4M3",
    "E5M2",
    "unpack",
    "pack",
    "convert",
    "load",
    "add",
    "add_exactly",
    "minimum",
    "maximum",
    "multiply",
]


class Unpacked(NamedTuple):
    """A number taken apart: ``(-1)**sign * significand * 2**exponent``, or ``"inf"``, ``"nan"``."""

    sign: int
    significand: int
    exponent: int
    special: str = ""


@dataclass(frozen=True)
class FloatFormat:
    """A binary format: sign, exponent, mantissa.

    Parameters
    ----------
    name : name as in PTX
    exponent_bits, mantissa_bits : widths of the two fields
    nan : the canonical NaN
    infinities : the highest exponent stands for infinity and NaNs, as in IEEE 754; if not, only
        its last mantissa is a NaN, and the others are numbers (OCP's E4M3)
    saturates : what is too large, infinities included, becomes the largest finite number
    ftz : subnormal operands and results become zero, sign kept
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    nan: int
    infinities: bool = True
    saturates: bool = False
    ftz: bool = False

    def __post_init__(self):
        if not (self.infinities or self.saturates):
            raise ValueError(f"Format without infinities must saturate, not {self!r}")

    @property
    def bits(self) -> int:
        """Width of the whole."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 2 - (1 << self.exponent_bits - 1)

    @property
    def largest(self) -> int:
        """Bit pattern of the largest finite number."""
        if self.infinities:
            return self.infinity - 1
        return (1 << self.bits - 1) - 2

    @property
    def infinity(self) -> int:
        """Bit pattern of +infinity, in a format that has one."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def overflow(self) -> int:
        """Bit pattern of what is too large."""
        return self.largest if self.saturates else self.infinity


BF16 = FloatFormat("bf16", exponent_bits=8, mantissa_bits=7, nan=0x7FFF)
F16 = FloatFormat("f16", exponent_bits=5, mantissa_bits=10, nan=0x7FFF)
F32 = FloatFormat("f32", exponent_bits=8, mantissa_bits=23, nan=0x7FFF_FFFF)
F32_FTZ = FloatFormat("f32", exponent_bits=8, mantissa_bits=23, nan=0x7FFF_FFFF, ftz=True)
F64 = FloatFormat("f64", exponent_bits=11, mantissa_bits=52, nan=0x7FF8_0000_0000_0000)
E4M3 = FloatFormat(
    "e4m3", exponent_bits=4, mantissa_bits=3, nan=0x7F, infinities=False, saturates=True
)
E5M2 = FloatFormat("e5m2", exponent_bits=5, mantissa_bits=2, nan=0x7F, saturates=True)


def unpack(bits: int, form: FloatFormat) -> Unpacked:
    """Take a bit pattern apart."""
    sign = bits >> form.bits - 1 & 1
    magnitude = bits & (1 << form.bits - 1) - 1
    if magnitude > form.largest:
        infinite = form.infinities and magnitude == form.infinity
        return Unpacked(sign, 0, 0, "inf" if infinite else "nan")
    field, mantissa = divmod(magnitude, 1 << form.mantissa_bits)
    smallest = form.min_exponent - form.mantissa_bits
    if field == 0:
        return Unpacked(sign, 0 if form.ftz else mantissa, smallest)
    return Unpacked(sign, mantissa | 1 << form.mantissa_bits, smallest + field - 1)


def pack(value: Unpacked, form: FloatFormat) -> int:
    """Round to nearest, ties to even, and give the bit pattern."""
    if value.special == "nan":
        return form.nan
    sign = value.sign << form.bits - 1
    if value.special == "inf":
        return sign | form.overflow
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
    magnitude = (field << form.mantissa_bits) + kept
    if form.ftz and magnitude < 1 << form.mantissa_bits:
        return sign
    return sign | min(magnitude, form.overflow)


def convert(bits: int, source: FloatFormat, target: FloatFormat) -> int:
    """The same number in another format: exact if it fits, else rounded once."""
    return pack(unpack(bits, source), target)


def load(bits: int, source: FloatFormat, target: FloatFormat) -> int:
    """A first value as it enters an accumulator that can hold it: only NaNs change.

    Unlike :func:`convert` it does not saturate, so an infinity stays one.
    """
    value = unpack(bits, source)
    if value.special == "inf":
        return value.sign << target.bits - 1 | target.infinity
    return pack(value, target)


def add_exactly(values: Sequence[int], form: FloatFormat) -> int:
    """Sum of any number of values without any rounding but the last."""
    parts = [unpack(value, form) for value in values]
    infinite = [part for part in parts if part.special == "inf"]
    if any(part.special == "nan" for part in parts) or len({part.sign for part in infinite}) == 2:
        return form.nan
    if infinite:
        return pack(infinite[0], form)
    exponent = min(part.exponent for part in parts)
    total = sum(
        (-1) ** part.sign * (part.significand << part.exponent - exponent) for part in parts
    )
    # An exact zero is -0 only if there was nothing but -0.
    sign = total < 0 if total else all(part.sign for part in parts)
    return pack(Unpacked(int(sign), abs(total), exponent), form)


def add(a: int, b: int, form: FloatFormat) -> int:
    """Sum of two values, rounded once."""
    return add_exactly((a, b), form)


def minimum(a: int, b: int, form: FloatFormat) -> int:
    """The smaller one; a NaN only if both are."""
    return min(_numbers(a, b, form), key=lambda bits: _place(bits, form), default=form.nan)


def maximum(a: int, b: int, form: FloatFormat) -> int:
    """The larger one; a NaN only if both are."""
    return max(_numbers(a, b, form), key=lambda bits: _place(bits, form), default=form.nan)


def _numbers(a: int, b: int, form: FloatFormat) -> list[int]:
    return [bits for bits in (a, b) if unpack(bits, form).special != "nan"]


def _place(bits: int, form: FloatFormat) -> int:
    """Where a pattern stands among all of them: -inf .. -0, +0 .. inf."""
    sign, magnitude = divmod(bits, 1 << form.bits - 1)
    return -1 - magnitude if sign else magnitude


def multiply(a: int, b: int, form: FloatFormat) -> int:
    """Product of two values, rounded once. Only the experts multiply."""
    x, y = unpack(a, form), unpack(b, form)
    sign = x.sign ^ y.sign
    if "nan" in (x.special, y.special):
        return form.nan
    if x.special or y.special:
        zero = any(not v.special and not v.significand for v in (x, y))
        return form.nan if zero else pack(Unpacked(sign, 0, 0, "inf"), form)
    return pack(Unpacked(sign, x.significand * y.significand, x.exponent + y.exponent), form)
