"""Exact sums on arrays against the specification, and payloads of flits."""

import random

import numpy as np
import pytest

from dysharp.hw.packet import Dtype, Op
from dysharp.model.exact import BETWEEN_CARRIES, add_exactly_array, reduce_exact_array
from dysharp.model.flits import from_flits, reduce_flits, to_flits
from dysharp.model.floats import BF16, E4M3, E5M2, F16, F32, F32_FTZ, F64, add_exactly
from dysharp.model.numerics import (
    FORMATS,
    REDUCTIONS,
    attr_bits,
    elements,
    flit,
    reduce_exact,
    reduce_list,
)
from dysharp.model.numerics_array import bits_type
from dysharp.sim_tb.elements import random_flit, special_elements

FLOATS = {
    "bf16": BF16, "f16": F16, "f32": F32, "f32_ftz": F32_FTZ, "f64": F64, "e4m3": E4M3, "e5m2": E5M2
}  # fmt: skip


def draw(form, rng: random.Random, special: float) -> int:
    dtype = next(dtype for dtype, other in FORMATS.items() if other.name == form.name)
    if rng.random() < special:
        return rng.choice(special_elements(dtype))
    return rng.getrandbits(form.bits)


@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("form", FLOATS.values(), ids=FLOATS)
def test_exact_sums(form, count):
    rng = random.Random(count)
    columns = [[draw(form, rng, 0.4) for _ in range(count)] for _ in range(500)]
    arrays = [np.array(row, bits_type(form.bits)) for row in zip(*columns, strict=True)]
    expected = [add_exactly(column, form) for column in columns]
    assert add_exactly_array(arrays, form).tolist() == expected


@pytest.mark.parametrize("form", FLOATS.values(), ids=FLOATS)
def test_a_rest_that_decides(form):
    """x + tie + the smallest number of either sign - x2 + x2: every bit counts, however far."""
    rng = random.Random(7)
    top = form.largest >> form.mantissa_bits
    sign = 1 << form.bits - 1
    columns = []
    for field in range(form.mantissa_bits + 2, top):
        mantissa = rng.getrandbits(form.mantissa_bits)
        number = field << form.mantissa_bits | mantissa
        half = field - form.mantissa_bits - 1 << form.mantissa_bits
        for rest in (0, 1, sign | 1):
            other = rng.randint(1, form.largest)
            columns.append([number, other, half, rest, other ^ sign])
    arrays = [np.array(row, bits_type(form.bits)) for row in zip(*columns, strict=True)]
    found = add_exactly_array(arrays, form)
    assert found.tolist() == [add_exactly(column, form) for column in columns]
    assert form.ftz or (found[1::3] != found[2::3]).all()


def test_more_operands_than_a_limb_has_room_for():
    """Carries are resolved in time: the largest numbers, all of one sign, then all back."""
    count = 3 * BETWEEN_CARRIES + 1
    for form in FLOATS.values():
        sign = 1 << form.bits - 1
        up = [np.full(2, form.largest, bits_type(form.bits))] * count
        down = [operand | bits_type(form.bits).type(sign) for operand in up]
        one = np.array([1, form.largest], bits_type(form.bits))
        assert add_exactly_array([*up, one, *down], form).tolist() == [
            0 if form.ftz else 1,
            form.largest,
        ]
        assert add_exactly_array(up, form).tolist() == [form.overflow] * 2
        assert add_exactly_array(down, form).tolist() == [sign | form.overflow] * 2


@pytest.mark.parametrize("key", REDUCTIONS, ids=lambda key: f"{key[0].name}-{key[1].name}-{key[2]}")
def test_reduce_exact(key):
    dtype, op, acc = key
    rng = random.Random(8)
    columns = [[draw(FORMATS[dtype], rng, 0.4) for _ in range(4)] for _ in range(200)]
    rows = zip(*columns, strict=True)
    arrays = [np.array(row, bits_type(FORMATS[dtype].bits)).reshape(20, 10) for row in rows]
    for ftz in (False, True):
        options = {"dtype": dtype, "op": op, "acc": acc, "ftz": ftz}
        expected = [reduce_exact(column, **options) for column in columns]
        found = reduce_exact_array(arrays, **options)
        assert found.shape == (20, 10) and found.ravel().tolist() == expected


# Payloads.


@pytest.mark.parametrize("dtype", FORMATS, ids=lambda dtype: dtype.name)
def test_flits(dtype):
    rng = random.Random(9)
    words = [random_flit(rng, dtype) for _ in range(5)]
    array = from_flits(words, dtype)
    assert array.tolist() == [element for word in words for element in elements(word, dtype)]
    assert to_flits(array) == tuple(words)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("key", REDUCTIONS, ids=lambda key: f"{key[0].name}-{key[1].name}-{key[2]}")
def test_reduce_flits(key, exact):
    dtype, op, acc = key
    rng = random.Random(10)
    operands = [[random_flit(rng, dtype) for _ in range(3)] for _ in range(4)]
    reduce = reduce_exact if exact else reduce_list
    expected = []
    for place in range(3):
        lanes = zip(*(elements(words[place], dtype) for words in operands), strict=True)
        expected.append(flit([reduce(lane, dtype=dtype, op=op, acc=acc) for lane in lanes], dtype))
    assert reduce_flits(operands, attr_bits(*key), exact=exact) == tuple(expected)


def test_what_cannot_be_reduced():
    with pytest.raises(ValueError, match="not 0x00"):
        reduce_flits([[0]], 0)
    with pytest.raises(ValueError, match="not F32 MIN acc=0"):
        reduce_exact_array([np.zeros(1, np.uint32)], dtype=Dtype.F32, op=Op.MIN, acc=0)


def test_ftz_of_flits():
    attr = attr_bits(Dtype.F32, Op.ADD)
    words = [[0x8000_0001], [0x8000_0001]]
    zero = 0x8000_0000
    assert reduce_flits(words, attr)[0] & 0xFFFF_FFFF == 0x8000_0002
    assert reduce_flits(words, attr, ftz=True)[0] & 0xFFFF_FFFF == zero
    assert reduce_flits(words, attr, ftz=True, exact=True)[0] & 0xFFFF_FFFF == zero
