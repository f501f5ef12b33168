"""The scalar floating-point functions against numpy, ml_dtypes and exact fractions."""

import itertools
import math
import random
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dysharp.model.floats import (
    BF16,
    E4M3,
    E5M2,
    F16,
    F32,
    F32_FTZ,
    F64,
    FloatFormat,
    add,
    add_exactly,
    convert,
    load,
    maximum,
    minimum,
    multiply,
    unpack,
)


@dataclass(frozen=True)
class Oracle:
    """A format as numpy or ml_dtypes has it, and the largest number that one may hold."""

    form: FloatFormat
    host: Any
    largest: float

    def value(self, bits: int) -> float:
        return self.table[bits] if self.form.bits <= 16 else float(self.values([bits])[0])

    @cached_property
    def table(self) -> list[float]:
        return self.values(range(1 << self.form.bits)).tolist()

    def values(self, bits) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return np.array(bits, f"u{self.form.bits // 8}").view(self.host).astype(np.float64)

    def round(self, value) -> int:
        """An f64 number as the oracle rounds it, but saturated, and a NaN made canonical."""
        if math.isnan(value):
            return self.form.nan
        if self.form.saturates:
            value = max(-self.largest, min(self.largest, value))
        with np.errstate(all="ignore"):
            rounded = np.array([value], np.float64).astype(self.host)
        return int(rounded.view(f"u{self.form.bits // 8}")[0])

    def add(self, a: int, b: int) -> int:
        """A sum of two of the narrow formats in f64 is wide enough to be rounded again."""
        with np.errstate(all="ignore"):
            if self.form.bits < 32:
                return self.round(self.value(a) + self.value(b))
            x, y = (np.array([v], f"u{self.form.bits // 8}").view(self.host) for v in (a, b))
            return self.round(float((x + y)[0]))


ORACLES = (
    Oracle(BF16, ml_dtypes.bfloat16, 255 * 2.0**120),
    Oracle(F16, np.float16, 65504.0),
    Oracle(F32, np.float32, float(np.finfo(np.float32).max)),
    Oracle(F64, np.float64, float(np.finfo(np.float64).max)),
    Oracle(E4M3, ml_dtypes.float8_e4m3fn, 448.0),
    Oracle(E5M2, ml_dtypes.float8_e5m2, 57344.0),
)
each_format = pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.form.name)
NARROW = tuple(oracle for oracle in ORACLES if oracle.form.bits <= 16)
FP8 = tuple(oracle for oracle in ORACLES if oracle.form.bits == 8)


def signs(form: FloatFormat, *magnitudes: int) -> list[int]:
    return [side << form.bits - 1 | bits for bits in magnitudes for side in (0, 1)]


def corners(form: FloatFormat) -> list[int]:
    """Both signs of zero, subnormals, powers of two and their neighbours, largest, inf, NaNs."""
    hidden, last = 1 << form.mantissa_bits, (1 << form.bits - 1) - 1
    one = one_of(form)
    return signs(
        form,
        *(0, 1, 2, 3, hidden // 2, hidden - 1, hidden, hidden + 1, 2 * hidden - 1, 2 * hidden),
        *(one - 1, one, one + 1, one + hidden // 2, one + hidden, one + 2 * hidden - 1),
        *(form.largest - 1, form.largest, form.largest + 1, last - 1, last),
        *({last - hidden // 2, last - hidden + 1, last - hidden + 2}),
    )


def one_of(form: FloatFormat) -> int:
    return (1 - form.min_exponent) << form.mantissa_bits


def directed_pairs(form: FloatFormat, number: int, seed: int = 1):
    """Pairs whose exponents are near each other: alignment, cancellation, carries and ties."""
    rng = random.Random(seed)
    top = form.largest >> form.mantissa_bits
    for _ in range(number):
        first = rng.randint(0, top)
        second = min(max(first + rng.randint(-form.mantissa_bits - 3, 3), 0), top)
        mantissas = [
            rng.choice((rng.getrandbits(form.mantissa_bits), 0, 1, (1 << form.mantissa_bits) - 1))
            for _ in range(2)
        ]
        fields = zip((first, second), mantissas, strict=True)
        a, b = (e << form.mantissa_bits | m for e, m in fields)
        side = form.bits - 1
        yield a | rng.getrandbits(1) << side, b | rng.getrandbits(1) << side


# What the bits mean.


@each_format
def test_largest_and_smallest(oracle):
    form = oracle.form
    assert oracle.value(form.largest) == oracle.largest
    assert oracle.value(1) == 2.0 ** (form.min_exponent - form.mantissa_bits)
    assert oracle.value(1 << form.mantissa_bits) == 2.0**form.min_exponent
    assert oracle.value(one_of(form)) == 1
    assert math.isnan(oracle.value(form.nan))
    assert form.infinities == any(math.isinf(v) for v in oracle.values(corners(form)))


@pytest.mark.parametrize("oracle", NARROW, ids=lambda oracle: oracle.form.name)
def test_unpack_everything(oracle):
    patterns = range(1 << oracle.form.bits)
    for bits, expected in zip(patterns, oracle.values(patterns).tolist(), strict=True):
        value = unpack(bits, oracle.form)
        assert value.sign == bits >> oracle.form.bits - 1
        if value.special:
            expected = "nan" if math.isnan(expected) else "inf" if math.isinf(expected) else ""
            assert value.special == expected
        else:
            ours = Fraction(value.significand) * Fraction(2) ** value.exponent
            assert Fraction(expected) == (-1) ** value.sign * ours


def test_a_format_without_infinities_saturates():
    with pytest.raises(ValueError, match="must saturate"):
        FloatFormat("e4m3", exponent_bits=4, mantissa_bits=3, nan=0x7F, infinities=False)


# Conversion.


@pytest.mark.parametrize(
    ("source", "target"),
    [(BF16, F32), (F16, F32), (E4M3, F16), (E5M2, F16), (E4M3, BF16), (F16, F64)],
    ids=lambda form: form.name,
)
def test_widen_everything_and_back(source, target):
    """Exact, so that the way back gives the same bits; a NaN comes back as the canonical one."""
    by_form = {oracle.form: oracle for oracle in ORACLES}
    values = by_form[source].values(range(1 << source.bits))
    for bits, value in enumerate(values.tolist()):
        wide = convert(bits, source, target)
        assert wide == by_form[target].round(value)
        back = convert(wide, target, source)
        if math.isinf(value) and source.saturates:
            assert back == bits - 1
        else:
            assert back == (source.nan if math.isnan(value) else bits)


@pytest.mark.parametrize("oracle", NARROW, ids=lambda oracle: oracle.form.name)
@pytest.mark.parametrize("wide", [F32, F64], ids=lambda form: form.name)
def test_narrow_next_to_every_tie(oracle, wide):
    """Every value of the target, every middle of two, and the next numbers on both sides."""
    form = oracle.form
    source = next(each for each in ORACLES if each.form == wide)
    step = 1 if form.bits == 8 else 127
    for bits in range(0, form.overflow - 1, step):
        low, high = oracle.value(bits), oracle.value(bits + 1)
        if math.isinf(high):
            high = 2 * low - oracle.value(bits - 1)
        for value in (low, (low + high) / 2):
            middle = source.round(value)
            for place in (middle - 1, middle, middle + 1):
                if place < 0:
                    continue
                exact = source.value(place)
                # ml_dtypes narrows f64 by way of f32 and rounds twice.
                expected = oracle.round(exact) if wide is F32 else nearest(oracle, exact)
                assert convert(place, wide, form) == expected
                sign = place | 1 << wide.bits - 1
                assert convert(sign, wide, form) == expected | 1 << form.bits - 1


@pytest.mark.parametrize("oracle", NARROW, ids=lambda oracle: oracle.form.name)
@given(bits=st.integers(0, 0xFFFF_FFFF))
def test_narrow(oracle, bits):
    value = float(np.uint32(bits).view(np.float32))
    assert convert(bits, F32, oracle.form) == oracle.round(value)


def test_rounds_up_into_the_normals():
    """The largest subnormal and a half is the smallest normal: the carry is the exponent."""
    for oracle in NARROW:
        form = oracle.form
        smallest = 1 << form.mantissa_bits
        value = (oracle.value(smallest - 1) + oracle.value(smallest)) / 2
        assert convert(ORACLES[3].round(value), F64, form) == smallest
        assert add(smallest - 1, 1, form) == smallest


def test_too_large_for_a_target():
    """Half a last place above the largest is too large: infinity, or the largest in fp8."""
    for value in (float(2**128 - 2**119), math.inf):
        assert convert(ORACLES[3].round(value), F64, BF16) == 0x7F80
        assert convert(ORACLES[3].round(-value), F64, BF16) == 0xFF80
    for form, largest in ((E4M3, 0x7E), (E5M2, 0x7B)):
        for value in (1e6, math.inf):
            assert convert(ORACLES[3].round(value), F64, form) == largest
            assert convert(ORACLES[3].round(-value), F64, form) == 0x80 | largest
        assert convert(0xFFC0_0000, F32, form) == 0x7F


def test_load_keeps_everything_but_nans():
    for form in (BF16, F16, E4M3, E5M2):
        for bits in range(1 << form.bits):
            nan = unpack(bits, form).special == "nan"
            assert load(bits, form, form) == (form.nan if nan else bits)
    assert load(0x7C, E5M2, F16) == 0x7C00 and load(0xFC, E5M2, E5M2) == 0xFC
    assert load(0x8000_0001, F32, F32_FTZ) == 0x8000_0000


# Addition.


@pytest.mark.parametrize("oracle", FP8, ids=lambda oracle: oracle.form.name)
def test_add_all_pairs(oracle):
    for a, b in itertools.product(range(256), range(256)):
        assert add(a, b, oracle.form) == oracle.add(a, b), (hex(a), hex(b))


@each_format
def test_add_corners(oracle):
    for a, b in itertools.product(corners(oracle.form), repeat=2):
        assert add(a, b, oracle.form) == oracle.add(a, b), (hex(a), hex(b))


@each_format
def test_add_directed(oracle):
    for a, b in directed_pairs(oracle.form, 4000):
        assert add(a, b, oracle.form) == oracle.add(a, b), (hex(a), hex(b))


@given(a=st.integers(0, (1 << 64) - 1), b=st.integers(0, (1 << 64) - 1))
def test_add_any_bits(a, b):
    for oracle in ORACLES:
        mask = (1 << oracle.form.bits) - 1
        assert add(a & mask, b & mask, oracle.form) == oracle.add(a & mask, b & mask)


@each_format
def test_one_plus_the_smallest_normal(oracle):
    """1.0 + 2**-126 in bf16 is 1.0: alignment must not wrap round."""
    one, smallest = one_of(oracle.form), 1 << oracle.form.mantissa_bits
    expected = one + (oracle.form.min_exponent == -oracle.form.mantissa_bits)
    assert add(one, smallest, oracle.form) == add(smallest, one, oracle.form) == expected


@each_format
def test_every_exponent_gap(oracle):
    """From the largest exponent down to the subnormals, both signs, with and without mantissa."""
    form = oracle.form
    top = form.largest >> form.mantissa_bits
    bits = (0, 1, (1 << form.mantissa_bits) - 2)
    for large in {top - 1, top // 2}:
        for field in range(top):
            for first, second, side in itertools.product(bits, bits, (0, 1)):
                a = large << form.mantissa_bits | first
                b = field << form.mantissa_bits | second | side << form.bits - 1
                assert add(a, b, form) == oracle.add(a, b) == add(b, a, form), (hex(a), hex(b))


@each_format
def test_ties_go_to_even(oracle):
    """Half a last place goes down from an even mantissa and up from an odd one."""
    form = oracle.form
    one = one_of(form)
    half = oracle.round(2.0 ** -(form.mantissa_bits + 1))
    assert oracle.value(half) > 0
    sign = 1 << form.bits - 1
    assert add(one, half, form) == one
    assert add(one + 1, half, form) == one + 2
    assert add(sign | one + 1, sign | half, form) == sign | one + 2
    assert add(one + 2, sign | half, form) == one + 2
    assert add(one + 1, sign | half, form) == one


def test_overflow_in_bf16():
    """The largest number and 1.5 of its half last places is infinity, not a NaN."""
    assert add(0x7C40, 0x7F7F, BF16) == add(0x7F7F, 0x7C40, BF16) == 0x7F80
    assert add(0xFC40, 0xFF7F, BF16) == 0xFF80


@each_format
def test_nan_on_each_side(oracle):
    """Quiet, signalling, negative: one canonical NaN comes out of them all."""
    form = oracle.form
    nans = {b for b in corners(form) if math.isnan(oracle.value(b))}
    if form.infinities:
        quiet = form.infinity | 1 << form.mantissa_bits - 1
        nans |= set(signs(form, form.infinity + 1, quiet))
    assert len(nans) >= 2
    for nan, other in itertools.product(nans, corners(form)):
        assert add(nan, other, form) == add(other, nan, form) == form.nan


@each_format
def test_zeros_and_infinities(oracle):
    form = oracle.form
    sign = 1 << form.bits - 1
    assert add(0, sign, form) == add(sign, 0, form) == add(0, 0, form) == 0
    assert add(sign, sign, form) == sign
    for bits in corners(form):
        if math.isfinite(oracle.value(bits)):
            assert add(bits, bits ^ sign, form) == add(bits ^ sign, bits, form) == 0
    if form.infinities:
        inf = form.infinity
        assert add(inf, sign | inf, form) == add(sign | inf, inf, form) == form.nan
        assert add(inf, inf, form) == form.overflow
        assert add(sign | inf, one_of(form), form) == sign | form.overflow


@pytest.mark.parametrize("oracle", FP8, ids=lambda oracle: oracle.form.name)
def test_saturation(oracle):
    form = oracle.form
    assert add(form.largest, form.largest, form) == form.largest
    assert add(0x80 | form.largest, 0x80 | form.largest, form) == 0x80 | form.largest
    assert add(form.largest, 0x80 | form.largest, form) == 0


def test_ftz_flushes_operands_and_results():
    smallest, sign = 0x0080_0000, 0x8000_0000
    assert add(smallest, 0x007F_FFFF, F32_FTZ) == smallest
    assert add(smallest + 1, sign | smallest, F32_FTZ) == 0
    assert add(sign | smallest + 1, smallest, F32_FTZ) == sign
    assert add(sign | 1, sign | 1, F32_FTZ) == add(sign, sign | 1, F32_FTZ) == sign
    assert add(sign | 1, 1, F32_FTZ) == 0
    for a, b in directed_pairs(F32, 2000, seed=2):
        flushed = [v if v & 0x7F80_0000 else v & sign for v in (a, b)]
        expected = ORACLES[2].add(*flushed)
        assert add(a, b, F32_FTZ) == (expected if expected & 0x7F80_0000 else expected & sign)


# Minimum and maximum.


def reference_extreme(oracle: Oracle, a: int, b: int, largest: bool) -> int:
    numbers = [bits for bits in (a, b) if not math.isnan(oracle.value(bits))]
    if not numbers:
        return oracle.form.nan
    order = sorted(numbers, key=lambda v: (oracle.value(v), math.copysign(1, oracle.value(v))))
    return order[-1 if largest else 0]


@pytest.mark.parametrize("oracle", FP8, ids=lambda oracle: oracle.form.name)
def test_extremes_of_all_pairs(oracle):
    for a, b in itertools.product(range(256), range(256)):
        assert minimum(a, b, oracle.form) == reference_extreme(oracle, a, b, False)
        assert maximum(a, b, oracle.form) == reference_extreme(oracle, a, b, True)


@each_format
def test_extremes_of_corners(oracle):
    for a, b in itertools.product(corners(oracle.form), repeat=2):
        assert minimum(a, b, oracle.form) == reference_extreme(oracle, a, b, False)
        assert maximum(a, b, oracle.form) == reference_extreme(oracle, a, b, True)


# Sums of many, and products.


def nearest(oracle: Oracle, exact: Fraction | float) -> int:
    """The finite value that is nearest, of two the even one, by looking through all of them."""
    finite = range(oracle.form.largest + 1)
    size = abs(Fraction(exact))
    above = bisect_left(finite, size, key=lambda bits: Fraction(oracle.value(bits)))
    sign = (exact < 0) << oracle.form.bits - 1
    if above > oracle.form.largest:
        last, before = (Fraction(oracle.value(oracle.form.largest - k)) for k in (0, 1))
        over = size >= last + (last - before) / 2
        return sign | (oracle.form.overflow if over else oracle.form.largest)
    low, high = max(above - 1, 0), above
    below, beyond = (size - Fraction(oracle.value(low)), Fraction(oracle.value(high)) - size)
    if below == beyond:
        return sign | (low if low % 2 == 0 else high)
    return sign | (low if below < beyond else high)


@pytest.mark.parametrize("oracle", NARROW, ids=lambda oracle: oracle.form.name)
def test_add_exactly_is_the_nearest_of_all_values(oracle):
    """Against fractions and a search, not against any arithmetic of ours."""
    form, rng = oracle.form, random.Random(3)
    for _ in range(150):
        values = [
            rng.choice((rng.randint(0, form.largest), 1, form.largest, one_of(form)))
            | rng.getrandbits(1) << form.bits - 1
            for _ in range(rng.randint(1, 9))
        ]
        exact = sum(Fraction(oracle.value(bits)) for bits in values)
        if exact:
            assert add_exactly(values, form) == nearest(oracle, exact), [hex(v) for v in values]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=9))
def test_add_exactly_is_fsum(values):
    """math.fsum is a correctly rounded sum; near the end of the range it gives up."""
    try:
        expected = math.fsum(values)
    except OverflowError:
        return
    bits = [int(np.float64(v).view(np.uint64)) for v in values]
    if expected or any(math.copysign(1, v) > 0 for v in values):
        assert add_exactly(bits, F64) == ORACLES[3].round(expected + 0.0)
    else:
        zero = all(v == 0 for v in values)
        assert add_exactly(bits, F64) == (1 << 63 if zero else 0)


@given(a=st.integers(0, 0xFFFF_FFFF), b=st.integers(0, 0xFFFF_FFFF))
def test_multiply_f32(a, b):
    x, y = (np.uint32(v).view(np.float32) for v in (a, b))
    with np.errstate(all="ignore"):
        product = x * y
    expected = F32.nan if np.isnan(product) else int(product.view(np.uint32))
    assert multiply(a, b, F32) == expected
