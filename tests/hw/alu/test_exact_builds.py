"""Order ``exact`` in builds of fewer types, flushed subnormals, little room; refused parameters."""

from __future__ import annotations

import random

import pytest
from amaranth.sim import Simulator

from dysharp.hw.alu.exact import ExactAlu
from dysharp.hw.alu.exact_lane_rounder import ExactLaneRounder
from dysharp.hw.alu.exact_rounder import ExactRounder
from dysharp.hw.alu.exact_word import ExactWord
from dysharp.hw.alu.float_format import E4M3
from dysharp.hw.alu.reductions import DEFAULT_DTYPES
from dysharp.hw.packet import Dtype
from dysharp.sim_tb.exact_sums import FORMATS, exact_sum, random_list


@pytest.mark.nightly
def test_flush_to_zero(exact_player):
    """Subnormals of f32 count as zeros of their sign, and so do results; of bf16 they are kept."""
    player = exact_player((Dtype.BF16, Dtype.F32), ftz=True)
    rng = random.Random(3)
    form = FORMATS["f32_ftz"]
    player.check("f32_ftz", [random_list(rng, form) for _ in range(3000)])
    near = [rng.randrange(4 << 23) | rng.choice((0, form.sign)) for _ in range(6000)]
    player.check("f32_ftz", [near[k : k + 3] for k in range(0, 6000, 3)])
    player.check("bf16", [random_list(rng, FORMATS["bf16"]) for _ in range(2000)])


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
        player.check(form, [numbers[:8] for numbers in lists])


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
    exact_player(dtypes, contributions=8).check("e4m3", pairs)


@pytest.mark.parametrize("unit", [ExactAlu, ExactRounder])
def test_parameters_are_checked(unit):
    with pytest.raises(ValueError, match="Contributions must be at least 2, not 1"):
        unit(dtypes=DEFAULT_DTYPES, contributions=1)
    with pytest.raises(ValueError, match="Types must be a choice of"):
        unit(dtypes=(Dtype.F32, Dtype.BF16))
