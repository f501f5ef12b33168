"""The Hub's loads, stores and plain accesses: every answer, every byte of memory."""

from __future__ import annotations

import cocotb

from dysharp.hw.packet import Cmd, Packet
from dysharp.model.numerics import row_of
from dysharp.sim_tb.elements import attrs
from dysharp.sim_tb.hub.env import HubEnv, bound, map_all
from dysharp.sim_tb.hub.golden import BF16_ADD_F32
from dysharp.sim_tb.hub.packets import bf16_bytes, fill_rows, load, store


@cocotb.test()
async def stores_reach_each_listed_expert(dut):
    """First touches and stores to mapped rows, any offset and length, byte enables, repeats."""
    tb, entry, values = await bound(dut)
    for number in range(120):
        cmd = Cmd.MM_STP if number % 5 == 4 else Cmd.MM_ST
        tb.send(store(values, entry, cmd=cmd, limit=tb.chunk_flits))
    await tb.settle()
    assert tb.pulses.counts["first_touches"] == sum(entry.used)
    assert tb.pulses.counts["stores"] == 120


@cocotb.test()
async def stores_cross_pages(dut):
    """Accesses that lie on both sides of a 4 KB boundary, at every distance from it."""
    tb, entry, values = await bound(dut, bsize=(4096 - 16, 4096 - 16), rows=4, capacity=4)
    fill_rows(tb, values, entry, 1)
    for aidx in range(4):
        for chunk in range(0, 4080 // 128, 3):
            offset = 128 * chunk
            length = min(8, (4080 - offset) // 16)
            tb.send(
                Packet.multimem(
                    Cmd.MM_ST,
                    maddr=entry.maddr(aidx, offset),
                    targets=[0, 1, 2, 3],
                    data=[values.getrandbits(128) for _ in range(length)],
                )
            )
            tb.send(
                Packet.multimem(
                    Cmd.MM_LDR,
                    maddr=entry.maddr(aidx, offset) + length - 1,
                    targets=[0, 1, 2, 3],
                    stage=1,
                )
            )
    await tb.settle()


@cocotb.test()
async def loads_reduce_in_list_order(dut):
    """Random lists over NaNs, infinities, subnormals and numbers that cancel."""
    tb, entry, values = await bound(dut)
    await map_all(tb, entry)
    fill_rows(tb, values, entry, 1)
    for number in range(120):
        attr = BF16_ADD_F32 if number % 3 == 0 else 0
        tb.send(load(values, entry, attr=attr, limit=tb.chunk_flits))
    await tb.settle()
    assert tb.pulses.counts["loads"] == 120


@cocotb.test()
async def loads_of_every_reduction(dut):
    """Each type, operation and accumulation of the build, one after the other and then mixed."""
    tb, entry, values = await bound(dut, rows=12, capacity=12)
    await map_all(tb, entry)
    built = attrs(tb.dtypes)
    for attr in built:
        fill_rows(tb, values, entry, 1, row_of(attr)[0])
        for _ in range(6):
            tb.send(load(values, entry, attr=attr, limit=tb.chunk_flits))
        await tb.settle()
    for number in range(4 * len(built)):
        tb.send(load(values, entry, attr=values.choice(built), limit=tb.chunk_flits))
        if number % 8 == 0:
            tb.send(store(values, entry, limit=tb.chunk_flits))
    await tb.settle()
    assert tb.pulses.counts["errors"] == 0


@cocotb.test()
async def rounding_happens_once(dut):
    """1 + 2**-8 + 2**-8 is 1 + 2**-7 in f32, and 1 if every step rounds; so is 1e8 + 1 - 1e8."""
    tb, entry, _ = await bound(dut)
    await map_all(tb, entry)
    for slot, word in enumerate((0x3F80, 0x3B80, 0x3B80, 0x7F81)):
        lidx = entry.capacity[slot]
        address = entry.address(1, slot, 0, 0)
        tb.fill_memory(address, word.to_bytes(2, "little") * (8 * 17))
        assert lidx
    for targets in ([0, 1, 2], [1, 2, 0], [0, 1], [3], [0, 3], [1, 1, 1, 1]):
        packet = Packet.multimem(Cmd.MM_LDR, maddr=entry.maddr(0) + 7, targets=targets, stage=1)
        answer = tb.send(packet)
        assert answer is not None
        if targets == [0, 1, 2]:
            assert answer.data[0] & 0xFFFF == 0x3F81
        if targets == [3]:
            assert answer.data[0] & 0xFFFF == 0x7FFF
    await tb.settle()


@cocotb.test()
async def an_empty_list_is_static(dut):
    """Static accesses go to vbase + maddr - base, count 1, and touch no AL table."""
    tb, entry, values = await bound(dut)
    for stage in range(2):
        tb.fill_memory(entry.vbase[stage], bf16_bytes(values, entry.size // 16))
    for number in range(60):
        packet = (load if number % 2 else store)(values, entry, targets=[], limit=tb.chunk_flits)
        tb.send(packet)
    inside = store(values, entry, targets=[], aidx=entry.rows - 1)
    inside.data = inside.data[:1]
    inside.be = None
    inside.maddr = entry.base + entry.size - 16
    tb.send(inside)
    await tb.settle()
    assert tb.pulses.counts["tlb_hits"] + tb.pulses.counts["tlb_misses"] == 0
    assert tb.pulses.counts["errors"] == 0


@cocotb.test()
async def unicast_reads_and_writes(dut):
    """RD, WR and WRP at the low bits of their address, raw bits, answers in order."""
    tb = HubEnv(dut)
    await tb.start()
    values = tb.bench.random("packets")
    tb.fill_memory(0x3000, bf16_bytes(values, 512))
    limit = tb.chunk_flits
    for number in range(100):
        flits = values.randint(1, limit)
        place = 16 * values.randint(0, limit - flits) + 16 * limit * values.randrange(30)
        address = values.randrange(128) << 40
        if number % 2:
            tb.send(Packet.unicast(Cmd.RD, addr=address + 0x3000 + place + flits - 1))
            continue
        be = values.getrandbits(128) if flits <= 8 and number % 4 == 0 else None
        data = [values.getrandbits(128) for _ in range(flits)]
        cmd = Cmd.WRP if number % 6 == 0 else Cmd.WR
        tb.send(Packet.unicast(cmd, addr=address + 0x9000 + place, data=data, be=be))
    await tb.settle()
