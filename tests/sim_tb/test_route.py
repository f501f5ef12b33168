"""Route in simulation: which ports a request goes to, or why it may not."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block

TESTS = "dysharp.sim_tb.route.route_tests"


@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_one_link_a_gpu(stalls):
    run_block("route", load_preset("tiny"), TESTS, stalls=stalls)


def test_four_links_a_gpu():
    config = load_preset("tiny", gpus=6, links=4, objects=4, chunk_bytes=256, gpu_address_bit=20)
    tests = [
        "random_requests",
        "reset_in_a_packet",
        "a_notice_names_its_gpu_in_bits_46_to_40",
    ]
    run_block("route", config, TESTS, tests=tests, stalls=0.2)


@pytest.mark.parametrize("dtypes", ["all+f64", "bf16,f32"])
def test_types_that_are_built(dtypes):
    config = load_preset("tiny", dtypes=dtypes)
    run_block("route", config, TESTS, tests=["each_attr", "random_requests"])


@pytest.mark.slow
def test_72_gpus():
    run_block(
        "route", load_preset("nvl72"), TESTS, tests=["random_requests"], params={"rounds": 12}
    )
