"""Flat mapping of components whose cells can be counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amaranth import Cat, Module, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.errors import UserError
from dysharp.synth import flat
from dysharp.synth.corner import read_corner
from dysharp.synth.flat import Goal, map_flat
from dysharp.synth.liberty import OWN_LIBRARY
from dysharp.synth.registered import Registered
from dysharp.synth.timing import analyse, sta_version

Library = Callable[..., Path]


class Nand(Component):
    """Eight NAND2s, behind a register or not."""

    a: Any
    b: Any
    o: Any

    def __init__(self, *, registered: bool = False):
        self.registered = registered
        super().__init__({"a": In(8), "b": In(8), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        held = Signal(8, reset_less=True)
        m.d["sync" if self.registered else "comb"] += held.eq(~(self.a & self.b))
        m.d.comb += self.o.eq(held)
        return m


@pytest.mark.parametrize("goal", Goal)
def test_cells_are_counted(goal: Goal, tmp_path: Path, round_library: Library) -> None:
    corner = read_corner([round_library()])
    found = map_flat(Nand(registered=True), "nand", corner, goal, folder=tmp_path)
    assert found.cells == {"NAND2": 8, "DFF": 8}
    assert found.area == 8 * 2 + 8 * 5
    assert found.ge == 8 + 8 * 2.5
    assert found.netlist.read_text().count("NAND2 ") == 8


def test_registers_round_a_component(tmp_path: Path, round_library: Library) -> None:
    """Its path is then from register to register: 300 to the output, 200, and 50 of set-up."""
    corner = read_corner([round_library()])
    found = map_flat(Registered(Nand()), "nand", corner, Goal.SPEED, folder=tmp_path)
    assert found.cells == {"NAND2": 8, "DFF": 24}
    timing = analyse(found.netlist, "nand", corner, period=1000)
    if sta_version() is not None:
        assert timing is not None and timing.shortest_period == pytest.approx(550)


class Joined(Component):
    """Parts of one wire go to two outputs, and a part of it is never driven."""

    a: Any
    o: Any
    p: Any

    def __init__(self):
        super().__init__({"a": In(8), "o": Out(8), "p": Out(4)})

    def elaborate(self, platform):
        m = Module()
        held = Signal(8, reset_less=True)
        m.d.sync += held.eq(self.a)
        m.d.comb += [Cat(self.p, self.o[2:6]).eq(held), self.o[:2].eq(held[3:5])]
        return m


def test_a_netlist_has_what_opensta_reads(tmp_path: Path, round_library: Library) -> None:
    """Assignments to joined wires ended in a syntax error, in the ALU but in nothing smaller."""
    corner = read_corner([round_library()])
    found = map_flat(Registered(Joined()), "joined", corner, Goal.SPEED, folder=tmp_path)
    text = found.netlist.read_text()
    assert "assign {" not in text
    assert "'hx" not in text and "'bx" not in text
    if sta_version() is not None:
        assert analyse(found.netlist, "joined", corner, period=1000) is not None


def test_what_a_library_lacks(tmp_path: Path, round_library: Library) -> None:
    poor = read_corner([round_library(flipflops=False)])
    with pytest.raises(UserError, match=r"round_tt: library must have a cell for \$_DFF_P_"):
        map_flat(Nand(registered=True), "nand", poor, Goal.AREA, folder=tmp_path)
    text = round_library().read_text()
    path = tmp_path / "no_inverter.lib"
    path.write_text(text[: text.index("cell (INV)")] + text[text.index("cell (BUF)") :])
    with pytest.raises(UserError, match="mapping for delay needs an inverter"):
        map_flat(Nand(), "nand", read_corner([path]), Goal.DELAY, folder=tmp_path)


def test_results_are_remembered_by_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corner = read_corner([OWN_LIBRARY])
    cache = tmp_path / "cache"
    first = map_flat(Nand(), "nand", corner, Goal.AREA, folder=tmp_path / "a", cache=cache)

    def broken(*arguments, **options):
        raise AssertionError("nothing is left to map")

    monkeypatch.setattr(flat, "run_yosys", broken)
    again = map_flat(Nand(), "nand", corner, Goal.AREA, folder=tmp_path / "b", cache=cache)
    assert again.ge == first.ge == 8
    assert again.netlist.read_text() == first.netlist.read_text()
    with pytest.raises(AssertionError, match="nothing is left"):
        map_flat(Nand(registered=True), "nand", corner, Goal.AREA, folder=tmp_path, cache=cache)
