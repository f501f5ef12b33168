"""The Hub in simulation: widths, memory latencies, stalls."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block

TESTS = "dysharp.sim_tb.hub.hub_tests"


@pytest.mark.parametrize("latency", [[0, 0], [1, 1], [0, 400]], ids=["none", "one", "random"])
def test_memory_latency(latency):
    run_block("hub", load_preset("tiny"), TESTS, params={"latency": latency})


def test_stalls_everywhere():
    params = {"latency": [0, 60], "write_latency": [0, 200]}
    run_block("hub", load_preset("tiny"), TESTS, stalls=0.3, params=params)


@pytest.mark.parametrize("width", [512, pytest.param(1024, marks=pytest.mark.nightly)])
def test_wide_memory(width):
    config = load_preset("nvl8", memory_width=width)
    run_block("hub", config, TESTS, params={"latency": [0, 100]})


def test_chunks_of_256_bytes():
    config = load_preset("tiny", chunk_bytes=256, memory_width=256, tlb_ways=1)
    run_block("hub", config, TESTS, stalls=0.1, params={"latency": [0, 40]})


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 7))
@pytest.mark.parametrize("ways", [1, 4, 16])
def test_seeds(seed, ways):
    config = load_preset("tiny", tlb_ways=ways)
    params = {"latency": [0, 400], "reorder": True}
    run_block("hub", config, TESTS, seed=seed, stalls=0.2, params=params)
