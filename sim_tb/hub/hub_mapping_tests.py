"""The Hub's mapping: misses, first touches, bindings; and what it tells the tracker."""

from __future__ import annotations

import cocotb

from dysharp.hw.packet import Cmd, Packet
from dysharp.sim_tb.hub.env import HubEnv, bound
from dysharp.sim_tb.hub.golden import AL_VALID
from dysharp.sim_tb.hub.packets import fill_rows, load, make_object, store


@cocotb.test()
async def misses_storm(dut):
    """Far more rows than the AL-TLB has entries: walks, evictions, and walks again."""
    tb, entry, values = await bound(dut, rows=90, capacity=90, bsize=(128, 128))
    for _ in range(80):
        tb.send(store(values, entry, targets=[values.randrange(4) for _ in range(4)]))
    await tb.settle()
    for _ in range(40):
        tb.send(store(values, entry, targets=[values.randrange(4)]))
    await tb.settle()
    counts = tb.pulses.counts
    assert counts["tlb_walks"] == counts["tlb_misses"] > counts["first_touches"] == sum(entry.used)


@cocotb.test()
async def a_walk_waits_for_the_write_of_its_entry(dut):
    """A translation that was evicted before memory took its table entry is not given twice."""
    tb = HubEnv(dut, latency=[0, 0], write_latency=[300, 300])
    await tb.start()
    entry = make_object(3, rows=24, slots=40, capacity=24, bsize=(16, 16), split=6)
    await tb.bind(3, entry)
    values = tb.bench.random("packets")
    others = range(1, 40)
    for aidx in range(entry.rows):
        tb.send(Packet.multimem(Cmd.MM_ST, maddr=entry.maddr(aidx), targets=others, data=[aidx]))
    await tb.settle()
    for aidx in range(entry.rows):
        # The walks in the middle evict what the first entry has just been given.
        targets = [0, *values.sample(others, 11), 0]
        tb.send(Packet.multimem(Cmd.MM_ST, maddr=entry.maddr(aidx), targets=targets, data=[aidx]))
        await tb.settle()
    assert entry.used == [24] * 40


@cocotb.test()
async def a_new_binding_starts_anew(dut):
    """LIdx restarts at 0, old translations are forgotten, another object's are not."""
    tb, entry, values = await bound(dut)
    keeper = make_object(6)
    await tb.bind(6, keeper)
    for _ in range(3):
        for _ in range(20):
            tb.send(store(values, entry))
            tb.send(store(values, keeper))
        await tb.settle()
        await tb.unbind(3)
        tb.send(store(values, entry))
        tb.send(store(values, keeper))
        await tb.settle()
        entry.vbase = (entry.vbase[0] + 0x4000, entry.vbase[1])
        await tb.bind(3, entry)
    await tb.settle()


@cocotb.test()
async def a_preloaded_object_allocates_nothing(dut):
    """Rows are where the table says; what it does not say is ERR 4, and so is a row too high."""
    tb = HubEnv(dut)
    await tb.start()
    values = tb.bench.random("packets")
    entry = make_object(2, preloaded=True)
    table = bytearray(4 * entry.rows * len(entry.capacity))
    for slot in range(len(entry.capacity)):
        rows = values.sample(range(entry.rows), 12)
        for lidx, aidx in enumerate(rows):
            word = AL_VALID | (lidx if lidx else (24, 1 << 24, 1 << 30, 24)[slot])
            at = 4 * (slot * entry.rows + aidx)
            table[at : at + 4] = word.to_bytes(4, "little")
    tb.fill_memory(entry.al_base, bytes(table))
    await tb.bind(2, entry, clear=False)
    fill_rows(tb, values, entry, 1)
    for _ in range(60):
        tb.send(store(values, entry))
        tb.send(load(values, entry))
    await tb.settle()
    assert tb.pulses.counts["first_touches"] == 0


@cocotb.test()
async def notices_go_to_the_tracker(dut):
    """Each NOTIFY comes out with object and token, poisoned ones are dropped."""
    tb, entry, values = await bound(dut)
    wanted = []
    for number in range(30):
        token, kind = values.getrandbits(32), values.randrange(16)
        packet = Packet.unicast(Cmd.NOTIFY, addr=5 << 40 | kind << 36 | token)
        flits = packet.encode()
        poisoned = number % 7 == 3
        tb.source.send(flits, poison=[0] if poisoned else [])
        if not poisoned:
            wanted.append({"object": kind, "token": token})
        tb.send(store(values, entry))
    await tb.settle()
    assert list(tb.notices.records) == wanted
    assert tb.pulses.counts["lost_notice"] == 4


@cocotb.test()
async def a_notice_with_an_ae_flit_comes_once(dut):
    """It came out with HDR and again with AE; with HDR even if its last flit was poison."""
    tb, entry, values = await bound(dut)
    wanted = []
    for number in range(8):
        token = values.getrandbits(32)
        ae = values.getrandbits(128) if number % 2 else None
        flits = Packet.unicast(Cmd.NOTIFY, addr=2 << 36 | token, ae=ae).encode()
        poisoned = number in (3, 4)
        tb.source.send(flits, poison=[len(flits) - 1] if poisoned else [])
        if not poisoned:
            wanted.append({"object": 2, "token": token})
        tb.send(store(values, entry))
    await tb.settle()
    assert list(tb.notices.records) == wanted
    assert tb.pulses.counts["lost_notice"] == 2
