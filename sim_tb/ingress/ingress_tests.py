"""Tests of the ingress: parser, route, replication and the way of responses together."""

from __future__ import annotations

from typing import Any

import cocotb

from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.sim_tb.ingress.env import IngressEnv
from dysharp.sim_tb.parser.packets import (
    multimem_packet,
    response_packet,
    unicast_packet,
)
from dysharp.sim_tb.route.model import ObjectSpec, random_target

BASE = 0x4000_0000


async def start(dut: Any) -> IngressEnv:
    """An ingress with one object: all GPUs, four slots on each."""
    env = IngressEnv(dut)
    everyone = set(range(env.fabric.gpus))
    env.set_object(1, ObjectSpec(BASE, 0x10000, members=everyone, group=everyone, split=2, slots=4))
    await env.bench.start()
    return env


def store(targets, cmd=Cmd.MM_ST, data=(1, 2), local=0x123) -> Packet:
    """A store."""
    return Packet.multimem(cmd, maddr=BASE, targets=targets, data=data, local=local)


def load(targets, local=0x321) -> Packet:
    """A load-reduce of 8 flits."""
    return Packet.multimem(Cmd.MM_LDR, maddr=BASE | 7, targets=targets, local=local)


def read(gpu, local=0x55) -> Packet:
    """A unicast read."""
    return Packet.unicast(Cmd.RD, addr=gpu << 40, local=local)


@cocotb.test()
async def each_kind_goes_its_way(dut):
    """Multicast, static, posted, unicast and refused requests, with the tags they must carry."""
    env = await start(dut)
    assert env.send_request(store([0, 5, 13, 1])).ports == {0, 1, 3}
    assert env.send_request(load([])).ports == {0, 1, 2, 3}
    env.send_request(store([9], cmd=Cmd.MM_STP))
    env.send_request(read(2))
    env.send_request(Packet.unicast(Cmd.NOTIFY, addr=1 << 40, local=7))
    assert env.send_request(load([40])).status is Status.UNKNOWN_TARGET
    misaligned = Packet.unicast(Cmd.WR, addr=8, data=[1], local=9)
    assert env.send_request(misaligned).status is Status.MALFORMED
    env.send_request(load([15, 14, 13, 12, 11, 10, 9, 8, 7]))
    await env.finished()


@cocotb.test()
async def no_output_holds_another(dut):
    """While one output takes nothing the others get the packet whole; it gets it later."""
    env = await start(dut)
    queues = env.queues["req"]
    queues.blocked = {2}
    packet = store(range(16), data=range(8))
    room = queues.depth // packet.flits
    for _ in range(room + 2):
        env.send_request(packet)
    await env.bench.cycles(150)
    assert [len(packets) for packets in queues.expected] == [1, 1, 2, 1]
    queues.blocked = set()
    await env.finished()


@cocotb.test()
async def nothing_leaves_before_its_session(dut):
    """Without a session a request waits, and what is behind it; responses go on."""
    env = await start(dut)
    env.reserve.paused = True
    env.send_request(read(0))
    env.send_request(store([0, 4, 8]))
    env.send_request(read(1))
    env.send_response(Packet.unicast(Cmd.WR_ACK, addr=0, port=2, local=3))
    await env.bench.cycles(60)
    assert env.queues["req"].outstanding == 4
    assert env.queues["rsp"].outstanding == 0
    env.reserve.paused = False
    await env.finished()


@cocotb.test()
async def exhausted_sessions_are_an_error(dut):
    """With all sessions retired a request that needs one gets ERR 10, and nothing is left of it.

    What needs none goes its way.
    """
    env = await start(dut)
    env.set_exhausted(True)
    refused = [store([0, 4, 8]), load([]), load(range(16)), store([5], cmd=Cmd.MM_RED)]
    for packet in refused * 3:
        assert env.send_request(packet).status is Status.NEVER_RESERVABLE
        env.send_request(read(1))
        env.send_request(store([9], cmd=Cmd.MM_STP))
    await env.finished()
    env.set_exhausted(False)
    env.send_request(load([0, 4]))
    await env.finished()


@cocotb.test()
async def one_flit_a_cycle(dut):
    """With room and sessions no bubble; two cycles from the flit that decides to the bus.

    A packet is decided by its last TX flit, so the first one with a longer list than any before
    it leaves a gap of the difference; from then on the ring is that far behind.
    """
    env = await start(dut)
    env.never_stall()
    queues = env.queues
    values = env.bench.random("throughput")
    packets = [store(range(16)), read(0), load([]), load([0, 1]), read(1), read(2), store([])]
    sent = [*packets, *(values.choice(packets) for _ in range(100))]
    for packet in sent:
        env.send_request(packet)
    flits = sum(packet.flits for packet in sent)
    answers = 0
    for _ in range(60):
        response = response_packet(values)
        response.tag_port %= env.ports
        env.send_response(response)
        answers += response.flits
    await env.finished()
    written = queues["req"].written
    lists = 2
    assert env.requests.last_cycle - env.requests.first_cycle + 1 == flits
    assert written[0] == env.requests.first_cycle + lists + 2
    assert written == list(range(written[0], written[0] + flits))
    written = queues["rsp"].written
    assert written == list(range(written[0], written[0] + answers))
    assert written[0] == env.responses.first_cycle + 1


@cocotb.test()
async def responses_to_nowhere(dut):
    """A response for a port that does not exist is dropped; those round it arrive."""
    env = await start(dut)
    values = env.bench.random("nowhere")
    for port in (0, 4, 3, 127, 64, 1):
        response = response_packet(values, cmd=Cmd.RD_RSP)
        response.tag_port = port
        env.send_response(response)
    await env.finished()


def random_request(values, env: IngressEnv) -> tuple[Packet, list[int]]:
    """Any request, most of them right."""
    entry = env.fabric.objects[1]
    assert entry
    if values.random() < 0.4:
        packet = unicast_packet(values, env.fabric.chunk_bytes)
        packet.addr &= ~(0x7F << env.fabric.gpu_address_bit)
        packet.addr |= values.randrange(env.fabric.gpus + 1) << env.fabric.gpu_address_bit
    else:
        length = values.choice((0, 1, 2, 3, 8, 9, 17, values.randint(0, 112)))
        targets = [random_target(values, entry) for _ in range(length)]
        if length and values.random() < 0.15:
            targets[values.randrange(length)] = values.choice((0xFFFF, 200, 16))
        packet = multimem_packet(
            values,
            env.fabric.chunk_bytes,
            cmd=values.choice((Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_LDR)),
            chunk=entry.base + values.randrange(entry.size),
            targets=targets,
        )
    flits = packet.encode()
    if values.random() < 0.05:
        # A reserved command: malformed for certain, whatever the rest says.
        flits[0] |= 0x1F << 37
    return packet, flits


@cocotb.test()
async def random_traffic(dut):
    """Both classes at once, queues that fill up, sessions that run out."""
    env = await start(dut)
    values = env.bench.random("traffic")
    for row in env.queues.values():
        row.drain = values.choice((0.3, 0.6, 1.0))
    for _ in range(env.bench.params.get("rounds", 300)):
        env.send_request(*random_request(values, env))
        response = response_packet(values)
        if values.random() < 0.9:
            response.tag_port %= env.ports
        env.send_response(response)
    await env.finished()


@cocotb.test()
async def reset_in_a_packet(dut):
    """After a reset at any moment nothing of an old packet, session or answer is left."""
    env = await start(dut)
    values = env.bench.random("reset")
    for _ in range(20):
        for _ in range(8):
            env.send_request(*random_request(values, env))
            env.send_response(response_packet(values))
        await env.bench.cycles(values.randint(1, 80))
        await env.bench.reset()
        env.clear()
    for _ in range(20):
        env.send_request(*random_request(values, env))
    await env.finished()
