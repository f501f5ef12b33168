"""Tests of route."""

from __future__ import annotations

from typing import Any

import cocotb
from cocotb import Param

from dysharp.hw.packet import Cmd, Dtype, Op, Packet, Status
from dysharp.model.numerics import attr_bits, supports
from dysharp.sim_tb.agents import StallPattern
from dysharp.sim_tb.coverage import Coverage
from dysharp.sim_tb.parser.packets import multimem_packet, unicast_packet
from dysharp.sim_tb.route.env import RouteEnv
from dysharp.sim_tb.route.model import ObjectSpec, random_object, random_target

BASE = 0x4000_0000
SIZE = 0xFE0
"""The last chunk is short."""
MULTIMEM = (Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_LDR, Cmd.MM_RED)


async def start(dut: Any) -> RouteEnv:
    """A route with one object: GPUs 0, 1, 2 of at least 4, four slots of which three are used."""
    env = RouteEnv(dut)
    env.set_object(2, ObjectSpec(BASE, SIZE, members={0, 1, 2}, group={0, 2}, split=2, slots=3))
    await env.bench.start()
    return env


def store(targets, maddr=BASE, cmd=Cmd.MM_ST, **more) -> Packet:
    """A small store."""
    return Packet.multimem(cmd, maddr=maddr, targets=targets, data=[1, 2], local=0x123, **more)


def load(targets, maddr=BASE, **more) -> Packet:
    """A load-reduce of two flits."""
    return Packet.multimem(Cmd.MM_LDR, maddr=maddr | 1, targets=targets, local=0x321, **more)


def attr(op=Op.ADD, dtype=Dtype.BF16, acc=1) -> int:
    """The attr field."""
    return attr_bits(dtype, op, acc)


NINE = [0, 1, 2, 4, 5, 6, 8, 9, 10]
# Name: packet, and why it is refused.
REFUSED = {
    "no_object": (store([0], maddr=BASE - 0x80), Status.UNKNOWN_OBJECT),
    "past_the_object": (store([0], maddr=BASE + SIZE), Status.UNKNOWN_OBJECT),
    "across_its_end": (store([0], maddr=BASE + SIZE - 16), Status.UNKNOWN_OBJECT),
    "no_object_and_unknown_target": (store([0xFFFF], maddr=0), Status.UNKNOWN_OBJECT),
    "push_reduction_f32_wider": (
        store([0], cmd=Cmd.MM_RED, attr=attr(dtype=Dtype.F32)),
        Status.UNSUPPORTED,
    ),
    "atomic": (Packet.unicast(Cmd.ATOM, addr=1 << 40, data=[1]), Status.UNSUPPORTED),
    "atomic_to_nowhere": (Packet.unicast(Cmd.ATOM, addr=99 << 40, data=[1]), Status.UNSUPPORTED),
    "load_f32_wider": (load([0], attr=attr(dtype=Dtype.F32)), Status.UNSUPPORTED),
    "load_f32_min": (load([0], attr=attr(Op.MIN, Dtype.F32, 0)), Status.UNSUPPORTED),
    "load_bitwise": (load([0], attr=attr(op=Op.AND)), Status.UNSUPPORTED),
    "attr_without_type": (store([0], attr=0x10), Status.UNSUPPORTED),
    "unsupported_and_unknown": (load([99], attr=attr(op=Op.XOR)), Status.UNSUPPORTED),
    "gpu_that_is_not_there": (store([0, 0x3FF0]), Status.UNKNOWN_TARGET),
    "slot_that_is_not_used": (store([0, 7]), Status.UNKNOWN_TARGET),
    "ffff_in_a_used_slot": (store([0, 0xFFFF, 4]), Status.UNKNOWN_TARGET),
    "unknown_in_second_flit": (store([*NINE, 3]), Status.UNKNOWN_TARGET),
    "unknown_and_no_member": (store([12, 3]), Status.UNKNOWN_TARGET),
    "posted_unknown": (store([3], cmd=Cmd.MM_STP), Status.UNKNOWN_TARGET),
    "unicast_to_nowhere": (Packet.unicast(Cmd.RD, addr=99 << 40, local=5), Status.UNKNOWN_TARGET),
    "posted_to_nowhere": (Packet.unicast(Cmd.NOTIFY, addr=127 << 40), Status.UNKNOWN_TARGET),
    "target_is_no_member": (store([0, 12]), Status.NOT_A_MEMBER),
    "no_member_in_first_flit": (store([12, *NINE]), Status.NOT_A_MEMBER),
    "posted_to_no_member": (store([12], cmd=Cmd.MM_STP), Status.NOT_A_MEMBER),
}


@cocotb.test()
@cocotb.parametrize(case=[Param(name, name=name) for name in REFUSED])
async def refused(dut, case):
    """Refused with this status, answered unless posted, and the next packet goes its way."""
    env = await start(dut)
    packet, status = REFUSED[case]
    for _ in range(2):
        assert env.send(packet).status is status
        assert env.send(store([0, 5])).ports
    await env.finished()


@cocotb.test()
async def a_notice_names_its_gpu_in_bits_46_to_40(dut):
    """It went where ``gpu_address_bit`` pointed, into its object or token number in most builds."""
    env = await start(dut)
    for gpu in range(env.fabric.gpus):
        addr = gpu << 40 | 0x9 << 36 | 0x1234_5678
        env.send(Packet.unicast(Cmd.NOTIFY, addr=addr))
        assert env.fabric.decide(Packet.unicast(Cmd.NOTIFY, addr=addr), 0).ports == {
            gpu * env.fabric.links + env.fabric.link(addr)
        }
    await env.finished()


@cocotb.test()
async def source_is_no_member(dut):
    """GPU 3 belongs to no object: nothing it sends there goes anywhere, lists and statics."""
    env = await start(dut)
    env.set_gpu(3)
    assert env.send(store([0, 4])).status is Status.NOT_A_MEMBER
    assert env.send(store([])).status is Status.NOT_A_MEMBER
    assert env.send(store([3])).status is Status.UNKNOWN_TARGET
    assert env.send(Packet.unicast(Cmd.WR, addr=1 << 40, data=[1])).ports
    await env.finished()


@cocotb.test()
async def unused_slots_must_be_ffff(dut):
    """Each of the unused slots of the last TX flit; it outranks every other refusal."""
    env = await start(dut)
    for packet in (store([0, 1, 4]), store(NINE), store([12], maddr=0)):
        for slot in range(packet.count % 8, 8):
            flits = packet.encode()
            flits[(packet.count + 7) // 8] ^= 1 << 16 * slot
            assert env.send(packet, flits).status is Status.MALFORMED
    await env.finished()


@cocotb.test()
async def empty_list_is_the_preset_group(dut):
    """Its GPUs, the source only if it is in it; an empty group or one of no members is refused."""
    env = await start(dut)
    h = env.fabric.link(BASE)
    assert env.send(load([])).ports == {0 + h, 2 * env.fabric.links + h}
    assert env.send(store([])).session["count"] == 2
    assert not env.send(store([], cmd=Cmd.MM_STP)).session
    await env.finished()
    env.set_object(2, ObjectSpec(BASE, SIZE, members={0, 1}, group={0, 3}))
    assert env.send(store([])).status is Status.NOT_A_MEMBER
    await env.finished()
    env.set_object(2, ObjectSpec(BASE, SIZE, members={0, 1}))
    assert env.send(store([])).status is Status.UNKNOWN_TARGET
    await env.finished()


@cocotb.test()
async def first_and_last_bytes_of_an_object(dut):
    """A request that touches the first or the last 16 bytes belongs to the object."""
    env = await start(dut)
    end = BASE + SIZE
    for packet in (store([0]), load([0, 4]), store([0], maddr=end - 32), load([0], maddr=end - 32)):
        assert env.send(packet).ports
    assert env.send(load([0], maddr=end - 16)).status is Status.UNKNOWN_OBJECT
    await env.finished()


@cocotb.test()
async def each_attr(dut):
    """All 255 of them: a reduction only if the build has type, operation and accumulation."""
    env = await start(dut)
    for number in range(1, 256):
        supported = supports(number, env.fabric.dtypes)
        for packet in (load([0], attr=number), store([0], cmd=Cmd.MM_RED, attr=number)):
            assert bool(env.send(packet).ports) == supported
    await env.finished()


@cocotb.test()
async def push_reduction_goes_like_a_store(dut):
    """MM_RED is copied to each GPU of its list or group; its session counts answers."""
    env = await start(dut)
    for targets in ([0, 5, 9], [1], [], NINE):
        decision = env.send(store(targets, cmd=Cmd.MM_RED))
        assert decision.ports == env.send(store(targets)).ports
        assert decision.session["flits"] == 0
        assert decision.session["cmd"] == Cmd.MM_RED.value
    await env.finished()


@cocotb.test()
async def failed_ports_are_refused(dut):
    """ERR 3 for what would go to a failed port, if nothing else is wrong; the rest goes on."""
    env = await start(dut)
    links = env.fabric.links
    env.set_failed(set(range(2 * links, 3 * links)))
    unicast = [Packet.unicast(Cmd.RD, addr=gpu << 40, local=gpu) for gpu in range(4)]
    posted = Packet.unicast(Cmd.WRP, addr=2 << 40, data=[1])
    for packet in (store([0, 8]), load([8]), load([]), store([8], cmd=Cmd.MM_STP), posted):
        assert env.send(packet).status is Status.TIMEOUT
        assert env.send(store([0, 5])).ports
    assert [env.send(packet).status is Status.TIMEOUT for packet in unicast] == [0, 0, 1, 0]
    assert env.send(store([8, 3])).status is Status.UNKNOWN_TARGET
    assert env.send(store([8, 12])).status is Status.NOT_A_MEMBER
    await env.finished()
    env.set_failed(set())
    assert env.send(store([0, 8])).ports
    await env.finished()


@cocotb.test()
async def attr_falls_back_to_the_object(dut):
    """attr 0 takes the object's; a stated one is just what it says."""
    env = await start(dut)
    other = attr(op=Op.OR, dtype=Dtype.F16)
    env.set_object(3, ObjectSpec(0x8000, 0x1000, members={0, 1}, split=1, slots=2, attr=other))
    assert env.send(load([0])).session["attr"] == attr()
    assert env.send(load([0], maddr=0x8000)).status is Status.UNSUPPORTED
    assert env.send(load([0], maddr=0x8000, attr=attr())).ports
    assert env.send(store([0], maddr=0x8000)).ports
    await env.finished()


@cocotb.test()
async def objects_change_while_others_are_used(dut):
    """Entries are rewritten word by word while another object's traffic goes on."""
    env = await start(dut)
    values = env.bench.random("change")
    for _ in range(60):
        env.send(store([0, 1, 5, 9, 2, 4, 6, 8, 10]))
        env.send(load([]))
        wires = env._entries[values.choice((0, 1, 3))]
        name = values.choice(list(wires))
        wires[name].write(0 if name == "valid" else values.getrandbits(wires[name].width))
        await env.bench.cycles(values.randint(1, 9))
    await env.finished()


@cocotb.test()
async def one_flit_a_cycle_and_no_delay_for_a_list(dut):
    """No bubble, one cycle, and a list's record comes with its last TX flit as a static's with HDR.

    Sharper than the paper's bar of one cycle more than static routing.
    """
    env = await start(dut)
    env.sink._can_stall = env.errors._can_stall = False
    env.source._stall = env.sink._stall = env.errors._stall = StallPattern()
    flits = 0
    for packet in [store([]), store(NINE), load([0, 4, 8]), load([]), load(NINE)] * 12:
        env.send(packet)
        flits += packet.flits
    await env.finished()
    assert env.source.last_cycle - env.source.first_cycle + 1 == flits
    assert env.taken == list(range(env.taken[0], env.taken[0] + flits))
    assert env.taken[0] == env.source.first_cycle + 1
    # Refused packets cost nothing either.
    before = env.source.last_cycle
    flits = 0
    for packet in [store([12, *NINE]), load([7]), store([0])] * 8:
        env.send(packet)
        flits += packet.flits
    first = env.bench.cycle
    await env.finished()
    assert env.source.last_cycle - max(before, first) <= flits + 1


@cocotb.test()
async def waits_for_room_for_answers(dut):
    """While nobody takes the answers route stalls; no answer and no packet is lost."""
    env = await start(dut)
    env.errors.paused = True
    for _ in range(6):
        env.send(load([7]))
        env.send(store([0]))
    await env.bench.cycles(100)
    assert env.errors_seen == 0 and env.source.pending
    env.errors.paused = False
    await env.finished()


def random_request(values, env: RouteEnv) -> tuple[Packet, list[int]]:
    """A well-formed request, mostly one that is not refused."""
    fabric = env.fabric
    if values.random() < 0.3:
        packet = unicast_packet(values, fabric.chunk_bytes)
        if values.random() < 0.8:
            gpu = values.randrange(fabric.gpus)
            packet.addr &= ~(0x7F << fabric.gpu_bit(packet.cmd))
            packet.addr |= gpu << fabric.gpu_bit(packet.cmd)
        return packet, packet.encode()
    entry = values.choice([one for one in fabric.objects if one])
    length = values.choice((0, 1, 3, 7, 8, 9, 15, 16, 17, values.randint(0, 120)))
    targets = [random_target(values, entry) for _ in range(length)]
    if targets and values.random() < 0.25:
        targets[values.randrange(length)] = values.choice(
            (0xFFFF, values.getrandbits(16), values.randrange(fabric.gpus << entry.split))
        )
    chunk = entry.base + values.randrange(entry.size)
    if values.random() < 0.05:
        chunk = values.choice((entry.base - 16, entry.base + entry.size))
    cmd = values.choice((*MULTIMEM[:3] * 4, Cmd.MM_RED))
    packet = multimem_packet(
        values,
        fabric.chunk_bytes,
        cmd=cmd,
        chunk=chunk,
        targets=targets,
        attr=values.choice((0, 0, 0, 0, attr(), values.getrandbits(8))),
    )
    packet.poison = values.random() < 0.1
    flits = packet.encode()
    if targets and values.random() < 0.05:
        flits[1 + (length - 1) // 8] ^= 1 << values.randrange(128)
        ids = [
            flit >> 16 * k & 0xFFFF for flit in flits[1 : 2 + (length - 1) // 8] for k in range(8)
        ]
        packet.targets = tuple(ids[:length])
    return packet, flits


@cocotb.test()
async def random_requests(dut):
    """Requests of all kinds against random objects, with random stalls if the run has them."""
    env = await start(dut)
    values = env.bench.random("requests")
    coverage = Coverage()
    statuses = [Status.OK, Status.MALFORMED, Status.UNKNOWN_OBJECT, Status.UNSUPPORTED]
    statuses += [Status.TIMEOUT, Status.UNKNOWN_TARGET, Status.NOT_A_MEMBER]
    coverage.group("status", statuses)
    coverage.group("accepted", [*MULTIMEM, Cmd.RD, Cmd.WR, Cmd.WRP])
    coverage.group("ports", range(len(env.fabric.objects) and env.fabric.gpus * env.fabric.links))
    for _ in range(env.bench.params.get("rounds", 8)):
        for k in range(len(env.fabric.objects)):
            env.set_object(k, random_object(values, env.fabric, k))
        env.set_gpu(values.randrange(env.fabric.gpus))
        ports = env.fabric.gpus * env.fabric.links
        env.set_failed({port for port in range(ports) if values.random() < 0.1})
        for _ in range(80):
            packet, flits = random_request(values, env)
            decision = env.send(packet, flits)
            coverage.sample("status", decision.status)
            if decision.status is Status.OK:
                coverage.sample("accepted", packet.cmd)
            for port in decision.ports:
                coverage.sample("ports", port)
        await env.finished()
    coverage.check()


@cocotb.test()
async def reset_in_a_packet(dut):
    """After a reset at any moment nothing of an old packet is left."""
    env = await start(dut)
    values = env.bench.random("reset")
    for k in range(len(env.fabric.objects)):
        env.set_object(k, random_object(values, env.fabric, k))
    for _ in range(25):
        for _ in range(6):
            env.send(*random_request(values, env))
        await env.bench.cycles(values.randint(1, 60))
        await env.bench.reset()
        env.clear()
    for _ in range(20):
        env.send(*random_request(values, env))
    await env.finished()
