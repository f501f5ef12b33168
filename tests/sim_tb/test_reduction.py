"""The reduction unit in simulation."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.mutation import Mutant, run_mutant
from dysharp.sim_tb.run import run_block


@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_tiny(stalls):
    run_block("reduction", load_preset("tiny"), stalls=stalls)


def test_sessions_that_are_no_power_of_two():
    run_block("reduction", load_preset("tiny", sessions=5), stalls=0.1)


def test_one_session():
    run_block("reduction", load_preset("tiny", sessions=1), tests=["random_sessions"], stalls=0.1)


def test_two_links_and_long_chunks():
    config = load_preset("tiny", gpus=3, links=2, chunk_bytes=256)
    run_block("reduction", config, tests=["random_sessions", "one_flit_a_cycle"])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_at_length(seed):
    config = load_preset("nvl8", sessions=16)
    run_block(
        "reduction", config, tests=["random_sessions"], seed=seed, stalls=0.2,
        params={"requests": 3000}, optimize=True,
    )  # fmt: skip


MUTANTS = [
    Mutant(
        "a later contribution is loaded, not added",
        "reduction",
        "switch/session_table.py",
        "fresh.eq(fresh & ~touched | begins)",
        "fresh.eq(fresh | begins)",
        "sum_follows_arrival",
    ),
    Mutant(
        "accumulators are read while their sum is in the adder",
        "reduction",
        "switch/reduction.py",
        "intake.hold.eq(Cat(conflicts).any())",
        "intake.hold.eq(0)",
        "short_chunks_wait_for_the_adder",
    ),
    Mutant(
        "the largest status wins",
        "reduction",
        "switch/error_answer.py",
        "(other != 0) & (other < one)",
        "(other != 0) & (other > one)",
        "smallest_status_wins",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutants_are_caught(mutant):
    assert run_mutant(mutant)
