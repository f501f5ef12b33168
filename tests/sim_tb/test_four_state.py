"""Four-state simulation: nothing that was never written reaches an answer.

Verilator knows no X, so these runs need Icarus Verilog, an optional system tool.
"""

import shutil

import pytest

from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import run_block

RUNS = {
    "parser": ["cut_or_padded", "random_frames"],
    "ingress": ["each_kind_goes_its_way"],
    "reduction": ["first_is_loaded", "silent_port_times_out"],
    "switch": ["list_is_pruned", "unicast_passes", "refusals_are_answered"],
    "al_tlb": ["random_traffic"],
    "hub": ["stores_reach_each_listed_expert", "loads_reduce_in_list_order"],
    "multimemq": ["random_instructions"],
    "token_tracker": ["tokens_become_ready"],
}


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="needs Icarus Verilog (iverilog)")
@pytest.mark.parametrize("block", RUNS)
def test_no_unknown_value_comes_out(block):
    run_block(block, load_preset("tiny"), tests=RUNS[block], simulator="icarus")
