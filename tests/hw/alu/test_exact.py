"""Order ``exact``: sums of whole lists, in any order, against fractions."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from dysharp.sim_tb.exact_sums import FORMATS, random_list

FORMS = [form for form in FORMATS if form != "f32_ftz"]


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_random_lists(everything, form):
    rng = random.Random(form)
    everything.check(form, [random_list(rng, FORMATS[form]) for _ in range(6000)])


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(3))
def test_random_lists_at_length(everything, form, seed):
    rng = random.Random(f"{form} {seed}")
    everything.check(form, [random_list(rng, FORMATS[form], 60) for _ in range(100_000)])


def f32(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


@pytest.mark.nightly
def test_known_sum_in_every_order(everything):
    """1e8 + 1 - 1e8 + 1 is 2 in all 24 orders; an f32 adder says 0, 1 or 2."""
    numbers = [f32(1e8), f32(1), f32(-1e8), f32(1)]
    orders = [list(order) for order in itertools.permutations(numbers)]
    assert set(everything.sums_of("f32", orders)) == {f32(2)}


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_order_changes_no_bit(everything, form):
    rng = random.Random(f"orders of {form}")
    for _ in range(40):
        numbers = random_list(rng, FORMATS[form], 20)
        orders = [rng.sample(numbers, len(numbers)) for _ in range(16)]
        assert len(set(everything.sums_of(form, orders))) == 1
