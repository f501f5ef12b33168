"""Conversions against numpy and ml_dtypes: every number of up to 16 bits, and f32, f64 in parts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from amaranth import Module, Mux
from amaranth.hdl import Assert, Elaboratable
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.converter import FloatConverter
from dysharp.hw.alu.float_format import BF16, E4M3, E5M2, F16, F32, F32_FTZ, F64, FloatFormat
from dysharp.sim_tb.formal import ProofFailed, prove
from dysharp.sim_tb.gates import Gates

ORACLE: dict[FloatFormat, Any] = {
    BF16: ml_dtypes.bfloat16,
    F16: np.float16,
    F32: np.float32,
    F64: np.float64,
    E4M3: ml_dtypes.float8_e4m3fn,
    E5M2: ml_dtypes.float8_e5m2,
}
WORD: dict[int, Any] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
PAIRS = [(s, t) for s in ORACLE for t in ORACLE if s != t]
# ml_dtypes rounds f64 by way of f32, and so twice.
TWICE = [(F64, t) for t in (BF16, E4M3, E5M2)]


class From(Component):
    """One source converted to all targets side by side."""

    def __init__(self, source: FloatFormat, targets: list[FloatFormat]):
        self.source, self.targets = source, targets
        super().__init__({"i": In(source.bits)} | {t.name: Out(t.bits) for t in targets})

    def elaborate(self, platform):
        m = Module()
        for target in self.targets:
            unit = FloatConverter(source=self.source, target=target)
            m.submodules[target.name] = unit
            m.d.comb += [unit.i.eq(self.i), getattr(self, target.name).eq(unit.o)]
        return m


def targets_of(source: FloatFormat) -> list[FloatFormat]:
    return [t for s, t in PAIRS if s == source and (s, t) not in TWICE]


def values(bits: np.ndarray, form: FloatFormat) -> np.ndarray:
    """Numbers in f64, which holds those of every format."""
    with np.errstate(all="ignore"):
        return bits.astype(WORD[form.bits]).view(ORACLE[form]).astype(np.float64)


def expected(bits: np.ndarray, source: FloatFormat, target: FloatFormat) -> np.ndarray:
    """What the other libraries say; saturation and the canonical NaN are ours."""
    value = values(bits, source)
    with np.errstate(all="ignore"):
        result = value.astype(ORACLE[target]).view(WORD[target.bits]).astype(np.uint64)
    sign = np.signbit(value).astype(np.uint64) << np.uint64(target.bits - 1)
    largest = values(np.array([target.largest]), target)[0]
    if target.saturates:
        # Beyond the largest number, or between it and where the next would be.
        over = np.abs(values(result, target)) > largest
        over |= np.isnan(values(result, target))
        result = np.where(over, sign | np.uint64(target.largest), result)
    return np.where(np.isnan(value), np.uint64(target.nan), result)


def steps(source: FloatFormat, target: FloatFormat) -> np.ndarray:
    """Every number of the target, every midpoint between two, and what is next to each."""
    mask = np.uint64((1 << source.bits) - 1)
    magnitudes = values(np.arange(target.largest + 1), target)
    halves = magnitudes[:-1] / 2 + magnitudes[1:] / 2
    top = magnitudes[-1] + (magnitudes[-1] - magnitudes[-2]) * np.array([0.5, 1.0, 2.0])
    with np.errstate(over="ignore"):
        points = np.concatenate([magnitudes, halves, top]).astype(ORACLE[source])
    bits = points.view(WORD[source.bits]).astype(np.uint64)
    near = np.concatenate([bits - np.uint64(1), bits, bits + np.uint64(1)]) & mask
    return np.concatenate([near, near | np.uint64(1 << source.bits - 1)])


def random_bits(source: FloatFormat, target: FloatFormat, count: int = 100_000) -> np.ndarray:
    """Any bits, and exponents from the target's smallest to its largest."""
    rng = np.random.default_rng([source.bits, target.exponent_bits, target.mantissa_bits])
    anything = rng.integers(0, 1 << 64, count, dtype=np.uint64) >> np.uint64(64 - source.bits)
    bias, reach = (1 << source.exponent_bits - 1) - 1, 1 << min(8, target.exponent_bits) - 1
    low = max(1, bias - reach - target.mantissa_bits - 3)
    exponent = rng.integers(low, min(bias + reach + 2, 2 * bias + 1), count).astype(np.uint64)
    fraction = anything & np.uint64((1 << source.mantissa_bits) - 1)
    sign = rng.integers(0, 2, count).astype(np.uint64) << np.uint64(source.bits - 1)
    return np.concatenate([anything, sign | exponent << np.uint64(source.mantissa_bits) | fraction])


def check(bits: np.ndarray, got: np.ndarray, source: FloatFormat, target: FloatFormat) -> None:
    wanted = expected(bits, source, target)
    wrong = np.flatnonzero(got != wanted)
    shown = [f"{bits[k]:x} gave {got[k]:x}, not {wanted[k]:x}" for k in wrong[:5]]
    assert not len(wrong), f"{source.name} to {target.name}: {len(wrong)} wrong: {shown}"


@pytest.mark.parametrize("source", [BF16, F16, E4M3, E5M2], ids=lambda form: form.name)
def test_every_number(source):
    """All 2^16 or 2^8 patterns, NaNs and infinities too, to every other format."""
    bits = np.arange(1 << source.bits, dtype=np.uint64)
    results = Gates(From(source, targets_of(source)))(i=bits)
    for target in targets_of(source):
        check(bits, results[target.name], source, target)


@pytest.mark.parametrize("source", [F32, F64], ids=lambda form: form.name)
def test_every_step_of_the_target(source):
    """Round each of the target's numbers, each tie, and their neighbours; and random bits."""
    gates = Gates(From(source, targets_of(source)))
    for target in targets_of(source):
        bits = random_bits(source, target)
        if target.bits <= 16:
            bits = np.concatenate([bits, steps(source, target)])
        check(bits, gates(i=bits)[target.name], source, target)


@pytest.mark.parametrize("target", [t for _, t in TWICE], ids=lambda form: form.name)
def test_f64_ties(target):
    """By definition, where no library rounds once: each tie, and what is just off it."""
    code = np.arange(target.largest, dtype=np.uint64)
    low, high = values(code, target), values(code + np.uint64(1), target)
    tie = low / 2 + high / 2
    odd = code & np.uint64(1)
    points = [(low, code), (np.nextafter(tie, 0), code), (tie, code + odd)]
    points += [(np.nextafter(tie, np.inf), code + np.uint64(1)), (high, code + np.uint64(1))]
    gates = Gates(FloatConverter(source=F64, target=target))
    for point, wanted in points:
        got = gates(i=point.view(np.uint64))["o"]
        assert np.array_equal(got, wanted), f"{point[got != wanted][:5]}"
        got = gates(i=(-point).view(np.uint64))["o"]
        assert np.array_equal(got, wanted | np.uint64(1 << target.bits - 1))


EXACT = [(BF16, F32), (F16, F32), (E4M3, F16), (E5M2, F16)]


class RoundTrip(Elaboratable):
    """Out and back gives the same bits, the canonical NaN for a NaN."""

    def __init__(self, pairs):
        self.pairs = pairs
        self.units = [
            (FloatConverter(source=a, target=b), FloatConverter(source=b, target=a))
            for a, b in pairs
        ]
        self.ports = [out.i for out, _ in self.units]

    def elaborate(self, platform):
        m = Module()
        for (form, wide), (out, back) in zip(self.pairs, self.units, strict=True):
            m.submodules[f"{form.name}_{wide.name}"] = out
            m.submodules[f"{wide.name}_{form.name}"] = back
            is_nan = form.is_nan(out.i)
            m.d.comb += [
                back.i.eq(out.o),
                Assert(back.o == self.back(form, out.i, is_nan)),
                Assert(wide.is_nan(out.o) == is_nan),
            ]
        return m

    def back(self, form, value, is_nan):
        """Saturation makes a number of an e5m2 infinity on the way back."""
        number = Mux(form.is_infinite(value), form.overflow | value & 1 << form.bits - 1, value)
        return Mux(is_nan, form.nan, number)


def test_round_trips_are_proved():
    """Widening loses nothing: for every number, NaN for NaN, by proof."""
    harness = RoundTrip(EXACT)
    prove(harness, harness.ports, name="converter_round_trip", depth=1)


def test_the_proof_sees_what_does_not_fit():
    harness = RoundTrip([(F16, BF16)])
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="converter_lossy", depth=1)


def test_names_tell_converters_apart():
    names = {FloatConverter(source=s, target=t).module_name for s, t in PAIRS}
    assert len(names) == len(PAIRS)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="Format must keep subnormals, not 'f32_ftz'"):
        FloatConverter(source=F32_FTZ, target=BF16)
    with pytest.raises(ValueError, match="Formats must be two, not 'f16' twice"):
        FloatConverter(source=F16, target=F16)
    fine = FloatFormat("e3m6", exponent_bits=3, mantissa_bits=6, nan=0x1FF)
    with pytest.raises(ValueError, match="all of the source's subnormals as normals, not 'e4m3'"):
        FloatConverter(source=fine, target=E4M3)
