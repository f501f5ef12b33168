"""Order ``exact`` where something changes: every gap of exponents, ties, limits, specials."""

from __future__ import annotations

import itertools
import random

import pytest

from dysharp.sim_tb.exact_sums import FORMATS

FORMS = [form for form in FORMATS if form != "f32_ftz"]


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_every_pair_of_powers_of_two(everything, form):
    """Every exponent gap, from the smallest subnormal on: sum, difference, and back again."""
    f = FORMATS[form]
    powers = [1 << k for k in range(f.mantissa_bits)]
    powers += [e << f.mantissa_bits for e in range(1, (f.largest >> f.mantissa_bits) + 1)]
    rng = random.Random(form)
    pairs = list(itertools.product(powers, powers))
    if len(pairs) > 8000:
        pairs = rng.sample(pairs, 8000)
    everything.check(form, [[a, b] for a, b in pairs])
    everything.check(form, [[a, b | f.sign] for a, b in pairs])
    everything.check(form, [[a, b, a | f.sign] for a, b in pairs[::5]])


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
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
    everything.check(form, random.Random(form).sample(lists, min(len(lists), 8000)))


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
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
    everything.check(form, lists)


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_specials(everything, form):
    """Every list of up to four of: both zeros, both infinities, NaNs, both ones, the largest."""
    f = FORMATS[form]
    one = f.bias << f.mantissa_bits
    values = [0, f.sign, f.infinity, f.infinity | f.sign, f.nan, f.sign - 1, 2 * f.sign - 1,
              one, one | f.sign, f.largest, 1, 1 | f.sign]  # fmt: skip
    lists = [list(some) for n in (1, 2, 3) for some in itertools.product(values, repeat=n)]
    lists += random.Random(form).sample(list(itertools.product(values, repeat=4)), 2000)
    everything.check(form, [list(numbers) for numbers in lists])


@pytest.mark.nightly
def test_every_pair_of_fp8(everything):
    """All 2^16 pairs of both."""
    for form in ("e4m3", "e5m2"):
        everything.check(form, [[a, b] for a in range(256) for b in range(256)])
