"""Order ``exact``: sums of whole lists, against Python's fractions."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amaranth.sim import Simulator

from dysharp.hw.alu.exact import ExactAlu
from dysharp.hw.alu.exact_lane_rounder import ExactLaneRounder
from dysharp.hw.alu.exact_rounder import ExactRounder
from dysharp.hw.alu.exact_word import ExactWord
from dysharp.hw.alu.float_format import E4M3
from dysharp.hw.alu.reductions import DEFAULT_DTYPES
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op


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


@pytest.fixture(scope="module")
def everything(exact_player):
    """All types, room for 128 contributions."""
    return exact_player()


def _batched(items: list, size: int) -> list[list]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _flit(numbers, bits: int) -> int:
    return sum(number << bits * lane for lane, number in enumerate(numbers))


def _attr(form: str, op: Op = Op.ADD) -> int:
    dtype = Dtype[form.removesuffix("_ftz").upper()]
    return Attr.const({"dtype": dtype, "op": op, "acc": 0}).as_bits()


def sums_of(player: Any, form: str, lists: list[list[int]]) -> list[int]:
    """Sum of each list of numbers; lists of one length go side by side."""
    bits = FORMATS[form].bits
    lanes = FLIT_BITS // bits
    packed: list[tuple[int, list[int]]] = []
    places: list[tuple[int, int]] = [(0, 0)] * len(lists)
    by_length = sorted(range(len(lists)), key=lambda number: len(lists[number]))
    for _, group in itertools.groupby(by_length, key=lambda number: len(lists[number])):
        for batch in _batched(list(group), lanes):
            columns = [lists[number] for number in batch]
            flits = [_flit(row, bits) for row in zip(*columns, strict=True)]
            for lane, number in enumerate(batch):
                places[number] = (len(packed), lane)
            packed.append((_attr(form), flits))
    results = player.reduce(packed)
    return [results[k] >> bits * lane & (1 << bits) - 1 for k, lane in places]


ALL_FORMATS = [form for form in FORMATS if form != "f32_ftz"]


def check(player: Any, form: str, lists: list[list[int]]) -> None:
    """Each list's sum is that of the fractions."""
    digits = FORMATS[form].bits // 4
    for numbers, got in zip(lists, sums_of(player, form, lists), strict=True):
        wanted = exact_sum(numbers, FORMATS[form])
        shown = " ".join(f"{number:0{digits}x}" for number in numbers)
        assert got == wanted, f"{form} {shown}: {got:0{digits}x}, not {wanted:0{digits}x}"


def random_number(rng: random.Random, form: Form) -> int:
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
    numbers = [random_number(rng, form) for _ in range(rng.randint(1, longest))]
    kind = rng.randrange(4)
    if kind == 0:
        numbers += [number ^ form.sign for number in numbers]
        numbers += [random_number(rng, form) for _ in range(rng.randrange(3))]
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


def test_oracle_is_right():
    """The fractions agree with numpy and ml_dtypes on numbers and on the middles between them."""
    types = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e5m2": ml_dtypes.float8_e5m2,
             "e4m3": ml_dtypes.float8_e4m3fn}  # fmt: skip
    for name, kind in types.items():
        form = FORMATS[name]
        for bits in range(0, form.sign, 1 if form.bits == 8 else 23):
            if form.is_nan(bits) or form.is_infinite(bits):
                continue
            unsigned = np.uint16 if form.bits == 16 else np.uint8
            value = form.value(bits)
            assert float(np.array(bits, unsigned).view(kind)) == value
            if bits < form.largest:
                middle = float((value + form.value(bits + 1)) / 2)
                assert np.array(middle).astype(kind).view(unsigned) == form.nearest(
                    Fraction(middle)
                )
    rng = random.Random(1)
    for name, kind in (("f64", np.float64), ("f32", np.float32)):
        for _ in range(500):
            value = Fraction(rng.getrandbits(80) | 1) * Fraction(2) ** rng.randint(-200, 40)
            wanted = np.array(float(value)).astype(kind)
            if kind is np.float64:
                assert FORMATS[name].nearest(value) == wanted.view(np.uint64)
            else:
                rounded = Fraction(float(value))  # what numpy is given
                assert FORMATS[name].nearest(rounded) == wanted.view(np.uint32)


@pytest.mark.nightly
@pytest.mark.parametrize("form", ALL_FORMATS)
def test_random_lists(everything, form):
    rng = random.Random(form)
    check(everything, form, [random_list(rng, FORMATS[form]) for _ in range(6000)])


@pytest.mark.nightly
@pytest.mark.parametrize("form", ALL_FORMATS)
@pytest.mark.parametrize("seed", range(3))
def test_random_lists_at_length(everything, form, seed):
    rng = random.Random(f"{form} {seed}")
    check(everything, form, [random_list(rng, FORMATS[form], 60) for _ in range(100_000)])


def f32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@pytest.mark.nightly
def test_known_sum_in_every_order(everything):
    """1e8 + 1 - 1e8 + 1 is 2 in all 24 orders; an f32 adder says 0, 1 or 2."""
    numbers = [f32(1e8), f32(1), f32(-1e8), f32(1)]
    orders = [list(order) for order in itertools.permutations(numbers)]
    assert set(sums_of(everything, "f32", orders)) == {f32(2)}


@pytest.mark.nightly
@pytest.mark.parametrize("form", ALL_FORMATS)
def test_order_changes_no_bit(everything, form):
    rng = random.Random(f"orders of {form}")
    for _ in range(40):
        numbers = random_list(rng, FORMATS[form], 20)
        orders = [rng.sample(numbers, len(numbers)) for _ in range(16)]
        assert len(set(sums_of(everything, form, orders))) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("form", ALL_FORMATS)
def test_every_pair_of_powers_of_two(everything, form):
    """Every exponent gap, from the smallest subnormal on: sum, difference, and back again."""
    f = FORMATS[form]
    powers = [1 << k for k in range(f.mantissa_bits)]
    powers += [e << f.mantissa_bits for e in range(1, (f.largest >> f.mantissa_bits) + 1)]
    rng = random.Random(form)
    pairs = list(itertools.product(powers, powers))
    if len(pairs) > 8000:
        pairs = rng.sample(pairs, 8000)
    check(everything, form, [[a, b] for a, b in pairs])
    check(everything, form, [[a, b | f.sign] for a, b in pairs])
    check(everything, form, [[a, b, a | f.sign] for a, b in pairs[::5]])


@pytest.mark.nightly
@pytest.mark.parametrize("form", ALL_FORMATS)
def test_ties_and_what_decides_them(everything, form):
    """A tie goes to even, unless anything at all, however small, stands below or is missing."""
    f = FORMATS[form]
    hidden = 1 << f.mantissa_bits
    top = f.largest >> f.mantissa_bits
    lists = []
    for exponent in range(f.mantissa_bits + 2, top + 1):
        half = exponent - f.mantissa_bits - 1 << f.mantissa_bits
        for mantissa in {0, 1, 2, hidden - 2, hidden - 1}:
            number = exponent << f.mantissa_bits | mantissa
            if number > f.largest:
                continue
            for least in (0, 1, 1 | f.sign, half // 2, half // 2 | f.sign):
                lists.append([number, half, least])
                lists.append([number | f.sign, half | f.sign, least])
                lists.append([number, half | f.sign, least])
    check(everything, form, random.Random(form).sample(lists, min(len(lists), 8000)))


@pytest.mark.nightly
@pytest.mark.parametrize("form", ALL_FORMATS)
def test_as_many_as_there_is_room_for(everything, form):
    """128 of the largest, of one sign or all but one back again; 72 as from a switch's ports."""
    f = FORMATS[form]
    most = f.largest
    lists = []
    for count in (72, 127, 128):
        lists += [[most] * count, [most | f.sign] * count]
        back = [most] * (count // 2) + [most | f.sign] * (count // 2)
        lists += [back, back[::-1], back[:-1], [1, *back[:-1]], [1 | f.sign, *back[1:]]]
    lists += [[1] * count for count in range(1, 129)]
    lists += [[1 | f.sign] * count for count in range(1, 129)]
    lists += [[most, most, most | f.sign], [most, most | f.sign, most | f.sign, most, 1]]
    check(everything, form, lists)


@pytest.mark.nightly
@pytest.mark.parametrize("form", ALL_FORMATS)
def test_specials(everything, form):
    """Every list of up to four of: both zeros, both infinities, NaNs, both ones, the largest."""
    f = FORMATS[form]
    one = f.bias << f.mantissa_bits
    values = [0, f.sign, f.infinity, f.infinity | f.sign, f.nan, f.sign - 1, 2 * f.sign - 1,
              one, one | f.sign, f.largest, 1, 1 | f.sign]  # fmt: skip
    lists = [list(some) for n in (1, 2, 3) for some in itertools.product(values, repeat=n)]
    lists += random.Random(form).sample(list(itertools.product(values, repeat=4)), 2000)
    check(everything, form, [list(numbers) for numbers in lists])


@pytest.mark.nightly
def test_every_pair_of_fp8(everything):
    """All 2^16 pairs of both."""
    for form in ("e4m3", "e5m2"):
        check(everything, form, [[a, b] for a in range(256) for b in range(256)])


@pytest.mark.nightly
def test_flush_to_zero(exact_player):
    """Subnormals of f32 count as zeros of their sign, and so do results; of bf16 they are kept."""
    player = exact_player((Dtype.BF16, Dtype.F32), ftz=True)
    rng = random.Random(3)
    form = FORMATS["f32_ftz"]
    check(player, "f32_ftz", [random_list(rng, form) for _ in range(3000)])
    near = [rng.randrange(4 << 23) | rng.choice((0, form.sign)) for _ in range(6000)]
    check(player, "f32_ftz", [near[k : k + 3] for k in range(0, 6000, 3)])
    check(player, "bf16", [random_list(rng, FORMATS["bf16"]) for _ in range(2000)])


BUILDS = [(Dtype.BF16,), (Dtype.F16,), (Dtype.F32,), (Dtype.E4M3,), (Dtype.E5M2,),
          (Dtype.F16, Dtype.E4M3, Dtype.E5M2), (Dtype.BF16, Dtype.E5M2)]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("dtypes", BUILDS, ids=lambda dtypes: "_".join(d.name for d in dtypes))
def test_builds(exact_player, dtypes):
    """Each type by itself, and types that share in other ways; room for few contributions."""
    player = exact_player(dtypes, contributions=8)
    for dtype in dtypes:
        form = dtype.name.lower()
        f = FORMATS[form]
        rng = random.Random(form)
        lists = [random_list(rng, f, 3) for _ in range(3000)]
        lists += [[f.largest] * 8, [f.largest | f.sign] * 8, [1] * 8, [1 | f.sign] * 8]
        check(player, form, [numbers[:8] for numbers in lists])


ONE_LIMB_BUILDS = [(Dtype.BF16, Dtype.E4M3), (Dtype.F16, Dtype.E4M3),
                   (Dtype.F16, Dtype.BF16, Dtype.E4M3)]  # fmt: skip


@pytest.mark.parametrize("contributions", [8, 32])
@pytest.mark.parametrize(
    "dtypes", ONE_LIMB_BUILDS, ids=lambda dtypes: "_".join(d.name for d in dtypes)
)
def test_sums_of_one_limb(dtypes, contributions):
    """An e4m3 sum that needs one limb is its own, whatever the sum above it in the wide lane is.

    The rounder always looks at two limbs. It used to read the second one and its carry even for a
    sum that has one only. There stands the sum of the odd byte, so the even one was taken for a
    huge number and came out as the largest of either sign, 0x7e or 0xfe.
    """
    lane = ExactWord(dtypes=dtypes, ftz=False, contributions=contributions).lanes[0]
    fixed, form = lane.fixed, FORMATS["e4m3"]
    assert fixed.limbs_of(E4M3) == 1
    rng = random.Random(contributions)
    finite = [bits for bits in range(256) if not form.is_nan(bits)]
    lists = [[a, b] for a in finite for b in finite if a <= b]
    lists = rng.sample(lists, 60)
    lists += [rng.choices(finite, k=rng.randint(1, contributions)) for _ in range(30)]
    lists += [[form.largest] * contributions, [form.largest | form.sign] * contributions]
    least = form.value(1) / 2 ** (fixed.mix.below(E4M3) + 1)  # what bit 0 is worth
    own_bits, flag_bits = fixed.limbs[0][1], 3
    dut = ExactLaneRounder(fixed=fixed)

    async def bench(ctx):
        ctx.set(dut.select, 1 << lane.dtypes.index(Dtype.E4M3))
        for number in range(len(lists) + dut.latency):
            if number < len(lists):
                units = sum(map(form.value, lists[number])) / least
                assert units.denominator == 1
                own = (int(units) >> fixed.first) % (1 << own_bits)
                minus_zero = all(bits == form.sign for bits in lists[number])
                above = rng.getrandbits(fixed.bits) << own_bits + flag_bits
                word = own << flag_bits | (not minus_zero) << 2 | above
                ctx.set(dut.accumulator.as_value(), word % (1 << fixed.bits))
            if number >= dut.latency:
                numbers = lists[number - dut.latency]
                got, wanted = ctx.get(dut.o) & 0xFF, exact_sum(numbers, form)
                assert got == wanted, f"{numbers}: {got:02x}, not {wanted:02x}"
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-9)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "dtypes", ONE_LIMB_BUILDS, ids=lambda dtypes: "_".join(d.name for d in dtypes)
)
def test_every_pair_of_one_limb(exact_player, dtypes):
    """All 2^16 pairs of e4m3, in an order in which neighbours are not alike."""
    pairs = [[a, b] for a in range(256) for b in range(256)]
    random.Random(8).shuffle(pairs)
    check(exact_player(dtypes, contributions=8), "e4m3", pairs)


@pytest.mark.parametrize("unit", [ExactAlu, ExactRounder])
def test_parameters_are_checked(unit):
    with pytest.raises(ValueError, match="Contributions must be at least 2, not 1"):
        unit(dtypes=DEFAULT_DTYPES, contributions=1)
    with pytest.raises(ValueError, match="Types must be a choice of"):
        unit(dtypes=(Dtype.F32, Dtype.BF16))
