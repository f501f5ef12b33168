"""The reductions on numpy arrays of bit patterns: the fast twin of the specification.

What the golden model runs on whole batches. Every function does to each element what its scalar
namesake in :mod:`dysharp.model.floats` or :mod:`dysharp.model.numerics` does, and is tested equal
to it.

Sums are taken in the host's f32, or f64 for f64, and rounded to the format. For the formats
narrower than f32 this rounds twice and still gives the sum rounded once: a sum in p bits, rounded
to q bits, is innocuous for p >= 2 q + 2, and f32 has 24 for the 11 of f16.

Source: S. A. Figueroa, "When is double rounding innocuous?", ACM SIGNUM 30(3), 1995.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import Dtype, Op
from dysharp.model.floats import BF16, F16, FloatFormat
from dysharp.model.numerics import IntegerFormat, reduction

__all__ = [
    "add_array",
    "bf16_to_f32_array",
    "bits_type",
    "convert_array",
    "f32_to_bf16_array",
    "maximum_array",
    "minimum_array",
    "number_array",
    "reduce_array",
    "reduce_bf16_array",
    "round_array",
]

Bits = NDArray[Any]
"""Bit patterns, uint8 to uint64."""
Numbers = NDArray[Any]
"""The numbers that they stand for, in the host's f32 or f64."""


def bits_type(bits: int) -> np.dtype[Any]:
    """The numpy type of bit patterns of a width."""
    return np.dtype(f"<u{bits // 8}")


def number_array(bits: Bits, form: FloatFormat) -> Numbers:
    """Bit patterns as f32 numbers, those of f64 as f64 numbers: exactly."""
    bits = np.ascontiguousarray(bits, bits_type(form.bits))
    if form == BF16:
        return bf16_to_f32_array(bits)
    if form == F16:
        return bits.view(np.float16).astype(np.float32)
    if form.bits >= 32:
        return _flush(bits.view(f"<f{form.bits // 8}"), form)
    magnitude = _magnitude(bits, form)
    field, mantissa = magnitude >> form.mantissa_bits, magnitude & (1 << form.mantissa_bits) - 1
    significand = mantissa + np.where(field, 1 << form.mantissa_bits, 0)
    exponent = np.maximum(field, 1) - 1 + form.min_exponent - form.mantissa_bits
    numbers = np.ldexp(significand.astype(np.float32), exponent.astype(np.int32))
    special = np.where(magnitude > _last(form), np.float32(np.nan), np.float32(np.inf))
    numbers = np.where(magnitude > form.largest, special, numbers)
    return np.where(bits >> form.bits - 1, -numbers, numbers)


def round_array(numbers: Numbers, form: FloatFormat) -> Bits:
    """f32 or f64 numbers rounded to bit patterns, ties to even, NaN canonical."""
    numbers = np.ascontiguousarray(numbers)
    if form == BF16 and numbers.dtype == np.float32:
        return f32_to_bf16_array(numbers)
    if form == F16 or form.bits >= 32:
        kind = f"<f{form.bits // 8}"
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            rounded = _flush(numbers.astype(kind), form)
        return _with_nan(rounded.view(bits_type(form.bits)), np.isnan(numbers), form)
    # As `pack` does it: the kept part as an integer, in units of its last place.
    size = np.abs(np.where(np.isfinite(numbers), numbers, 0)).astype(np.float64)
    leading = np.frexp(size)[1] - 1
    place = np.maximum(leading, form.min_exponent)
    kept = np.rint(np.ldexp(size, form.mantissa_bits - place)).astype(np.int64)
    field = np.where(size > 0, place - form.min_exponent, 0).astype(np.int64)
    magnitude = np.minimum((field << form.mantissa_bits) + kept, form.overflow)
    magnitude = np.where(np.isinf(numbers), form.overflow, magnitude)
    bits = magnitude | np.signbit(numbers).astype(np.int64) << form.bits - 1
    return _with_nan(bits.astype(bits_type(form.bits)), np.isnan(numbers), form)


def _with_nan(bits: Bits, where: NDArray[np.bool_], form: FloatFormat) -> Bits:
    return np.where(where, bits.dtype.type(form.nan), bits)


def _flush(numbers: Numbers, form: FloatFormat) -> Numbers:
    if not form.ftz:
        return numbers
    tiny = np.abs(numbers) < np.finfo(numbers.dtype).smallest_normal
    return np.where(tiny, np.copysign(numbers.dtype.type(0), numbers), numbers)


def convert_array(bits: Bits, source: FloatFormat, target: FloatFormat) -> Bits:
    """The same numbers in another format: exact if they fit, else rounded once."""
    return round_array(number_array(bits, source), target)


def _settle(numbers: Numbers, form: FloatFormat) -> Numbers:
    """Numbers as a format can hold them."""
    if form.bits >= 32:
        return _flush(numbers, form)
    return number_array(round_array(numbers, form), form)


def _sum(a: Numbers, b: Numbers, form: FloatFormat) -> Numbers:
    with np.errstate(invalid="ignore", over="ignore"):
        return _settle(a + b, form)


def add_array(a: Bits, b: Bits, form: FloatFormat) -> Bits:
    """Sums of two values, rounded once."""
    return round_array(_sum(number_array(a, form), number_array(b, form), form), form)


def minimum_array(a: Bits, b: Bits, form: FloatFormat) -> Bits:
    """The smaller ones; a NaN only if both are."""
    x, y = (_place_array(bits, form, np.iinfo(np.int64).max) for bits in (a, b))
    return _canonical(np.where(x <= y, a, b), form)


def maximum_array(a: Bits, b: Bits, form: FloatFormat) -> Bits:
    """The larger ones; a NaN only if both are."""
    x, y = (_place_array(bits, form, np.iinfo(np.int64).min) for bits in (a, b))
    return _canonical(np.where(x >= y, a, b), form)


def _place_array(bits: Bits, form: FloatFormat, nan: int) -> NDArray[np.int64]:
    """Where patterns stand among all of them, -inf .. -0, +0 .. inf; NaNs at an end."""
    magnitude = _magnitude(bits, form)
    place = np.where(bits >> bits.dtype.type(form.bits - 1), -1 - magnitude, magnitude)
    return np.where(magnitude > _last(form), nan, place)


def _canonical(bits: Bits, form: FloatFormat) -> Bits:
    return _with_nan(bits, _magnitude(bits, form) > _last(form), form)


def _magnitude(bits: Bits, form: FloatFormat) -> NDArray[np.int64]:
    return (bits & bits.dtype.type((1 << form.bits - 1) - 1)).astype(np.int64)


def _last(form: FloatFormat) -> int:
    """The last pattern that is no NaN."""
    return form.infinity if form.infinities else form.largest


def reduce_array(
    operands: Sequence[Bits], *, dtype: Dtype, op: Op, acc: int, ftz: bool = False
) -> Bits:
    """:func:`~dysharp.model.numerics.reduce_list`, elementwise over arrays of equal shape.

    Parameters
    ----------
    operands : at least one array of bit patterns of ``dtype``
    dtype, op, acc, ftz : of the reduction
    """
    if not len(operands):
        raise ValueError("Operands must be at least one array, not none")
    row = reduction(dtype, op, acc, ftz=ftz)
    wire, accumulator = row.wire, row.accumulator
    if isinstance(wire, IntegerFormat):
        return _reduce_integers(operands, op, wire)
    assert isinstance(accumulator, FloatFormat)
    if op is not Op.ADD:
        choose = minimum_array if op is Op.MIN else maximum_array
        chosen = operands[0]
        for operand in operands[1:]:
            chosen = choose(chosen, operand, wire)
        return convert_array(chosen, wire, wire)
    # A load does not saturate, so the first number stays as it is; in f32 nothing is to be settled.
    total = _flush(number_array(operands[0], wire), accumulator)
    for operand in operands[1:]:
        total = _sum(total, _flush(number_array(operand, wire), accumulator), accumulator)
    return round_array(total, wire)


def _reduce_integers(operands: Sequence[Bits], op: Op, form: IntegerFormat) -> Bits:
    kind = np.dtype(f"<i{form.bits // 8}") if form.signed else bits_type(form.bits)
    step: Callable[..., Any] = _INTEGER_OPS[op]
    total = np.ascontiguousarray(operands[0]).view(kind)
    for operand in operands[1:]:
        total = step(total, np.ascontiguousarray(operand).view(kind))
    return np.array(total).view(bits_type(form.bits))


_INTEGER_OPS: dict[Op, Callable[..., Any]] = {
    Op.ADD: np.add,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
}

# bf16 in f32, the reduction of every Combine, without the generality.


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


def reduce_bf16_array(operands: Sequence[NDArray[np.uint16]]) -> NDArray[np.uint16]:
    """:func:`reduce_array` of bf16, add, f32 accumulation."""
    return reduce_array(operands, dtype=Dtype.BF16, op=Op.ADD, acc=1)
