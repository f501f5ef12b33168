"""The bench on a small configuration, and that nothing is in it that was not measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dysharp.hw.config import load
from dysharp.hw.errors import ConfigError, UserError
from dysharp.synth import bench
from dysharp.synth.bench import bench_alu, find_library
from dysharp.synth.bench_table import ORDER_COLUMNS, render
from dysharp.synth.corner import read_corner
from dysharp.synth.liberty import OWN_LIBRARY
from dysharp.synth.peers import ADDERS, LIBRARY
from dysharp.synth.timing import sta_version

TINY = load("tiny", ["dtypes=b32", "switch.sessions=2"])
"""Without an adder a lane, which is what takes long."""
needs_sta = pytest.mark.skipif(sta_version() is None, reason="OpenSTA is not installed")


@pytest.fixture(autouse=True)
def few_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "FORMATS", (bench.E4M3,))


def measure(tmp_path: Path, **options) -> dict[str, Any]:
    return bench_alu(TINY, out_dir=tmp_path / "out", cache=None, **options)


@pytest.mark.slow
def test_own_library_has_areas_only(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    found = measure(tmp_path, liberty=OWN_LIBRARY, progress=lambda *step: done.append(step))
    assert done[0][0] == 0 and done[-1][0] == done[-1][1]
    assert found["library"] == "dysharp_cells"
    adder = found["adders"]["e4m3"]
    assert {"ge", "fast_ge", "fo4"} <= set(adder)
    assert adder["fo4"] is None and adder["delay_ps"] is None
    assert 100 < adder["ge"] < 1000
    alu = found["alu"]
    assert {"ge", "ghz", "corner", "depth", "flits_per_cycle"} <= set(alu)
    assert (alu["ghz"], alu["corner"]) == (None, None)
    assert (alu["depth"], alu["flits_per_cycle"]) == (TINY.alu_depth, 1)
    assert alu["ge"] > 128 * 2
    assert set(found["orders"]) == {"arrival", "rank", "exact"}
    arrival, rank = found["orders"]["arrival"], found["orders"]["rank"]
    assert (arrival["bits_a_flit"], arrival["sessions_in_64_kb"]) == (128, 512)
    assert rank["bits_a_flit"] == TINY.ports * 128
    assert rank["answer_cycles"] > arrival["answer_cycles"] > 0
    assert rank["memory_bits"] > arrival["memory_bits"] > 2 * 8 * 128
    json.dumps(found)
    text = render(found)
    assert "not measured" in text
    assert "HardFloat" in text


@needs_sta
def test_speed_names_its_corner(tmp_path: Path, round_library: Callable[..., Path]) -> None:
    bench_of = share(tmp_path, round_library())
    speed = bench_of.alu_speed()
    assert speed["corner"] == "round_tt, 1.2 V, 25 C"
    assert speed["ghz"] == pytest.approx(1e3 / speed["period_ps"], rel=1e-2)
    assert speed["period_ps"] % 50 == 0, "all delays of the library are multiples of 50 ps"
    adder = bench_of.adder(bench.E4M3)
    assert adder["delay_ps"] > 0 and adder["delay_ps"] % 50 == 0
    assert adder["fo4"] is None, "an FO4 delay is known for the peers' library only"


def share(tmp_path: Path, library: Path) -> bench.Bench:
    corner = read_corner([library])
    return bench.Bench(TINY, library, corner, corner, tmp_path, None)


def test_delays_count_in_fo4_of_the_peers_library(
    tmp_path: Path, round_library: Callable[..., Path]
) -> None:
    bench_of = share(tmp_path, round_library())
    named = replace(bench_of, corner=replace(bench_of.corner, name=LIBRARY))
    assert named.fo4(974.0) == 10
    assert named.fo4(None) is None
    assert bench_of.fo4(974.0) is None


def test_without_opensta_there_are_no_delays(
    tmp_path: Path, round_library: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "sta_version", lambda: None)
    bench_of = share(tmp_path, round_library())
    assert bench_of.alu_speed()["ghz"] is None
    adder = bench_of.adder(bench.E4M3)
    assert adder["ge"] > 0
    assert {adder[key] for key in ("fo4", "delay_ps")} == {None}


def test_an_order_that_cannot_be_built_has_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments, **options):
        raise ConfigError("switch.sessions", 256, "Sessions must be fewer")

    monkeypatch.setattr(bench, "report", refuse)
    found = share(tmp_path, OWN_LIBRARY).order("rank")
    assert [found[figure] for figure in ORDER_COLUMNS] == [None] * 5
    assert "Sessions must be fewer" in found["refused"]


def test_a_failure_ends_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments, **options):
        raise UserError("no disk")

    for method in ("adder", "order", "alu_area", "alu_speed", "alu_throughput"):
        monkeypatch.setattr(bench.Bench, method, fail)
    with pytest.raises(UserError, match="no disk"):
        measure(tmp_path, liberty=OWN_LIBRARY)


def test_which_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "osu018_stdcells.lib"
    monkeypatch.setattr(bench, "OSU018", installed)
    assert find_library() == OWN_LIBRARY
    installed.write_text("")
    assert find_library() == installed
    assert find_library(tmp_path / "mine.lib") == tmp_path / "mine.lib"


def test_peers_stand_with_the_best_correct_one_first() -> None:
    assert set(ADDERS) == {"bf16", "f16", "f32", "e5m2", "e4m3"}
    for form, peers in ADDERS.items():
        assert peers[0].ge == min(peer.ge for peer in peers if peer.correct), form
        assert all(peer.source.startswith("https://") for peer in peers)
