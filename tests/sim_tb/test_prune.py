"""Pruning in simulation."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.mutation import Mutant, run_mutant
from dysharp.sim_tb.run import run_block


@pytest.mark.parametrize("stalls", [0.0, 0.4])
def test_prune(stalls):
    run_block("prune", load_preset("tiny"), stalls=stalls)


MUTANTS = [
    Mutant(
        "the length stays that of the whole list",
        "switch/prune.py",
        "waiting.header.len - old_flits + tx_flits(final_total)",
        "waiting.header.len",
        "random_packets",
        "prune",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutants_are_caught(mutant):
    assert run_mutant(mutant)
