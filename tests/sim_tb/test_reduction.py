"""The reduction unit in simulation."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.model.models import get_model
from dysharp.model.trace import make_trace
from dysharp.sim_tb.mutation import Mutant, run_mutant
from dysharp.sim_tb.run import run_block
from dysharp.sim_tb.system import run_system


@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_tiny(stalls):
    run_block("reduction", load_preset("tiny", dtypes="all"), stalls=stalls)


@pytest.mark.parametrize("stalls", [0.0, 0.3])
@pytest.mark.parametrize(
    "dtypes", ["bf16,f32,e5m2,u64", pytest.param("all", marks=pytest.mark.nightly)]
)
def test_exact(dtypes, stalls):
    config = load_preset("tiny", order="exact", dtypes=dtypes)
    run_block("reduction", config, stalls=stalls)


def test_exact_system():
    """The golden model knows the bits beforehand, with weights under which the order shows."""
    config = load_preset("tiny", order="exact", dtypes="bf16")
    batch = make_trace(
        config, get_model("DeepSeek-V3"), tokens=4, seed=4, hidden=200, weights="telling"
    )
    result = run_system(config, batch, latency=(0, 40), stalls=0.2)
    assert result["check"]["values"] > 0
    assert result["check"]["mismatches"] == 0, "\n".join([*result["shown"], result["path"]])


def test_known_sum_by_rank():
    config = load_preset("tiny", order="rank")
    run_block("reduction", config, tests=["known_sum_in_every_order"])


@pytest.mark.nightly
@pytest.mark.parametrize("order", ["arrival", "exact"])
def test_flushing_build_with_doubles(order):
    config = load_preset("tiny", order=order, dtypes="bf16,f32,f64,e5m2", ftz=True)
    run_block("reduction", config, tests=["random_sessions", "one_flit_a_cycle"])


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
        "switch/session_table.py",
        "fresh.eq(fresh & ~touched | begins)",
        "fresh.eq(fresh | begins)",
        "sum_follows_arrival",
        "reduction",
    ),
    Mutant(
        "accumulators are read while their sum is in the adder",
        "switch/reduction.py",
        "intake.hold.eq(Cat(conflicts).any())",
        "intake.hold.eq(0)",
        "short_chunks_wait_for_the_adder",
        "reduction",
    ),
    Mutant(
        "the largest status wins",
        "switch/error_answer.py",
        "(other != 0) & (other < one)",
        "(other != 0) & (other > one)",
        "smallest_status_wins",
        "reduction",
    ),
    Mutant(
        "carries between limbs are lost",
        "alu/exact_lane.py",
        'carry = kept[f"carry{index}"] if index else negative',
        "carry = Const(0, 1) if index else negative",
        "known_sum_in_every_order",
        "reduction",
        changes={"order": "exact", "dtypes": "bf16,f32"},
    ),
    Mutant(
        "what is far below a tie is forgotten",
        "alu/exact_lane_rounder.py",
        "positive.below.eq(~window.nothing_below)",
        "positive.below.eq(0)",
        "edges_of_exact_sums",
        "reduction",
        changes={"order": "exact", "dtypes": "bf16,f32"},
    ),
    Mutant(
        "there is room for half of the carries",
        "alu/fixed_point.py",
        "ceil_log2(self.contributions)",
        "ceil_log2(self.contributions) - 1",
        "edges_of_exact_sums",
        "reduction",
        changes={"order": "exact", "dtypes": "bf16,f32"},
    ),
    Mutant(
        "sums of -0 are +0",
        "alu/exact_lane_rounder.py",
        "kind.minus_zero.eq(~flags.other)",
        "kind.minus_zero.eq(0)",
        "first_is_loaded",
        "reduction",
        changes={"order": "exact", "dtypes": "bf16,f32"},
    ),
    Mutant(
        "a retired session is given back with its answer",
        "switch/retirement.py",
        "was_retired.eq((self.retired & now_answered).any())",
        "was_retired.eq(0)",
        "silent_port_times_out",
        "reduction",
    ),
    Mutant(
        "a timeout forgets an earlier status",
        "switch/session_table.py",
        "merged.status.eq(smaller_status(status, brought))",
        "merged.status.eq(Mux(self.claim.is_timeout, brought, smaller_status(status, brought)))",
        "timeout_keeps_a_smaller_status",
        "reduction",
    ),
    Mutant(
        "any late answer settles a retired session",
        "switch/session_table.py",
        "retirement.settles.eq(swallows & is_last)",
        "retirement.settles.eq(swallows)",
        "three_silent_ports",
        "reduction",
    ),
    Mutant(
        "sessions time out too early",
        "switch/session_timer.py",
        "(age > TICKS)",
        "(age > TICKS - 2)",
        "silent_port_times_out",
        "reduction",
    ),
    Mutant(
        "a header is taken in the cycle of a timeout",
        "switch/intake.py",
        "Mux(at_header, ~table.overdue.valid, ~self.hold)",
        "at_header | ~self.hold",
        "random_silence",
        "reduction",
    ),
    Mutant(
        "an answer does not wait for sums that are in the ALU",
        "switch/reduction.py",
        "if stage < alu.latency:",
        "if stage < 1:",
        "short_chunks_wait_for_the_adder",
        "reduction",
    ),
]


@pytest.mark.mutants(MUTANTS)
def test_mutants_are_caught(mutant):
    assert run_mutant(mutant)
