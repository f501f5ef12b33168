"""Tests of the whole switch."""

from __future__ import annotations

from typing import Any

import cocotb

from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.sim_tb.switch.env import SwitchEnv
from dysharp.sim_tb.switch.traffic import Traffic


async def start(dut: Any, *, wrong: float = 0.0) -> tuple[SwitchEnv, Traffic]:
    tb = SwitchEnv(dut)
    await tb.start()
    return tb, Traffic(tb, wrong=wrong)


@cocotb.test()
async def random_traffic(dut):
    """Requests of every kind from every port at once, wrong ones and strays among them."""
    tb, traffic = await start(dut, wrong=0.15)
    tb.errors = 0.05
    for number in range(tb.bench.params.get("requests", 60) * tb.ports):
        port = number % tb.ports
        traffic.send(port)
        if tb.random.random() < 0.02:
            tb.send_stray(port, tb.random.randrange(tb.ports))
        if tb.rx_req[port].pending > 300:
            await tb.bench.until(lambda port=port: tb.rx_req[port].pending < 100, limit=20_000)
    await tb.finish()


@cocotb.test()
async def list_is_pruned(dut):
    """Each GPU gets its own targets, in order and with repetitions, and nothing else changes."""
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    one = [gpu << wide.split for gpu in range(tb.config.gpus)]
    lists = [
        (one[1],),
        (one[1], one[1], one[1] | 2, one[1]),
        tuple(one),
        tuple(reversed(one)) * 2,
        (one[0],) * 7 + (one[1],) * 2 + (one[0],) * 8,
        tuple(one[k % 2] | k % 4 for k in range(64)),
        (*[one[0]] * 15, one[1]),
        (one[1], *[one[0]] * 16),
    ]
    for cmd in (Cmd.MM_ST, Cmd.MM_LDR, Cmd.MM_STP):
        for targets in lists:
            tb.send(0, traffic.multimem(wide, cmd=cmd, targets=targets))
    await tb.finish()


@cocotb.test()
async def empty_list_is_the_preset_group(dut):
    """Static NVLS: the group's GPUs, the source only if it is one of them."""
    tb, traffic = await start(dut)
    part = tb.objects[1]
    for port in range((tb.config.gpus - 1) * tb.config.links):
        for cmd in (Cmd.MM_ST, Cmd.MM_LDR, Cmd.MM_STP):
            packet = traffic.multimem(part, cmd=cmd, static=True)
            decision = tb.send(port, packet)
            assert {target // tb.config.links for target in decision.ports} == part.group
    await tb.finish()


@cocotb.test()
async def unicast_passes(dut):
    """RD, WR, WRP and NOTIFY between all pairs; the answers return to the port in their tag."""
    tb, traffic = await start(dut)
    for port in range(tb.ports):
        for gpu in range(tb.config.gpus):
            for cmd in (Cmd.RD, Cmd.WR, Cmd.WRP, Cmd.NOTIFY):
                tb.send(port, traffic.unicast(cmd=cmd, gpu=gpu))
    await tb.finish()


@cocotb.test()
async def refusals_are_answered(dut):
    """Every reason to refuse a request: one ERR with the smallest status, and no replica."""
    tb, traffic = await start(dut)
    wide, part, empty = tb.objects
    gpus = tb.config.gpus
    last = tb.ports - 1
    store = Cmd.MM_ST
    assert tb.send(0, Packet.multimem(store, maddr=0, data=[1])).status is Status.UNKNOWN_OBJECT
    cases = [
        (0, traffic.multimem(wide, cmd=store, targets=(gpus << wide.split,)), 7),
        (0, traffic.multimem(part, cmd=store, targets=(3,)), 7),
        (0, traffic.multimem(part, cmd=store, targets=(gpus - 1 << part.split,)), 9),
        (last, traffic.multimem(part, cmd=store, targets=(0,)), 9),
        (0, traffic.multimem(empty, cmd=store, targets=()), 7),
        (0, traffic.unicast(cmd=Cmd.RD, gpu=gpus), 7),
        (0, Packet.unicast(Cmd.ATOM, addr=0, data=[1]), 5),
    ]
    for port, packet, status in cases:
        assert tb.send(port, packet).status.value == status
    tb.send_malformed(1, traffic.multimem(wide, cmd=Cmd.MM_LDR))
    await tb.finish()
    first = tb.map["first_error"]
    low = await tb.registers.read(first.offset)
    assert first.unpack(low)["valid"] and low >> 8 & 0xFF in (1, 2)


@cocotb.test()
async def crossing_multicasts(dut):
    """First and last port send to all GPUs in opposite orders, while every output stalls."""
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    up = tuple(gpu << wide.split for gpu in range(tb.config.gpus))
    for _ in range(60):
        for port, targets in ((0, up), (tb.ports - 1, up[::-1])):
            cmd = tb.random.choice((Cmd.MM_ST, Cmd.MM_LDR))
            tb.send(port, traffic.multimem(wide, cmd=cmd, targets=targets, flits=8))
    await tb.finish()


@cocotb.test()
async def stopped_output_holds_nobody_else(dut):
    """While one GPU takes no requests, others go on, and its own answers leave."""
    tb, traffic = await start(dut)
    stopped = tb.ports - 1
    tb.tx_req[stopped].paused = True
    for _ in range(12):
        tb.send(0, traffic.unicast(cmd=Cmd.WR, gpu=tb.config.gpus - 1))
    served = traffic.multimem(tb.objects[0], cmd=Cmd.MM_ST, targets=(0, 1 << 2))
    tb.send(stopped, served)
    for _ in range(40):
        tb.send(1, traffic.unicast(cmd=Cmd.RD, gpu=0))
    await tb.bench.until(
        lambda: (
            not (tb.answers[1].outstanding or tb.rx_req[1].pending or tb.rx_req[stopped].pending)
        ),
        limit=5000,
        what="traffic of the other ports",
    )
    await tb.bench.until(lambda: tb.answers[stopped].matched == 1, limit=500)
    assert tb.tx_req[stopped].taken == 0
    tb.tx_req[stopped].paused = False
    await tb.finish()


@cocotb.test()
async def contributions_leave_the_link_alone(dut):
    """A GPU whose links take no answers still gets its contributions accumulated."""
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    targets = tuple(gpu << wide.split for gpu in range(tb.config.gpus))
    tb.tx_rsp[0].paused = True
    sessions = tb.config.switch.sessions
    for _ in range(sessions):
        tb.send(0, traffic.multimem(wide, cmd=Cmd.MM_LDR, targets=targets, flits=8))
    await tb.bench.until(
        lambda: tb.expected["results"] == sessions, limit=5000, what="the last contribution"
    )
    tb.tx_rsp[0].paused = False
    await tb.finish()


@cocotb.test()
async def one_flit_a_cycle(dut):
    """A stream of unicast writes, and one of stores with up to 8 targets, leaves no cycle out."""
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    target = tb.ports - 1
    gpu = tb.config.gpus - 1
    for kind in ("unicast", "multicast"):
        sink = tb.tx_req[target]
        sink.first_cycle, taken = -1, sink.taken
        for _ in range(40):
            if kind == "unicast":
                tb.send(0, traffic.unicast(cmd=Cmd.WRP, gpu=gpu))
            else:
                targets = tuple(gpu << wide.split | k % 4 for k in range(tb.random.randint(1, 8)))
                tb.send(0, traffic.multimem(wide, cmd=Cmd.MM_STP, targets=targets))
        await tb.finish()
        cycles = sink.last_cycle - sink.first_cycle + 1
        if not tb.bench.stall_probability and tb.config.links == 1:
            assert cycles == sink.taken - taken, f"{kind}: {cycles} for {sink.taken - taken} flits"


async def header_to_header(
    tb: SwitchEnv, port: int, packet: Packet, *, malformed: bool = False
) -> dict[str, int]:
    """Cycles from header in to header out of a request and of the answer to it, if there is one."""
    links = [*tb.rx_req, *tb.rx_rsp, *tb.tx_req, *tb.tx_rsp]
    for link in links:
        link.first_cycle = -1
    (tb.send_malformed if malformed else tb.send)(port, packet)
    await tb.finish()
    sent = tb.rx_req[port].first_cycle
    out = [sink.first_cycle for sink in tb.tx_req if sink.first_cycle >= 0]
    answered = [source.first_cycle for source in tb.rx_rsp if source.first_cycle >= 0]
    returned = tb.tx_rsp[port].first_cycle
    cycles = {"request": max(out) - sent} if out else {"error": returned - sent}
    return cycles | ({"response": returned - max(answered)} if answered else {})


@cocotb.test()
async def latency_of_an_idle_switch(dut):
    """Header in to header out: 5 cycles, with a list one more, two for each further TX flit of it.

    A list is read twice, since no replica may leave before all of it is known to be right, and each
    replica's header says how many of it are left.
    """
    tb, traffic = await start(dut)
    tb.delay = 0
    wide = tb.objects[0]
    gpus = tb.config.gpus
    store, read, write = Cmd.MM_STP, Cmd.RD, Cmd.WR
    times = {}
    for name, packet in {
        "unicast": traffic.unicast(cmd=Cmd.WRP, gpu=1),
        "notice": traffic.unicast(cmd=Cmd.NOTIFY, gpu=2),
        "static": traffic.multimem(wide, cmd=store, static=True, flits=8),
        "static load": traffic.multimem(wide, cmd=Cmd.MM_LDR, static=True, flits=8),
    }.items():
        times[name] = (await header_to_header(tb, 0, packet))["request"]
    lengths = [*range(1, 9), 9, 16, 17, 40, 120]
    for length in lengths:
        targets = tuple(k % gpus << wide.split | k % 4 for k in range(length))
        cmd = Cmd.MM_LDR if length % 2 else Cmd.MM_ST
        packet = traffic.multimem(wide, cmd=cmd, targets=targets, flits=8)
        times[length] = (await header_to_header(tb, 0, packet))["request"]
    for name, packet in {
        "data": traffic.unicast(cmd=read, gpu=1),
        "ack": traffic.unicast(cmd=write, gpu=1),
    }.items():
        times[name] = (await header_to_header(tb, 0, packet))["response"]
    unknown = traffic.unicast(cmd=read, gpu=gpus)
    times["refused"] = (await header_to_header(tb, 0, unknown))["error"]
    listed = traffic.multimem(wide, cmd=Cmd.MM_ST, targets=(gpus << wide.split,))
    times["refused list"] = (await header_to_header(tb, 0, listed))["error"]
    wrong = traffic.multimem(wide, cmd=Cmd.MM_LDR)
    times["malformed"] = (await header_to_header(tb, 0, wrong, malformed=True))["error"]
    cocotb.log.info(f"idle latency in cycles: {times}")
    if tb.bench.stall_probability:
        return
    plain = dict.fromkeys(("unicast", "notice", "static", "static load"), 5)
    lists = {length: 4 + 2 * -(-length // 8) for length in lengths}
    answers = {"data": 3, "ack": 3, "malformed": 3, "refused": 4, "refused list": 5}
    assert times == plain | lists | answers


@cocotb.test()
async def resets_in_traffic(dut):
    """Reset at any time; what follows is as after the first one."""
    tb, traffic = await start(dut)
    for _ in range(4):
        for _ in range(15 * tb.ports):
            traffic.send(tb.random.randrange(tb.ports))
        await tb.bench.cycles(tb.random.randint(30, 400))
        await tb.restart()
        traffic = Traffic(tb)
    for sink in (*tb.tx_req, *tb.tx_rsp):
        sink.taken = 0
    for source in (*tb.rx_req, *tb.rx_rsp):
        source.sent = 0
    for _ in range(15 * tb.ports):
        traffic.send(tb.random.randrange(tb.ports))
    await tb.finish()
