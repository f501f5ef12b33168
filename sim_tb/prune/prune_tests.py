"""Tests of pruning: what leaves an output is the list of its GPU and nothing else changed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import cocotb

from dysharp.hw.packet import Cmd, Packet, PruneInfo
from dysharp.sim_tb.agents import Bench, FlitMonitor, FlitPacket, FlitSink, FlitSource
from dysharp.sim_tb.scoreboard import Scoreboard

GPU = 5
GPUS = 72


class PruneEnv:
    """Agents round the block, and the packets that must come."""

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        self.random = bench.random("packets")
        self.source = FlitSource(bench, "i")
        self.input = FlitMonitor(bench, "i", on_packet=lambda packet: None)
        self.scoreboard = Scoreboard(bench, "o")
        self.sink = FlitSink(bench, "o", on_packet=self._observe)
        bench.wire("gpu").write(GPU)

    def send(self, packet: Packet, *, split: int = 0) -> None:
        """Send a packet as the ingress does, and expect it pruned."""
        flits = replace(packet, crc=PruneInfo.const({"split": split}).as_bits()).encode()
        self.source.send(flits, poison=[len(flits) - 1] if packet.poison else [])
        if packet.targets:
            targets = tuple(target for target in packet.targets if target >> split == GPU)
            assert targets, "the ingress sends no list without a target here"
            packet = replace(packet, targets=targets, count=len(targets))
        self.scoreboard.expect(packet)

    def _observe(self, received: FlitPacket) -> None:
        self.scoreboard.observe(received)

    async def finish(self) -> None:
        await self.bench.until(lambda: not self.scoreboard.outstanding, limit=100_000)
        self.bench.check()


def listed(rng: random.Random, count: int, split: int, here: float) -> tuple[int, ...]:
    """A list of ``count`` targets, about ``here`` of them of this GPU, at least one."""
    others = [gpu for gpu in range(min(GPUS, 1 << 16 - split)) if gpu != GPU]
    gpus = [GPU if rng.random() < here else rng.choice(others) for _ in range(count)]
    if GPU not in gpus:
        gpus[rng.randrange(count)] = GPU
    return tuple(gpu << split | rng.getrandbits(split) for gpu in gpus)


def any_packet(rng: random.Random, *, most: int) -> tuple[Packet, int]:
    """A packet of any kind; lists have up to ``most`` targets."""
    where: dict[str, Any] = {"port": rng.randrange(72), "local": rng.getrandbits(12)}
    data = tuple(rng.getrandbits(128) for _ in range(rng.randint(1, 8)))
    kind = rng.random()
    if kind < 0.15:
        packet = Packet.unicast(Cmd.WR, addr=rng.getrandbits(64), data=data * 2, **where)
        return packet, rng.getrandbits(4)
    if kind < 0.25:
        return Packet.unicast(Cmd.RD, addr=rng.getrandbits(64), **where), 0
    multimem: dict[str, Any] = {"maddr": rng.getrandbits(48), "stage": rng.getrandbits(1), **where}
    multimem["attr"] = rng.getrandbits(8)
    if kind < 0.35:
        return Packet.multimem(Cmd.MM_ST, data=data, **multimem), 0
    split = rng.randint(0, 9)
    targets = listed(rng, rng.choice((8, rng.randint(1, most))), split, rng.choice((0.1, 0.5, 1)))
    if rng.random() < 0.4:
        return Packet.multimem(Cmd.MM_LDR, targets=targets, **multimem), split
    be = rng.getrandbits(128) if rng.random() < 0.3 else None
    return Packet.multimem(Cmd.MM_ST, targets=targets, data=data, be=be, **multimem), split


@cocotb.test()
async def random_packets(dut):
    """Packets of every kind, lists up to 120 targets, some poisoned."""
    tb = PruneEnv(dut)
    await tb.bench.start()
    for _ in range(400):
        packet, split = any_packet(tb.random, most=120)
        tb.send(replace(packet, poison=tb.random.random() < 0.1), split=split)
    await tb.finish()


@cocotb.test()
async def every_remainder(dut):
    """All numbers of targets held and added at a flit's border, and the flit that gives none."""
    tb = PruneEnv(dut)
    await tb.bench.start()
    other = GPU + 1
    for first in range(9):
        for second in range(9):
            for third in (0, 1, 8):
                gpus = [
                    gpu
                    for here in (first, second, third)
                    for gpu in [GPU] * here + [other] * (8 - here)
                ]
                if GPU in gpus:
                    targets = tuple(gpu << 3 | k % 8 for k, gpu in enumerate(gpus))
                    packet = Packet.multimem(Cmd.MM_LDR, maddr=0, targets=targets)
                    tb.send(replace(packet, poison=third == 1), split=3)
    await tb.finish()


@cocotb.test()
async def longest_list(dut):
    """127 targets, all of this GPU: the header waits for 16 TX flits, which must have a place."""
    tb = PruneEnv(dut)
    await tb.bench.start()
    for _ in range(6):
        targets = tuple(GPU << 4 | k % 16 for k in range(127))
        tb.send(Packet.multimem(Cmd.MM_LDR, maddr=0, targets=targets), split=4)
    await tb.finish()


@cocotb.test()
async def no_bubble_for_short_lists(dut):
    """Whatever follows whatever, with lists up to 8 a flit enters in every cycle."""
    tb = PruneEnv(dut)
    await tb.bench.start()
    for _ in range(200):
        packet, split = any_packet(tb.random, most=8)
        tb.send(packet, split=split)
    await tb.finish()
    if not tb.bench.stall_probability:
        assert tb.input.stalled == 0
        assert tb.input.last_cycle - tb.input.first_cycle + 1 == tb.input.taken
        assert tb.sink.first_cycle - tb.source.first_cycle <= 2
        assert tb.sink.last_cycle - tb.source.last_cycle <= 2
