"""Tests of the mux of two classes on a link."""

from __future__ import annotations

from typing import Any

import cocotb

from dysharp.sim_tb.agents import Bench, FlitSink, FlitSource, LinkMonitor

CLASSES = ("req", "rsp")


class LinkMuxEnv:
    """A source and a sink for each class, and the monitor of the link's rule."""

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        self.sources = {name: FlitSource(bench, f"i_{name}") for name in CLASSES}
        self.sinks = {name: FlitSink(bench, f"o_{name}") for name in CLASSES}
        self.link = LinkMonitor(bench, "o_req", "o_rsp")
        self.random = bench.random("packets")

    def send(self, name: str, packets: int) -> list[list[int]]:
        sent = []
        for _ in range(packets):
            flits = [self.random.getrandbits(128) for _ in range(self.random.randint(1, 12))]
            self.sources[name].send(flits)
            sent.append(flits)
        return sent

    async def receive(self, name: str, packets: list[list[int]]) -> None:
        for flits in packets:
            received = await self.bench.within(self.sinks[name].receive(), 3000)
            assert received.flits == flits


@cocotb.test()
async def both_classes_come_through(dut):
    """Both at once: every flit once, in order, one a cycle for both together, in turns."""
    tb = LinkMuxEnv(dut)
    await tb.bench.start()
    sent = {name: tb.send(name, 40) for name in CLASSES}
    for name in CLASSES:
        await tb.receive(name, sent[name])
    flits = {name: sum(map(len, sent[name])) for name in CLASSES}
    if not tb.bench.stall_probability:
        assert tb.link.last_cycle - tb.link.first_cycle + 1 == sum(flits.values())
        shorter = min(CLASSES, key=lambda name: flits[name])
        sink = tb.sinks[shorter]
        assert sink.last_cycle - tb.link.first_cycle <= 2 * flits[shorter]
    tb.bench.check()


@cocotb.test()
async def a_stopped_class_leaves_its_cycles(dut):
    """While one class is held back the other has the whole link."""
    tb = LinkMuxEnv(dut)
    await tb.bench.start()
    for stopped, other in (CLASSES, CLASSES[::-1]):
        tb.sinks[stopped].paused = True
        waiting = tb.send(stopped, 5)
        await tb.bench.cycles(20)
        sink = tb.sinks[other]
        sink.first_cycle = -1
        sent = tb.send(other, 30)
        await tb.receive(other, sent)
        if not tb.bench.stall_probability:
            assert sink.last_cycle - sink.first_cycle + 1 == sum(map(len, sent))
        tb.sinks[stopped].paused = False
        await tb.receive(stopped, waiting)
    tb.bench.check()
