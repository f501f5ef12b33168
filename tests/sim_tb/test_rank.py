"""The reduction unit in order rank, alone, in the switch and in the system."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.hw.errors import ConfigError
from dysharp.hw.generate import build_block
from dysharp.model.models import get_model
from dysharp.model.trace import make_trace
from dysharp.sim_tb.mutation import Mutant, run_mutant
from dysharp.sim_tb.run import run_block
from dysharp.sim_tb.system import run_system

RANK = "dysharp.sim_tb.rank.rank_tests"
EVERY_ORDER = [
    "random_sessions",
    "first_is_loaded",
    "late_contribution_changes_nothing",
    "foreign_port_changes_nothing",
    "surplus_contribution_changes_nothing",
    "wrong_length_changes_nothing",
    "poisoned_contribution_makes_an_error",
    "smallest_status_wins",
    "requests_wait_for_sessions",
    "contributions_never_wait_for_answers",
    "acknowledgements_collapse",
    "short_chunks_wait_for_the_adder",
    "reset_in_a_session",
    "silent_port_times_out",
    "timeout_keeps_a_smaller_status",
    "all_sessions_are_retired",
    "software_frees_retired_sessions",
    "random_silence",
]
"""Tests of the reduction unit that know nothing of the order of arrival."""
MIN_QUEUES = {"order": "rank", "request_depth": 32, "response_depth": 32}


@pytest.mark.parametrize(
    "depth", [4, *(pytest.param(d, marks=pytest.mark.nightly) for d in (1, 5))]
)
def test_order_and_rate(depth):
    run_block("reduction", load_preset("tiny", order="rank", alu_depth=depth), RANK)


def test_stalls():
    run_block("reduction", load_preset("tiny", order="rank"), RANK, stalls=0.3)


@pytest.mark.nightly
def test_six_ports_and_long_chunks():
    config = load_preset("tiny", order="rank", gpus=3, links=2, chunk_bytes=256, sessions=5)
    run_block("reduction", config, RANK)
    run_block("reduction", config, RANK, stalls=0.2)


@pytest.mark.parametrize("stalls", [0.0, 0.3])
@pytest.mark.parametrize("dtypes", ["bf16,f32", pytest.param("all", marks=pytest.mark.nightly)])
def test_as_in_every_order(dtypes, stalls):
    config = load_preset("tiny", order="rank", dtypes=dtypes)
    run_block("reduction", config, tests=EVERY_ORDER, stalls=stalls)


@pytest.mark.parametrize("sessions", [1, pytest.param(5, marks=pytest.mark.nightly)])
def test_few_sessions(sessions):
    config = load_preset("tiny", order="rank", sessions=sessions)
    run_block("reduction", config, tests=["random_sessions", "reset_in_a_session"], stalls=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_switch_with_the_smallest_queues(stalls):
    """Crossing loads fill every queue; outputs that waited for each other would stand still."""
    run_block("switch", load_preset("tiny", **MIN_QUEUES), stalls=stalls)


def test_system_needs_no_log():
    """The golden model knows the bits beforehand, with weights under which the order shows."""
    config = load_preset("tiny", order="rank")
    batch = make_trace(
        config, get_model("DeepSeek-V3"), tokens=4, seed=4, hidden=200, weights="telling"
    )
    result = run_system(config, batch, latency=(0, 40), stalls=0.2)
    assert result["check"]["values"] > 0
    assert result["check"]["mismatches"] == 0, "\n".join([*result["shown"], result["path"]])


def test_a_store_that_is_too_large_is_refused():
    config = load_preset("nvl72", order="rank", chunk_bytes=256)
    with pytest.raises(ConfigError, match="Sessions must be at most 227 in order rank") as refused:
        build_block("reduction", config)
    assert refused.value.field == "switch.sessions"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10))
def test_at_length(seed):
    config = load_preset("nvl8", order="rank", sessions=16)
    run_block(
        "reduction", config, tests=["random_sessions"], seed=seed, stalls=0.2,
        params={"requests": 3000}, optimize=True,
    )  # fmt: skip


MUTANTS = [
    Mutant(
        "ports are taken in descending order",
        "switch/rank_sequencer.py",
        "waiting.eq(Mux(begun, left, session.ports))",
        "waiting.eq(Mux(begun, left, session.ports)[::-1])",
        "every_arrival_gives_one_result",
        "reduction",
        changes={"order": "rank"},
        module=RANK,
    ),
    Mutant(
        "the second port is passed over",
        "switch/rank_sequencer.py",
        "left.eq(others)",
        "left.eq(Mux(begun, others, others & (others - 1)))",
        "results_differ_by_port_not_by_time",
        "reduction",
        changes={"order": "rank"},
        module=RANK,
    ),
    Mutant(
        "a port is read while the sum before it is in the adder",
        "switch/rank_sequencer.py",
        "(since == self.spacing)",
        "(since != 0)",
        "every_arrival_gives_one_result",
        "reduction",
        changes={"order": "rank"},
        module=RANK,
    ),
    Mutant(
        "results are overwritten while their answer waits",
        "switch/rank_sequencer.py",
        "(claimed != self.results)",
        "1",
        "an_answer_that_waits_holds_no_contribution",
        "reduction",
        changes={"order": "rank"},
        module=RANK,
    ),
    Mutant(
        "contributions of two sessions share a place",
        "switch/rank.py",
        "session * ports + flit.source",
        "session * (ports - 1) + flit.source",
        "no_cycle_between_sessions",
        "reduction",
        changes={"order": "rank"},
        module=RANK,
    ),
]


@pytest.mark.mutants(MUTANTS)
def test_mutants_are_caught(mutant):
    assert run_mutant(mutant)
