"""Timing of netlists whose delays can be added by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dysharp.hw.errors import UserError
from dysharp.synth import timing
from dysharp.synth.corner import read_corner
from dysharp.synth.timing import Timing, analyse, sta_version

Library = Callable[..., Path]
needs_sta = pytest.mark.skipif(sta_version() is None, reason="OpenSTA is not installed")

CHAIN = """
module chain(input i, output o);
  wire w;
  INV u0 (.A(i), .Y(w));
  INV u1 (.A(w), .Y(o));
endmodule
"""
# Register, two gates, register; the input needs one gate less.
PIPE = """
module pipe(input clk, input rst, input i, output o);
  wire q, n, d;
  DFF first (.C(clk), .D(i), .Q(q));
  NAND2 u0 (.A(q), .B(rst), .Y(n));
  INV u1 (.A(n), .Y(d));
  DFF last (.C(clk), .D(d), .Q(o));
endmodule
"""


def run(tmp_path: Path, library: Path, netlist: str, top: str, **options) -> Timing:
    path = tmp_path / f"{top}.v"
    path.write_text(netlist)
    found = analyse(path, top, read_corner([library]), **options)
    assert found is not None
    return found


@needs_sta
def test_combinational(tmp_path: Path, round_library: Library) -> None:
    """Nanoseconds of the library are picoseconds of the result."""
    found = run(tmp_path, round_library(), CHAIN, "chain", period=1000, clock=None)
    assert found.arrival == pytest.approx(200)
    assert (found.startpoint, found.endpoint) == ("i", "o")


@needs_sta
def test_between_registers_with_setup(tmp_path: Path, round_library: Library) -> None:
    """Clock to output 300, NAND2 200, INV 100, set-up 50."""
    found = run(tmp_path, round_library(), PIPE, "pipe", period=1000)
    assert found.arrival == pytest.approx(600)
    assert found.slack == pytest.approx(350)
    assert found.shortest_period == pytest.approx(650)
    assert found.ghz == pytest.approx(1 / 0.65)
    assert (found.startpoint, found.endpoint) == ("first", "last")
    assert "u0/Y (NAND2)" in found.path
    assert found.corner == "round_tt, 1.2 V, 25 C"


@needs_sta
def test_a_period_too_short_leaves_less_than_nothing(
    tmp_path: Path, round_library: Library
) -> None:
    found = run(tmp_path, round_library(), PIPE, "pipe", period=500)
    assert found.slack == pytest.approx(-150)
    assert found.shortest_period == pytest.approx(650)


@needs_sta
def test_untimed_inputs(tmp_path: Path, round_library: Library) -> None:
    """A reset counts only if it is asked for."""
    netlist = PIPE.replace(".A(q)", ".A(rst)")
    found = run(tmp_path, round_library(), netlist, "pipe", period=1000)
    assert found.shortest_period == pytest.approx(300)
    found = run(tmp_path, round_library(), netlist, "pipe", period=1000, untimed=())
    assert found.startpoint == "rst"
    assert found.shortest_period == pytest.approx(350)


@needs_sta
def test_what_opensta_refuses_is_one_error(tmp_path: Path, round_library: Library) -> None:
    """It goes on after an error, with status 0, and would report another path."""
    with pytest.raises(UserError, match="OpenSTA failed in .*: .*other"):
        run(tmp_path, round_library(), CHAIN, "other", period=1000, clock=None)
    with pytest.raises(UserError, match="OpenSTA failed in "):
        run(tmp_path, round_library(), CHAIN, "chain", period=1000, clock=None, driving_cell="X")
    with pytest.raises(UserError, match="must find a path"):
        run(tmp_path, round_library(), "module none(); endmodule", "none", period=1000, clock=None)


@needs_sta
def test_a_library_without_delays(tmp_path: Path) -> None:
    from dysharp.synth.liberty import OWN_LIBRARY

    with pytest.raises(UserError, match="timing needs a library with delays and an inverter"):
        run(tmp_path, OWN_LIBRARY, CHAIN, "chain", period=1000, clock=None)


def test_without_opensta(
    tmp_path: Path, round_library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "sta_version", lambda: None)
    (tmp_path / "chain.v").write_text(CHAIN)
    corner = read_corner([round_library()])
    assert analyse(tmp_path / "chain.v", "chain", corner, period=1000) is None
