"""The token tracker in its testbench."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block


def test_every_case():
    run = run_block("token_tracker", load_preset("tiny"))
    assert len(run.tests) == 8


@pytest.mark.parametrize("stalls", [0.3, 0.7])
def test_stalls_change_nothing(stalls):
    tests = ["tokens_become_ready", "a_token_is_followed_anew", "tiles_become_ready",
             "rows_of_an_expert", "an_entry_is_taken", "notices_leave"]  # fmt: skip
    run_block("token_tracker", load_preset("tiny"), tests=tests, stalls=stalls)


def test_tables_of_the_presets():
    """More tiles than local experts, so that an expert has several rows."""
    run = run_block("token_tracker", load_preset("nvl8", slots=16))
    assert len(run.tests) == 8
