"""Number formats: one object for each, which names its fields and builds hardware from them."""

from dataclasses import dataclass, replace

from amaranth import Cat, Const, Value
from amaranth.lib import data

from dysharp.hw.packet import Dtype

__all__ = ["FLOATS", "FloatFormat", "BF16", "E4M3", "E5M2", "F16", "F32", "F32_FTZ", "F64"]


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format with subnormals and NaNs.

    Parameters
    ----------
    name : name as in PTX; tells a format from all others
    exponent_bits, mantissa_bits : widths of the two fields
    nan : bits of the canonical NaN, the one that every operation gives
    infinities : the highest exponent means infinities and NaNs; without, only its highest mantissa
        is NaN, and all below are numbers
    saturates : a result beyond the largest finite number, an infinity too, becomes that number
    ftz : subnormal operands and results become a zero of their sign
    holder : numbers stand as those of this format, which has them all; for an adder, whose sums are
        then rounded to this format and stay in the holder's bits

    Errors
    ------
    ValueError for widths below 2 and 1 bits, for a canonical NaN that is none, and for a format
    that has neither infinities nor saturates.

    Source
    ------
    IEEE 754-2019 section 3.4; OCP 8-bit Floating Point Specification 1.0; canonical NaNs, ``ftz``
    and ``satfinite`` as in PTX ``add`` and ``cvt``.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    nan: int
    infinities: bool = True
    saturates: bool = False
    ftz: bool = False
    holder: "FloatFormat | None" = None

    def __post_init__(self):
        if self.exponent_bits < 2 or self.mantissa_bits < 1:
            raise ValueError(
                f"Widths of exponent and mantissa must be at least 2 and 1, "
                f"not {self.exponent_bits!r} and {self.mantissa_bits!r}"
            )
        if not self.largest < self.nan & (1 << self.bits - 1) - 1 != self.infinity:
            raise ValueError(f"Canonical NaN must be a NaN of the format, not {self.nan:#x}")
        if not (self.infinities or self.saturates):
            raise ValueError("Format must saturate if it has no infinities")

    @property
    def bits(self) -> int:
        """Width of the whole."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def max_exponent(self) -> int:
        """Highest exponent field, that of infinities and NaNs."""
        return (1 << self.exponent_bits) - 1

    @property
    def infinity(self) -> int | None:
        """Bits of +infinity, if there is one."""
        return self.max_exponent << self.mantissa_bits if self.infinities else None

    @property
    def largest(self) -> int:
        """Bits of the largest finite number."""
        if self.infinities:
            return (self.max_exponent << self.mantissa_bits) - 1
        return (1 << self.bits - 1) - 2

    @property
    def overflow(self) -> int:
        """Bits of what a result beyond the largest finite number becomes."""
        return self.largest if self.saturates or self.infinity is None else self.infinity

    @property
    def container(self) -> "FloatFormat":
        """Whose bits numbers stand in: the holder's, or the format's own."""
        return self.holder or self

    def held(self, magnitude: int) -> int:
        """Bits in the container of a positive normal number."""
        container = self.container
        rebias = (1 << container.exponent_bits - 1) - (1 << self.exponent_bits - 1)
        exponent, mantissa = divmod(magnitude, 1 << self.mantissa_bits)
        shifted = mantissa << container.mantissa_bits - self.mantissa_bits
        return exponent + rebias << container.mantissa_bits | shifted

    def held_in(self, holder: "FloatFormat") -> "FloatFormat":
        """The same format, its numbers in the bits of another one."""
        return replace(self, name=f"{self.name}_in_{holder.name}", holder=holder)

    @property
    def layout(self) -> data.StructLayout:
        """Fields, low bits first."""
        return data.StructLayout(
            {"mantissa": self.mantissa_bits, "exponent": self.exponent_bits, "sign": 1}
        )

    def view(self, value) -> data.View:
        """``value`` read by fields."""
        return data.View(self.layout, value)

    def magnitude(self, value) -> Value:
        """Exponent and mantissa; orders numbers of one sign by size."""
        return Value.cast(value)[:-1]

    def is_nan(self, value) -> Value:
        """A NaN, quiet or signalling."""
        number = self.view(value)
        mantissa = number.mantissa.any() if self.infinities else number.mantissa.all()
        return number.exponent.all() & mantissa

    def is_infinite(self, value) -> Value:
        """An infinity of either sign."""
        if self.infinity is None:
            return Const(0, 1)
        return self.magnitude(value) == self.infinity

    def significand(self, value) -> Value:
        """Mantissa with its hidden bit, which a subnormal lacks."""
        number = self.view(value)
        return Cat(number.mantissa, number.exponent.any())

    def biased_exponent(self, value) -> Value:
        """Exponent field; 1 for a subnormal, whose significand counts alike."""
        number = self.view(value)
        return Cat(number.exponent[0] | ~number.exponent.any(), number.exponent[1:])


BF16 = FloatFormat("bf16", exponent_bits=8, mantissa_bits=7, nan=0x7FFF)
F16 = FloatFormat("f16", exponent_bits=5, mantissa_bits=10, nan=0x7FFF)
F32 = FloatFormat("f32", exponent_bits=8, mantissa_bits=23, nan=0x7FFF_FFFF)
F32_FTZ = FloatFormat("f32_ftz", exponent_bits=8, mantissa_bits=23, nan=0x7FFF_FFFF, ftz=True)
F64 = FloatFormat("f64", exponent_bits=11, mantissa_bits=52, nan=0x7FF8_0000_0000_0000)
E4M3 = FloatFormat(
    "e4m3", exponent_bits=4, mantissa_bits=3, nan=0x7F, infinities=False, saturates=True
)
E5M2 = FloatFormat("e5m2", exponent_bits=5, mantissa_bits=2, nan=0x7F, saturates=True)

FLOATS: dict[Dtype, FloatFormat] = {
    Dtype.F16: F16,
    Dtype.BF16: BF16,
    Dtype.F32: F32,
    Dtype.F64: F64,
    Dtype.E4M3: E4M3,
    Dtype.E5M2: E5M2,
}
"""Floating-point types and their formats."""
