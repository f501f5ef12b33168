"""The Hub under load: everything at once, links that stand still, resets, throughput."""

from __future__ import annotations

import json
from pathlib import Path

import cocotb

from dysharp.hw.packet import Cmd, Packet
from dysharp.sim_tb.agents import FlitSink, FlitSource
from dysharp.sim_tb.hub.env import HubEnv, bound, map_all
from dysharp.sim_tb.hub.packets import bf16_bytes, fill_rows, load, make_object, store
from dysharp.sim_tb.scoreboard import Scoreboard


@cocotb.test()
async def all_at_once(dut):
    """Stores, loads, static, unicast and wrong packets of three objects, mixed at random."""
    tb = HubEnv(dut)
    await tb.start()
    values = tb.bench.random("packets")
    objects = [
        make_object(0, bsize=(496, 272)),
        make_object(7, bsize=(128, 144), slots=8),
        make_object(15, bsize=(1040, 16)),
    ]
    for number, entry in zip((0, 7, 15), objects, strict=True):
        await tb.bind(number, entry)
        fill_rows(tb, values, entry, 1)
    tb.fill_memory(0x3000, bf16_bytes(values, 64))
    limit = tb.chunk_flits
    for _ in range(3):
        for _ in range(100):
            entry = values.choice(objects)
            choice = values.random()
            if choice < 0.45:
                packet = store(values, entry, limit=limit)
                packet.poison = values.random() < 0.05
            elif choice < 0.85:
                packet = load(values, entry, limit=limit)
            elif choice < 0.9:
                packet = load(values, entry, targets=[])
                packet.stage = 1
                packet.maddr = entry.base + packet.maddr % 8 + 16 * values.randrange(8) & ~15
            elif choice < 0.95:
                packet = Packet.unicast(Cmd.RD, addr=0x3000 + 16 * values.randrange(64))
            else:
                packet = Packet.unicast(
                    Cmd.WR, addr=0x6000 + 16 * values.randrange(64), data=[values.getrandbits(128)]
                )
            tb.send(packet)
        await tb.settle()


@cocotb.test()
async def memory_never_waits_for_the_link(dut):
    """With the link standing still the Hub takes every answer of memory at once."""
    tb, entry, values = await bound(dut)
    await map_all(tb, entry)
    fill_rows(tb, values, entry, 1)
    tb.sink.paused = True
    for _ in range(60):
        tb.send(load(values, entry, targets=[0, 1, 2, 3]))
        tb.send(store(values, entry))
    await tb.bench.cycles(3000)
    assert tb.source.pending, "the link must have stopped the requests in the end"
    assert tb.memory.idle, "all that was asked of memory must have been taken"
    tb.sink.paused = False
    await tb.settle()
    assert tb.memory.longest_read_wait == tb.memory.longest_write_wait == 0


@cocotb.test()
async def two_links_take_turns(dut):
    """Answers leave by the link of their request, each link's in order; a link may stand still."""
    tb = HubEnv(dut)
    if tb.links == 1:
        return
    ports = [FlitSource(tb.bench, f"rx{link}") for link in range(1, tb.links)]
    boards = [Scoreboard(tb.bench, f"tx{link}") for link in range(1, tb.links)]
    for link, board in enumerate(boards, 1):
        FlitSink(tb.bench, f"tx{link}", on_packet=board.observe)
    await tb.start()
    values = tb.bench.random("packets")
    tb.fill_memory(0x3000, bf16_bytes(values, 512))
    links = [tb.source, *ports]
    for number in range(60):
        for port, board in zip(links, [tb.answers, *boards], strict=True):
            flits = values.randint(1, tb.chunk_flits)
            packet = Packet.unicast(Cmd.RD, addr=0x3000 + 256 * (number % 16) + flits - 1)
            if number % 3 == 0:
                address = 0x9000 + 0x8000 * links.index(port) + 256 * number
                data = [values.getrandbits(128) for _ in range(flits)]
                packet = Packet.unicast(Cmd.WR, addr=address, data=data)
            packet.tag_port, packet.tag_local = number % 72, values.getrandbits(12)
            answer = tb.model.serve(packet)
            assert answer is not None
            board.expect(answer)
            port.send(packet.encode())
    for board in boards:
        await board.finished()
    await tb.settle()


@cocotb.test()
async def reset_in_the_middle(dut):
    """After a reset the Hub knows no object and starts anew."""
    tb, entry, values = await bound(dut)
    for _ in range(3):
        tb.checks_answers = False
        for _ in range(20):
            tb.source.send(store(values, entry).encode())
        await tb.bench.cycles(values.randint(50, 250))
        await tb.bench.reset()
        tb.checks_answers = True
        for sink in (tb.touches, tb.written):
            sink.records.clear()
        for number in list(tb.memory.pages):
            tb.expected.page(number)[:] = tb.memory.page(number)
        entry.used = [0] * 4
        del tb.objects[3]
        tb.send(store(values, entry))
        await tb.settle()
        await tb.bind(3, entry)
        for _ in range(20):
            tb.send(store(values, entry))
        await tb.settle()


@cocotb.test()
async def throughput(dut):
    """Link use by whole-chunk stores and loads, and cycles to one answer; in throughput.json."""
    tb, entry, values = await bound(dut, rows=16, capacity=16, bsize=(1024, 1024))
    await map_all(tb, entry)
    fill_rows(tb, values, entry, 1)
    measured = {}
    for name, cmd in (("store", Cmd.MM_ST), ("load", Cmd.MM_LDR)):
        tb.sink.first_cycle = -1
        data = [1] if cmd is Cmd.MM_ST else ()
        stage = int(cmd is Cmd.MM_LDR)
        tb.send(Packet.multimem(cmd, maddr=entry.maddr(0), targets=[0], stage=stage, data=data))
        await tb.settle()
        measured[f"{name}_answer_cycles"] = tb.sink.first_cycle - tb.source.last_cycle
    for experts in (1, 2, 3, 4):
        for name, cmd in (("stores", Cmd.MM_ST), ("loads", Cmd.MM_LDR)):
            port = tb.source if cmd is Cmd.MM_ST else tb.sink
            flits = 0
            port.first_cycle = -1
            for number in range(60):
                # Few enough rows for the AL-TLB of every preset.
                address = entry.maddr(number % 3, 128 * (number % 8))
                packet = Packet.multimem(
                    cmd,
                    maddr=address + 7 * (cmd is Cmd.MM_LDR),
                    targets=range(experts),
                    stage=int(cmd is Cmd.MM_LDR),
                    data=[values.getrandbits(128) for _ in range(8)] if cmd is Cmd.MM_ST else (),
                )
                answer = tb.send(packet)
                assert answer is not None
                flits += packet.flits if cmd is Cmd.MM_ST else answer.flits
            await tb.settle()
            cycles = port.last_cycle - port.first_cycle + 1
            measured[f"{name}_{experts}"] = round(flits / cycles, 3)
    Path("throughput.json").write_text(json.dumps(measured))
    tb.bench.dut._log.info(f"flits a cycle: {measured}")
    if not tb.bench.stall_probability and tb.gpu["memory_width"] >= 512:
        for experts in (1, 2, 3, 4):
            assert measured[f"stores_{experts}"] >= 0.8, measured
        # Two entries of four cycles each fit beside the nine flits of an answer.
        for experts in (1, 2):
            assert measured[f"loads_{experts}"] >= 0.85, measured
