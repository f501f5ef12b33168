"""Minimum and maximum: numbers against ml_dtypes and numpy, whole flits by proof."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Assert, Assume, Elaboratable

from dysharp.hw.alu.float_format import BF16, E4M3, E5M2, F16, F32, F64
from dysharp.hw.alu.min_max import MIN_MAX_DTYPES, FloatMinMax, MinMaxUnit
from dysharp.hw.alu.reductions import ALL_DTYPES, DEFAULT_DTYPES
from dysharp.hw.packet import Dtype, Op
from dysharp.sim_tb.formal import ProofFailed, prove
from dysharp.sim_tb.gates import Gates

ORACLE: dict[Any, Any] = {
    BF16: ml_dtypes.bfloat16,
    F16: np.float16,
    F32: np.float32,
    F64: np.float64,
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
}
WORD: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def expected(a, b, form, larger):
    """By comparing values, and signs where these are equal."""
    with np.errstate(invalid="ignore"):
        x, y = (v.astype(WORD[form.bits]).view(ORACLE[form]).astype(np.float64) for v in (a, b))
    below = (x < y) | ((x == y) & (np.signbit(x) > np.signbit(y)))
    number = np.where(np.isnan(x), b, np.where(np.isnan(y), a, np.where(below ^ larger, a, b)))
    return np.where(np.isnan(x) & np.isnan(y), np.uint64(form.nan), number)


def pairs(form):
    """All pairs of 8 bits; else special ones with each other and with anything, and neighbours."""
    if form.bits == 8:
        both = np.arange(1 << 16, dtype=np.uint64)
        return both >> np.uint64(8), both & np.uint64(0xFF)
    rng = np.random.default_rng(form.bits)
    top = 1 << form.bits - 1
    special = [0, 1, (1 << form.mantissa_bits) - 1, 1 << form.mantissa_bits, form.largest]
    special += [form.infinity, form.infinity + 1, form.nan, top - 1]
    special = np.array([s | sign for s in special for sign in (0, top)], dtype=np.uint64)
    anything = rng.integers(0, 1 << 64, 50_000, dtype=np.uint64) >> np.uint64(64 - form.bits)
    other = np.concatenate([special.repeat(2000), anything[: 50_000 - 2000 * len(special)]])
    near = anything ^ (np.uint64(1) << rng.integers(0, form.bits, 50_000).astype(np.uint64))
    grid = np.meshgrid(special, special)
    a = np.concatenate([anything, other, anything, anything, grid[0].ravel()])
    return a, np.concatenate([other, anything, near, rng.permutation(anything), grid[1].ravel()])


@pytest.mark.parametrize("form", ORACLE, ids=lambda form: form.name)
def test_numbers(form):
    gates = Gates(FloatMinMax(format=form))
    a, b = pairs(form)
    for larger in (0, 1):
        got, wanted = gates(a=a, b=b, larger=larger)["o"], expected(a, b, form, larger)
        wrong = np.flatnonzero(got != wanted)
        shown = [f"{a[k]:x}, {b[k]:x} gave {got[k]:x}, not {wanted[k]:x}" for k in wrong[:5]]
        assert not len(wrong), f"{form.name}, larger {larger}: {len(wrong)} wrong: {shown}"


INTEGERS = {Dtype.U32: 32, Dtype.S32: 32, Dtype.U64: 64, Dtype.S64: 64}
# Width, pattern of +infinity (or of the number before the first NaN), canonical NaN.
FLOATS = {
    Dtype.F16: (16, 0x7C00, 0x7FFF),
    Dtype.BF16: (16, 0x7F80, 0x7FFF),
    Dtype.E4M3: (8, 0x7E, 0x7F),
    Dtype.E5M2: (8, 0x7C, 0x7F),
}


class Harness(Elaboratable):
    """Each number of a flit of any bits, loaded or compared as the tables above have it."""

    def __init__(self, build, dtypes, *, nan_wins=False):
        self.dut, self.dtypes, self.nan_wins = MinMaxUnit(dtypes=build), dtypes, nan_wins
        dut = self.dut
        self.ports = [dut.attr.as_value(), dut.load, dut.operand, dut.accumulator]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        expected = Signal(128)
        with m.Switch(dut.attr.dtype):
            for dtype in self.dtypes:
                with m.Case(dtype):
                    bits = INTEGERS[dtype] if dtype in INTEGERS else FLOATS[dtype][0]
                    numbers = [
                        self.number(dtype, *(v.word_select(k, bits) for v in self.ports[2:]))
                        for k in range(128 // bits)
                    ]
                    m.d.comb += expected.eq(Cat(numbers))
        m.d.comb += [
            Assume(Cat(dut.attr.dtype == dtype for dtype in self.dtypes).any()),
            Assume((dut.attr.op == Op.MIN) | (dut.attr.op == Op.MAX) | dut.load),
            Assert(dut.result == expected),
        ]
        return m

    def number(self, dtype, a, b):
        is_max = self.dut.attr.op == Op.MAX
        if dtype in INTEGERS:
            signed = dtype in (Dtype.S32, Dtype.S64)
            x, y = (a.as_signed(), b.as_signed()) if signed else (a, b)
            return Mux(self.dut.load | Mux(is_max, x > y, x < y), a, b)
        bits, last, nan = FLOATS[dtype]
        a_nan, b_nan = a[:-1] > last, b[:-1] > last
        # Signed integers in the numbers' order: +0 is 0 and -0 is -1.
        x, y = (Mux(v[-1], ~Cat(v[:-1], 0), Cat(v[:-1], 0)).as_signed() for v in (a, b))
        wins = Mux(is_max, x > y, x < y)
        if self.nan_wins:
            return Mux(self.dut.load | a_nan | wins & ~b_nan, Mux(a_nan, nan, a), b)
        alone = Mux(a_nan, nan, a)
        both = Mux(a_nan, Mux(b_nan, nan, b), Mux(b_nan | wins, a, b))
        return Mux(self.dut.load, alone, both)[:bits]


# The whole build a few types at a time, which is quicker than all at once.
PROOFS = {
    "all_bf16": (DEFAULT_DTYPES, (Dtype.BF16,)),
    "all_f16": (DEFAULT_DTYPES, (Dtype.F16,)),
    "all_e4m3": (DEFAULT_DTYPES, (Dtype.E4M3,)),
    "all_e5m2": (DEFAULT_DTYPES, (Dtype.E5M2,)),
    "all_32": (DEFAULT_DTYPES, (Dtype.U32, Dtype.S32)),
    "all_64": (DEFAULT_DTYPES, (Dtype.U64, Dtype.S64)),
    "bf16": ((Dtype.BF16,), (Dtype.BF16,)),
    "s64_e4m3": ((Dtype.S64, Dtype.E4M3),) * 2,
    "s32_f16": ((Dtype.S32, Dtype.F16),) * 2,
}


@pytest.mark.parametrize("name", PROOFS)
def test_every_flit(name):
    build, dtypes = PROOFS[name]
    harness = Harness(build, dtypes)
    prove(harness, harness.ports, name=f"min_max_{name}", depth=1)


def test_every_type_is_proved_in_the_whole_build():
    proved = [dtype for name in PROOFS if name.startswith("all") for dtype in PROOFS[name][1]]
    assert set(proved) == set(MIN_MAX_DTYPES)


def test_the_proof_sees_a_nan_that_wins():
    """As ``minimum`` and ``maximum`` of IEEE 754-2019 would have it."""
    harness = Harness((Dtype.BF16,), (Dtype.BF16,), nan_wins=True)
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="min_max_nan_wins", depth=1)


def test_types_without_min_and_max_are_loaded_as_they_are():
    unit = MinMaxUnit(dtypes=(Dtype.B32, Dtype.F32, Dtype.F64))
    assert unit.dtypes == ()
    assert unit.module_name == "min_max_unit_none"


def test_only_what_is_built_is_paid_for():
    """Types without an operation here change nothing."""
    assert MinMaxUnit(dtypes=ALL_DTYPES).dtypes == MIN_MAX_DTYPES
    assert MinMaxUnit(dtypes=(Dtype.U32, Dtype.B64, Dtype.F32)).dtypes == (Dtype.U32,)
    builds = {build for build, _ in PROOFS.values()}
    assert len({MinMaxUnit(dtypes=build).module_name for build in builds}) == len(builds)


def test_types_are_checked():
    with pytest.raises(ValueError, match="Types must be a choice of"):
        MinMaxUnit(dtypes=())
