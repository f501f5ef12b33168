"""The whole switch in simulation."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block


@pytest.mark.slow
@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_tiny(stalls):
    run_block("switch", load_preset("tiny"), stalls=stalls)


@pytest.mark.slow
def test_at_the_smallest_depth():
    """Queues that hold one packet of the longest kind; the traps are for these."""
    config = load_preset("tiny", request_depth=32, response_depth=32)
    run_block("switch", config, "dysharp.sim_tb.switch.trap_tests")
    run_block("switch", config, stalls=0.2, tests=["random_traffic", "crossing_multicasts"])


@pytest.mark.slow
def test_two_links_of_three_gpus():
    """Six ports, which is no power of two; a chunk's link is chosen by its address."""
    run_block("switch", load_preset("tiny", gpus=3, links=2), stalls=0.2, tests=[
        "random_traffic", "list_is_pruned", "crossing_multicasts",
    ])  # fmt: skip


@pytest.mark.slow
def test_two_gpus():
    """The smallest switch."""
    run_block("switch", load_preset("tiny", gpus=2), stalls=0.2, tests=[
        "random_traffic", "crossing_multicasts", "resets_in_traffic",
    ])  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(5))
def test_at_length(seed):
    run_block(
        "switch", load_preset("nvl8"), tests=["random_traffic"], seed=seed, stalls=0.1,
        params={"requests": 500}, optimize=True,
    )  # fmt: skip
