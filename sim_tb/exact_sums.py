"""Sums of floating-point numbers by fractions: an oracle that shares nothing with hw or model."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["FORMATS", "Form", "exact_sum", "random_list"]


@dataclass(frozen=True)
class Form:
    """A number format by its numbers, as the standards have them."""

    exponent_bits: int
    mantissa_bits: int
    nan: int
    infinities: bool = True
    saturates: bool = False
    ftz: bool = False

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def sign(self) -> int:
        return 1 << self.bits - 1

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def largest(self) -> int:
        return self.infinity - 1 if self.infinities else self.sign - 2

    @property
    def bias(self) -> int:
        return (1 << self.exponent_bits - 1) - 1

    def is_nan(self, bits: int) -> bool:
        return bits & self.sign - 1 > (self.infinity if self.infinities else self.largest)

    def is_infinite(self, bits: int) -> bool:
        return self.infinities and bits & self.sign - 1 == self.infinity

    def value(self, bits: int) -> Fraction:
        """Of a finite number."""
        exponent, mantissa = divmod(bits & self.sign - 1, 1 << self.mantissa_bits)
        if self.ftz and not exponent:
            mantissa = 0
        significand = mantissa + (bool(exponent) << self.mantissa_bits)
        scale = max(exponent, 1) - self.bias - self.mantissa_bits
        magnitude = significand * Fraction(2) ** scale
        return -magnitude if bits & self.sign else magnitude

    def nearest(self, value: Fraction) -> int:
        """Bits of the number nearest to a positive value, ties to even."""
        power = value.numerator.bit_length() - value.denominator.bit_length()
        power -= value < Fraction(2) ** power
        exponent = max(power + self.bias, 1)
        ulp = Fraction(2) ** (exponent - self.bias - self.mantissa_bits)
        significand = round(value / ulp)  # ties to even
        bits = significand + (exponent - 1 << self.mantissa_bits)
        if bits > self.largest:
            return self.largest if self.saturates else self.infinity
        return 0 if self.ftz and bits < 1 << self.mantissa_bits else bits


FORMATS = {
    "f16": Form(5, 10, 0x7FFF),
    "bf16": Form(8, 7, 0x7FFF),
    "f32": Form(8, 23, 0x7FFF_FFFF),
    "f32_ftz": Form(8, 23, 0x7FFF_FFFF, ftz=True),
    "f64": Form(11, 52, 0x7FF8_0000_0000_0000),
    "e4m3": Form(4, 3, 0x7F, infinities=False, saturates=True),
    "e5m2": Form(5, 2, 0x7F, saturates=True),
}
"""The formats of all types, and f32 whose subnormals are flushed."""


def exact_sum(numbers: Iterable[int], form: Form) -> int:
    """What order ``exact`` gives for a list of bit patterns."""
    numbers = list(numbers)
    infinite = {bits & form.sign for bits in numbers if form.is_infinite(bits)}
    if len(infinite) == 2 or any(map(form.is_nan, numbers)):
        return form.nan
    if infinite:
        return infinite.pop() | (form.largest if form.saturates else form.infinity)
    total = sum(map(form.value, numbers), Fraction(0))
    if total:
        return form.nearest(abs(total)) | (form.sign if total < 0 else 0)
    only_minus_zero = all(bits & form.sign and not form.value(bits) for bits in numbers)
    return form.sign if only_minus_zero else 0


def _random_number(rng: random.Random, form: Form) -> int:
    """Any bits, or a number at which something changes, or a near one."""
    kind = rng.randrange(8)
    hidden = 1 << form.mantissa_bits
    one = form.bias * hidden
    if kind == 0:
        edge = rng.choice(
            (0, 1, hidden - 1, hidden, hidden + 1, one, form.largest, form.largest - 1)
        )
    elif kind == 1:
        edge = rng.randrange(form.infinity >> form.mantissa_bits) * hidden  # a power of two
    elif kind == 2:
        edge = rng.randrange(hidden)  # subnormal
    else:
        edge = rng.randrange(form.largest + 1)
    return edge | rng.choice((0, form.sign))


def random_list(rng: random.Random, form: Form, longest: int = 12) -> list[int]:
    """Any numbers, numbers that cancel, or numbers of neighbouring exponents."""
    numbers = [_random_number(rng, form) for _ in range(rng.randint(1, longest))]
    kind = rng.randrange(4)
    if kind == 0:
        numbers += [number ^ form.sign for number in numbers]
        numbers += [_random_number(rng, form) for _ in range(rng.randrange(3))]
    elif kind == 1:
        near = rng.randrange(form.infinity >> form.mantissa_bits)
        top = form.largest >> form.mantissa_bits
        numbers = [
            min(max(near + rng.randint(-3, 3), 0), top - 1) << form.mantissa_bits
            | rng.randrange(1 << form.mantissa_bits)
            | rng.choice((0, form.sign))
            for _ in numbers
        ]
    rng.shuffle(numbers)
    return numbers
