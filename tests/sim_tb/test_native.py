"""The native checker: its oracle against other people's arithmetic, and whole operand spaces.

What `make test` runs of the larger spaces is a sample; `make nightly` runs them whole.
"""

from __future__ import annotations

import subprocess

import ml_dtypes
import numpy as np
import pytest

from dysharp.sim_tb.native.build import build_checker
from dysharp.sim_tb.native.planes import to_planes
from dysharp.sim_tb.native.run import Outcome, answers, check
from dysharp.sim_tb.native.targets import TARGETS

SHORT = [name for name, target in TARGETS.items() if target.whole and target.whole <= 1 << 16]
LONG = [name for name in TARGETS if name not in SHORT]
PLAIN = [name for name in TARGETS if "-alu" not in name]
"""Without the ALU's adders, which are held to the same oracle."""
SAMPLE = 1 << 22

DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def words(bits: int) -> type:
    return {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]


def theirs(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What numpy and ml_dtypes give for a target's operands, as bit patterns."""
    target = TARGETS[name]
    source, result = DTYPES[target.source.name], DTYPES[target.result.name]
    x, y = a.view(source), b.view(source)
    # Their fp8 sums go by way of f32, as do some of their casts; all of these are exact in f64.
    wide = np.float64 if target.source.bits < 32 or target.operation == "Convert" else source
    with np.errstate(all="ignore"):
        if target.operation == "Add":
            value = x.astype(wide) + y.astype(wide)
        elif target.operation == "Convert":
            value = x.astype(wide)
        else:
            choose = np.fmin if target.operation == "Min" else np.fmax
            value = choose(x.astype(wide), y.astype(wide))
            # numpy leaves open which zero of two is the smaller one.
            both = (x.astype(wide) == 0) & (y.astype(wide) == 0)
            minus = np.signbit(x.astype(wide)), np.signbit(y.astype(wide))
            sign = minus[0] | minus[1] if target.operation == "Min" else minus[0] & minus[1]
            value = np.where(both, np.where(sign, -0.0, 0.0), value)
        if target.result.saturates and target.operation != "Min" and target.operation != "Max":
            largest = float(np.uint8(target.result.largest).view(result))
            value = np.clip(value, -largest, largest)
        bits = value.astype(result).view(words(target.result.bits)).astype(np.uint64)
    return np.where(np.isnan(value), np.uint64(target.result.nan), bits)


@pytest.mark.parametrize("name", [name for name in PLAIN if "ftz" not in name])
def test_the_oracle_is_numpys(name: str) -> None:
    """Random patterns, and pairs near each other, of which many are special."""
    target = TARGETS[name]
    rng = np.random.default_rng(1)
    word = words(target.source.bits)
    top = np.iinfo(word).max
    a = rng.integers(0, top, 20_000, dtype=word, endpoint=True)
    near = (a ^ word(1 << target.source.bits - 1)) + rng.integers(0, 9, 20_000, dtype=word)
    b = np.where(rng.random(20_000) < 0.5, near, rng.permutation(a)).astype(word)
    wanted = theirs(name, a, b).tolist()
    oracle = [answer[1] for answer in answers(target, zip(a.tolist(), b.tolist(), strict=True))]
    wrong = [case for case in zip(a, b, oracle, wanted, strict=True) if case[2] != case[3]]
    assert not wrong, [f"{a:x} {b:x}: {o:x}, not {w:x}" for a, b, o, w in wrong[:5]]


def passed(outcome: Outcome) -> Outcome:
    assert outcome.passed, "\n".join(outcome.lines())
    return outcome


@pytest.mark.parametrize("name", SHORT)
def test_whole_short_space(name: str) -> None:
    assert passed(check(TARGETS[name], jobs=1)).checked == TARGETS[name].whole


@pytest.mark.parametrize("name", [name for name in LONG if name != "bf16-add"])
def test_sample(name: str) -> None:
    """A few million, spread over the space and directed: every pair of exponents that bf16 has."""
    assert passed(check(TARGETS[name], count=SAMPLE, jobs=1)).checked == SAMPLE


@pytest.mark.slow
def test_bf16_add_whole() -> None:
    """All 2^32 pairs, and the check sum that an H200 gave."""
    outcome = passed(check(TARGETS["bf16-add"]))
    assert outcome.checked == 1 << 32
    assert outcome.check_sum == (0xBECCE649EF805A16, 0x7CA4668218641974)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in LONG if name != "bf16-add"])
def test_whole_long_space(name: str) -> None:
    """Whole where that is possible; else 10^9 pairs of f32, 10^8 of f64."""
    outcome = passed(check(TARGETS[name]))
    assert outcome.checked >= (TARGETS[name].whole or 10**8)


def test_operands_do_not_depend_on_processes() -> None:
    """A space in two parts has the check sum of the whole; another seed has another."""
    program = build_checker(TARGETS["bf16-min"])

    def totals(first: int, last: int, seed: int) -> tuple[int, int]:
        command = [program, "sample", str(first), str(last), str(seed)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        total, exclusive = done.stdout.split()[-2:]
        return int(total, 16), int(exclusive, 16)

    whole, low, high = totals(0, 99, 7), totals(0, 40, 7), totals(40, 99, 7)
    assert whole == ((low[0] + high[0]) % 2**64, low[1] ^ high[1])
    assert whole != totals(0, 99, 8)


def test_a_unit_with_registers_is_refused(tmp_path) -> None:
    from dysharp.hw.alu.adder import FloatAdder
    from dysharp.hw.alu.float_format import E4M3
    from dysharp.hw.generate import elaborate

    text, _ = elaborate(FloatAdder(formats=(E4M3,), depth=1), "unit")
    with pytest.raises(ValueError, match="Ports must be a, b and o|must be combinational"):
        to_planes(text, tmp_path)
