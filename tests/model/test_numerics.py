"""The table of reductions against the contract, and reductions of lists against the host."""

import itertools
import random

import ml_dtypes
import numpy as np
import pytest

from dysharp.hw.packet import Dtype, Op
from dysharp.model.floats import F16, F32, FloatFormat
from dysharp.model.numerics import (
    ALL_DTYPES,
    DEFAULT_DTYPES,
    FORMATS,
    REDUCTIONS,
    attr_bits,
    elements,
    flit,
    reduce_exact,
    reduce_list,
    reduction,
    row_of,
    supports,
)
from dysharp.sim_tb.elements import special_elements

CONTRACT = """
bf16 f16 : add min max : acc 0 1
f32 f64 : add : acc 0
e4m3 e5m2 : add min max : acc 0 1
u32 s32 u64 : add min max : acc 0
s64 : min max : acc 0
b32 b64 : and or xor : acc 0
"""
"""What there is, and nothing else is."""

HOSTS = {
    Dtype.BF16: ml_dtypes.bfloat16,
    Dtype.F16: np.float16,
    Dtype.F32: np.float32,
    Dtype.F64: np.float64,
    Dtype.E4M3: ml_dtypes.float8_e4m3fn,
    Dtype.E5M2: ml_dtypes.float8_e5m2,
}
WIDER = {
    Dtype.BF16: np.float32,
    Dtype.F16: np.float32,
    Dtype.E4M3: np.float16,
    Dtype.E5M2: np.float16,
}
SATURATES = {Dtype.E4M3: 448.0, Dtype.E5M2: 57344.0}
ONE_E8 = [int(np.float32(v).view(np.uint32)) for v in (1e8, 1, -1e8, 1)]


def from_contract():
    for line in CONTRACT.split("\n")[1:-1]:
        dtypes, ops, accs = (part.split() for part in line.split(":"))
        for dtype, op, acc in itertools.product(dtypes, ops, accs[1:]):
            yield Dtype[dtype.upper()], Op[op.upper()], int(acc)


def test_the_table_is_the_contract_s():
    assert set(REDUCTIONS) == set(from_contract())
    assert {dtype for dtype, _, _ in REDUCTIONS} == ALL_DTYPES == set(Dtype) - {Dtype.NONE}
    assert ALL_DTYPES - DEFAULT_DTYPES == {Dtype.F64}
    for (dtype, op, acc), row in REDUCTIONS.items():
        assert row.wire == FORMATS[dtype] and row.op is op
        assert row.wire.name == dtype.name.lower()
        if acc:
            wide = F32 if WIDER[dtype] is np.float32 else F16
            assert row.accumulator == wide
        else:
            assert row.accumulator == row.wire


def test_every_attr():
    """All 256 of them: those of the table, and ERR 5 for the rest."""
    known = {d.value | op.value << 4 | acc << 7: (d, op, acc) for d, op, acc in from_contract()}
    for attr in range(256):
        assert supports(attr, ALL_DTYPES) == (attr in known)
        assert supports(attr) == (attr in known and attr & 15 != Dtype.F64.value)
        assert supports(attr, {Dtype.BF16}) == (attr in known and attr & 15 == Dtype.BF16.value)
        if attr in known:
            assert row_of(attr) == known[attr] and attr_bits(*known[attr]) == attr
        else:
            with pytest.raises(ValueError, match=f"not {attr:#04x}"):
                row_of(attr)


@pytest.mark.parametrize(
    ("dtype", "op", "acc"),
    [
        (Dtype.F32, Op.ADD, 1),
        (Dtype.F32, Op.MIN, 0),
        (Dtype.F64, Op.ADD, 1),
        (Dtype.S64, Op.ADD, 0),
        (Dtype.U32, Op.ADD, 1),
        (Dtype.U32, Op.AND, 0),
        (Dtype.B32, Op.ADD, 0),
        (Dtype.NONE, Op.ADD, 0),
    ],
)
def test_unsupported(dtype, op, acc):
    for reduce in (reduce_list, reduce_exact):
        with pytest.raises(ValueError, match=f"not {dtype.name} {op.name} acc={acc}"):
            reduce([1], dtype=dtype, op=op, acc=acc)


def test_there_must_be_a_value():
    for reduce in (reduce_list, reduce_exact):
        with pytest.raises(ValueError, match="at least one"):
            reduce([])


# Sums of floats, step by step in the host's arithmetic.


def narrow(values, dtype: Dtype):
    """Round to a type as the host does, but fp8 saturates."""
    if dtype in SATURATES:
        values = np.clip(values, -SATURATES[dtype], SATURATES[dtype])
    with np.errstate(all="ignore"):
        return values.astype(HOSTS[dtype])


def host_sum(values, dtype: Dtype, acc: int) -> int:
    kind = f"u{FORMATS[dtype].bits // 8}"
    total, *rest = (np.array([v], kind).view(HOSTS[dtype]) for v in values)
    with np.errstate(all="ignore"):
        if acc:
            total = total.astype(WIDER[dtype])
            for operand in rest:
                total = total + operand.astype(WIDER[dtype])
        else:
            for operand in rest:
                if FORMATS[dtype].bits == 8:
                    total = narrow(total.astype(np.float32) + operand.astype(np.float32), dtype)
                else:
                    total = total + operand
        nan = np.isnan(total.astype(np.float64))[0]
        bits = narrow(total.astype(np.float64) if acc == 0 else total, dtype).view(kind)
    canonical = {64: 0x7FF8 << 48, 32: 0x7FFF_FFFF, 16: 0x7FFF, 8: 0x7F}
    return canonical[FORMATS[dtype].bits] if nan else int(bits[0])


SUMS = [(dtype, acc) for dtype, op, acc in REDUCTIONS if op is Op.ADD and dtype in HOSTS]


@pytest.mark.parametrize(("dtype", "acc"), SUMS, ids=lambda v: getattr(v, "name", v))
def test_sums_step_by_step(dtype, acc):
    rng, bits = random.Random(1), FORMATS[dtype].bits
    special = special_elements(dtype)
    for count in (1, 2, 3, 8):
        for _ in range(150):
            values = [
                rng.choice(special) if rng.random() < 0.3 else rng.getrandbits(bits)
                for _ in range(count)
            ]
            ours = reduce_list(values, dtype=dtype, acc=acc)
            assert ours == host_sum(values, dtype, acc), [hex(v) for v in values]


@pytest.mark.parametrize(("dtype", "acc"), SUMS, ids=lambda v: getattr(v, "name", v))
def test_first_is_loaded(dtype, acc):
    """One value comes back as it is, -0 and subnormals too; but NaNs, and infinities in fp8."""
    form = FORMATS[dtype]
    assert isinstance(form, FloatFormat)
    for value in special_elements(dtype):
        number = float(np.array([value], f"u{form.bits // 8}").view(HOSTS[dtype])[0])
        expected = value
        if np.isnan(number):
            expected = form.nan
        elif np.isinf(number) and dtype is Dtype.E5M2:
            expected = value - 1
        assert reduce_list([value], dtype=dtype, acc=acc) == expected
        assert reduce_exact([value], dtype=dtype, acc=acc) == expected


@pytest.mark.parametrize(
    ("dtype", "acc", "values", "expected"),
    [
        (Dtype.BF16, 1, [0x3F80, 0xBF80], 0x0000),  # x + -x is +0
        (Dtype.BF16, 1, [0x8000, 0x8000], 0x8000),  # -0 + -0 is -0
        (Dtype.BF16, 1, [0x0000, 0x8000], 0x0000),
        (Dtype.BF16, 1, [0x8000, 0x0000], 0x0000),
        (Dtype.BF16, 1, [0x7F80, 0xFF80], 0x7FFF),  # inf - inf
        (Dtype.BF16, 1, [0xFFC1], 0x7FFF),  # a NaN is made canonical on load
        (Dtype.BF16, 1, [0x7F7F, 0x7F7F, 0xFF7F], 0x7F80),  # f32 has no more range than bf16
        (Dtype.BF16, 1, [0x0001, 0x0001], 0x0002),  # subnormals are kept
        (Dtype.BF16, 1, [0x3F80, 0x3B80, 0x3B80], 0x3F81),  # two halves of an ulp add up in f32
        (Dtype.BF16, 0, [0x3F80, 0x3B80, 0x3B80], 0x3F80),  # and are lost one by one in bf16
        (Dtype.BF16, 1, [0x4CBF, 0x3F80, 0xCCBF, 0x3F80], 0x3F80),  # 1e8 swallows the first 1
        (Dtype.BF16, 0, [0x7C40, 0x7F7F], 0x7F80),
        (Dtype.BF16, 1, [0x7C40, 0x7F7F], 0x7F80),
        (Dtype.F16, 1, [0x7BFF, 0x7BFF, 0xFBFF], 0x7BFF),  # f32 holds more than f16
        (Dtype.F16, 0, [0x7BFF, 0x7BFF, 0xFBFF], 0x7C00),
        (Dtype.E5M2, 1, [0x7B, 0x7B, 0xFB], 0x7B),  # 57344 twice is inf in f16, and saturates
        (Dtype.E5M2, 1, [0x7B, 0x7B, 0xFB, 0xFB], 0x7B),  # as inf does not come back
        (Dtype.E5M2, 0, [0x7B, 0x7B, 0xFB, 0xFB], 0xFB),  # saturated at each step: 0, then -57344
        (Dtype.E4M3, 1, [0x7E, 0x7E, 0xFE], 0x7E),  # f16 holds 896
        (Dtype.E4M3, 0, [0x7E, 0x7E, 0xFE], 0x00),
        (Dtype.E4M3, 1, [0x7E, 0x7E], 0x7E),
        (Dtype.E4M3, 0, [0xFE, 0xFE], 0xFE),
        (Dtype.E4M3, 0, [0x38, 0xFF], 0x7F),  # a NaN is positive
        (Dtype.E5M2, 0, [0x7C, 0xFC], 0x7F),  # inf - inf
        (Dtype.E5M2, 0, [0x7C], 0x7B),  # infinity saturates at the latest on the wire
        (Dtype.E5M2, 1, [0xFC, 0x3C], 0xFB),
        (Dtype.E5M2, 0, [0x7C, 0x3C, 0xFC], 0xFB),  # saturated, then -inf is added
        (Dtype.E5M2, 1, [0x7C, 0x3C, 0xFC], 0x7F),
    ],
)
def test_directed(dtype, acc, values, expected):
    assert reduce_list(values, dtype=dtype, acc=acc) == expected


def test_ftz_is_f32_s_alone():
    sign = 0x8000_0000
    options = {"dtype": Dtype.F32, "acc": 0}
    assert reduce_list([sign | 1], **options) == sign | 1
    assert reduce_list([sign | 1], ftz=True, **options) == sign
    assert reduce_list([0x0080_0001, sign | 0x0080_0000], **options) == 1
    assert reduce_list([0x0080_0001, sign | 0x0080_0000], ftz=True, **options) == 0
    assert reduce_exact([0x0080_0001, sign | 0x0080_0000], **options) == 1
    assert reduce_exact([0x0080_0001, sign | 0x0080_0000], ftz=True, **options) == 0
    assert reduce_exact([sign | 1, sign], ftz=True, **options) == sign
    for dtype, op, acc in REDUCTIONS:
        if dtype is not Dtype.F32:
            assert reduction(dtype, op, acc, ftz=True) == REDUCTIONS[dtype, op, acc]


@pytest.mark.parametrize("reduce", [reduce_list, reduce_exact])
@pytest.mark.parametrize("dtype", tuple(WIDER), ids=lambda dtype: dtype.name)
def test_accumulation_makes_no_difference_to_min_and_max(dtype, reduce):
    """Nor does order; the results are operands, but a NaN is canonical and fp8 saturates."""
    special = special_elements(dtype)
    for a, b in itertools.product(special, special):
        for op in (Op.MIN, Op.MAX):
            found = {
                reduce(pair, dtype=dtype, op=op, acc=acc)
                for pair in ((a, b), (b, a), (a, b, a))
                for acc in (0, 1)
            }
            assert len(found) == 1
            assert found <= {reduce([v], dtype=dtype, acc=0) for v in (a, b)}


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([0x0000, 0x8000], 0x8000, 0x0000),  # +0 is above -0
        ([0x7FC0, 0xBF80], 0xBF80, 0xBF80),  # a NaN loses
        ([0xFF81, 0x3F80], 0x3F80, 0x3F80),
        ([0xFF81, 0x7FC0], 0x7FFF, 0x7FFF),
        ([0xFF80, 0x0001], 0xFF80, 0x0001),
        ([0x7F80, 0x7FC0, 0xFF7F], 0xFF7F, 0x7F80),
    ],
)
def test_min_and_max_of_bf16(values, low, high):
    for order in itertools.permutations(values):
        assert reduce_list(order, op=Op.MIN) == low
        assert reduce_list(order, op=Op.MAX) == high


# Integers, against numpy's.


@pytest.mark.parametrize(
    "key",
    [key for key in REDUCTIONS if key[0] not in HOSTS],
    ids=lambda k: f"{k[0].name}-{k[1].name}",
)
def test_integers(key):
    dtype, op, acc = key
    bits = FORMATS[dtype].bits
    kind = ("i" if dtype.name.startswith("S") else "u") + str(bits // 8)
    function = {
        Op.ADD: np.add, Op.MIN: np.minimum, Op.MAX: np.maximum,
        Op.AND: np.bitwise_and, Op.OR: np.bitwise_or, Op.XOR: np.bitwise_xor,
    }[op]  # fmt: skip
    rng, special = random.Random(2), special_elements(dtype)
    lists = [*itertools.product(special, special)]
    lists += [tuple(rng.getrandbits(bits) for _ in range(rng.randint(1, 9))) for _ in range(200)]
    for values in lists:
        numbers = np.array(values, f"u{bits // 8}").view(kind)
        with np.errstate(over="ignore"):
            expected = int(function.reduce(numbers).astype(kind).view(f"u{bits // 8}"))
        assert reduce_list(values, dtype=dtype, op=op, acc=acc) == expected
        assert reduce_exact(values, dtype=dtype, op=op, acc=acc) == expected


# Orders.


def test_the_order_of_1e8_1_minus_1e8_1():
    """Exact is 2.0 in all 24 orders; by port it is 1.0; as they arrive it is one of three."""
    options = {"dtype": Dtype.F32, "acc": 0}
    arrival, exact, rank = set(), set(), set()
    for order in itertools.permutations(enumerate(ONE_E8)):
        arrival.add(reduce_list([value for _, value in order], **options))
        exact.add(reduce_exact([value for _, value in order], **options))
        rank.add(reduce_list([value for _, value in sorted(order)], **options))
    one, two = (int(np.float32(v).view(np.uint32)) for v in (1, 2))
    assert exact == {two}
    assert rank == {one}
    assert arrival == {0, one, two}


@pytest.mark.parametrize(("dtype", "acc"), SUMS, ids=lambda v: getattr(v, "name", v))
def test_exact_has_no_order(dtype, acc):
    rng, bits = random.Random(4), FORMATS[dtype].bits
    for _ in range(40):
        values = [
            rng.choice(special_elements(dtype)) if rng.random() < 0.3 else rng.getrandbits(bits)
            for _ in range(4)
        ]
        orders = itertools.permutations(values)
        assert len({reduce_exact(order, dtype=dtype, acc=acc) for order in orders}) == 1


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (Dtype.BF16, [0x8000, 0x8000], 0x8000),
        (Dtype.BF16, [0x8000, 0x0000, 0x8000], 0x0000),
        (Dtype.BF16, [0x3F80, 0xBF80, 0x8000], 0x0000),
        (Dtype.BF16, [0x7F80, 0x3F80, 0x7F80], 0x7F80),
        (Dtype.BF16, [0x7F80, 0x3F80, 0xFF80], 0x7FFF),
        (Dtype.BF16, [0x7F80, 0x7F81], 0x7FFF),
        (Dtype.BF16, [0x7F7F, 0x7F7F, 0xFF7F], 0x7F7F),  # no overflow on the way
        (Dtype.BF16, [0x7F7F, 0x7B00], 0x7F80),  # half a last place above the largest
        (Dtype.BF16, [0x7F7F, 0x7AFF], 0x7F7F),
        (Dtype.BF16, [0x7F7F, 0x7B00, 0x8001], 0x7F7F),  # a bit 2**252 times smaller decides
        (Dtype.BF16, [0x3F80, 0x3B80], 0x3F80),  # a tie
        (Dtype.BF16, [0x3F80, 0x3B80, 0x0001], 0x3F81),  # not a tie
        (Dtype.BF16, [0x3F81, 0x3B80, 0x8001], 0x3F81),
        (Dtype.E4M3, [0x7E, 0x7E, 0xFE], 0x7E),
        (Dtype.E4M3, [0x7E, 0x7E], 0x7E),
        (Dtype.E5M2, [0x7C, 0x3C], 0x7B),
        (Dtype.E5M2, [0xFC, 0x3C], 0xFB),
        (Dtype.E5M2, [0x7C, 0xFC], 0x7F),
    ],
)
def test_exact_directed(dtype, values, expected):
    for acc in (0, 1):
        for order in itertools.permutations(values):
            assert reduce_exact(order, dtype=dtype, acc=acc) == expected


# Elements in flits.


def test_elements_and_flits():
    word = 0x0123_4567_89AB_CDEF_0011_2233_4455_6677
    assert elements(word, Dtype.BF16)[:3] == [0x6677, 0x4455, 0x2233]
    assert elements(word, Dtype.U64) == [0x0011_2233_4455_6677, 0x0123_4567_89AB_CDEF]
    assert elements(word, Dtype.E4M3)[0] == 0x77 and len(elements(word, Dtype.E4M3)) == 16
    for dtype in ALL_DTYPES:
        assert flit(elements(word, dtype), dtype) == word
    with pytest.raises(ValueError, match="4 a flit, not 3"):
        flit([1, 2, 3], Dtype.F32)
