"""The AL-TLB in simulation, from direct mapped to fully associative."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block

TESTS = "dysharp.sim_tb.al_tlb.al_tlb_tests"


@pytest.mark.parametrize("stalls", [0.0, 0.4])
def test_two_ways(stalls):
    run_block("al_tlb", load_preset("tiny"), TESTS, stalls=stalls)


@pytest.mark.parametrize(("entries", "ways"), [(8, 1), (8, 8), (12, 3)])
def test_shapes(entries, ways):
    config = load_preset("tiny", tlb_entries=entries, tlb_ways=ways)
    params = {"entries": entries, "ways": ways}
    run_block("al_tlb", config, TESTS, stalls=0.2, params=params)
