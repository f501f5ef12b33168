"""Packets of several streams on one."""

import random

import pytest
from amaranth.sim import Simulator

from dysharp.hw.link.packet_merge import PacketMerge


def run(count: int, stall: float, *, seed: int = 1, packets: int = 20):
    """Simulate; returns what was sent by each source and what came out, a packet a tuple."""
    choose = random.Random(seed)
    dut = PacketMerge(count=count)
    sent = [
        [
            [source << 64 | number << 8 | flit for flit in range(choose.randint(1, 5))]
            for number in range(packets)
        ]
        for source in range(count)
    ]
    received: list[list[int]] = [[]]
    cycles = []

    def drive(k):
        async def process(ctx):
            port = dut.i[k]
            for packet in sent[k]:
                for flit in packet:
                    while choose.random() < stall:
                        await ctx.tick()
                    ctx.set(port.p.data, flit)
                    ctx.set(port.p.last, flit == packet[-1])
                    ctx.set(port.valid, 1)
                    await ctx.tick().until(port.ready)
                    ctx.set(port.valid, 0)

        return process

    async def collect(ctx):
        left = sum(len(packet) for packets in sent for packet in packets)
        cycle = 0
        while left:
            ctx.set(dut.o.ready, choose.random() >= stall)
            _, _, valid, ready, flit, last = await ctx.tick().sample(
                dut.o.valid, dut.o.ready, dut.o.p.data, dut.o.p.last
            )
            cycle += 1
            if valid and ready:
                left -= 1
                cycles.append(cycle)
                received[-1].append(flit)
                if last:
                    received.append([])

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    for k in range(count):
        simulator.add_testbench(drive(k))
    simulator.add_testbench(collect)
    simulator.run_until(0.02)
    return sent, received[:-1], cycles


@pytest.mark.parametrize(("count", "stall"), [(1, 0.3), (2, 0), (3, 0.4)])
def test_packets_stay_whole_and_in_order(count, stall):
    sent, received, _ = run(count, stall)
    for source in range(count):
        assert [packet for packet in received if packet[0] >> 64 == source] == sent[source]
    assert sum(map(len, sent)) == len(received)


def test_no_bubble_between_packets():
    _, _, cycles = run(2, 0)
    assert cycles[-1] - cycles[0] + 1 == len(cycles)


def test_sources_take_turns():
    _, received, _ = run(2, 0)
    assert {packet[0] >> 64 for packet in received[4:6]} == {0, 1}


def test_count_is_checked():
    with pytest.raises(ValueError, match="Count must be at least 1, not 0"):
        PacketMerge(count=0)
