"""What the Hub refuses, what memory refuses it, and what is poisoned."""

from __future__ import annotations

import cocotb

from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.sim_tb.elements import attrs
from dysharp.sim_tb.hub.env import bound, map_all
from dysharp.sim_tb.hub.golden import BF16_ADD_F32
from dysharp.sim_tb.hub.packets import fill_rows, load, make_object, store


@cocotb.test()
async def loads_of_what_is_not_built(dut):
    """ERR 5 for each attr that no reduction of the build has, by the packet or by the object."""
    tb, entry, values = await bound(dut, rows=4, capacity=4)
    await map_all(tb, entry)
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
async def each_error_is_answered(dut):
    """Every status that the Hub can give, the smallest of several, and only the rest stored."""
    tb, entry, values = await bound(dut, rows=8, extra=1 << 14)
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
    tb, entry, values = await bound(dut)
    for number in range(30):
        packet = store(values, entry, targets=[0, 1, 2])
        packet.poison = number % 3 == 1
        tb.send(packet)
    await tb.settle()


@cocotb.test()
async def a_full_expert_refuses(dut):
    """ERR 8, counted for each entry of each packet; its neighbours are stored, mapped rows too."""
    tb, entry, values = await bound(dut, capacity=[3, 0, 24, 1])
    for aidx in range(12):
        tb.send(store(values, entry, aidx=aidx, targets=[0, 1, 2, 3, 1]))
    for aidx in range(12):
        tb.send(store(values, entry, aidx=aidx, targets=[values.randrange(4)]))
    await tb.settle()
    assert tb.pulses.counts["full"] > 40
    assert entry.used == [3, 0, 12, 1]


@cocotb.test()
async def memory_may_refuse(dut):
    """SLVERR at a row, a part of a row or the AL table: ERR, and everything else as ever."""
    tb, entry, values = await bound(dut, rows=40, capacity=40, bsize=(3008, 3008))
    await map_all(tb, entry)
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
    tb, entry, values = await bound(dut)
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
