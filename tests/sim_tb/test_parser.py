"""The parser in simulation, for requests and for responses."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block

TESTS = "dysharp.sim_tb.parser.parser_tests"
RANDOM = ["random_frames", "reset_in_a_packet"]


@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_requests(stalls):
    run_block("parser", load_preset("tiny"), TESTS, stalls=stalls)


@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_responses(stalls):
    run_block(
        "response_parser",
        load_preset("tiny"),
        TESTS,
        tests=RANDOM,
        stalls=stalls,
        params={"responses": True},
    )


def test_chunks_of_256_bytes():
    config = load_preset("tiny", chunk_bytes=256)
    run_block("parser", config, TESTS, tests=RANDOM, stalls=0.2, params={"chunk_bytes": 256})
