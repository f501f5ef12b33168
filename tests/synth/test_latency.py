"""Cycles to the answer, of a reduction unit whose page states them."""

from __future__ import annotations

import pytest

from dysharp.hw.config import load
from dysharp.hw.generate import build_block
from dysharp.hw.packet import Dtype, Op
from dysharp.synth import latency
from dysharp.synth.latency import answer_latency

ADD = {"dtype": Dtype.U32, "op": Op.ADD, "acc": 0}


@pytest.mark.parametrize("depth", [1, 4])
def test_arrival(depth: int) -> None:
    """Three cycles, or for one flit two and those of the adder."""
    config = load("tiny", ["dtypes=u32", "switch.sessions=2", f"alu_depth={depth}"])
    unit = build_block("reduction", config)
    for flits, promised in ((config.chunk_flits, 3), (1, 2 + depth)):
        assert answer_latency(unit, ADD, ports=config.ports, chunk_flits=flits) == promised
        unit = build_block("reduction", config)


def test_a_unit_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "LIMIT", 2)
    config = load("tiny", ["dtypes=u32", "switch.sessions=2"])
    unit = build_block("reduction", config)
    with pytest.raises(RuntimeError, match="answer within 2 cycles"):
        answer_latency(unit, ADD, ports=config.ports, chunk_flits=config.chunk_flits)
