"""Integer sums and bitwise operations: proved for every flit, in every build."""

import operator

import pytest
from amaranth import Cat, Module, Signal
from amaranth.hdl import Assert, Assume, Elaboratable

from dysharp.hw.alu.integer import INTEGER_DTYPES, IntegerUnit
from dysharp.hw.alu.reductions import DEFAULT_DTYPES
from dysharp.hw.packet import Dtype, Op
from dysharp.sim_tb.formal import ProofFailed, prove

BITS = {Dtype.U32: 32, Dtype.S32: 32, Dtype.U64: 64}
BITWISE = {Op.AND: operator.and_, Op.OR: operator.or_, Op.XOR: operator.xor}
BUILDS = {
    "all": DEFAULT_DTYPES,
    "sums_of_32": (Dtype.U32, Dtype.S32),
    "u64": (Dtype.U64, Dtype.BF16),
    "bitwise": (Dtype.B32, Dtype.B64),
    "s32_b64": (Dtype.S32, Dtype.B64),
}


class Harness(Elaboratable):
    """A flit of any bits, and after ``depth`` cycles the sum, or the like, of each number in it."""

    def __init__(self, dtypes, depth, *, bits=BITS):
        self.dut, self.bits = IntegerUnit(dtypes=dtypes, depth=depth), bits
        dut = self.dut
        self.ports = [dut.attr.as_value(), dut.operand, dut.accumulator, dut.passes, dut.passed]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        expected, known = Signal(128), Signal()
        with m.Switch(Cat(dut.attr.dtype, dut.attr.op)):
            for dtype in dut.dtypes:
                for op in BITWISE if dtype not in self.bits else (Op.ADD,):
                    with m.Case(dtype.value | op.value << 4):
                        m.d.comb += [known.eq(1), expected.eq(self.reduced(dtype, op))]
        with m.If(dut.passes):
            m.d.comb += [known.eq(1), expected.eq(dut.passed)]
        valid = known
        for stage in range(dut.latency):
            later, was_valid = Signal(128, name=f"later{stage}"), Signal(name=f"was_valid{stage}")
            m.d.sync += [later.eq(expected), was_valid.eq(valid)]
            expected, valid = later, was_valid
        m.d.comb += [Assume(known), Assert(~valid | (dut.result == expected))]
        return m

    def reduced(self, dtype, op):
        a, b = self.dut.operand, self.dut.accumulator
        if op in BITWISE:
            return BITWISE[op](a, b)
        bits = self.bits[dtype]
        lanes = [(a.word_select(k, bits), b.word_select(k, bits)) for k in range(128 // bits)]
        return Cat((x + y)[:bits] for x, y in lanes)


@pytest.mark.parametrize(
    ("build", "depth"), [("all", 1), ("u64", 0), ("bitwise", 0), ("s32_b64", 0)]
)
def test_every_flit(build, depth):
    harness = Harness(BUILDS[build], depth)
    prove(harness, harness.ports, name=f"integer_{build}_{depth}", depth=1 + depth)


def test_the_proof_sees_a_carry_that_stops():
    """It fails if the sums are said to be wider than they are."""
    harness = Harness((Dtype.U32, Dtype.U64), 0, bits={Dtype.U32: 64, Dtype.U64: 64})
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="integer_too_wide", depth=1)


def test_only_what_is_built_is_paid_for():
    """Types without an operation here change nothing."""
    assert IntegerUnit(dtypes=DEFAULT_DTYPES).dtypes == INTEGER_DTYPES
    assert IntegerUnit(dtypes=(Dtype.U32, Dtype.S64, Dtype.F32)).dtypes == (Dtype.U32,)


def test_names_tell_units_apart():
    names = {IntegerUnit(dtypes=b, depth=d).module_name for b in BUILDS.values() for d in (0, 1)}
    assert len(names) == 2 * len(BUILDS)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="Types must hold one of u32, s32, u64, b32, b64"):
        IntegerUnit(dtypes=(Dtype.S64, Dtype.F32))
    with pytest.raises(ValueError, match="Depth must be 0 or 1, not 2"):
        IntegerUnit(dtypes=DEFAULT_DTYPES, depth=2)
