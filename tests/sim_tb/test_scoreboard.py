"""What a mismatch looks like, and when coverage fails."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from dysharp.hw.packet import Cmd, Packet
from dysharp.sim_tb.agents.flit import FlitPacket
from dysharp.sim_tb.coverage import Coverage
from dysharp.sim_tb.scoreboard import Scoreboard, difference

STORE = Packet.multimem(Cmd.MM_ST, maddr=0x1000, targets=(1, 2), data=[5] * 8, local=7)


def fail(message: str):
    raise AssertionError(message)


def scoreboard(**keywords) -> Scoreboard:
    bench: Any = SimpleNamespace(fail=fail)
    return Scoreboard(bench, "p0_tx_req", **keywords)


def received(packet: Packet) -> FlitPacket:
    flits = packet.encode()
    return FlitPacket(flits, [False] * len(flits))


def test_difference_names_the_fields():
    other = dataclasses.replace(STORE, maddr=0x1080, data=(5,) * 7 + (6,))
    lines = difference(STORE, other)
    assert [line.split(":")[0] for line in lines] == ["maddr", "data[7]"]
    assert difference(STORE, STORE) == []


def test_mismatch_prints_fields():
    board = scoreboard()
    board.expect(STORE)
    with pytest.raises(AssertionError, match=r"p0_tx_req: packet 0 differs\n  targets: expected"):
        board.observe(received(dataclasses.replace(STORE, targets=(1, 3))))


def test_order_is_kept_for_each_key():
    board = scoreboard(key=lambda packet: packet.tag_local)
    other = dataclasses.replace(STORE, tag_local=8)
    board.expect(STORE)
    board.expect(other)
    board.observe(received(other))
    with pytest.raises(AssertionError, match="1 packets missing"):
        board.finish()
    board.observe(received(STORE))
    board.finish()
    assert board.matched == 2


def test_coverage_names_what_was_missed():
    coverage = Coverage()
    coverage.group("cmd", [Cmd.RD, Cmd.WR])
    coverage.group("cross", [0, 1], ["a", "b"])
    coverage.sample("cmd", Cmd.RD)
    coverage.sample("cmd", Cmd.NOP)
    for value in (0, 1):
        for letter in "ab":
            coverage.sample("cross", (value, letter))
    assert coverage.summary() == {"cmd": (1, 2), "cross": (4, 4)}
    with pytest.raises(AssertionError, match="coverage missed cmd: .*WR"):
        coverage.check()
