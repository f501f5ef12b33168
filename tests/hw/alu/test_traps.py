"""The traps that floating-point units fall into, each by name, in every format.

What is wanted is worked out here by hand, or from the format's widths; nothing is asked of a model.
"""

import functools
import math
from collections.abc import Iterable, Sequence

import pytest
from amaranth.hdl import Fragment
from amaranth.sim import Simulator

from dysharp.hw.alu.alu import ReductionAlu
from dysharp.hw.alu.float_format import BF16, E4M3, E5M2, F16, F32, F64, FloatFormat
from dysharp.hw.packet import Dtype, Op
from dysharp.sim_tb.gates import Gates
from dysharp.sim_tb.native.targets import TARGETS

FORMATS = (BF16, F16, F32, F64, E4M3, E5M2)
WITH_INFINITIES = tuple(form for form in FORMATS if form.infinities)
COMPARED = (BF16, F16, E4M3, E5M2)


def each(*forms: FloatFormat):
    return pytest.mark.parametrize("form", forms, ids=[form.name for form in forms])


KINDS = {"own": "", "alu": "-alu", "alu-half": "-alu-half"}


def each_adder(*forms: FloatFormat):
    """Each format in its own adder, and in those of the ALU, which serve several formats."""
    cases = [
        pytest.param(form, kind, id=f"{name}-{form.name}")
        for form in forms
        for name, kind in KINDS.items()
        if f"{form.name}-add{kind}" in TARGETS
    ]
    return pytest.mark.parametrize(("form", "kind"), cases)


@functools.cache
def gates(name: str) -> Gates:
    return Gates(TARGETS[name].unit())


def check(name: str, cases: Sequence[tuple[int, int, int]]) -> None:
    """Each ``(a, b, result)`` is what the unit gives; one with one operand has no ``b``."""
    operands = dict(
        zip("ab"[: len(TARGETS[name].operands)], zip(*cases, strict=True), strict=False)
    )
    got = gates(name)(**operands)["o"].tolist()
    wrong = [
        f"{x:x}, {y:x} gave {found:x}, not {wanted:x}"
        for (x, y, wanted), found in zip(cases, got, strict=True)
        if found != wanted
    ]
    assert not wrong, f"{name}: {wrong[:5]}"


def check_sums(form: FloatFormat, kind: str, sums: Iterable[tuple[int, int, int]]) -> None:
    """Each ``(a, b, a + b)``, in both orders."""
    both = [(a, b, o) for x, y, o in sums for a, b in ((x, y), (y, x))]
    check(f"{form.name}-add{kind}", both)


def bias(form: FloatFormat) -> int:
    return (1 << form.exponent_bits - 1) - 1


def least(form: FloatFormat) -> int:
    """Exponent of the smallest normal number."""
    return 1 - bias(form)


def greatest(form: FloatFormat) -> int:
    """Exponent of the largest numbers."""
    return bias(form) + (not form.infinities)


def sign(form: FloatFormat) -> int:
    return 1 << form.bits - 1


def bits_of(value: float, form: FloatFormat) -> int:
    """The pattern of a number that the format has exactly."""
    negative = sign(form) if math.copysign(1, value) < 0 else 0
    if value == 0:
        return negative
    exponent = max(math.frexp(value)[1] - 1, least(form))
    significand = math.ldexp(abs(value), form.mantissa_bits - exponent)
    assert significand == int(significand) < 2 << form.mantissa_bits, f"{value!r} is not exact"
    field = exponent + bias(form) << form.mantissa_bits
    return negative | field + int(significand) - (1 << form.mantissa_bits)


def powers(form: FloatFormat) -> range:
    """Exponents of all powers of two, subnormal ones too."""
    return range(least(form) - form.mantissa_bits, greatest(form) + 1)


@each_adder(*FORMATS)
def test_one_and_every_power_of_two(form, kind):
    """1 + 2^k and 1 - 2^k at every gap of exponents: small terms are lost, not moved too little.

    An alignment that counts too few bits of the gap brings a small term back: 1.0 + 2^-126 in bf16
    once gave 0x3f81 in a published adder.
    """
    digits = form.mantissa_bits
    one = bits_of(1.0, form)
    sums = []
    for k in powers(form):
        power = math.ldexp(1.0, k)
        larger = max(1.0, power)
        exact = -digits <= k <= digits
        sums.append((one, bits_of(power, form), bits_of(1.0 + power if exact else larger, form)))
        exact = -digits - 1 <= k <= digits + 1
        difference = 1.0 - power if exact else 1.0 if k < 0 else -power
        sums.append((one, bits_of(-power, form), bits_of(difference, form)))
    check_sums(form, kind, sums)


@each_adder(BF16)
def test_one_and_the_smallest_normal(form, kind):
    check_sums(form, kind, [(0x3F80, 0x0080, 0x3F80), (0x3F80, 0x0001, 0x3F80)])


@each_adder(*FORMATS)
def test_half_goes_to_the_even_one(form, kind):
    """Halfway between two numbers: the one whose last bit is zero, up or down, of either sign."""
    digits = form.mantissa_bits
    place, half = math.ldexp(1.0, -digits), math.ldexp(1.0, -digits - 1)
    sums = []
    for start in range(4):
        low = 1.0 + start * place
        even = low + place if start % 2 else low
        sums.append((low, half, even))
        sums.append((-low, -half, -even))
    # One bit less than a power of two: half of the last place there is a quarter of it above.
    sums.append((1.0, -half / 2, 1.0))
    if digits > 2:
        sums.append((1.0 - half, -half / 2, 1.0 - place))
    check_sums(form, kind, [tuple(bits_of(value, form) for value in s) for s in sums])


@each_adder(*FORMATS)
def test_more_than_half_goes_up(form, kind):
    """Three quarters of the last place: truncation would lose them."""
    digits = form.mantissa_bits
    place = math.ldexp(1.0, -digits)
    sums = []
    for start in range(3):
        low = 1.0 + start * place
        sums += [(low, 0.75 * place, low + place), (-low, -0.75 * place, -low - place)]
        sums += [(low, 0.25 * place, low), (low, -0.25 * place, low)][: 2 if start else 1]
    check_sums(form, kind, [tuple(bits_of(value, form) for value in s) for s in sums])


@each_adder(*FORMATS)
def test_one_bit_far_below_breaks_a_tie(form, kind):
    """Half of the last place and one bit more, or less, wherever that bit is: the sticky bit."""
    digits = form.mantissa_bits
    place = math.ldexp(1.0, -digits)
    sums = []
    for k in range(1, digits + 1):
        if -digits - 1 - k < least(form) - digits:
            break
        rest = math.ldexp(1.0, -k)
        for start in (0, 1):
            low = 1.0 + start * place
            sums.append((low, 0.5 * place * (1 + rest), low + place))
            sums.append((low, 0.5 * place * (1 - rest / 2), low))
            sums.append((-low, -0.5 * place * (1 + rest), -low - place))
    check_sums(form, kind, [tuple(bits_of(value, form) for value in s) for s in sums])


@each_adder(*FORMATS)
def test_sum_carries_into_the_next_exponent(form, kind):
    """All ones and half of the last place: the carry runs through into the exponent."""
    digits = form.mantissa_bits
    ones, half = 2.0 - math.ldexp(1.0, -digits), math.ldexp(1.0, -digits - 1)
    sums = [(ones, half, 2.0), (-ones, -half, -2.0), (ones, ones, 2 * ones)]
    check_sums(form, kind, [tuple(bits_of(value, form) for value in s) for s in sums])


@each_adder(*FORMATS)
def test_subnormals_grow_into_normals(form, kind):
    """The step from the largest subnormal to the smallest normal is one of the last place."""
    smallest = 1 << form.mantissa_bits
    sums = [(smallest - 1, 1, smallest), (smallest, 1, smallest + 1)]
    sums += [(smallest, sign(form) | 1, smallest - 1), (1, 1, 2), (smallest - 1, smallest - 1,
             2 * (smallest - 1))]  # fmt: skip
    sums += [(sign(form) | a, sign(form) | b, sign(form) | o) for a, b, o in sums[:2]]
    check_sums(form, kind, sums)


@each_adder(*FORMATS)
def test_cancellation_is_exact(form, kind):
    """Neighbours leave one last place, at every exponent; equal numbers leave +0."""
    smallest = 1 << form.mantissa_bits
    sums = []
    for field in range(form.largest >> form.mantissa_bits):
        number = (field << form.mantissa_bits) + 5 % smallest
        place = max(field, 1) - 1  # exponent of the last place, as one of a subnormal 1
        left = (
            1 << place
            if place < form.mantissa_bits
            else place - form.mantissa_bits + 1 << form.mantissa_bits
        )
        sums.append((number + 1, sign(form) | number, left))
        sums.append((sign(form) | number, number, 0))
    check_sums(form, kind, sums)


@each_adder(BF16)
def test_largest_and_a_little_overflow(form, kind):
    """7c40 + 7f7f is infinity; it once came out as a NaN in a published adder."""
    check_sums(form, kind, [(0x7C40, 0x7F7F, 0x7F80), (0xFC40, 0xFF7F, 0xFF80)])


@each_adder(*FORMATS)
def test_overflow(form, kind):
    """Half of the last place above the largest overflows, less does not; fp8 saturates."""
    digits = form.mantissa_bits
    high = form.largest if form.saturates else form.infinity
    last = greatest(form) - digits  # exponent of the largest number's last place
    # Of a format without infinities the largest number is even, and half a place more a tie.
    half = bits_of(math.ldexp(1.0, last - 1), form)
    sums = [(form.largest, half, high), (form.largest, half - 1, form.largest)]
    sums += [(form.largest, form.largest, high)]
    sums += [(sign(form) | a, sign(form) | b, sign(form) | o) for a, b, o in sums]
    check_sums(form, kind, sums)


@each_adder(*FORMATS)
def test_nan_on_each_side(form, kind):
    """Quiet and signalling, of either sign: the canonical NaN comes out."""
    nans = [form.nan & sign(form) - 1]
    if form.infinities:
        quiet = 1 << form.mantissa_bits - 1
        nans = [form.infinity + 1, form.infinity + quiet - 1, form.infinity + quiet]
        nans = sorted({*nans, sign(form) - 1} - {form.infinity})
    others = [0, 1, bits_of(1.0, form), form.largest, *nans]
    others += [form.infinity] if form.infinities else []
    sums = [
        (nan | nan_sign, other | other_sign, form.nan)
        for nan in nans
        for other in others
        for nan_sign in (0, sign(form))
        for other_sign in (0, sign(form))
    ]
    check_sums(form, kind, sums)


@each_adder(*WITH_INFINITIES)
def test_infinities(form, kind):
    """An infinity wins over numbers, two of different signs are no number; fp8 saturates."""
    plus, minus = form.infinity, sign(form) | form.infinity
    top = form.largest if form.saturates else plus
    sums = [(plus, minus, form.nan), (plus, plus, top), (minus, minus, sign(form) | top)]
    for number in (0, 1, sign(form), bits_of(1.0, form), form.largest, sign(form) | form.largest):
        sums += [(plus, number, top), (minus, number, sign(form) | top)]
    check_sums(form, kind, sums)


@each_adder(*FORMATS)
def test_zeros(form, kind):
    """+0 but for -0 + -0; a number and a zero is the number; what cancels is +0."""
    minus, one = sign(form), bits_of(1.0, form)
    sums = [(0, 0, 0), (0, minus, 0), (minus, 0, 0), (minus, minus, minus)]
    sums += [(minus | a, a, 0) for a in (1, 1 << form.mantissa_bits, one, form.largest)]
    sums += [(zero, a, a) for zero in (0, minus) for a in (1, minus | 1, one, minus | one)]
    check_sums(form, kind, sums)


@each(*COMPARED)
@pytest.mark.parametrize("larger", [0, 1], ids=["min", "max"])
def test_min_max(form, larger):
    """+0 is above -0 in both orders, a NaN loses on each side, two NaNs are the canonical one."""
    minus, one = sign(form), bits_of(1.0, form)
    nans = [form.nan & minus - 1, form.nan | minus]
    if form.infinities:
        nans += [form.infinity + 1, minus | form.infinity + 1]
    # From low to high; each loses to all that follow.
    rising = [minus | form.largest, minus | one, minus | 1, minus, 0, 1, one, form.largest]
    if form.infinities:
        rising = [minus | form.infinity, *rising, form.infinity]
    cases = [
        (a, b, max(i, j) if larger else min(i, j))
        for i, a in enumerate(rising)
        for j, b in enumerate(rising)
    ]
    wanted = [(a, b, rising[k]) for a, b, k in cases]
    for nan in nans:
        wanted += [case for a in rising for case in ((nan, a, a), (a, nan, a))]
        wanted += [(nan, other, form.nan) for other in nans]
    check(f"{form.name}-{'max' if larger else 'min'}", wanted)


def flit(lane: int, bits: int) -> int:
    """128 bits of the same lane over and over, ``bits`` apart."""
    return sum(lane << at for at in range(0, 128, bits))


def slots(lane: int, bits: int) -> int:
    """The same for the 256 bits of the accumulators."""
    return flit(lane, bits) << 128 | flit(lane, bits)


# Type, operation, acc, operand, accumulators, and what is wanted.
ROWS = [
    # 1.0 + 2.0 = 3.0, each lane as f32 in its slot
    (Dtype.BF16, Op.ADD, 0, flit(0x3F80, 16), slots(0x4000_0000, 32), slots(0x4040_0000, 32)),
    # carries do not run from word to word
    (Dtype.U32, Op.ADD, 0, flit(0xFFFF_FFFF, 32), flit(2, 32), flit(1, 32)),
    # 448 + 448 saturates, each lane as f16 in its half slot
    (Dtype.E4M3, Op.ADD, 0, flit(0x7E, 8), slots(0x5F00, 16), slots(0x5F00, 16)),
    # +0 is above -0
    (Dtype.BF16, Op.MAX, 0, flit(0x8000, 16), 0, 0),
    (Dtype.B32, Op.XOR, 0, flit(0xF0F0_F0F0, 32), flit(0xFFFF_0000, 32), flit(0x0F0F_F0F0, 32)),
    # 2^-126 is lost beside the f32 1.0
    (Dtype.BF16, Op.ADD, 1, flit(0x0080, 16), slots(0x3F80_0000, 32), slots(0x3F80_0000, 32)),
    # a NaN loses to -1.0
    (Dtype.BF16, Op.MIN, 0, flit(0x7FC0, 16), flit(0xBF80, 16), flit(0xBF80, 16)),
    # a NaN and -448 are f16's NaN, two lanes a slot
    (Dtype.E4M3, Op.ADD, 1, flit(0xFF, 8), slots(0xDF00, 16), slots(0x7FFF, 16)),
]


@pytest.mark.slow
def test_type_and_operation_change_every_cycle():
    """Every row follows every other, a flit a cycle; none sees its neighbour's type."""
    order = [
        n for first in range(len(ROWS)) for second in range(len(ROWS)) for n in (first, second)
    ]
    alu = ReductionAlu(dtypes=(Dtype.U32, Dtype.B32, Dtype.BF16, Dtype.E4M3))
    got = []

    async def process(ctx):
        for cycle, n in enumerate([*order, *[0] * alu.latency]):
            dtype, op, acc, operand, accumulator, _ = ROWS[n]
            ctx.set(alu.attr, {"dtype": dtype, "op": op, "acc": acc})
            ctx.set(alu.operand, operand)
            ctx.set(alu.accumulator, accumulator)
            if cycle >= alu.latency:
                got.append(ctx.get(alu.result))
            await ctx.tick()

    simulator = Simulator(Fragment.get(alu, None))
    simulator.add_clock(1e-9)
    simulator.add_testbench(process)
    simulator.run()
    for at, (n, result) in enumerate(zip(order, got, strict=True)):
        dtype, op, acc, _, _, wanted = ROWS[n]
        # Above the low 128 bits, min, max, integers and bits may leave anything.
        bits = 256 if op == Op.ADD and dtype in (Dtype.BF16, Dtype.E4M3) else 128
        assert result & (1 << bits) - 1 == wanted, f"flit {at}: {dtype.name} {op.name} acc {acc}"


NARROWED = [(F32, BF16), (F32, F16), (F32, E4M3), (F32, E5M2), (F16, E4M3), (F16, E5M2)]


@pytest.mark.parametrize(
    ("source", "target"), NARROWED, ids=[f"{s.name}-{t.name}" for s, t in NARROWED]
)
def test_narrowing(source, target):
    """Ties, a rounding up into the normals, saturation, and NaNs of either sign."""
    digits = target.mantissa_bits
    place, smallest = math.ldexp(1.0, -digits), math.ldexp(1.0, least(target))
    cases = [
        (1 + place / 2, 1.0),
        (1 + 1.5 * place, 1 + 2 * place),
        (2 - place / 2, 2.0),
        # Half of a last place below the smallest normal number, and about the last subnormal.
        (smallest * (1 - place / 2), smallest),
        (smallest * place * 0.5, 0.0),
        (smallest * place * 1.5, smallest * place * 2),
    ]
    minus_in, minus_out = sign(source), sign(target)
    pairs = [
        (bits_of(value, source), bits_of(wanted, target))
        for value, wanted in cases
        if abs(value) >= math.ldexp(1.0, least(source) - source.mantissa_bits)
        and math.ldexp(value, source.mantissa_bits - least(source)) % 1 == 0
    ]
    high = target.largest if target.saturates else target.infinity
    pairs += [(source.infinity, high), (0, 0)]
    pairs += [(source.largest, high)] if source is F32 or target is E4M3 else []
    pairs += [(minus_in | value, minus_out | wanted) for value, wanted in pairs]
    quiet = source.infinity | 1 << source.mantissa_bits - 1
    pairs += [
        (nan | minus, target.nan) for nan in (source.infinity + 1, quiet) for minus in (0, minus_in)
    ]
    check(f"{source.name}-to-{target.name}", [(value, 0, wanted) for value, wanted in pairs])
