"""Counters of a GPU, against what was sent to it."""

from __future__ import annotations

from typing import Any

import cocotb

from dysharp.hw.config import load_preset
from dysharp.hw.packet import Cmd, Packet
from dysharp.hw.registers import maps_of
from dysharp.model.backend import Recorder
from dysharp.model.cuda import CUDymulticastObjectProp
from dysharp.model.runtime import Runtime
from dysharp.sim_tb.agents import AxiLiteManager, AxiMemory, Bench, FlitSink, FlitSource, Latency

BE_BIT = 43


def malformed(packet: Packet) -> list[int]:
    """Flits of a packet whose header promises a BE flit that its command cannot have."""
    flits = packet.encode()
    return [flits[0] | 1 << BE_BIT, *flits[1:]]


class GpuEnv:
    """Link 0, memory and registers of one GPU."""

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        self.config = load_preset(bench.manifest["config"]["name"])
        self.map = maps_of(self.config)[1]
        self.memory = AxiMemory(bench, "m_axi", latency=Latency(0, 3))
        self.registers = AxiLiteManager(bench, "s_axil")
        self.requests = FlitSource(bench, "p0_rx_req")
        self.responses = FlitSource(bench, "p0_rx_rsp")
        self.answers = FlitSink(bench, "p0_tx_rsp")
        FlitSink(bench, "p0_tx_req")

    async def start(self) -> None:
        """Reset, and wait until the tracker has cleared its tables."""
        await self.bench.start()
        while await self.counter("tracker"):
            pass

    async def bind(self, ntoken: int) -> int:
        """An object with one expert here, its first address returned."""
        recorder = Recorder()
        runtime = Runtime(self.config, recorder)
        handle = runtime.cuDyMulticastCreate(CUDymulticastObjectProp(2, bsize=144, slots=1))
        for gpu in range(2):
            runtime.cuDyMulticastAddDevice(handle, gpu)
        runtime.cuDyMulticastBindAddr(handle, 0, 1 << 20, ntoken=ntoken, nactive=[2 * ntoken])
        for device, address, value in recorder.take():
            if device == 0:
                await self.registers.write(address, value)
        for _, address, count in recorder.clears:
            self.memory.write_bytes(address, bytes(count))
        return runtime.address(handle, 0, 0)

    async def counter(self, name: str) -> int:
        """A register of one word."""
        return await self.registers.read(self.map[name].offset)


@cocotb.test()
async def tracker_tells_when_its_windows_are_open(dut):
    """What software wrote while the tables were cleared was lost, and nothing told it to wait."""
    tb = GpuEnv(dut)
    await tb.bench.start()
    assert await tb.counter("tracker") == 1
    while await tb.counter("tracker"):
        pass
    window = tb.map.window("tokens")
    for index in (0, tb.config.gpu.or_entries - 1):
        for register, values in (("token", {"token": index}), ("follow", {"threshold": 1})):
            for address, value in window.writes(index, register, **values):
                await tb.registers.write(address, value)
        state = await tb.registers.read(window.address(index, "readiness"))
        assert window["readiness"].unpack(state)["valid"] == 1


@cocotb.test()
async def each_drop_counts(dut):
    """Answers that nobody waits for, malformed ones, and poisoned NOTIFYs.

    The first two meet in one cycle if they come two cycles apart; one bit held their sum, and both
    were lost. Poisoned NOTIFYs were not counted.
    """
    tb = GpuEnv(dut)
    await tb.start()
    values = tb.bench.random("drops")
    for local in range(120):
        packet = Packet.multimem(Cmd.MM_ACK, maddr=0, count=1, local=local)
        wrong = local % 3 == 2 or values.random() < 0.3
        tb.responses.send(malformed(packet) if wrong else packet.encode())
        tb.requests.send(Packet.unicast(Cmd.NOTIFY, addr=local).encode(), poison=[0])
    sources = tb.responses, tb.requests
    await tb.bench.until(lambda: not any(one.pending for one in sources), limit=5000)
    await tb.bench.cycles(20)
    assert await tb.counter("dropped") == 240
    tb.bench.check()


@cocotb.test()
async def each_malformed_packet_counts(dut):
    """Those that the parser drops, and those behind the end of a block, in one cycle too.

    The parser's count took the place of the Hub's.
    """
    tb = GpuEnv(dut)
    await tb.start()
    base = await tb.bind(ntoken=4)
    values = tb.bench.random("malformed")
    sent = 300
    for number in range(sent):
        behind = base + 7 * 256 + 144  # the last of 8 rows, 256 bytes apart, has 144
        packet = Packet.multimem(Cmd.MM_LDR, maddr=behind, targets=[0], stage=1, local=number)
        tb.requests.send(malformed(packet) if values.random() < 0.5 else packet.encode())
    await tb.bench.until(lambda: len(tb.answers.packets) == sent, limit=20_000, what="all ERRs")
    await tb.bench.cycles(20)
    statuses = {Packet.decode(answer.flits).attr for answer in tb.answers.packets}
    assert statuses == {1}
    assert await tb.counter("error_malformed") == sent
    tb.bench.check()
