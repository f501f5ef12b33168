"""Order ``exact`` where nothing is rounded: minimum, maximum, integers and bits."""

from __future__ import annotations

import random

import pytest

from dysharp.hw.alu.float_format import FLOATS
from dysharp.hw.alu.min_max import MIN_MAX_DTYPES
from dysharp.hw.alu.reductions import ALL_DTYPES, supported
from dysharp.hw.packet import FLIT_BITS, Dtype, Op
from dysharp.model.numerics import attr_bits, elements, flit

COMPARED = [dtype for dtype in FLOATS if dtype in MIN_MAX_DTYPES]
INTEGERS = [row[:2] for row in supported(ALL_DTYPES) if row.dtype not in FLOATS]


def reduce_word(numbers: list[int], dtype: Dtype, op: Op, bits: int) -> int:
    """Integers and bits, in Python."""
    signed = dtype.name[0] == "S"

    def value(number: int) -> int:
        return number - (1 << bits) if signed and number >> bits - 1 else number

    result = numbers[0]
    for number in numbers[1:]:
        if op in (Op.MIN, Op.MAX):
            choose = min if op is Op.MIN else max
            result = choose(result, number, key=value)
        else:
            by_op = {Op.ADD: int.__add__, Op.AND: int.__and__, Op.OR: int.__or__,
                     Op.XOR: int.__xor__}  # fmt: skip
            result = by_op[op](result, number) % (1 << bits)
    return result


@pytest.mark.nightly
def test_integers_pass(exact_player):
    """Sums, minima and bits of integers are as in every order, with float sums between them."""
    rng = random.Random(5)
    jobs, wanted = [], []
    for _ in range(3000):
        dtype, op = rng.choice(INTEGERS)
        bits = int(dtype.name[1:])
        lanes = FLIT_BITS // bits
        rows = [[rng.getrandbits(bits) for _ in range(lanes)] for _ in range(rng.randint(1, 6))]
        columns = zip(*rows, strict=True)
        jobs.append((attr_bits(dtype, op), [flit(row, dtype) for row in rows]))
        wanted.append(flit([reduce_word(list(c), dtype, op, bits) for c in columns], dtype))
        noise = rng.choice(list(FLOATS))
        jobs.append(
            (attr_bits(noise), [rng.getrandbits(FLIT_BITS) for _ in range(rng.randint(1, 5))])
        )
        wanted.append(None)
    for job, got, want in zip(jobs, exact_player().reduce(jobs), wanted, strict=True):
        assert want is None or got == want, job


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", COMPARED, ids=lambda dtype: dtype.name.lower())
@pytest.mark.parametrize("op", [Op.MIN, Op.MAX], ids=lambda op: op.name.lower())
def test_minimum_and_maximum(exact_player, dtype, op):
    """A NaN loses, two give the canonical one, +0 is above -0; fp8 comes out finite."""
    form = FLOATS[dtype]
    sign = 1 << form.bits - 1
    rng = random.Random(f"{dtype} {op}")
    lanes = FLIT_BITS // form.bits
    one = (1 << form.exponent_bits - 1) - 1 << form.mantissa_bits
    top = form.max_exponent << form.mantissa_bits
    edges = [0, sign, top, top | sign, form.nan, sign - 1, one, one | sign, 1]

    def number() -> int:
        return rng.choice(edges) if rng.random() < 0.6 else rng.getrandbits(form.bits)

    def size(bits: int) -> int:
        return ~(bits - sign) if bits & sign else bits

    jobs, rows = [], []
    for _ in range(2000):
        flits = [[number() for _ in range(lanes)] for _ in range(rng.randint(1, 4))]
        rows.append(list(zip(*flits, strict=True)))
        jobs.append((attr_bits(dtype, op), [flit(row, dtype) for row in flits]))
    choose = min if op is Op.MIN else max
    highest = form.largest if form.infinity is None else form.infinity
    for columns, result in zip(rows, exact_player().reduce(jobs), strict=True):
        for column, got in zip(columns, elements(result, dtype), strict=True):
            numbers = [bits for bits in column if bits & sign - 1 <= highest]
            wanted = choose(numbers, key=size) if numbers else form.nan
            if form.saturates and wanted & sign - 1 == highest:
                wanted = wanted & sign | form.largest
            assert got == wanted, ([hex(bits) for bits in column], hex(got))
