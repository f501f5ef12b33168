"""Traps for switches: what makes one hang, starve or lose packets, each as a test of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cocotb

from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.sim_tb.agents import StallPattern
from dysharp.sim_tb.switch.env import SwitchEnv
from dysharp.sim_tb.switch.traffic import Traffic

ONES = (1 << 128) - 1


async def start(dut: Any) -> tuple[SwitchEnv, Traffic]:
    tb = SwitchEnv(dut)
    await tb.start()
    return tb, Traffic(tb)


def everyone(tb: SwitchEnv, length: int = 0) -> tuple[int, ...]:
    """A list of targets on all GPUs in ascending order, of each one or so many that there are."""
    gpus, split = tb.config.gpus, tb.objects[0].split
    return tuple(k % gpus << split | k // gpus % 4 for k in range(length or gpus))


def is_served(tb: SwitchEnv, ports: list[int]) -> Callable[[], bool]:
    """Whether all that these ports have sent is answered."""
    return lambda: not any(tb.rx_req[p].pending or tb.answers[p].outstanding for p in ports)


@cocotb.test()
async def crossing_multicasts_in_one_cycle(dut):
    """{0, 1, 2, 3} and {3, 2, 1, 0} begin in the same cycle, where no queue holds two of them.

    Every output gets the longest packets of both while it stalls, so each is full with one source's
    packet when the other's comes: a replication that waited for all of its queues would hang.
    """
    tb, traffic = await start(dut)
    up = everyone(tb, 120)
    for _ in range(25):
        for port, targets in ((0, up), (tb.ports - 1, up[::-1])):
            cmd = tb.random.choice((Cmd.MM_ST, Cmd.MM_LDR))
            tb.send(port, traffic.multimem(tb.objects[0], cmd=cmd, targets=targets, flits=8))
    for k, sink in enumerate(tb.tx_req):
        sink._stall = StallPattern(k, 0.2, longest=40)
        sink._can_stall = True
    await tb.finish()
    if not tb.bench.stall_probability:
        assert tb.rx_req[0].first_cycle == tb.rx_req[-1].first_cycle


@cocotb.test()
async def all_to_one_port(dut):
    """Everybody reads from and writes to GPU 0, which serves all of them alike."""
    tb, traffic = await start(dut)
    rounds = tb.bench.params.get("rounds", 120)
    tb.delay = 0
    for _ in range(rounds):
        for port in range(tb.ports):
            data = [tb.random.getrandbits(128) for _ in range(8)]
            tb.send(port, Packet.unicast(Cmd.WR, addr=tb.fabric.chunk_bytes * port, data=data))
    await tb.bench.until(
        lambda: any(rounds == answers.matched for answers in tb.answers), limit=60_000
    )
    served = [answers.matched for answers in tb.answers]
    assert min(served) >= rounds / 1.05, f"answers at cycle {tb.bench.cycle}: {served}"
    for port in range(tb.ports):
        tb.send(port, traffic.multimem(tb.objects[0], cmd=Cmd.MM_LDR, targets=(0, 1), flits=8))
    await tb.finish()


@cocotb.test()
async def requester_never_ready(dut):
    """A GPU takes no answers for 10,000 cycles: its own requests wait, the others' go on."""
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    tb.tx_rsp[0].paused = True
    for _ in range(2 * tb.config.switch.sessions):
        tb.send(0, traffic.multimem(wide, cmd=Cmd.MM_LDR, targets=everyone(tb), flits=8))
    others = list(range(1, tb.ports))
    end = tb.bench.cycle + 10_000
    batches = 0
    while tb.bench.cycle < end:
        for port in others:
            for _ in range(20):
                traffic.send(port)
        await tb.bench.until(is_served(tb, others), limit=4000, what="traffic of the others")
        batches += 1
    assert batches > 10 and tb.tx_rsp[0].taken == 0
    tb.tx_rsp[0].paused = False
    await tb.finish()


@cocotb.test()
async def port_silent_for_ever(dut):
    """A GPU that never answers: ERR 3 for those who wait for it, and at once for those who come.

    All else goes on meanwhile. Its answers, when they come at last, change nothing but that their
    sessions can be used again.
    """
    tb, traffic = await start(dut)
    wide, last = tb.objects[0], tb.ports - 1
    others = list(range(last))
    await tb.registers.write(tb.map["session_timeout"].offset, 512)
    tb.silent = {last}
    waiting = 0
    for cmd in (Cmd.MM_LDR, Cmd.MM_ST, Cmd.MM_RED):
        for port in others:
            tb.send(port, traffic.multimem(wide, cmd=cmd, targets=everyone(tb)))
            waiting += 1
    begun = tb.bench.cycle
    for _ in range(60):
        for port in others:
            tb.send(port, traffic.unicast(cmd=Cmd.RD, gpu=0))
    await tb.bench.until(lambda: tb.quiet, limit=4000, what="errors 3")
    assert tb.bench.cycle - begun >= 512
    await tb.bench.cycles(20)
    assert await tb.registers.read(tb.map["failed"].offset) == 1 << last
    assert await tb.registers.read(tb.map["retired"].offset) == waiting
    tb.fabric.failed = {last}
    packet = traffic.multimem(wide, cmd=Cmd.MM_ST, targets=everyone(tb))
    assert tb.send(0, packet).status is Status.TIMEOUT
    for _ in range(30):
        for port in range(tb.ports):
            traffic.send(port)
    await tb.bench.until(lambda: tb.quiet, limit=8000)

    assert len(tb.kept) == waiting
    for port, answer in tb.kept:
        tb.rx_rsp[port].send(answer.encode())
    await tb.bench.until(lambda: not tb.rx_rsp[last].pending, limit=2000)
    await tb.bench.cycles(40)
    assert await tb.registers.read(tb.map["retired"].offset) == 0
    await tb.registers.write(tb.map["failed"].offset, 1 << last)
    tb.fabric.failed, tb.silent = set(), set()
    for _ in range(30):
        for port in range(tb.ports):
            traffic.send(port)
    await tb.bench.until(lambda: tb.quiet, limit=8000)
    tb.bench.check()


@cocotb.test()
async def empty_group(dut):
    """Count 0 on an object without a group: an error for each, while everything else goes on."""
    tb, traffic = await start(dut)
    for _ in range(20):
        for port in range(tb.ports):
            for cmd in (Cmd.MM_ST, Cmd.MM_LDR, Cmd.MM_STP, Cmd.MM_RED):
                packet = traffic.multimem(tb.objects[2], cmd=cmd, targets=())
                assert tb.send(port, packet).status is Status.UNKNOWN_TARGET
            traffic.send(port)
    await tb.finish()


@cocotb.test()
async def source_stops_in_mid_packet(dut):
    """A packet whose rest does not come is filled up and poisoned; its outputs go on.

    If its list has not come whole it is refused instead. What the source sends later is dropped up
    to the end of its packet.
    """
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    await tb.registers.write(tb.map["stall_limit"].offset, 60)
    long_list = everyone(tb, 20)
    write = Packet.unicast(Cmd.WR, addr=1 << tb.fabric.gpu_address_bit, data=range(8))
    cases = [
        (traffic.multimem(wide, cmd=Cmd.MM_ST, targets=everyone(tb), flits=8), 5, Status.OK),
        (write, 1, Status.OK),
        (traffic.multimem(wide, cmd=Cmd.MM_LDR, targets=long_list), 3, Status.UNKNOWN_TARGET),
        (traffic.multimem(wide, cmd=Cmd.MM_STP, targets=everyone(tb), flits=8), 9, Status.OK),
    ]
    for packet, stop, status in cases:
        packet = tb.tagged(0, Packet.decode(packet.encode()))
        flits = packet.encode()
        filled = flits[:stop] + [ONES] * (len(flits) - stop)
        for flit in flits[:stop]:
            tb.rx_req[0]._put((flit, 0, 0))
        seen = Packet.decode(filled, poison=True)
        assert tb.expect(0, seen).status is status
        for _ in range(30):
            for port in range(1, tb.ports):
                traffic.send(port)
        others = list(range(1, tb.ports))
        await tb.bench.until(is_served(tb, others), limit=6000, what="traffic of the others")
        for k, flit in enumerate(flits[stop:], stop + 1):
            tb.rx_req[0]._put((flit, int(k == len(flits)), 0))
        tb.send(0, traffic.unicast(cmd=Cmd.RD, gpu=1))
        await tb.bench.until(is_served(tb, [0]), limit=3000, what="the source's own traffic")
    await tb.registers.write(tb.map["stall_limit"].offset, 0)
    await tb.bench.until(lambda: tb.quiet, limit=3000)
    tb.bench.check()


@cocotb.test()
async def output_that_takes_nothing_drains(dut):
    """A GPU that takes no flit for so long fails: what waits for it is dropped, the rest goes on.

    New requests to it get ERR 3. When it comes back it finds the end of every packet, and once
    software has cleared the failure it is sent packets again.
    """
    tb, traffic = await start(dut)
    last = tb.config.gpus - 1
    stopped = [last * tb.config.links + link for link in range(tb.config.links)]
    failed = tb.map["failed"].offset
    await tb.registers.write(tb.map["drop_limit"].offset, 200)
    others = [port for port in range(tb.ports) if port not in stopped]
    for port in stopped:
        tb.tx_req[port].paused = True
    waiting = range(6)  # packets that route has let through before the output fails
    lost = 0
    for k in waiting:
        for port in others:
            packet = Packet.unicast(
                Cmd.WRP,
                addr=last << tb.fabric.gpu_address_bit | k * tb.fabric.chunk_bytes,
                data=[tb.random.getrandbits(128) for _ in range(8)],
            )
            lost += packet.flits
            tb.send(port, packet)
    for port in others:
        for _ in range(20):
            tb.send(port, traffic.unicast(cmd=Cmd.RD, gpu=0))
    await tb.bench.until(is_served(tb, others), limit=20_000, what="traffic of the others")
    await tb.bench.cycles(400)
    assert await tb.registers.read(failed) == sum(1 << port for port in stopped)
    tb.fabric.failed = set(stopped)
    for port in others:
        for cmd in (Cmd.RD, Cmd.WRP):
            assert tb.send(port, traffic.unicast(cmd=cmd, gpu=last)).status is Status.TIMEOUT
        packet = traffic.multimem(tb.objects[0], cmd=Cmd.MM_ST, targets=everyone(tb))
        assert tb.send(port, packet).status is Status.TIMEOUT
    await tb.bench.until(is_served(tb, others), limit=4000, what="errors 3")

    came = tb.begin_loss(stopped)
    for port in stopped:
        tb.tx_req[port].paused = False
    await tb.bench.cycles(200)
    drained = await tb.registers.read(tb.map["drained"].offset)
    assert sum(len(flits) - flits.count(ONES) for flits in came) + drained == lost
    assert all(packet[-1] == ONES for packet in came if ONES in packet)
    tb.end_loss()
    await tb.registers.write(failed, sum(1 << port for port in stopped))
    await tb.registers.write(tb.map["drop_limit"].offset, 0)
    tb.fabric.failed = set()
    for port in range(tb.ports):
        for _ in range(10):
            traffic.send(port)
        tb.send(port, traffic.unicast(cmd=Cmd.WR, gpu=last))
    await tb.bench.until(lambda: tb.quiet, limit=8000)
    tb.bench.check()


@cocotb.test()
async def object_changes_beside_traffic(dut):
    """An object is taken out, rewritten and put back while others' traffic goes on undisturbed.

    Between two batches its slots change, as in a swap of experts: the lists of the next batch have
    other ids, and nothing is lost.
    """
    tb, traffic = await start(dut)
    changed = 1
    for turn in range(6):
        entry = tb.objects[changed]
        tb.fabric.objects[changed] = None
        others = [tb.objects[0], tb.objects[0], tb.objects[2]]
        for _ in range(40):
            for port in range(1, tb.ports):
                static = tb.random.random() < 0.2
                tb.send(port, traffic.multimem(tb.random.choice(others), static=static))
        await tb.write_object(changed, "control", valid=0)
        packet = traffic.multimem(entry, cmd=Cmd.MM_LDR, targets=(0,), flits=8)
        assert tb.send(0, packet).status is Status.UNKNOWN_OBJECT
        await tb.bench.until(is_served(tb, [0]), limit=100, what="the error")
        entry.split, entry.slots = 1 + turn % 4, 2
        entry.group = {turn % 2, 2 % tb.config.gpus}
        fields = entry.fields()
        route = {name: fields[name] for name in ("split", "slots", "attr")}
        await tb.write_object(changed, "route", **route)
        await tb.write_object(changed, "group", group=fields["group"])
        await tb.write_object(changed, "control", valid=1)
        assert any(source.pending for source in tb.rx_req), "traffic has ended too early"
        tb.fabric.objects[changed] = entry
        for _ in range(10):
            for port in range((tb.config.gpus - 1) * tb.config.links):
                static = tb.random.random() < 0.3
                tb.send(port, traffic.multimem(entry, static=static))
        await tb.bench.until(lambda: tb.quiet, limit=20_000)
    await tb.finish()
