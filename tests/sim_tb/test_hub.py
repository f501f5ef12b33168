"""The Hub in simulation: widths, memory latencies, stalls."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block

RANDOM = [
    "stores_reach_each_listed_expert",
    "loads_reduce_in_list_order",
    "misses_storm",
    "a_new_binding_starts_anew",
    "memory_may_refuse",
    "all_at_once",
    "reset_in_the_middle",
]


@pytest.mark.parametrize("latency", [[0, 0], [1, 1]], ids=["none", "one"])
def test_memory_latency(latency):
    run_block("hub", load_preset("tiny"), params={"latency": latency})


def test_random_memory_latency():
    run_block("hub", load_preset("tiny"), tests=RANDOM, params={"latency": [0, 400]})


def test_stalls_everywhere():
    params = {"latency": [0, 60], "write_latency": [0, 200]}
    run_block("hub", load_preset("tiny"), tests=RANDOM, stalls=0.3, params=params)


def test_two_links():
    config = load_preset("tiny", gpus=2, links=2)
    run_block("hub", config, tests=["two_links_take_turns"], stalls=0.2)


@pytest.mark.parametrize("width", [512, pytest.param(1024, marks=pytest.mark.nightly)])
def test_wide_memory(width):
    config = load_preset("nvl8", memory_width=width, dtypes="bf16,f32")
    tests = [*RANDOM, "stores_cross_pages", "throughput"]
    run_block("hub", config, tests=tests, params={"latency": [0, 100]})


def test_chunks_of_256_bytes():
    config = load_preset("tiny", chunk_bytes=256, memory_width=256, tlb_ways=1)
    run_block("hub", config, tests=RANDOM, stalls=0.1, params={"latency": [0, 40]})


@pytest.mark.parametrize(
    "dtypes", ["all", "f32,u64,b32", pytest.param("all+f64", marks=pytest.mark.nightly)]
)
def test_types_that_are_built(dtypes):
    config = load_preset("tiny", dtypes=dtypes, memory_width=256)
    tests = ["loads_of_every_reduction", "loads_of_what_is_not_built"]
    run_block("hub", config, tests=tests, stalls=0.1, params={"latency": [0, 20]})


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 7))
@pytest.mark.parametrize("ways", [1, 4, 16])
def test_seeds(seed, ways):
    config = load_preset("tiny", tlb_ways=ways)
    params = {"latency": [0, 400], "reorder": True}
    run_block("hub", config, seed=seed, stalls=0.2, params=params)
