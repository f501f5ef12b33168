"""Number formats: one object for each, which names its fields and builds hardware from them."""

from dataclasses import dataclass

from amaranth import Cat, Const, Mux, Value
from amaranth.lib import data

__all__ = ["FloatFormat", "BF16", "F32", "widen", "narrow"]


@dataclass(frozen=True)
class FloatFormat:
    """A binary floating-point format with subnormals, infinities and NaNs.

    Parameters
    ----------
    name : name as in PTX
    exponent_bits, mantissa_bits : widths of the two fields
    nan : bits of the canonical NaN, the one that every operation gives

    Source
    ------
    IEEE 754-2019 section 3.4; canonical NaNs as in PTX ``add``.
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
    def max_exponent(self) -> int:
        """Exponent field of infinities and NaNs."""
        return (1 << self.exponent_bits) - 1

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
        return (number.exponent == self.max_exponent) & number.mantissa.any()

    def is_infinite(self, value) -> Value:
        """An infinity of either sign."""
        return self.magnitude(value) == self.max_exponent << self.mantissa_bits

    def significand(self, value) -> Value:
        """Mantissa with its hidden bit, which a subnormal lacks."""
        number = self.view(value)
        return Cat(number.mantissa, number.exponent.any())

    def biased_exponent(self, value) -> Value:
        """Exponent field; 1 for a subnormal, whose significand counts alike."""
        number = self.view(value)
        return Cat(number.exponent[0] | ~number.exponent.any(), number.exponent[1:])


BF16 = FloatFormat("bf16", exponent_bits=8, mantissa_bits=7, nan=0x7FFF)
F32 = FloatFormat("f32", exponent_bits=8, mantissa_bits=23, nan=0x7FFF_FFFF)


def widen(value, *, source: FloatFormat, target: FloatFormat) -> Value:
    """The same number with a longer mantissa: exact. A NaN becomes the target's canonical one.

    Parameters
    ----------
    value : ``source.bits`` bits
    source, target : formats with exponents of one width

    Returns
    -------
    Value
        ``target.bits`` bits, combinational.
    """
    extra = _extra_bits(target, source)
    return Mux(source.is_nan(value), target.nan, Cat(Const(0, extra), value))


def narrow(value, *, source: FloatFormat, target: FloatFormat) -> Value:
    """The nearest number with a shorter mantissa, ties to even; a NaN becomes the canonical one.

    A carry out of the mantissa moves on into the exponent, which is just right: the next power of
    two, the first normal number, or infinity.

    Parameters
    ----------
    value : ``source.bits`` bits
    source, target : formats with exponents of one width

    Returns
    -------
    Value
        ``target.bits`` bits, combinational.
    """
    dropped = _extra_bits(source, target)
    value = Value.cast(value)
    kept, half, rest = value[dropped:], value[dropped - 1], value[: dropped - 1]
    rounded = kept + (half & (rest.any() | kept[0]))
    return Mux(source.is_nan(value), target.nan, rounded[: target.bits])


def _extra_bits(longer: FloatFormat, shorter: FloatFormat) -> int:
    extra = longer.mantissa_bits - shorter.mantissa_bits
    if longer.exponent_bits != shorter.exponent_bits or extra < 1:
        raise ValueError(
            f"Formats must have exponents of one width and the longer mantissa first, "
            f"not {longer.name} and {shorter.name}"
        )
    return extra
