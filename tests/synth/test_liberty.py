"""Libraries: our own, the ways others write a NAND2, and files that are none."""

import gzip

import pytest

from dysharp.hw.errors import UserError
from dysharp.synth.liberty import read_cells, read_library

CELL = """
  cell ({name}) {{
    area : {area};
    {extra}
    pin (Y) {{ direction : output; function : "{function}"; }}
  }}
"""


def library(tmp_path, *cells, name="some.lib"):
    """A library file of cells given as (name, area, function[, extra])."""
    body = "".join(
        CELL.format(name=cell[0], area=cell[1], function=cell[2], extra="".join(cell[3:]))
        for cell in cells
    )
    path = tmp_path / name
    path.write_text(f"library (some) {{ /* cell (no) {{ }} */ {body} }}\n")
    return path


def test_own_library_counts_in_nand2():
    own = read_library()
    assert (own.nand2.name, own.nand2.area) == ("NAND2", 1)
    assert own.ge("INV") < own.ge("NAND2") < own.ge("NAND3") < own.ge("XOR2") < own.ge("DFF")


def test_own_areas_follow_the_rule_that_the_file_states():
    """(pairs of transistors + 1) / 3."""
    own = read_library()
    pairs = {"INV": 1, "NAND2": 2, "NOR2": 2, "NAND3": 3, "NOR3": 3, "AND2": 3, "OR2": 3}
    pairs |= {"AOI21": 3, "OAI21": 3, "NAND4": 4, "NOR4": 4, "AOI22": 4, "OAI22": 4, "BUF": 2}
    for cell, count in pairs.items():
        assert own.cells[cell].area == pytest.approx((count + 1) / 3, abs=0.005), cell


@pytest.mark.parametrize(
    "function",
    ["!(A*B)", "(A B)'", "!A+!B", "(!A) | (!B)", "(!(A & B))", "A'+B'", "!(B*A)", "(A*B)^1"],
)
def test_nand2_in_any_notation(tmp_path, function):
    path = library(tmp_path, ("OTHER", 1.0, "A*B"), ("ND", 3.75, function), ("ND4", 7.5, function))
    read = read_library(path)
    assert read.nand2.name == "ND"
    assert read.ge("ND4") == 2
    assert sorted(read.cells) == ["ND", "ND4", "OTHER"]


@pytest.mark.parametrize(
    "cell",
    [
        ("NR", 1, "!(A+B)"),
        ("AN", 1, "A*B"),
        ("ND3", 1, "!(A*B*C)"),
        ("ND", 0, "!(A*B)"),
        ("DF", 1, "!(A*B)", 'ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; }'),
    ],
)
def test_what_is_not_a_nand2(tmp_path, cell):
    with pytest.raises(UserError, match=r"some\.lib: library must have a two-input NAND"):
        read_library(library(tmp_path, cell))


def test_packed_library(tmp_path):
    plain = library(tmp_path, ("ND", 2, "!(A*B)"))
    packed = tmp_path / "some.lib.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_library(packed).cells == read_library(plain).cells


def test_files_that_are_no_library(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        read_library(tmp_path / "missing.lib")
    (tmp_path / "text.lib").write_text("nothing here")
    with pytest.raises(UserError, match="must be a Liberty file with cells"):
        read_library(tmp_path / "text.lib")
    (tmp_path / "torn.lib.gz").write_bytes(b"\x1f\x8b not packed")
    with pytest.raises(UserError, match="cannot be read"):
        read_library(tmp_path / "torn.lib.gz")


@pytest.mark.parametrize("function", ["(A*B", "A*B*", "!", "A^", "!(A*B"])
def test_a_function_cut_short_is_no_nand2(tmp_path, function):
    path = library(tmp_path, ("ND", 2, "!(A*B)"), ("CUT", 1, function))
    assert read_library(path).nand2.name == "ND"


@pytest.mark.parametrize("area", ["1.2.3", "big", "-1", "nan", "inf"])
def test_an_area_that_is_no_number(tmp_path, area):
    path = library(tmp_path, ("ND", area, "!(A*B)"))
    with pytest.raises(UserError, match=r"some.lib: cell ND: area must be a number of at least 0"):
        read_library(path)


def test_a_packed_library_that_is_damaged(tmp_path):
    packed = bytearray(gzip.compress(b"library (x) {}" * 99))
    packed[12:40] = bytes(28)
    path = tmp_path / "some.lib.gz"
    path.write_bytes(packed)
    with pytest.raises(UserError, match="library cannot be read"):
        read_library(path)


@pytest.mark.parametrize(("function", "is_inverter"), [("!A", True), ("A'", True), ("A", False)])
def test_inverters(tmp_path, function, is_inverter):
    pin = "pin (A) { direction : input; capacitance : 0.25; }"
    _, cells = read_cells(library(tmp_path, ("X", 1, function, pin)))
    assert (cells["X"].is_inverter, cells["X"].capacitance) == (is_inverter, 0.25)


def test_a_three_state_inverter_is_none(tmp_path):
    path = library(tmp_path, ("TINV", 1, "!A", 'pin (Z) { three_state : "!E"; }'))
    assert not read_cells(path)[1]["TINV"].is_inverter
