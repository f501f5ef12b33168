"""The mux of two classes on a link, in simulation."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block


@pytest.mark.parametrize("stalls", [0.0, 0.4])
def test_link_mux(stalls):
    run_block("link_mux", load_preset("tiny"), stalls=stalls)
