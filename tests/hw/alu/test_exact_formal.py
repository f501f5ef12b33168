"""Proofs of the exact sum, in formats small enough for a solver and with limbs short enough."""

import pytest
from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.hdl import Assert, Assume, Elaboratable

from dysharp.hw.alu.carry_skip import add_skipping
from dysharp.hw.alu.exact_lane import ExactLane
from dysharp.hw.alu.exact_lane_rounder import ExactLaneRounder
from dysharp.hw.alu.fixed_point import FixedPoint
from dysharp.hw.alu.float_format import FloatFormat
from dysharp.sim_tb.formal import prove

SMALL = FloatFormat("small", exponent_bits=3, mantissa_bits=2, nan=0x1F)
SHORT = FloatFormat("short", exponent_bits=2, mantissa_bits=1, nan=0x7, saturates=True)
FINITE = FloatFormat(
    "finite", exponent_bits=2, mantissa_bits=2, nan=0xF, infinities=False, saturates=True
)
WIDE = FloatFormat("wide", exponent_bits=4, mantissa_bits=2, nan=0x3F)
FIXED = FixedPoint((SMALL, SHORT, FINITE), contributions=4, limb_bits=4)
"""Three limbs, of which each format needs two or three."""
ONE_LIMB = FixedPoint((WIDE, SHORT), contributions=4, limb_bits=8)
"""Three limbs, of which ``SHORT`` needs one."""


def value_of(word, fixed: FixedPoint, bits):
    """Limbs and the carries beside them as one number, modulo 2 to the power of ``bits``."""
    total = Const(0, bits)
    for k, (start, _) in enumerate(fixed.limbs):
        limb = word[f"limb{k}"] + (word[f"carry{k}"] if k else Const(0, 1))
        total = total + (limb << start)
    return total[:bits]


def fixed_of(number, fixed: FixedPoint, form: FloatFormat):
    """A finite number in units of the accumulator's lowest bit, which is bit 1; as a plain sum."""
    fields = form.view(number[: form.bits])
    magnitude = Const(0, 1)
    for exponent in range(form.max_exponent + 1):
        hidden = (1 << form.mantissa_bits) if exponent else 0
        left = max(exponent, 1) + fixed.mix.mantissa_bits - form.mantissa_bits
        here = fields.exponent == exponent
        magnitude = magnitude | Mux(here, (fields.mantissa + hidden) << left, 0)
    return Mux(fields.sign, -magnitude, magnitude)


class AddsHarness(Elaboratable):
    """Accumulator and number give what their values add up to; so the order cannot matter."""

    def __init__(self, fixed: FixedPoint, index: int):
        self.fixed, self.index = fixed, index
        self.dut = ExactLane(fixed=fixed)
        self.ports = [self.dut.load, self.dut.number, self.dut.accumulator.as_value()]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        form = self.fixed.formats[self.index]
        load, number, began = Signal(), Signal.like(dut.number), Signal()
        m.d.comb += dut.select.eq(1 << self.index)
        m.d.sync += [load.eq(dut.load), number.eq(dut.number), began.eq(1)]

        bits = self.fixed.limb_bits * self.fixed.limbs_of(form)
        sofar, now = dut.accumulator, dut.o
        short = number[: form.bits]
        nan, infinite = form.is_nan(short), form.is_infinite(short)
        added = Mux(nan | infinite, 0, fixed_of(number, self.fixed, form))
        total = Signal(bits)
        minus_zero = short == 1 << form.bits - 1
        m.d.comb += total.eq(Mux(load, 0, value_of(sofar, self.fixed, bits)) + added)

        def flag(name, comes):
            return now[name] == ((sofar[name] & ~load) | comes)

        m.d.comb += [
            Assert(~began | (value_of(now, self.fixed, bits) == total)),
            Assert(~began | flag("positive", nan | infinite & ~short[-1])),
            Assert(~began | flag("negative", nan | infinite & short[-1])),
            Assert(~began | flag("other", ~minus_zero)),
        ]
        return m


class RoundsHarness(Elaboratable):
    """Any sum that the accumulator can hold comes out as a plain rounding of its value."""

    def __init__(self, fixed: FixedPoint, index: int):
        self.fixed, self.index = fixed, index
        self.dut = ExactLaneRounder(fixed=fixed)
        self.ports = [self.dut.accumulator.as_value()]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        form = self.fixed.formats[self.index]
        highest = form.max_exponent - form.infinities
        largest = ((1 << self.fixed.significand_bits) - 1) << highest
        bits = self.fixed.limb_bits * self.fixed.limbs_of(form)
        value = Signal(signed(bits))
        least = 1 + self.fixed.mix.mantissa_bits - form.mantissa_bits
        m.d.comb += [
            dut.select.eq(1 << self.index),
            value.eq(value_of(dut.accumulator, self.fixed, bits)),
            Assume(value[:least] == 0),
            Assume((value <= 4 * largest) & (value >= -4 * largest)),
        ]
        wanted, valid = Signal(form.bits), Signal()
        m.d.comb += [wanted.eq(self._rounded(m, value, form)), valid.eq(1)]
        for _ in range(dut.latency):
            later, later_valid = Signal.like(wanted), Signal()
            m.d.sync += [later.eq(wanted), later_valid.eq(valid)]
            wanted, valid = later, later_valid
        m.d.comb += Assert(~valid | (dut.o[: form.bits] == wanted))
        return m

    def _rounded(self, m, value, form):
        """By cases of the leading bit, each with shift, remainder and half written out."""
        flags = self.dut.accumulator
        magnitude, result = Signal(len(value)), Signal(len(value) + 4)
        m.d.comb += magnitude.eq(Mux(value < 0, -value, value))
        lowest = 1 + self.fixed.mix.mantissa_bits - form.mantissa_bits
        for leading in range(len(value)):
            shift = max(leading - form.mantissa_bits, lowest)
            kept, rest = magnitude >> shift, magnitude[:shift]
            half = 1 << shift - 1
            up = (rest > half) | (rest == half) & kept[0]
            with m.If(magnitude[leading]):  # the last that holds is the leading one
                m.d.comb += result.eq(((shift - lowest) << form.mantissa_bits) + kept + up)
        sign = (value < 0) | ~flags.other
        infinite = flags.positive | flags.negative
        number = Mux(infinite | (result > form.largest), form.overflow, result)
        signed_number = Cat(number[: form.bits - 1], Mux(infinite, flags.negative, sign))
        return Mux(flags.positive & flags.negative, form.nan, signed_number)


class SumHarness(Elaboratable):
    """The adder of a limb is an adder."""

    def __init__(self, width: int):
        self.a, self.b, self.carry = Signal(width), Signal(width), Signal()
        self.ports = [self.a, self.b, self.carry]

    def elaborate(self, platform):
        m = Module()
        total = add_skipping(m, self.a, self.b, self.carry)
        m.d.comb += Assert(total == self.a + self.b + self.carry)
        counted = add_skipping(m, self.a, None, self.carry)
        m.d.comb += Assert(counted == self.a + self.carry)
        return m


@pytest.mark.parametrize("width", [1, 2, 7, 31, 32])
def test_a_limb_is_added(width):
    harness = SumHarness(width)
    prove(harness, harness.ports, name=f"limb_{width}", depth=1)


FORMATS = pytest.mark.parametrize(
    "fixed, index",
    [*((FIXED, index) for index in range(3)), (ONE_LIMB, 1)],
    ids=[*(form.name for form in FIXED.formats), "short_in_one_limb"],
)


@FORMATS
def test_a_number_is_added_exactly(fixed, index):
    harness = AddsHarness(fixed, index)
    name = f"exact_adds_{fixed.formats[index].name}_{fixed.limb_bits}"
    prove(harness, harness.ports, name=name, depth=3, induction=True)


@FORMATS
def test_a_sum_is_rounded_once(fixed, index):
    """Where a format needs fewer limbs than there are, anything may stand in the others."""
    harness = RoundsHarness(fixed, index)
    name = f"exact_rounds_{fixed.formats[index].name}_{fixed.limb_bits}"
    prove(harness, harness.ports, name=name, depth=6, induction=True)
