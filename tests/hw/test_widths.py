"""Operands are extended and cut by the rules of Yosys, never by another."""

import pytest

from dysharp.hw.widths import match_widths

MODULE = """\
module \\m
  wire width 4 input 1 \\a
  wire width 7 input 2 \\b
  wire width {y} output 3 \\y
  cell {kind} $1
    parameter \\A_SIGNED {signed}
    parameter \\B_SIGNED {signed}
    parameter \\A_WIDTH {aw}
    parameter \\B_WIDTH {bw}
    parameter \\Y_WIDTH {y}
    connect \\A {a}
    connect \\B {b}
    connect \\Y \\y
  end
end
"""


def matched(kind, *, a="\\a", aw=4, b="\\b", bw=7, y=1, signed=0):
    text = match_widths(MODULE.format(kind=kind, a=a, aw=aw, b=b, bw=bw, y=y, signed=signed))
    lines = [line.strip().removeprefix("connect ") for line in text.splitlines()]
    return {line.split()[0]: line for line in lines if line.startswith("\\")}, text


def test_comparison_extends_the_narrower_side_with_zeros():
    ports, text = matched("$eq")
    assert ports["\\A"] == "\\A { 3'000 \\a }"
    assert ports["\\B"] == "\\B \\b"
    assert "parameter \\A_WIDTH 7" in text and "parameter \\B_WIDTH 7" in text


def test_signed_comparison_repeats_the_top_bit():
    ports, _ = matched("$lt", signed=1)
    assert ports["\\A"] == "\\A { \\a [3] \\a [3] \\a [3] \\a }"


def test_sign_of_constants_and_concatenations():
    ports, _ = matched("$lt", a="3'101", aw=3, bw=7, signed=1)
    assert ports["\\A"] == "\\A { 1'1 1'1 1'1 1'1 3'101 }"
    ports, _ = matched("$lt", a="{ \\b [5:2] \\a [1] }", aw=5, signed=1)
    assert ports["\\A"] == "\\A { \\b [5] \\b [5] \\b [5:2] \\a [1] }"


def test_sum_works_at_the_width_of_its_result():
    ports, _ = matched("$add", y=5)
    assert ports["\\A"] == "\\A { 1'0 \\a }"
    assert ports["\\B"] == "\\B \\b [4:0]"


def test_cutting_a_concatenation_keeps_its_low_bits():
    ports, _ = matched("$add", b="{ \\a \\b [6:4] 2'10 }", bw=9, y=6)
    assert ports["\\B"] == "\\B { \\a [0] \\b [6:4] 2'10 }"


def test_shift_right_computes_all_bits_and_uses_the_low_ones():
    ports, text = matched("$shr", a="\\b", aw=7, b="\\a", bw=4, y=2)
    assert ports["\\Y"] == "\\Y $1_wide"
    assert "wire width 7 $1_wide" in text and "connect \\y $1_wide [1:0]" in text


@pytest.mark.parametrize("kind", ["$mux", "$dff", "$reduce_or", "\\other"])
def test_other_cells_are_left_alone(kind):
    text = MODULE.format(kind=kind, a="\\a", aw=4, b="\\b", bw=7, y=1, signed=0)
    assert match_widths(text) == text


def test_numbers_without_a_width_keep_their_value():
    """Yosys writes some constants of 32 bits as plain numbers; they became 0 when extended or cut.

    In the generated Verilog no bit of a sticky register or a command could be written then, unless
    all 32 bits of its word exist.
    """
    ports, _ = matched("$and", a="383", aw=32, b="\\b", bw=7, y=32)
    assert ports["\\A"] == "\\A 383"
    ports, _ = matched("$and", a="383", aw=32, y=9)
    assert ports["\\A"] == "\\A 9'101111111"
    ports, _ = matched("$add", a="{ \\a 5 }", aw=36, y=40)
    assert ports["\\A"] == f"\\A {{ 4'0000 \\a 32'{5:032b} }}"
