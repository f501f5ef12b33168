"""The switch's bench on a player that keeps every link busy for a known part of the time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dysharp.hw.config import Config, load
from dysharp.hw.errors import UserError
from dysharp.hw.packet import Cmd, tx_flits
from dysharp.model.traffic import Direction
from dysharp.model.workloads import incast, permutation
from dysharp.sim_tb.bench import depths, switch
from dysharp.sim_tb.bench.depths import CURVES, depth_curve
from dysharp.sim_tb.bench.latency import fairness, unloaded
from dysharp.sim_tb.bench.picture import draw_depths, draw_timeline, sequential
from dysharp.sim_tb.bench.runs import Run, Sources, run
from dysharp.sim_tb.bench.switch import KEYS, bench_switch
from dysharp.sim_tb.bench.table import headline, render
from dysharp.sim_tb.build import SimulationFailed
from dysharp.sim_tb.player.requests import DOWN, UP, Played, Requests

TINY = load("tiny", [])
RATE = 0.75
START, LATENCY = 7, 5


def count(config: Config, requests: Requests, split: int) -> np.ndarray:
    """Flits [port, direction] of all packets; one link a GPU."""
    flits = np.zeros((config.ports, 2), np.int64)
    for row in range(len(requests)):
        cmd, port, data = (int(v[row]) for v in (requests.cmd, requests.port, requests.flits))
        ids = requests.targets[requests.target_offsets[row] : requests.target_offsets[row + 1]]
        if cmd == Cmd.WR.value:
            lists = {int(requests.addr[row]) >> config.gpu_address_bit: 0}
        else:
            gpus = (ids >> split).tolist() if len(ids) else range(config.gpus)
            lists = {gpu: gpus.count(gpu) if len(ids) else 0 for gpu in gpus}
        there, back = (0, data) if cmd == Cmd.MM_LDR.value else (data, 0)
        flits[port] += 1 + tx_flits(len(ids)) + there, 1 + back
        for gpu, entries in lists.items():
            flits[gpu] += 1 + back, 1 + tx_flits(entries) + there
    return flits


def fake(
    config: Config,
    requests: Requests,
    *,
    objects: Any = (),
    bin_cycles: int = 1000,
    seed: int = 1,
    wrong: int = 0,
    mismatches: tuple[str, ...] = (),
    **_: Any,
) -> Played:
    """Every link is busy for RATE of the time until it has carried its flits."""
    flits = count(config, requests, objects[0].split) + wrong
    if len(requests) == 1:
        last = np.where(flits > 0, START + flits, -1)
        first = np.where(flits > 0, START, -1)
        first[:, DOWN] += np.where(flits[:, DOWN] > 0, LATENCY, 0)
    else:
        first = np.where(flits > 0, START, -1)
        last = np.where(flits > 0, START + np.ceil(flits / RATE).astype(int) - 1, -1)
    cycles = int(last.max()) + 1
    bins = np.zeros((cycles // bin_cycles + 1, config.ports, 2), np.uint32)
    for k in range(len(bins)):
        spent = np.clip((k + 1) * bin_cycles - START, 0, last + 1 - START)
        bins[k] = np.minimum(np.round(spent * RATE), flits) - bins[:k].sum(axis=0)
    none = np.zeros(len(requests), np.int64)
    return Played(
        cycles,
        first,
        last,
        flits,
        bins,
        bin_cycles,
        none,
        none,
        len(requests),
        np.zeros((0, 2), np.uint64),
        np.zeros(len(requests) + 1, np.int64),
        np.zeros((0, 3), np.int64),
        {},
        mismatches,
        seed,
        2.0,
    )


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of few flits, of a model whose tokens are short."""
    monkeypatch.setattr(switch, "MIN_FLITS", 6000)
    monkeypatch.setattr(depths, "MIN_FLITS", 6000)
    monkeypatch.setattr(switch, "MODEL", "olmoe")
    monkeypatch.setattr(switch, "ROUTINGS", ("uniform", "normal"))
    monkeypatch.setattr(depths, "ROUTINGS", ("uniform",))


def test_the_result_has_the_keys_and_the_rate_of_the_player(short: None, tmp_path: Path) -> None:
    told: list[str] = []
    result = bench_switch(TINY, player=fake, progress=told.append)
    assert tuple(result)[: len(KEYS)] == KEYS
    assert (result["preset"], result["chunk"]) == ("tiny", 128)
    for name in ("dispatch", "combine", "allgather", "reduce_scatter", "permutation"):
        assert result[name] == pytest.approx(RATE, abs=0.002), name
    assert result["fairness"] == pytest.approx(1, abs=0.02)
    runs = result["runs"]
    assert {"dispatch", "combine", "fused", "deepep"} == set(runs["uniform"]) == set(runs["normal"])
    for routing, figures in result["routings"].items():
        fused, unicast = runs[routing]["fused"], runs[routing]["deepep"]
        assert figures["speedup"] == pytest.approx(unicast["cycles"] / fused["cycles"], abs=1e-3)
        assert figures["ideal"] == pytest.approx(unicast["limit"] / fused["limit"], abs=1e-3)
        assert figures["of_ideal"] == pytest.approx(1, abs=0.01)
        assert max(figures["fused_up"], figures["fused_down"]) >= figures["fused"]
        assert max(figures["fused_up_ideal"], figures["fused_down_ideal"]) == 1
    assert set(result["chunks"]) == {"128", "256"}
    assert result["chunks"]["256"]["uniform"]["ideal"] > result["chunks"]["128"]["uniform"]["ideal"]
    seconds = len(told) * 2.0
    flits = sum(run["flits"] for group in runs.values() for run in group.values())
    assert result["flits_per_second"] * seconds > flits
    assert "dispatch, uniform" in told and "incast" in told
    json.dumps(result)
    text = render(result)
    assert "0.750" in text and "Karol" in text
    assert [row for row in headline(result) if row[0] == "both at once"][0][2] == "0.97"
    paths = draw_timeline(result, tmp_path / "timeline")
    assert all(path.stat().st_size > 1000 for path in paths)
    both = sequential(result["timeline"])
    parts = [len(result["timeline"][name]["up"]) for name in ("dispatch", "combine")]
    assert len(both["up"]) == sum(parts)


def test_runs_are_no_longer_than_needed(short: None) -> None:
    bench = switch.Bench(TINY, player=fake)
    trace = bench.trace("uniform")
    assert min(bench.batch(trace, (stage,)).limit for stage in (0, 1)) >= 6000
    bench.tokens = trace.tokens // TINY.gpus - 1
    shorter = bench.trace("uniform")
    assert shorter.tokens == trace.tokens - TINY.gpus
    assert min(bench.batch(shorter, (stage,)).limit for stage in (0, 1)) < 6000


def test_depth_curve(short: None, tmp_path: Path) -> None:
    seen: list[int] = []

    def deeper(config: Config, requests: Requests, **options: Any) -> Played:
        seen.append(config.switch.request_depth)
        return fake(config, requests, **options)

    rows = depth_curve(TINY, (40, 64), player=deeper)
    assert [row["depth"] for row in rows] == [40, 64]
    assert set(seen) == {40, 64}
    assert set(rows[0]) == {"depth", *CURVES}
    assert all(path.exists() for path in draw_depths({"tiny": rows}, CURVES, tmp_path / "depths"))


def play_on(load_: Any, **options: Any) -> Run:
    return run(TINY, load_, Sources(streams=1), player=lambda *a, **k: fake(*a, **k, **options))


def test_what_the_player_finds_ends_the_bench() -> None:
    """A figure of a run that was wrong is no figure."""
    work = permutation(TINY, chunks=3, streams=1, seed=1)
    with pytest.raises(SimulationFailed, match=r"permutation on tiny, seed 1:\np0 lost a replica"):
        play_on(work, mismatches=("p0 lost a replica",))
    with pytest.raises(SimulationFailed, match="flits up on port 0 must be 30, not 31"):
        play_on(work, wrong=1)


def test_utilisation_is_the_limit_over_the_links_own_cycles() -> None:
    done = play_on(permutation(TINY, chunks=30, streams=1, seed=1))
    assert done.load.limit == 300
    assert done.utilisation() == 300 / 400
    assert done.utilisation(Direction.UP) == done.utilisation(Direction.DOWN) == 300 / 400
    assert done.busiest() == (Direction.UP, 0)
    summary = done.summary()
    assert summary["limiting_link"] == {"port": 0, "direction": "up"}
    assert (summary["limit"], summary["requests"]) == (300, 120)


def test_latencies() -> None:
    """The fake's links down begin LATENCY after those up; answers end after 1 or 9 flits."""
    found = unloaded(TINY, player=fake)
    assert found == {"static": LATENCY, "dynamic": LATENCY, "reduce": LATENCY - 9}


def test_fairness_sees_an_input_that_is_served_less() -> None:
    done = play_on(incast(TINY, chunks=2000, streams=1))
    assert fairness(done) == 1
    done.played.bins[2, 1, UP] -= done.played.bins[2, 1, UP] // 2
    assert fairness(done) > 1.01
    with pytest.raises(SimulationFailed, match="must be longer"):
        fairness(play_on(incast(TINY, chunks=2, streams=1)))


def test_sources_are_checked() -> None:
    with pytest.raises(UserError, match="Streams must be at least 1, not 0"):
        Sources(streams=0)
    with pytest.raises(UserError, match="loads must be 0 or more, not -1"):
        Sources(streams=1, loads=-1)
