"""The scalar specification against outside oracles, and its numpy twin against it."""

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dysharp.hw.packet import Dtype, Op
from dysharp.model.floats import BF16, F32, FloatFormat, add, convert, multiply
from dysharp.model.numerics import reduce_list
from dysharp.model.numerics_array import (
    add_array,
    bf16_to_f32_array,
    f32_to_bf16_array,
    reduce_bf16_array,
)

ALL = np.arange(1 << 16, dtype=np.uint16)
F16 = FloatFormat("f16", exponent_bits=5, mantissa_bits=10, nan=0x7FFF)
CORNERS16 = [
    s | v
    for s in (0, 0x8000)
    for v in (
        0x0000,
        0x0001,
        0x0002,
        0x007F,
        0x0080,
        0x0081,
        0x00FF,
        0x3F7F,
        0x3F80,
        0x3F81,
        0x4000,
        0x7F00,
        0x7F7E,
        0x7F7F,
        0x7F80,
        0x7F81,
        0x7FC0,
        0x7FFF,
    )
]
CORNERS32 = [v << 16 | low for v in CORNERS16 for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]

u16 = st.integers(0, 0xFFFF)
u32 = st.integers(0, 0xFFFF_FFFF)


def f32(bits: int) -> np.float32:
    return np.uint32(bits).view(np.float32)


def host(value, nan=F32.nan) -> int:
    """Bits of a numpy f32 with the NaN made canonical."""
    return nan if np.isnan(value) else int(np.float32(value).view(np.uint32))


def test_widen_all_bf16():
    ours = [convert(int(v), BF16, F32) for v in ALL]
    theirs = ALL.view(ml_dtypes.bfloat16).astype(np.float32)
    assert ours == [host(v) for v in theirs]
    finite = ~np.isnan(theirs)
    assert np.array_equal(bf16_to_f32_array(ALL)[finite], theirs[finite])
    assert np.isnan(bf16_to_f32_array(ALL)[~finite]).all()


def test_load_all_bf16():
    """One value alone comes back as it is, -0 too; only NaNs become canonical."""
    ours = [reduce_list([int(v)]) for v in ALL]
    assert ours == reduce_bf16_array([ALL]).tolist()
    nan = np.isnan(bf16_to_f32_array(ALL))
    assert ours == np.where(nan, BF16.nan, ALL).tolist()


def test_narrow_corners_and_ml_dtypes():
    values = np.array(CORNERS32, np.uint32)
    ours = [convert(int(v), F32, BF16) for v in values]
    assert ours == f32_to_bf16_array(values.view(np.float32)).tolist()
    with np.errstate(invalid="ignore"):
        theirs = values.view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    number = ~np.isnan(values.view(np.float32))
    assert np.array_equal(np.array(ours)[number], theirs[number])


@given(u32)
def test_narrow(bits):
    ours = convert(bits, F32, BF16)
    assert ours == int(f32_to_bf16_array(np.array([bits], np.uint32).view(np.float32))[0])
    assert ours == (
        BF16.nan
        if np.isnan(f32(bits))
        else int(np.asarray(f32(bits)).astype(ml_dtypes.bfloat16).view(np.uint16))
    )


def test_add_f32_corners():
    pairs = list(itertools.product(CORNERS32[::3], CORNERS32[::2]))
    a, b = (np.array(side, np.uint32) for side in zip(*pairs, strict=True))
    assert [add(x, y, F32) for x, y in pairs] == add_array(a, b, F32).tolist()


@given(u32, u32)
def test_add_f32(a, b):
    with np.errstate(all="ignore"):
        expected = host(f32(a) + f32(b))
    assert add(a, b, F32) == expected == add(b, a, F32)
    assert int(add_array(np.array([a], np.uint32), np.array([b], np.uint32), F32)[0]) == expected


@given(u32, u32)
def test_multiply_f32(a, b):
    with np.errstate(all="ignore"):
        assert multiply(a, b, F32) == host(f32(a) * f32(b))


def test_add_bf16_against_ml_dtypes():
    """A sum of two values in f32 and one rounding is bf16's own add (24 >= 2 * 8 + 2)."""
    for a, b in itertools.product(CORNERS16, CORNERS16):
        left, right = (np.array([v], np.uint16).view(ml_dtypes.bfloat16) for v in (a, b))
        with np.errstate(all="ignore"):
            total = np.add(left, right)[0]
        expected = BF16.nan if np.isnan(total) else int(total.view(np.uint16))
        assert reduce_list([a, b]) == expected == add(a, b, BF16)


def test_every_exponent_gap():
    """1.0 + 2**-126 in bf16 is 1.0: alignment must not wrap round at any gap."""
    gaps = np.arange(1, 255, dtype=np.uint16) << np.uint16(7)
    one = np.full_like(gaps, 0x3F80)
    assert reduce_list([0x3F80, 0x0080]) == 0x3F80
    assert [reduce_list([0x3F80, int(g)]) for g in gaps] == reduce_bf16_array([one, gaps]).tolist()


@given(st.lists(u16, min_size=1, max_size=9))
def test_reduce(values):
    arrays = [np.array([v], np.uint16) for v in values]
    assert reduce_list(values) == int(reduce_bf16_array(arrays)[0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0x3F80, 0xBF80], 0x0000),  # x + -x is +0
        ([0x8000, 0x8000], 0x8000),  # -0 + -0 is -0
        ([0x8000], 0x8000),  # loaded, not added to +0
        ([0x0000, 0x8000], 0x0000),
        ([0x7F80, 0xFF80], 0x7FFF),  # inf - inf
        ([0x7F80, 0x7F80], 0x7F80),
        ([0xFFC1], 0x7FFF),  # a NaN is made canonical on load
        ([0x7F7F, 0x7F7F], 0x7F80),  # overflow
        ([0x7F7F, 0x7F7F, 0xFF7F], 0x7F80),  # f32 has no more range than bf16
        ([0x0001, 0x0001], 0x0002),  # subnormals are kept
        ([0x3F80, 0x3B80, 0x3B80], 0x3F81),  # two halves of an ulp add up in f32
        ([0x3F80, 0x3B80], 0x3F80),  # a tie goes to even
        ([0x4CBF, 0x3F80, 0xCCBF, 0x3F80], 0x3F80),  # 1e8 swallows the first 1
    ],
)
def test_directed(values, expected):
    assert reduce_list(values) == expected
    assert int(reduce_bf16_array([np.array([v], np.uint16) for v in values])[0]) == expected


def test_a_format_is_one_row():
    """The scalar functions know no format: f16 works from its description alone."""
    values = ALL.view(np.float16)
    rng = np.random.default_rng(1)
    for a, b in rng.integers(0, 1 << 16, (2000, 2)):
        with np.errstate(all="ignore"):
            total = values[a] + values[b]
        expected = 0x7FFF if np.isnan(total) else int(total.view(np.uint16))
        assert add(int(a), int(b), F16) == expected


def test_unsupported():
    with pytest.raises(ValueError, match="U32 AND"):
        reduce_list([1], dtype=Dtype.U32, op=Op.AND, acc=0)
    with pytest.raises(ValueError, match="at least one"):
        reduce_list([])
