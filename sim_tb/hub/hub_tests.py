"""The Hub against its model: every answer, every event, every byte of memory."""

from __future__ import annotations

import json
from pathlib import Path

import cocotb

from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.model.numerics import row_of
from dysharp.sim_tb.agents import FlitSink, FlitSource
from dysharp.sim_tb.elements import attrs
from dysharp.sim_tb.hub.env import HubEnv
from dysharp.sim_tb.hub.golden import AL_VALID, BF16_ADD_F32
from dysharp.sim_tb.hub.packets import bf16_bytes, fill_rows, load, make_object, store
from dysharp.sim_tb.scoreboard import Scoreboard


async def _bound(dut, **options):
    """A Hub with one object in entry 3."""
    tb = HubEnv(dut)
    await tb.start()
    entry = make_object(3, **options)
    await tb.bind(3, entry)
    return tb, entry, tb.bench.random("packets")


async def _map_all(tb: HubEnv, entry) -> None:
    """Map every row at every expert by the Hub's own first touch."""
    for aidx in range(entry.rows):
        tb.send(
            Packet.multimem(
                Cmd.MM_ST,
                maddr=entry.maddr(aidx),
                targets=range(len(entry.capacity)),
                data=[aidx],
            )
        )
    await tb.settle()


@cocotb.test()
async def stores_reach_each_listed_expert(dut):
    """First touches and stores to mapped rows, any offset and length, byte enables, repeats."""
    tb, entry, values = await _bound(dut)
    for number in range(120):
        cmd = Cmd.MM_STP if number % 5 == 4 else Cmd.MM_ST
        tb.send(store(values, entry, cmd=cmd, limit=tb.chunk_flits))
    await tb.settle()
    assert tb.pulses.counts["first_touches"] == sum(entry.used)
    assert tb.pulses.counts["stores"] == 120


@cocotb.test()
async def stores_cross_pages(dut):
    """Accesses that lie on both sides of a 4 KB boundary, at every distance from it."""
    tb, entry, values = await _bound(dut, bsize=(4096 - 16, 4096 - 16), rows=4, capacity=4)
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
    tb, entry, values = await _bound(dut)
    await _map_all(tb, entry)
    fill_rows(tb, values, entry, 1)
    for number in range(120):
        attr = BF16_ADD_F32 if number % 3 == 0 else 0
        tb.send(load(values, entry, attr=attr, limit=tb.chunk_flits))
    await tb.settle()
    assert tb.pulses.counts["loads"] == 120


@cocotb.test()
async def loads_of_every_reduction(dut):
    """Each type, operation and accumulation of the build, one after the other and then mixed."""
    tb, entry, values = await _bound(dut, rows=12, capacity=12)
    await _map_all(tb, entry)
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
async def loads_of_what_is_not_built(dut):
    """ERR 5 for each attr that no reduction of the build has, by the packet or by the object."""
    tb, entry, values = await _bound(dut, rows=4, capacity=4)
    await _map_all(tb, entry)
    fill_rows(tb, values, entry, 1)
    wrong = sorted(set(range(1, 256)) - set(attrs(tb.dtypes)))
    for attr in wrong:
        answer = tb.send(load(values, entry, targets=[1], attr=attr))
        assert answer is not None and answer.status is Status.UNSUPPORTED
    await tb.settle()
    for attr in values.sample(wrong, 8):
        await tb.unbind(3)
        entry.attr = attr
        await tb.bind(3, entry, clear=False)
        tb.send(load(values, entry, targets=[1]))
        await tb.settle()
    assert tb.pulses.counts["errors"] == len(wrong) + 8


@cocotb.test()
async def rounding_happens_once(dut):
    """1 + 2**-8 + 2**-8 is 1 + 2**-7 in f32, and 1 if every step rounds; so is 1e8 + 1 - 1e8."""
    tb, entry, _ = await _bound(dut)
    await _map_all(tb, entry)
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
    tb, entry, values = await _bound(dut)
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


@cocotb.test()
async def each_error_is_answered(dut):
    """Every status that the Hub can give, the smallest of several, and only the rest stored."""
    tb, entry, values = await _bound(dut, rows=8, extra=1 << 14)
    await tb.bind(5, make_object(5, attr=0x89))
    other = tb.objects[5]
    beyond = store(values, entry, aidx=0, be=False)
    statuses = []

    def send(packet: Packet) -> None:
        answer = tb.send(packet)
        statuses.append(answer.status if answer and answer.cmd is Cmd.ERR else Status.OK)

    send(store(values, entry, aidx=8))
    for offset, data in ((480, [1, 2]), (496, [1])):
        beyond = Packet.multimem(Cmd.MM_ST, maddr=entry.maddr(1, offset), targets=[1], data=data)
        send(beyond)
    send(Packet.multimem(Cmd.MM_ST, maddr=1 << 40, targets=[1], data=[5]))
    send(Packet.multimem(Cmd.MM_ST, maddr=entry.base - 16, targets=[1], data=[5]))
    send(load(values, entry, aidx=1, targets=[0]))
    send(store(values, entry, aidx=1, targets=[0], stage=1))
    send(load(values, other, targets=[0]))
    send(load(values, entry, targets=[0], attr=BF16_ADD_F32 | 0x30))
    send(load(values, entry, targets=[0], attr=0x80))
    reduction = store(values, entry, targets=[0], be=False)
    reduction.cmd = Cmd.MM_RED
    send(reduction)
    send(Packet.unicast(Cmd.ATOM, addr=0x4000, ae=3, data=[1]))
    poisoned = store(values, entry, aidx=2, targets=[0, 1])
    poisoned.poison = True
    send(poisoned)
    send(store(values, entry, aidx=3, targets=[0, 7, 1]))
    poisoned = store(values, entry, aidx=9, targets=[0])
    poisoned.poison = True
    send(poisoned)
    poisoned = Packet.unicast(Cmd.WR, addr=0x5000, data=[1, 2])
    poisoned.poison = True
    send(poisoned)
    poisoned = Packet.unicast(Cmd.RD, addr=0x5000)
    poisoned.poison = True
    send(poisoned)
    send(load(values, entry, aidx=3, targets=[1, 2, 7]))
    posted = store(values, entry, aidx=8, cmd=Cmd.MM_STP)
    send(posted)
    many = store(values, entry, aidx=8, targets=[0] * 40, be=False)
    many.data = many.data[:2]
    send(many)
    send(store(values, entry, aidx=4))
    await tb.settle()
    expected = [1, 1, 1, 2, 2, 4, 4, 5, 5, 5, 5, 5, 6, 7, 1, 6, 6, 4, 0, 1, 0]
    assert [status.value for status in statuses] == expected
    logged = [error["status"] for error in tb.pulses.errors]
    assert logged == [status for status in expected[:18] if status] + [1, 1]


@cocotb.test()
async def a_poisoned_store_stores_nothing(dut):
    """Not a byte, no first touch, and the packets round it are stored."""
    tb, entry, values = await _bound(dut)
    for number in range(30):
        packet = store(values, entry, targets=[0, 1, 2])
        packet.poison = number % 3 == 1
        tb.send(packet)
    await tb.settle()


@cocotb.test()
async def a_full_expert_refuses(dut):
    """ERR 8, counted for each entry of each packet; its neighbours are stored, mapped rows too."""
    tb, entry, values = await _bound(dut, capacity=[3, 0, 24, 1])
    for aidx in range(12):
        tb.send(store(values, entry, aidx=aidx, targets=[0, 1, 2, 3, 1]))
    for aidx in range(12):
        tb.send(store(values, entry, aidx=aidx, targets=[values.randrange(4)]))
    await tb.settle()
    assert tb.pulses.counts["full"] > 40
    assert entry.used == [3, 0, 12, 1]


@cocotb.test()
async def misses_storm(dut):
    """Far more rows than the AL-TLB has entries: walks, evictions, and walks again."""
    tb, entry, values = await _bound(dut, rows=90, capacity=90, bsize=(128, 128))
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
    tb, entry, values = await _bound(dut)
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
async def memory_may_refuse(dut):
    """SLVERR at a row, a part of a row or the AL table: ERR, and everything else as ever."""
    tb, entry, values = await _bound(dut, rows=40, capacity=40, bsize=(3008, 3008))
    await _map_all(tb, entry)
    fill_rows(tb, values, entry, 1)
    tb.memory.bad += [
        (page << 12, page + 1 << 12)
        for stage in range(2)
        for page in range(entry.vbase[stage] >> 12, (entry.vbase[stage] >> 12) + 90, 3)
    ]
    for _ in range(60):
        tb.send(store(values, entry, be=False))
        tb.send(load(values, entry))
    for stage, page in ((stage, page) for stage in range(2) for page in range(1, 9)):
        # One half of each of these lies in a page that is refused, or none does.
        place = (entry.vbase[stage] >> 12) + page << 12
        lidx, offset = divmod(place - 16 - entry.vbase[stage], entry.bsize[stage])
        if offset % 128 == 112 or offset + 32 > entry.bsize[stage]:
            continue
        maddr, data = entry.maddr(lidx, offset), [values.getrandbits(128) for _ in range(2)]
        tb.send(Packet.multimem(Cmd.MM_LDR, maddr=maddr + 1, targets=[0], stage=stage))
        tb.send(Packet.multimem(Cmd.MM_ST, maddr=maddr, targets=[0, 0], stage=stage, data=data))
        await tb.settle()
    await tb.settle()
    assert tb.pulses.counts["errors"] > 30
    other = make_object(9)
    await tb.bind(9, other)
    tb.memory.bad.append((other.al_base & ~0xFFF, other.al_base + 0x1000 & ~0xFFF))
    for _ in range(5):
        tb.send(store(values, other))
    await tb.settle()
    assert tb.pulses.counts["memory_errors"] > 0


@cocotb.test()
async def malformed_packets_are_refused(dut):
    """The parser's ERR 1 leaves by the same link; the next packet is served."""
    tb, entry, values = await _bound(dut)
    for number in range(12):
        tb.send(store(values, entry))
        await tb.settle()
        wrong = store(values, entry, targets=[1], be=False)
        wrong.tag_local = number
        flits = wrong.encode()
        flits[0] ^= 1 << 25 + 4
        tb.answers.expect(
            Packet.multimem(Cmd.ERR, maddr=wrong.maddr, count=1, attr=1, local=number)
        )
        tb.source.send(flits)
    await tb.settle()
    assert tb.pulses.counts["malformed"] == 12


@cocotb.test()
async def notices_go_to_the_tracker(dut):
    """Each NOTIFY comes out with object and token, poisoned ones are dropped."""
    tb, entry, values = await _bound(dut)
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
    tb, entry, values = await _bound(dut)
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
    tb, entry, values = await _bound(dut)
    await _map_all(tb, entry)
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
    tb, entry, values = await _bound(dut)
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
    """Link use by whole-chunk stores and loads, at mapped rows; written to throughput.json."""
    tb, entry, values = await _bound(dut, rows=16, capacity=16, bsize=(1024, 1024))
    await _map_all(tb, entry)
    fill_rows(tb, values, entry, 1)
    measured = {}
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
