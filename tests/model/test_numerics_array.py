"""The numpy twin against the specification, and against the host's own types on many values."""

import random

import ml_dtypes
import numpy as np
import pytest

from dysharp.hw.packet import Dtype, Op
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
    convert,
    maximum,
    minimum,
)
from dysharp.model.numerics import FORMATS, REDUCTIONS, reduce_list
from dysharp.model.numerics_array import (
    add_array,
    bf16_to_f32_array,
    bits_type,
    convert_array,
    f32_to_bf16_array,
    maximum_array,
    minimum_array,
    number_array,
    reduce_array,
    reduce_bf16_array,
    round_array,
)
from dysharp.sim_tb.elements import special_elements

FLOATS = (BF16, F16, F32, F32_FTZ, F64, E4M3, E5M2)
FP8 = (E4M3, E5M2)
OPS = {add: add_array, minimum: minimum_array, maximum: maximum_array}


def named(form: FloatFormat) -> str:
    return form.name + "_ftz" * form.ftz


def of_form(form: FloatFormat) -> Dtype:
    return next(dtype for dtype, other in FORMATS.items() if other.name == form.name)


def draw(form, count: int, seed: int) -> np.ndarray:
    """Any bits, corners, and numbers whose exponents are near each other."""
    rng, special = random.Random(seed), special_elements(of_form(form))

    def one() -> int:
        kind = rng.random()
        if kind < 0.3:
            return rng.choice(special)
        if kind < 0.6 or not isinstance(form, FloatFormat):
            return rng.getrandbits(form.bits)
        field = 1 - form.min_exponent + rng.randint(-3, 3)
        number = field << form.mantissa_bits | rng.getrandbits(form.mantissa_bits)
        return number | rng.getrandbits(1) << form.bits - 1

    return np.array([one() for _ in range(count)], bits_type(form.bits))


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("form", FP8, ids=named)
def test_all_pairs_of_fp8(form, op):
    patterns = np.arange(256, dtype=np.uint8)
    a, b = (side.ravel() for side in np.meshgrid(patterns, patterns))
    expected = [op(x, y, form) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert OPS[op](a, b, form).tolist() == expected


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.__name__)
@pytest.mark.parametrize("form", FLOATS, ids=named)
def test_pairs(form, op):
    a, b = draw(form, 3000, 1), draw(form, 3000, 2)
    expected = [op(x, y, form) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert OPS[op](a, b, form).tolist() == expected


@pytest.mark.parametrize("target", FLOATS, ids=named)
@pytest.mark.parametrize("source", FLOATS, ids=named)
def test_convert(source, target):
    if source.bits <= 16:
        bits = np.arange(1 << source.bits, dtype=bits_type(source.bits))
        bits = bits[:: max(1, len(bits) // 4096)]
    else:
        bits = draw(source, 3000, 3)
    expected = [convert(one, source, target) for one in bits.tolist()]
    assert convert_array(bits, source, target).tolist() == expected


@pytest.mark.parametrize("target", [BF16, F16, E4M3, E5M2, F32], ids=named)
def test_ties_are_rounded_to_even(target):
    """The middle of two neighbours, from f64, at every exponent."""
    low = np.arange(0, target.largest, max(1, target.largest // 3000)).astype(
        bits_type(target.bits)
    )
    middle = (number_array(low, target).astype(float) + number_array(low + 1, target)) / 2
    expected = [convert(int(bits), F64, target) for bits in round_array(middle, F64)]
    found = round_array(middle, target)
    assert found.tolist() == expected
    assert (found % 2 == 0).all()


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("key", REDUCTIONS, ids=lambda key: f"{key[0].name}-{key[1].name}-{key[2]}")
def test_reduce(key, count):
    dtype, op, acc = key
    operands = [draw(FORMATS[dtype], 300, seed) for seed in range(count)]
    columns = list(zip(*(operand.tolist() for operand in operands), strict=True))
    for ftz in (False, True) if dtype is Dtype.F32 else (False,):
        options = {"dtype": dtype, "op": op, "acc": acc, "ftz": ftz}
        expected = [reduce_list(column, **options) for column in columns]
        assert reduce_array(operands, **options).tolist() == expected


def test_shape_and_type_are_kept():
    for dtype, op, acc in REDUCTIONS:
        operand = np.zeros((2, 0, 3), bits_type(FORMATS[dtype].bits))
        result = reduce_array([operand, operand], dtype=dtype, op=op, acc=acc)
        assert result.shape == operand.shape and result.dtype == operand.dtype
    with pytest.raises(ValueError, match="at least one array"):
        reduce_array([], dtype=Dtype.BF16, op=Op.ADD, acc=1)


# Many values against types that are not ours.


def test_all_bf16_and_back():
    every = np.arange(1 << 16, dtype=np.uint16)
    numbers = bf16_to_f32_array(every)
    theirs = every.view(ml_dtypes.bfloat16).astype(np.float32)
    nan = np.isnan(theirs)
    assert np.array_equal(numbers[~nan], theirs[~nan]) and np.isnan(numbers[nan]).all()
    assert f32_to_bf16_array(numbers).tolist() == np.where(nan, 0x7FFF, every).tolist()
    assert reduce_bf16_array([every]).tolist() == np.where(nan, 0x7FFF, every).tolist()


@pytest.mark.parametrize(("form", "host"), [(BF16, ml_dtypes.bfloat16), (F16, np.float16)])
def test_a_million_sums(form, host):
    """A sample of the 2**32 pairs."""
    a, b = np.random.default_rng(5).integers(0, 1 << 16, (2, 1 << 20), np.uint16)
    with np.errstate(all="ignore"):
        total = a.view(host) + b.view(host)
    expected = np.where(np.isnan(total), np.uint16(form.nan), total.view(np.uint16))
    assert np.array_equal(add_array(a, b, form), expected)


@pytest.mark.parametrize(
    ("form", "host"),
    [(BF16, ml_dtypes.bfloat16), (F16, np.float16), (E4M3, ml_dtypes.float8_e4m3fn),
     (E5M2, ml_dtypes.float8_e5m2)],
)  # fmt: skip
def test_a_million_roundings(form, host):
    bits = np.random.default_rng(6).integers(0, 1 << 32, 1 << 20, np.uint32)
    numbers = bits.view(np.float32)
    largest = float(number_array(np.array([form.largest], bits_type(form.bits)), form)[0])
    with np.errstate(all="ignore"):
        clipped = np.clip(numbers, -largest, largest) if form.saturates else numbers
        theirs = clipped.astype(host).view(bits_type(form.bits))
    expected = np.where(np.isnan(numbers), form.nan, theirs)
    assert np.array_equal(round_array(numbers, form), expected)
