"""The agents, the runner and the reading of results, on a hand-written design."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dysharp.hw.errors import UserError
from dysharp.sim_tb.run import SimulationFailed, run_block
from dysharp.sim_tb.tools import find_simulator

LOOPBACK = Path(__file__).parent / "loopback.v"
TESTS = "dysharp.sim_tb.agents.agent_tests"


@pytest.mark.parametrize(
    ("stalls", "latency"), [(0.0, [0, 0]), (0.0, [1, 1]), (0.3, [0, 40]), (0.7, [0, 5])]
)
def test_agents(stalls, latency):
    run = run_block(
        LOOPBACK, None, TESTS, top="loopback", stalls=stalls, params={"latency": latency}
    )
    assert len(run.tests) == 8


def test_failure_is_one_short_message_with_the_seed():
    with pytest.raises(SimulationFailed) as failure:
        run_block(
            LOOPBACK,
            None,
            TESTS,
            top="loopback",
            tests=["fails_on_purpose"],
            params={"fail": True},
            seed=77,
        )
    text = str(failure.value)
    assert "fails_on_purpose: wrong on purpose (cycle " in text and "seed 77" in text
    assert "repeat: python -m dysharp.sim_tb.run " in text
    assert len(text.splitlines()) < 6


def test_broken_verilog_names_the_error(tmp_path):
    broken = tmp_path / "broken.v"
    broken.write_text("module broken(input clk); assign nothing = missing; endmodule\n")
    with pytest.raises(SimulationFailed, match="building broken failed"):
        run_block(broken, None, TESTS, top="broken", build_dir=tmp_path / "sim")


def test_no_compiler_is_a_plain_message(monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(UserError, match=r"no C\+\+ compiler on the PATH.*install g\+\+"):
        find_simulator()
