"""Sessions at the edge of the whole switch in simulation."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block

SESSIONS = "dysharp.sim_tb.switch.session_tests"


@pytest.mark.slow
@pytest.mark.parametrize("stalls", [0.0, pytest.param(0.2, marks=pytest.mark.nightly)])
def test_answers_and_silent_ports(stalls):
    run_block("switch", load_preset("tiny"), SESSIONS, stalls=stalls)
