"""Several libraries read as one corner."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from dysharp.hw.errors import UserError
from dysharp.synth.corner import read_corner
from dysharp.synth.liberty import OWN_LIBRARY

Library = Callable[..., Path]


def test_one_library(round_library: Library) -> None:
    corner = read_corner([round_library()])
    assert str(corner) == "round_tt, 1.2 V, 25 C"
    assert corner.nand2 is not None and corner.nand2.name == "NAND2"
    assert corner.has_timing and corner.has_flipflops
    assert corner.driving_cell == "INV"
    assert corner.load == pytest.approx(5 * 2)  # five inputs of 0.002 pF, in fF


def test_several_libraries_are_one(tmp_path: Path, round_library: Library) -> None:
    """A packed one among them; the name is what theirs have in common."""
    logic = round_library("logic.lib", flipflops=False)
    other = tmp_path / "registers.lib.gz"
    text = round_library("registers.lib").read_text().replace("round_tt", "round_seq_tt")
    other.write_bytes(gzip.compress(text.replace("(NAND2)", "(NAND2B)").encode()))
    corner = read_corner([logic, other])
    assert corner.name == "round_tt"
    assert {"NAND2", "NAND2B", "DFF"} <= set(corner.cells)
    folder = tmp_path / "work"
    folder.mkdir()
    assert corner.write(folder) == ["0_logic.lib", "1_registers.lib"]
    assert "NAND2B" in (folder / "1_registers.lib").read_text()
    assert not read_corner([logic]).has_flipflops


def test_two_corners_are_refused(round_library: Library) -> None:
    with pytest.raises(UserError, match=r"same conditions: .*1\.2 V.*; .*0\.9 V"):
        read_corner([round_library("a.lib"), round_library("b.lib", voltage="0.9")])


def test_driving_cell_is_four_times_the_smallest_inverter(round_library: Library) -> None:
    path = round_library()
    text = path.read_text()
    small = text[text.index("cell (INV)") : text.index("cell (BUF)")]
    larger = "".join(
        small.replace("INV", f"INV{size}").replace("0.002", str(0.002 * size)) for size in (2, 4, 8)
    )
    path.write_text(text.replace("cell (INV)", f"{larger}cell (INV)"))
    assert read_corner([path]).driving_cell == "INV4"


def test_own_library_has_no_delays() -> None:
    corner = read_corner([OWN_LIBRARY])
    assert not corner.has_timing
    assert corner.driving_cell is None
    assert str(corner) == "dysharp_cells"


def test_no_library() -> None:
    with pytest.raises(UserError, match="one file or more, not none"):
        read_corner([])
