"""The verb `exhaust`: what it says, in which form, and with which status."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from dysharp.cli import main
from dysharp.hw.alu.adder import FloatAdder
from dysharp.hw.alu.float_format import E5M2, FloatFormat
from dysharp.sim_tb.native import targets
from dysharp.sim_tb.native.run import Outcome, number
from dysharp.sim_tb.native.targets import TARGETS

# An adder of the same fields that does not saturate: wrong for e5m2 wherever a sum overflows.
UNSATURATED = FloatFormat("e5m2", exponent_bits=5, mantissa_bits=2, nan=0x7F)


@pytest.fixture
def wrong_adder(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a target whose unit is wrong."""
    target = dataclasses.replace(
        TARGETS["e5m2-add"], make=lambda: FloatAdder(formats=(UNSATURATED,))
    )
    monkeypatch.setitem(TARGETS, "e5m2-add", target)
    return "e5m2-add"


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exhaust", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(TARGETS)
    assert "bf16-add          all 4,294,967,296 pairs" in lines


def test_a_right_unit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exhaust", "e4m3-add", "e4m3-to-f16"]) == 0
    out, err = capsys.readouterr()
    assert re.match(r"e4m3-add: 65,536 pairs \(all\), 0 wrong, \d+\.\d s, \d+ M/s\n", out)
    assert "  again: dysharp exhaust e4m3-add\n" in out
    assert "e4m3-to-f16: 256 inputs (all), 0 wrong" in out
    assert err == ""  # no progress bar but on a terminal


def test_a_wrong_unit(wrong_adder: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 1, and the first mismatches in hex and as numbers."""
    assert main(["exhaust", wrong_adder]) == 1
    out = capsys.readouterr().out
    numbers = [number(bits, E5M2) for bits in range(256)]
    # From half of the last place above the largest number on, infinities too, no NaN.
    beyond = sum(57344 + 4096 <= abs(x + y) for x in numbers for y in numbers)
    assert out.startswith(f"e5m2-add: 65,536 pairs (all), {beyond:,} wrong, ")
    assert "  e5m2 00 (0), 7c (inf): got 7c (inf), wanted 7b (57344)\n" in out
    assert out.count("got ") == 10


def test_json(wrong_adder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["exhaust", wrong_adder, "e4m3-min", "--json", "--jobs", "2", "--out", str(tmp_path)]
    assert main(argv) == 1
    text = capsys.readouterr().out
    assert text == (tmp_path / "exhaust.json").read_text()
    first, second = json.loads(text)["targets"]
    assert (first["passed"], second["passed"]) == (False, True)
    assert second["wrong"] == 0 and second["checked"] == 65536
    assert first["mismatches"][0]["wanted"] == "7b"
    assert first["check_sum"] is None


def test_the_line_repeats_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exhaust", "e4m3-add", "--count", "1000", "--seed", "5"]) == 0
    line = capsys.readouterr().out.splitlines()[-1].removeprefix("  again: ")
    assert line == "dysharp exhaust e4m3-add --seed 5 --count 1024"
    assert main(line.split()[1:]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"  again: {line}"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "Targets must be named, or all (try: dysharp exhaust --list)"),
        ("bf16-ad", "not 'bf16-ad' (did you mean bf16-add?)"),
        ("everything", "not 'everything' (try: dysharp exhaust --list)"),
        ("e4m3-add --count 0", "at least 1, not '0'"),
        ("e4m3-add --out {file}/x", "cannot be made"),
    ],
)
def test_a_mistake_is_one_plain_line(
    line: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    try:
        status = main(["exhaust", *line.format(file=tmp_path / "file").split()])
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert text in err


def test_targets_have_what_a_run_needs() -> None:
    for name, target in TARGETS.items():
        mode, blocks = target.plan()
        assert name == target.name
        assert blocks > 0
        assert (mode == "whole") == (target.whole is not None)
        assert target.unit().signature.members["o"].shape == target.result.bits
    assert set(targets.H200_CHECK_SUMS) == {"bf16", "f16"}
    assert TARGETS["e5m2-add"].source is E5M2


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_check_sum_that_is_not_the_h200s_fails(wrong: int) -> None:
    """Even if no pair was wrong by the oracle."""
    total, exclusive = targets.H200_CHECK_SUMS["f16"]
    outcome = Outcome(
        TARGETS["f16-add"], "whole", 1 << 32, 0, (), (total, exclusive ^ wrong), seed=1, seconds=9.0
    )
    assert outcome.passed == (not wrong)
    said = "not an H200's" if wrong else "the same as an H200's"
    assert any(said in line for line in outcome.lines())
    assert outcome.to_dict()["passed"] == (not wrong)
