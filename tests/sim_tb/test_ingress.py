"""The ingress of a port in simulation, with queues that fill up and sessions that run out."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block

TESTS = "dysharp.sim_tb.ingress.ingress_tests"


@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_ingress(stalls):
    run_block("ingress", load_preset("tiny"), TESTS, stalls=stalls)


def test_two_links_a_gpu():
    config = load_preset("tiny", links=2, chunk_bytes=256)
    run_block("ingress", config, TESTS, tests=["random_traffic", "reset_in_a_packet"], stalls=0.1)
