"""Tests of the MultimemQ. Each leaves nothing open, and every packet and result is checked."""

from __future__ import annotations

import cocotb

from dysharp.hw.packet import NO_TARGET, Cmd, Packet, Status
from dysharp.sim_tb.coverage import Coverage
from dysharp.sim_tb.multimemq.env import Answer, MultimemQEnv, error_answer, right_answer
from dysharp.sim_tb.multimemq.golden import Expected, Job, expected, random_job


def job(env: MultimemQEnv, **given) -> Job:
    return random_job(env.choose, chunk_bytes=env.chunk_bytes, **given)


@cocotb.test()
async def random_instructions(dut):
    """All operations, list lengths and addresses, -1 entries, ERR answers, out of order."""

    def answer(env: MultimemQEnv, packet: Packet) -> Answer:
        if env.choose.random() < 0.15:
            return error_answer(packet, env.choose.choice(list(Status)[1:]))
        return right_answer(env, packet)

    env = MultimemQEnv(dut, answer=answer, delay=(0, 120))
    await env.bench.start()
    for _ in range(env.bench.params.get("instructions", 150)):
        env.put(job(env, static=env.choose.random() < 0.15))
    await env.finish()
    assert env.events["packets"].count == len(env.packets)
    assert env.events["unknown"].count == env.events["malformed"].count == 0


@cocotb.test()
async def every_list_length(dut):
    """Lists of 1 to 120 entries, once whole and once with holes."""
    env = MultimemQEnv(dut)
    await env.bench.start()
    cover = Coverage()
    cover.group("kept", range(1, 121))
    for count in range(1, 121):
        for missing in (0, 0.2):
            one = job(env, op=Cmd.MM_LDR, count=count, missing=missing, flits=1)
            cover.sample("kept", sum(target != NO_TARGET for target in one.ids))
            env.put(one)
    await env.finish()
    cover.check()


@cocotb.test()
async def nobody_is_named(dut):
    """A list that is empty, or all -1, sends nothing: stores complete, loads return +0."""
    env = MultimemQEnv(dut)
    await env.bench.start()
    ops = (Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_LDR, Cmd.MM_RED)
    for op in ops:
        for count in (0, 1, 8, 17, 120):
            env.put(job(env, op=op, count=count, missing=1))
    await env.finish()
    assert not env.packets
    assert env.events["empty"].count == 5 * len(ops) and env.events["refused"].count == 0


@cocotb.test()
async def illegal_instructions(dut):
    """Each kind of illegal instruction is a fault; its data goes and the next one is right."""
    env = MultimemQEnv(dut)
    await env.bench.start()
    chunk_flits = env.chunk_bytes // 16
    kinds = [
        {"op": Cmd.RD.value}, {"op": Cmd.NOP.value}, {"op": 31}, {"op": Cmd.NOTIFY.value},
        {"maddr": 0x1008}, {"list_addr": 0x20001}, {"flits": 0}, {"flits": 17},
        {"flits": 31}, {"flits": chunk_flits + 1}, {"maddr": 0x10010, "flits": chunk_flits},
    ]  # fmt: skip
    refused = 0
    for op in (Cmd.MM_ST, Cmd.MM_LDR, Cmd.MM_STP, Cmd.MM_RED):
        for kind in kinds:
            one = job(env, op=op, count=9, flits=2)
            one.fields |= kind
            if one.cmd in (Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_RED):
                one.data = [env.choose.getrandbits(128) for _ in range(one.fields["flits"])]
            else:
                one.data = []
            assert expected(one, chunk_bytes=env.chunk_bytes).fault is Status.MALFORMED
            env.put(one)
            env.put(job(env))
            refused += 1
    await env.finish()
    assert env.events["refused"].count == refused


@cocotb.test()
async def list_does_not_fit(dut):
    """A list beside which the data does not fit a packet is UNSUPPORTED."""
    env = MultimemQEnv(dut)
    await env.bench.start()
    most = env.chunk_bytes // 16
    for count in (119, 120, 121, 127):
        for flits in (1, most - 1, most):
            env.put(job(env, op=Cmd.MM_ST, count=count, flits=flits))
            env.put(job(env, op=Cmd.MM_LDR, count=count, flits=flits))
    await env.finish()


@cocotb.test()
async def full_throughput(dut):
    """Stores and loads with lists of up to eight targets leave without a bubble."""
    env = MultimemQEnv(dut, delay=(0, 0))
    await env.bench.start()
    for op, flits in ((Cmd.MM_ST, env.chunk_bytes // 16), (Cmd.MM_LDR, 1), (Cmd.MM_STP, 1)):
        env.packets.clear()
        for _ in range(60):
            one = job(env, op=op, count=env.choose.randint(1, 8), missing=0, flits=flits)
            one.fields["list_addr"] = env.place_list(one.ids, offset=2 * env.choose.randrange(64))
            env.put(one)
        await env.finish()
        # The first lists are on their way when the first packet waits for them.
        flits_seen = [packet for _, packet in env.packets][10:]
        cycles = flits_seen[-1].last_cycle - flits_seen[0].first_cycle + 1
        assert cycles == sum(len(packet.flits) for packet in flits_seen), f"{op.name}: {cycles}"


@cocotb.test()
async def static_loads_back_to_back(dut):
    """Packets of one flit leave every cycle."""
    env = MultimemQEnv(dut, delay=(0, 0))
    await env.bench.start()
    for _ in range(env.outstanding):
        env.put(job(env, op=Cmd.MM_LDR, static=True, flits=1))
    await env.finish()
    first, last = env.packets[0][1], env.packets[-1][1]
    assert last.last_cycle - first.first_cycle + 1 == env.outstanding


@cocotb.test()
async def wrong_answers(dut):
    """An answer that does not fit is a fault of its instruction, never data."""
    kinds = ["count", "length", "kind", "poison", "no status"]
    seen: list[str] = []

    def answer(env: MultimemQEnv, packet: Packet) -> Answer:
        good = right_answer(env, packet)
        turn = len(seen) % (len(kinds) + 1)
        kind = kinds[turn] if turn < len(kinds) else ""
        seen.append(kind)
        said = good.packet
        assert said is not None
        loads = packet.cmd is Cmd.MM_LDR
        if kind == "count" and packet.count:
            said.count = packet.count + env.choose.choice([-1, 1])
            return Answer(said, Status.MALFORMED.value)
        if kind == "length" and loads:
            extra = len(said.data) == 1 or len(said.data) < 16 and env.choose.random() < 0.5
            said.data = (*said.data, 5) if extra else said.data[:-1]
            return Answer(said, Status.MALFORMED.value)
        if kind == "kind":
            said.cmd, said.data = (Cmd.MM_ACK, ()) if loads else (Cmd.MM_RSP, (1,))
            return Answer(said, Status.MALFORMED.value)
        if kind == "poison":
            return Answer(said, Status.POISONED.value, poison=True)
        if kind == "no status":
            return error_answer(packet, 0)
        return good

    env = MultimemQEnv(dut, answer=answer)
    await env.bench.start()
    for index in range(140):
        turns = len(kinds) + 1
        op = (Cmd.MM_ST, Cmd.MM_LDR)[index // turns % 2]
        static = index % turns != 0 and env.choose.random() < 0.3
        env.put(job(env, op=op, count=5, missing=0, static=static))
    await env.finish()
    assert env.events["faulted"].count >= 100


@cocotb.test()
async def unknown_answers(dut):
    """Answers that nobody waits for, and packets that are none, are dropped and counted.

    A plain ERR ended an instruction with a fault: any GPU can send one, no member's answer is.
    """
    env = MultimemQEnv(dut, answer=lambda env, packet: Answer(None))
    await env.bench.start()
    env.put(job(env, op=Cmd.MM_LDR, count=3, missing=0))
    await env.bench.until(lambda: len(env.packets) == 1, limit=2000)
    packet = env.packets[0][0]
    strays = [
        Packet.multimem(Cmd.MM_ACK, maddr=packet.maddr, count=3, local=packet.tag_local + 1),
        Packet.multimem(Cmd.MM_RSP, maddr=packet.maddr, count=3, local=0xFFF, data=[1, 2]),
        Packet.unicast(Cmd.RD_RSP, addr=0x40, local=packet.tag_local, data=[3]),
        Packet.unicast(Cmd.WR_ACK, addr=0x40, local=packet.tag_local),
        Packet.unicast(Cmd.ERR, addr=Status.NOT_A_MEMBER.value, local=packet.tag_local),
    ]
    for stray in strays:
        env.answers.send(stray.encode())
    env.answers.send(Packet.unicast(Cmd.WR, addr=0x40, data=[1]).encode())
    await env.bench.cycles(100)
    assert env.events["unknown"].count == len(strays)
    assert env.events["malformed"].count == 1 and env.events["answered"].count == 0
    answer = right_answer(env, packet)
    env.send_answer(answer)
    assert answer.packet is not None
    env.answers.send(answer.packet.encode())
    await env.finish()
    assert env.events["answered"].count == 1
    assert env.events["unknown"].count == len(strays) + 1


@cocotb.test()
async def stalled_results_never_block_the_link(dut):
    """With ``result`` held up, all packets that may leave do, and all answers are taken."""
    env = MultimemQEnv(dut, delay=(0, 30))
    await env.bench.start()
    env.results.paused = True
    for _ in range(3 * env.outstanding):
        env.put(job(env, op=Cmd.MM_LDR, count=4, missing=0, flits=env.chunk_bytes // 16))
    await env.bench.until(lambda: len(env.packets) >= env.outstanding, limit=20_000)
    await env.bench.cycles(100)
    await env.bench.until(
        lambda: not env.answers.pending, limit=10_000, what="the response stream's emptying"
    )
    env.results.paused = False
    await env.finish()


@cocotb.test()
async def tags_run_out(dut):
    """No more packets wait for answers than there are tags, and each goes on with the next."""
    held: list[Packet] = []

    def keep(env: MultimemQEnv, packet: Packet) -> Answer:
        held.append(packet)
        return Answer(None)

    env = MultimemQEnv(dut, answer=keep)
    await env.bench.start()
    for index in range(4 * env.outstanding):
        op = (Cmd.MM_ST, Cmd.MM_LDR)[index % 2]
        env.put(job(env, op=op, count=2, missing=0, flits=env.chunk_bytes // 16))
    await env.bench.until(lambda: len(held) == env.outstanding, limit=5000)
    await env.bench.cycles(200)
    assert len(held) == env.outstanding == env.most_tags
    while env.complete < 4 * env.outstanding:
        await env.bench.until(
            lambda: bool(held) or env.complete == 4 * env.outstanding, limit=2000, what="a packet"
        )
        if not held:
            break
        packet = held.pop(env.choose.randrange(len(held)))
        env.send_answer(right_answer(env, packet))
        await env.bench.cycles(env.choose.randrange(40))
    await env.finish()


@cocotb.test()
async def misframed_data(dut):
    """Data that ends early or late makes its packet poison and leaves the next one alone."""
    env = MultimemQEnv(dut)
    await env.bench.start()
    for change in (-3, -1, 0, 1, 5):
        for poison in (False, True):
            one = job(env, op=Cmd.MM_ST, count=3, missing=0, flits=4)
            one.data = [env.choose.getrandbits(128) for _ in range(4 + change)]
            plan = expected(one, chunk_bytes=env.chunk_bytes)
            assert plan.packet is not None
            plan.packet.data = tuple((one.data + [0] * 4)[:4])
            plan.packet.poison = poison or change != 0
            env.put(one, poison=poison, plan=plan)
            env.put(job(env, op=Cmd.MM_ST))
    await env.finish()


@cocotb.test()
async def list_that_cannot_be_read(dut):
    """A memory error on the list is a fault of its instruction alone."""
    env = MultimemQEnv(dut)
    await env.bench.start()
    response = env.bench.wire("m_axi_rresp")
    for op in (Cmd.MM_ST, Cmd.MM_LDR):
        response.write(2)
        one = job(env, op=op, count=40, missing=0.1)
        env.put(one, plan=Expected(None, Status.POISONED))
        await env.finish()
        response.write(0)
        env.put(job(env, op=op, count=40, missing=0.1))
        await env.finish()


@cocotb.test()
async def reset_in_the_middle(dut):
    """After a reset all is as new: no packet, tag or result of before is seen."""
    env = MultimemQEnv(dut)
    await env.bench.start()
    for _ in range(4):
        for _ in range(30):
            env.put(job(env))
        await env.bench.cycles(env.choose.randrange(20, 200))
        await env.bench.reset()
    for _ in range(30):
        env.put(job(env))
    await env.finish()
