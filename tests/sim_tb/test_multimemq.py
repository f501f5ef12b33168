"""The MultimemQ in its testbench, over memory latencies, stalls and memory widths."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.mutation import Mutant, run_mutant
from dysharp.sim_tb.run import run_block

ALWAYS_STALLING = [
    "random_instructions",
    "every_list_length",
    "reset_in_the_middle",
    "stalled_results_never_block_the_link",
    "wrong_answers",
]


def test_every_case():
    config = load_preset("tiny", multimemq_entries=32)
    run = run_block("multimemq", config, params={"latency": [20, 20]})
    assert len(run.tests) == 14


@pytest.mark.parametrize("latency", [[0, 0], [1, 1], [0, 400]])
@pytest.mark.parametrize("stalls", [0.2, 0.6])
def test_stalls_and_latencies_change_nothing(latency, stalls):
    run_block(
        "multimemq",
        load_preset("tiny"),
        tests=ALWAYS_STALLING,
        stalls=stalls,
        params={"latency": latency},
    )


@pytest.mark.parametrize(("memory_width", "chunk_bytes"), [(512, 128), (1024, 256)])
def test_wide_memory(memory_width, chunk_bytes):
    config = load_preset(
        "tiny", multimemq_entries=32, memory_width=memory_width, chunk_bytes=chunk_bytes
    )
    run_block("multimemq", config, params={"latency": [0, 0]})


def test_one_of_each():
    """The smallest that can be built: one entry, one outstanding packet."""
    config = load_preset("tiny", multimemq_entries=1, outstanding=1)
    run_block("multimemq", config, tests=["random_instructions", "tags_run_out"], stalls=0.2)


MUTANTS = [
    Mutant(
        "a -1 in the list is sent",
        "gpu/list_packer.py",
        "mask[k] & (lanes[k] != NO_TARGET)",
        "mask[k]",
        "random_instructions",
        "multimemq",
    ),
    Mutant(
        "the lists of a first and a second flit are not joined",
        "gpu/list_packer.py",
        "held.eq(Mux(emit, window[FLIT_BITS:], window))",
        "held.eq(Mux(emit, 0, window))",
        "every_list_length",
        "multimemq",
    ),
    Mutant(
        "a tag is free before its answer has come whole",
        "gpu/outstanding.py",
        "free.eq(is_end)",
        "free.eq(valid & known & (held.kind == FlitKind.HDR))",
        "tags_run_out",
        "multimemq",
    ),
    Mutant(
        "a wrong count in an answer goes unseen",
        "gpu/outstanding.py",
        "~due.static & (answer.multimem.count != due.count)",
        "0 & due.static",
        "wrong_answers",
        "multimemq",
    ),
    Mutant(
        "a packet leaves without a place for its result",
        "gpu/packetizer.py",
        "self.tag.valid & (self.room >= need)",
        "self.tag.valid",
        "stalled_results_never_block_the_link",
        "multimemq",
    ),
    Mutant(
        "an empty list is sent as the preset group",
        "gpu/packetizer.py",
        "| ~instruction.static & (count == 0)",
        "",
        "nobody_is_named",
        "multimemq",
    ),
]


@pytest.mark.slow
@pytest.mark.mutants(MUTANTS)
def test_mutants_are_caught(mutant):
    assert run_mutant(mutant)
