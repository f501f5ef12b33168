"""The network side of one GPU in simulation."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block


@pytest.mark.parametrize("stalls", [0.0, 0.2])
def test_counters(stalls):
    run_block("gpu", load_preset("tiny"), stalls=stalls)
