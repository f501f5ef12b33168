"""Tests of the parser of requests; those of responses run the same bench with other traffic."""

from __future__ import annotations

import cocotb
from amaranth.lib import data
from cocotb import Param

from dysharp.hw.packet import Attr, Cmd, Header, MultimemAddress, Packet
from dysharp.sim_tb.agents import StallPattern
from dysharp.sim_tb.coverage import Coverage
from dysharp.sim_tb.parser.env import Frame, ParserEnv
from dysharp.sim_tb.parser.packets import (
    damage,
    multimem_packet,
    response_packet,
    unicast_packet,
)


def header(cmd: int, *, flits: int, ae=0, be=0, tx=0, addr=0, maddr=0, count=0, attr=0) -> int:
    """A header with any content, and tag 3:0x456."""
    if tx:
        addr = MultimemAddress.const(
            {"maddr": maddr, "count": count, "attr": Attr.from_bits(attr)}
        ).as_bits()
    fields = {"len": flits - 1, "ae": ae, "be": be, "tx": tx, "addr": addr}
    fields["tag"] = {"local": 0x456, "port": 3}
    return Header.const(fields).as_bits() | cmd << data.Layout.cast(Header)["cmd"].offset


# Name: a header that is wrong, and the command's answer (ERR 1 or none).
MALFORMED = {
    "reserved_command": (header(7, flits=1), True),
    "reserved_multimem_command": (header(31, flits=3, tx=1, maddr=0x80, count=9), True),
    "response_among_requests": (header(Cmd.WR_ACK.value, flits=1), False),
    "error_among_requests": (header(Cmd.ERR.value, flits=1, tx=1), False),
    "list_longer_than_packet": (header(Cmd.MM_ST.value, flits=3, tx=1, count=17), True),
    "store_without_data": (header(Cmd.MM_ST.value, flits=2, tx=1, count=8), True),
    "posted_store_without_data": (header(Cmd.MM_STP.value, flits=1, tx=1), False),
    "write_without_data": (header(Cmd.WR.value, flits=1), True),
    "write_of_17_flits": (header(Cmd.WR.value, flits=18), True),
    "atomic_without_data": (header(Cmd.ATOM.value, flits=2, ae=1), True),
    "read_with_data": (header(Cmd.RD.value, flits=2), True),
    "load_reduce_with_data": (header(Cmd.MM_LDR.value, flits=3, tx=1, count=8), True),
    "notify_with_data": (header(Cmd.NOTIFY.value, flits=2), False),
    "ae_on_multimem": (header(Cmd.MM_ST.value, flits=4, ae=1, tx=1, count=1), True),
    "be_on_load_reduce": (header(Cmd.MM_LDR.value, flits=3, be=1, tx=1, count=1), True),
    "be_on_push_reduction": (header(Cmd.MM_RED.value, flits=4, be=1, tx=1, count=1), True),
    "be_on_read": (header(Cmd.RD.value, flits=2, be=1), True),
    "be_with_9_data": (header(Cmd.WR.value, flits=11, be=1), True),
    "multimem_without_tx": (header(Cmd.MM_ST.value, flits=2), True),
    "unicast_with_tx": (header(Cmd.WR.value, flits=2, tx=1), True),
    "misaligned_write": (header(Cmd.WR.value, flits=2, addr=0x1008), True),
    "misaligned_posted_write": (header(Cmd.WRP.value, flits=2, addr=0x1001), False),
    "misaligned_store": (header(Cmd.MM_ST.value, flits=3, tx=1, maddr=0x104, count=1), True),
    "misaligned_push_reduction": (header(Cmd.MM_RED.value, flits=2, tx=1, maddr=2), True),
    "write_crosses_chunk": (header(Cmd.WR.value, flits=3, addr=0x1070), True),
    "store_crosses_chunk": (header(Cmd.MM_ST.value, flits=4, tx=1, maddr=0x70, count=1), True),
    "read_crosses_chunk": (header(Cmd.RD.value, flits=1, addr=0x1071), True),
    "read_longer_than_chunk": (header(Cmd.RD.value, flits=1, addr=0x1008), True),
    "load_reduce_crosses_chunk": (header(Cmd.MM_LDR.value, flits=1, tx=1, maddr=0x62), True),
}


@cocotb.test()
@cocotb.parametrize(case=[Param(name, name=name) for name in MALFORMED])
async def malformed(dut, case):
    """Dropped whole, answered or only counted, and the next packet comes through."""
    env = ParserEnv(dut)
    await env.bench.start()
    values = env.bench.random(case)
    first, answered = MALFORMED[case]
    length = Header.from_bits(first).len + 1
    for flits in (length, 1, length + 2):
        expected = env.send([first] + [values.getrandbits(128) for _ in range(flits - 1)])
        assert expected.dropped and (expected.error is not None) == answered
        env.send(multimem_packet(values, 128, cmd=Cmd.MM_ST).encode())
    await env.finished()


@cocotb.test()
async def just_well_formed(dut):
    """What lies just inside of the rules passes."""
    env = ParserEnv(dut)
    await env.bench.start()
    values = env.bench.random("edges")
    flits = [values.getrandbits(128) for _ in range(16)]
    targets = list(range(112))
    for packet in (
        Packet.unicast(Cmd.WR, addr=0x1000, data=flits[:8], be=1),
        Packet.unicast(Cmd.WR, addr=0x1070, data=flits[:1]),
        Packet.unicast(Cmd.RD, addr=0x1007),
        Packet.unicast(Cmd.RD, addr=0x1070),
        Packet.unicast(Cmd.RD, addr=0x1070, ae=5),
        Packet.unicast(Cmd.ATOM, addr=0x107C, data=flits, ae=9),
        Packet.unicast(Cmd.NOTIFY, addr=0x7F),
        Packet.multimem(Cmd.MM_ST, maddr=0, targets=targets, data=flits[:8], be=7),
        Packet.multimem(Cmd.MM_ST, maddr=0x60, targets=targets + targets[:8], data=flits[:2]),
        Packet.multimem(Cmd.MM_LDR, maddr=0x1007, targets=targets + targets[:15]),
        Packet.multimem(Cmd.MM_LDR, maddr=0x1070),
        Packet.multimem(Cmd.MM_STP, maddr=0x1070, targets=[1], data=flits[:1]),
        Packet.multimem(Cmd.MM_RED, maddr=0x1000, targets=[1], data=flits[:8]),
    ):
        assert env.send(packet.encode()).flits
    await env.finished()


@cocotb.test()
async def nop_vanishes(dut):
    """NOP of any shape is dropped without an answer and without a fault."""
    env = ParserEnv(dut)
    await env.bench.start()
    values = env.bench.random("nop")
    for flits in (1, 3, 1, 1, 2):
        env.send([values.getrandbits(128) & ~(0x1F << 37)] + [7] * (flits - 1))
        env.send(unicast_packet(values, 128).encode())
    await env.finished()
    assert not env.faults.seen


@cocotb.test()
async def cut_or_padded(dut):
    """A frame of each length from 1 to 34 becomes a packet of the length it states, poisoned."""
    env = ParserEnv(dut)
    await env.bench.start()
    values = env.bench.random("framing")
    shapes = [
        Packet.multimem(Cmd.MM_ST, maddr=0, targets=range(17), data=[1, 2, 3, 4], be=3, local=1),
        Packet.multimem(Cmd.MM_LDR, maddr=7, targets=range(120), local=2),
        Packet.unicast(Cmd.ATOM, addr=0, data=range(16), ae=4, local=3),
        Packet.unicast(Cmd.RD, addr=0, local=4),
    ]
    for packet in shapes:
        flits = packet.encode()
        for length in range(1, 35):
            more = [values.getrandbits(128) for _ in range(length)]
            expected = env.send((flits + more)[:length])
            assert len(expected.flits) == len(flits)
            assert expected.flits[-1][3] == (length != len(flits))
    await env.finished()


@cocotb.test()
async def poison_counts_on_the_last_flit(dut):
    """A mark on any other flit is no poison."""
    env = ParserEnv(dut)
    await env.bench.start()
    flits = Packet.multimem(Cmd.MM_ST, maddr=0, targets=range(9), data=[1, 2, 3]).encode()
    for index in range(len(flits)):
        expected = env.send(Frame(flits, {index}))
        assert expected.flits[-1][3] == (index == len(flits) - 1)
    await env.finished()


@cocotb.test()
async def one_flit_a_cycle(dut):
    """Well-formed and malformed packets of any length go by without a bubble, as late as stated."""
    env = ParserEnv(dut)
    never = StallPattern()
    env.source._stall = env.sink._stall = env.errors._stall = never
    env.sink._can_stall = env.errors._can_stall = False
    await env.bench.start()
    values = env.bench.random("throughput")
    lengths = []
    for _ in range(150):
        make = values.choice((unicast_packet, multimem_packet))
        flits = make(values, env.chunk_bytes).encode()
        if values.random() < 0.3:
            flits = Packet.unicast(Cmd.RD, addr=0).encode()
        env.send(flits)
        lengths.append(len(flits))
    await env.finished()
    assert env.source.last_cycle - env.source.first_cycle + 1 == sum(lengths)
    assert env.sink.last_cycle - env.sink.first_cycle + 1 == sum(lengths)
    assert env.sink.first_cycle == env.source.first_cycle + env.latency
    taken = env.source.last_cycle
    for _ in range(60):
        env.send([header(9, flits=1)])
    await env.finished()
    assert env.source.last_cycle - taken <= 60 + 60
    assert env.errors.last_cycle - env.errors.first_cycle + 1 == 60


@cocotb.test()
async def waits_for_room_for_answers(dut):
    """While nobody takes the answers the parser stalls; no answer and no packet is lost."""
    env = ParserEnv(dut)
    await env.bench.start()
    values = env.bench.random("answers")
    env.errors.paused = True
    for _ in range(6):
        env.send([header(9, flits=1)])
        env.send(unicast_packet(values, 128).encode())
    await env.bench.cycles(200)
    assert env.errors_seen == 0 and env.source.pending
    env.errors.paused = False
    await env.finished()


class Pauses(StallPattern):
    """A source that stops: after how many flits, and for how many cycles."""

    def __init__(self, source, cycles: dict[int, int]):
        super().__init__()
        self.source, self.cycles = source, cycles

    def __call__(self) -> bool:
        left = self.cycles.get(self.source.sent, 0)
        self.cycles[self.source.sent] = left - 1
        return left > 0


@cocotb.test()
async def a_source_that_stops_is_cut_off(dut):
    """A packet whose source stops for longer than the limit is padded; the rest of it is dropped.

    A pause that is not longer changes nothing, nor does any without a limit, between packets, or in
    what is dropped anyway.
    """
    env = ParserEnv(dut)
    await env.bench.start()
    limit = 9
    flits = Packet.multimem(Cmd.MM_ST, maddr=0, targets=range(17), data=[1, 2, 3], be=3).encode()
    malformed = [header(9, flits=4)] * 4
    for stop_limit, pause, cuts in ((limit, limit, 0), (0, 40, 0), (limit, limit + 1, 1)):
        env.stall_limit.write(stop_limit)
        before = env.source.sent
        pauses = {}
        for stop in range(1, len(flits)):
            pauses[before + stop] = pause
            pauses[before + len(flits)] = pauses[before + len(flits) + 2] = 40
            before += len(flits) + len(malformed)
        env.source._stall = Pauses(env.source, pauses)
        for stop in range(1, len(flits)):
            expected = env.send(flits, stops=stop if cuts else None)
            assert expected.flits[-1][3] == cuts
            env.send(malformed)
        await env.finished()


def random_frame(values, env) -> Frame:
    """A frame that is mostly right."""
    if values.random() < 0.02:
        stray = response_packet(values), unicast_packet(values, env.chunk_bytes)
        flits = values.choice(stray).encode()
    elif env.responses:
        flits = response_packet(values).encode()
    elif values.random() < 0.6:
        flits = multimem_packet(values, env.chunk_bytes, attr=values.getrandbits(4)).encode()
    else:
        flits = unicast_packet(values, env.chunk_bytes).encode()
    if values.random() < 0.35:
        flits = damage(values, flits)
    if values.random() < 0.15:
        length = values.randint(1, 34)
        flits = (flits + [values.getrandbits(128) for _ in range(34)])[:length]
    poison = set()
    if values.random() < 0.1:
        poison.add(values.randrange(len(flits)))
    return Frame(flits, poison)


@cocotb.test()
async def random_frames(dut):
    """Frames right and wrong, with random stalls if the run has them."""
    env = ParserEnv(dut)
    await env.bench.start()
    values = env.bench.random("frames")
    coverage = Coverage()
    coverage.group("outcome", ("passed", "misframed", "poisoned", "answered", "counted", "nothing"))
    for _ in range(env.bench.params.get("frames", 600)):
        frame = random_frame(values, env)
        expected = env.send(frame)
        if expected.flits:
            coverage.sample("outcome", "misframed" if expected.misframed else "passed")
            if expected.flits[-1][3] and not expected.misframed:
                coverage.sample("outcome", "poisoned")
        elif expected.error:
            coverage.sample("outcome", "answered")
        else:
            coverage.sample("outcome", "counted" if expected.dropped else "nothing")
    await env.finished()
    if not env.responses:
        coverage.check()


@cocotb.test()
async def reset_in_a_packet(dut):
    """After a reset at any moment the next frame is parsed from its header on."""
    env = ParserEnv(dut)
    await env.bench.start()
    values = env.bench.random("reset")
    for _ in range(25):
        for _ in range(6):
            env.send(random_frame(values, env))
        await env.bench.cycles(values.randint(1, 60))
        env.clear()
        await env.bench.reset()
        env.clear()
    for _ in range(20):
        env.send(random_frame(values, env))
    await env.finished()
