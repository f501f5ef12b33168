"""Exact sums on numpy arrays: the twin of ``add_exactly`` and ``reduce_exact``.

A sum is kept as an integer in units of the format's smallest subnormal, in limbs of 32 bits that
are int64, so that carries can wait until all operands are in.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import Dtype, Op
from dysharp.model.floats import FloatFormat
from dysharp.model.numerics import IntegerFormat, reduction
from dysharp.model.numerics_array import Bits, bits_type, reduce_array

__all__ = ["add_exactly_array", "reduce_exact_array"]

LIMB_BITS = 32
LIMB = (1 << LIMB_BITS) - 1
BELOW = 2
"""Limbs of zeros below the unit: the leading 64 bits of any sum are then three limbs of it."""
BETWEEN_CARRIES = 64
"""Operands after which carries are resolved, for a limb to stay below 2**63."""
ABOVE = 2
"""Limbs above the largest number: room for the carries of 2**32 operands, and a sign."""


def reduce_exact_array(
    operands: Sequence[Bits], *, dtype: Dtype, op: Op, acc: int, ftz: bool = False
) -> Bits:
    """:func:`~dysharp.model.numerics.reduce_exact`, elementwise over arrays of equal shape."""
    row = reduction(dtype, op, acc, ftz=ftz)
    wire, accumulator = row.wire, row.accumulator
    if op is not Op.ADD or isinstance(wire, IntegerFormat):
        return reduce_array(operands, dtype=dtype, op=op, acc=acc)
    assert isinstance(accumulator, FloatFormat)
    return add_exactly_array(operands, accumulator if accumulator.ftz else wire)


def add_exactly_array(operands: Sequence[Bits], form: FloatFormat) -> Bits:
    """Sums of any number of values without any rounding but the last."""
    kind = bits_type(form.bits)
    shape = np.shape(operands[0])
    size = int(np.prod(shape))
    number = -(-((1 << form.exponent_bits) + form.mantissa_bits) // LIMB_BITS)
    limbs = np.zeros((BELOW + number + ABOVE, size), np.int64)
    lane = np.arange(size)
    nan = np.zeros(size, np.bool_)
    infinite = np.zeros((2, size), np.bool_)
    negative = np.ones(size, np.bool_)
    for count, operand in enumerate(operands, 1):
        bits = np.ascontiguousarray(operand, kind).reshape(size).astype(np.uint64)
        sign = bits >> np.uint64(form.bits - 1) != 0
        magnitude = (bits & np.uint64((1 << form.bits - 1) - 1)).astype(np.int64)
        is_infinite = (magnitude == form.infinity) & form.infinities
        nan |= (magnitude > form.largest) & ~is_infinite
        infinite[0] |= is_infinite & ~sign
        infinite[1] |= is_infinite & sign
        negative &= sign
        magnitude[magnitude > form.largest] = 0
        _accumulate(limbs, lane, sign, magnitude, form)
        if count % BETWEEN_CARRIES == 0:
            _carry(limbs)
    _carry(limbs)
    below_zero = limbs[-1] < 0
    limbs[:, below_zero] *= -1
    _carry(limbs)
    magnitude = _round(limbs, lane, form)
    sign = np.where(limbs.any(axis=0), below_zero, negative)
    if form.ftz:
        magnitude[magnitude < 1 << form.mantissa_bits] = 0
    any_infinite = infinite.any(axis=0)
    magnitude[any_infinite] = form.overflow
    sign[any_infinite] = infinite[1, any_infinite]
    result = magnitude.astype(kind) | sign.astype(kind) << kind.type(form.bits - 1)
    result[nan | infinite.all(axis=0)] = form.nan
    return result.reshape(shape)


def _accumulate(
    limbs: NDArray[np.int64],
    lane: NDArray[np.int64],
    sign: NDArray[np.bool_],
    magnitude: NDArray[np.int64],
    form: FloatFormat,
) -> None:
    """Add finite numbers to the limbs in which they begin; those of f64 reach into others."""
    field, significand = np.divmod(magnitude, 1 << form.mantissa_bits)
    if form.ftz:
        significand[field == 0] = 0
    significand += np.where(field > 0, 1 << form.mantissa_bits, 0)
    first, shift = np.divmod(np.maximum(field, 1) - 1, LIMB_BITS)
    factor = np.where(sign, -1, 1)
    first += BELOW
    if form.mantissa_bits < LIMB_BITS - BETWEEN_CARRIES.bit_length():
        limbs[first, lane] += (factor * significand) << shift
        return
    # 32 bits moved by up to 31 are below 2**63.
    for start in range(0, form.mantissa_bits + 1, LIMB_BITS):
        part = (significand >> start & LIMB) << shift
        place = first + start // LIMB_BITS
        limbs[place, lane] += factor * (part & LIMB)
        limbs[place + 1, lane] += factor * (part >> LIMB_BITS)


def _carry(limbs: NDArray[np.int64]) -> None:
    """Make every limb but the last one 0 to 2**32 - 1."""
    for low, high in zip(limbs[:-1], limbs[1:], strict=True):
        high += low >> LIMB_BITS
        low &= LIMB


def _round(limbs: NDArray[np.int64], lane: NDArray[np.int64], form: FloatFormat) -> Any:
    """Round sums that are not negative to bit patterns, ties to even."""
    top = len(limbs) - 1 - np.argmax(limbs[::-1] != 0, axis=0)
    top = np.where(limbs.any(axis=0), top, BELOW)
    high, middle, low = (limbs[top - k, lane].astype(np.uint64) for k in range(3))
    lower = np.logical_or.accumulate(limbs != 0, axis=0)
    sticky = np.where(top > BELOW, lower[top - BELOW - 1, lane], False)
    leading = np.maximum(np.frexp(high.astype(np.float64))[1] - 1, 0)
    # The leading bit moves to bit 63 of a word; what falls off is sticky.
    rest = middle << np.uint64(LIMB_BITS) | low
    out = (leading + 1).astype(np.uint64)
    word = high << (np.uint64(64) - out) | rest >> out
    sticky |= rest & ((np.uint64(1) << out) - np.uint64(1)) != 0
    place = LIMB_BITS * (top - BELOW) + leading
    dropped = (63 - np.minimum(place, form.mantissa_bits)).astype(np.uint64)
    kept = word >> dropped
    part = word & ((np.uint64(1) << dropped) - np.uint64(1))
    half = np.uint64(1) << dropped - np.uint64(1)
    up = (part > half) | (part == half) & (sticky | (kept & np.uint64(1) != 0))
    # A field beyond the highest is as good as the highest.
    field = np.clip(place - form.mantissa_bits, 0, (1 << form.exponent_bits) - 1)
    magnitude = (field.astype(np.uint64) << np.uint64(form.mantissa_bits)) + kept + up
    return np.minimum(magnitude, np.uint64(form.overflow))
