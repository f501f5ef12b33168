"""Tests of the agents themselves, on the hand-written loopback of tests/sim_tb."""

from __future__ import annotations

import cocotb

from dysharp.sim_tb.agents import (
    AxiLiteManager,
    AxiMemory,
    Bench,
    FlitMonitor,
    FlitSink,
    FlitSource,
    Latency,
    StreamSink,
    StreamSource,
)


class Loopback:
    """All agents round the loopback."""

    def __init__(self, dut):
        self.bench = bench = Bench(dut)
        self.drop = bench.wire("drop_valid")
        self.drop.write(0)
        self.source = FlitSource(bench, "i")
        self.sink = FlitSink(bench, "o")
        self.monitor = FlitMonitor(bench, "o")
        self.records = StreamSource(bench, "r")
        self.results = StreamSink(bench, "q")
        self.put = StreamSource(bench, "put")
        self.done = StreamSink(bench, "done")
        self.get = StreamSource(bench, "get")
        self.got = StreamSink(bench, "got")
        low, high = bench.params.get("latency", [1, 1])
        self.memory = AxiMemory(bench, latency=Latency(low, high), reorder=True)
        self.registers = AxiLiteManager(bench)


@cocotb.test()
async def flits_come_through(dut):
    """Every flit comes out once, in order; without stalls one a cycle and without a bubble."""
    tb = Loopback(dut)
    bench = tb.bench
    await bench.start()
    values = bench.random("flits")
    packets = [[values.getrandbits(128) for _ in range(values.randint(1, 32))] for _ in range(50)]
    for number, packet in enumerate(packets):
        tb.source.send(packet, poison=[len(packet) - 1] if number % 7 == 0 else [])
    for number, packet in enumerate(packets):
        got = await bench.within(tb.sink.receive(), 3000, what=f"packet {number}")
        assert got.flits == packet, f"packet {number}, seed {bench.seed}"
        assert got.poisoned == (number % 7 == 0)
    flits = sum(map(len, packets))
    assert tb.monitor.taken == tb.sink.taken == tb.source.sent == flits
    if not bench.stall_probability:
        assert tb.sink.last_cycle - tb.sink.first_cycle + 1 == flits
    bench.check()


@cocotb.test()
async def records_come_through(dut):
    """Fields are found by name and keep their values."""
    tb = Loopback(dut)
    await tb.bench.start()
    assert tb.records.fields == ("addr", "count")
    values = tb.bench.random("records")
    sent = [{"addr": values.getrandbits(48), "count": values.getrandbits(7)} for _ in range(40)]
    for record in sent:
        tb.records.send(record)
    for record in sent:
        assert await tb.bench.within(tb.results.receive(), 300) == record
    tb.bench.check()


@cocotb.test()
async def dropped_valid_is_seen(dut):
    """A design that takes back an offer is reported, with prefix and cycle."""
    tb = Loopback(dut)
    await tb.bench.start()
    tb.sink.paused = True
    tb.source.send([1, 2, 3])
    await tb.bench.cycles(20)
    tb.drop.write(1)
    await tb.bench.cycles(3)
    found = list(tb.sink.problems())
    assert len(found) == 1 and found[0].startswith("o: valid dropped before ready at cycle")


@cocotb.test()
async def memory_keeps_what_is_written(dut):
    """Random writes with byte enables and random bursts, against a plain model."""
    tb = Loopback(dut)
    bench = tb.bench
    await bench.start()
    values = bench.random("memory")
    model = bytearray(tb.memory.read_bytes(0x1000, 4096))
    assert model[:2] == b"\xa5\x7f"
    for _ in range(60):
        address = 32 * values.randrange(128)
        data, strobe = values.getrandbits(256), values.getrandbits(32)
        tb.put.send(addr=0x1000 + address, data=data, strb=strobe, id=values.randrange(4))
        for byte in range(32):
            if strobe >> byte & 1:
                model[address + byte] = data >> 8 * byte & 0xFF
        await bench.within(tb.done.receive(), 2000)
    assert tb.memory.read_bytes(0x1000, 4096) == bytes(model)
    wanted: dict[int, list[tuple[int, int]]] = {}
    for number in range(40):
        beats = values.randint(1, 8)
        address = 32 * values.randrange(128 - beats)
        tb.get.send(addr=0x1000 + address, len=beats - 1, id=number % 4)
        wanted.setdefault(number % 4, []).append((address, beats))
    for _ in range(40):
        beats = []
        while not beats or not beats[-1]["last"]:
            beats.append(await bench.within(tb.got.receive(), 2000))
        assert len({beat["id"] for beat in beats}) == 1
        address, count = wanted[beats[0]["id"]].pop(0)
        assert len(beats) == count
        for number, beat in enumerate(beats):
            start = address + 32 * number
            assert beat["data"].to_bytes(32, "little") == model[start : start + 32]
    assert tb.memory.idle
    bench.check()


@cocotb.test()
async def memory_reports_violations(dut):
    """Unaligned addresses and bursts over a 4 KB boundary are reported."""
    tb = Loopback(dut)
    await tb.bench.start()
    tb.get.send(addr=0x1010, len=0, id=0)
    tb.get.send(addr=0x1FE0, len=1, id=0)
    await tb.get.drained()
    await tb.bench.cycles(20)
    text = "\n".join(tb.memory.problems())
    assert "is not aligned to 32 bytes" in text and "crosses 4 KB" in text


@cocotb.test()
async def registers_keep_what_is_written(dut):
    """AXI4-Lite writes and reads."""
    tb = Loopback(dut)
    await tb.bench.start()
    values = tb.bench.random("registers")
    for _ in range(20):
        first, second = values.getrandbits(32), values.getrandbits(32)
        await tb.bench.within(tb.registers.write(0, first), 200)
        await tb.bench.within(tb.registers.write(4, second), 200)
        assert await tb.bench.within(tb.registers.read(0), 200) == first
        assert await tb.bench.within(tb.registers.read(4), 200) == second
    tb.bench.check()


@cocotb.test()
async def reset_in_the_middle(dut):
    """Agents forget what was in flight and start anew."""
    tb = Loopback(dut)
    await tb.bench.start()
    tb.source.send(range(1, 30))
    await tb.bench.cycles(12)
    await tb.bench.reset()
    tb.sink.packets.clear()
    tb.source.send([7, 8])
    packet = await tb.bench.within(tb.sink.receive(), 200)
    assert packet.flits == [7, 8]
    tb.bench.check()


@cocotb.test()
async def fails_on_purpose(dut):
    """Run only by the test of what a failure prints."""
    tb = Loopback(dut)
    await tb.bench.start()
    if tb.bench.params.get("fail"):
        tb.bench.fail("wrong on purpose")
