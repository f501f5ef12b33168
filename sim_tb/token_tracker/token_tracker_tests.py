"""Tests of the token tracker."""

from __future__ import annotations

from collections import Counter

import cocotb

from dysharp.hw.gpu.tracker_windows import TILE_TOKENS
from dysharp.hw.packet import Cmd, Packet
from dysharp.sim_tb.token_tracker.env import Tile, TileModel, TokenTrackerEnv


@cocotb.test()
async def tokens_become_ready(dut):
    """nReady counts the NOTIFYs of each token; at the threshold, and not before, it is ready."""
    env = TokenTrackerEnv(dut)
    await env.start()
    first = env.choose.getrandbits(32 - 8) << 8
    followed = {
        first + index: (env.choose.randrange(env.objects), env.choose.randint(1, 8))
        for index in range(env.token_entries)
    }
    for token, (number, threshold) in followed.items():
        entry = token % env.token_entries
        await env.tokens.write(entry, "token", token=token)
        await env.tokens.write(entry, "follow", object=number, threshold=threshold)
    counts: Counter[int] = Counter()
    strays = 0
    for _ in range(400):
        token = env.choose.choice(list(followed))
        number = followed[token][0]
        kind = env.choose.random()
        if kind < 0.1:
            token += env.token_entries
        elif kind < 0.2:
            number ^= 1
        if kind < 0.2:
            strays += 1
        elif counts[token] < 255:
            counts[token] += 1
        for _ in range(env.choose.choice([0, 0, 0, 1])):
            strays += kind < 0.2
            counts[token] += kind >= 0.2
            env.notify.send(object=number, token=token)
        env.notify.send(object=number, token=token)
    await env.bench.within(env.notify.drained(), 20_000)
    await env.bench.cycles(4)
    for token, (number, threshold) in followed.items():
        entry = token % env.token_entries
        assert (await env.tokens.read(entry, "token"))["token"] == token
        follow = await env.tokens.read(entry, "follow")
        assert follow == {"object": number, "threshold": threshold}
        got = await env.tokens.read(entry, "readiness")
        assert got["valid"] and got["n_ready"] == counts[token], (token, got, counts[token])
        assert got["ready"] == (counts[token] >= threshold)
    assert env.events["unmatched"] == strays
    env.bench.check()


@cocotb.test()
async def a_token_is_followed_anew(dut):
    """A new threshold starts from 0 and drops the entry's old token, while NOTIFYs go on."""
    env = TokenTrackerEnv(dut)
    await env.start()
    for token in (5, 5 + env.token_entries, 5):
        for _ in range(200):
            env.notify.send(object=9, token=6)
        await env.tokens.write(5, "token", token=token)
        await env.tokens.write(5, "follow", object=1, threshold=2)
        for expected in (0, 1, 2, 3):
            got = await env.tokens.read(5, "readiness")
            assert (got["n_ready"], got["ready"]) == (expected, int(expected >= 2))
            env.notify.send(object=1, token=token)
            await env.bench.within(env.notify.drained(), 2000)
            await env.bench.cycles(3)
    env.bench.check()


@cocotb.test()
async def tiles_become_ready(dut):
    """DAcc adds up every tile's flits; full tiles, and last ones announced early and late."""
    env = TokenTrackerEnv(dut)
    await env.start()
    model = TileModel()
    # Slots that differ modulo the entries, so that no two tiles want one entry.
    experts = [(env.choose.randrange(env.objects), slot) for slot in range(4)]
    tokens = {expert: env.choose.choice([1, 100, 128]) for expert in experts}
    tokens[experts[0]], tokens[experts[1]], tokens[experts[2]] = 128, 77, 1
    late = {experts[1], experts[3]}
    chunks = {}
    for object_, slot in experts:
        flits = env.choose.choice([8, 12])
        await env.expect_flits(model, object_, slot, flits)
        chunks[object_, slot] = [8] if flits == 8 else [8, 4]
        if (object_, slot) not in late and tokens[object_, slot] != TILE_TOKENS:
            await env.announce(model, object_, slot, tokens[object_, slot])
    events = [
        (object_, slot, lidx, flits)
        for object_, slot in experts
        for lidx in range(tokens[object_, slot])
        for flits in chunks[object_, slot]
    ]
    env.choose.shuffle(events)
    half = len(events) - 3
    for part in (events[:half], *([event] for event in events[half:])):
        for object_, slot, lidx, flits in part:
            env.written.send(object=object_, slot=slot, lidx=lidx, flits=flits)
            model.dacc[Tile(object_, slot, 0)] += flits
        await env.bench.within(env.written.drained(), 20_000)
        await env.bench.cycles(4)
        for object_, slot in experts:
            await env.check_tile(model, Tile(object_, slot, 0))
    for expert in late:
        await env.announce(model, *expert, tokens[expert])
        await env.bench.cycles(4)
        await env.check_tile(model, Tile(*expert, 0))
    assert all(model.ready(Tile(object_, slot, 0)) for object_, slot in experts)
    assert env.events["lost"] == 0
    env.bench.check()


@cocotb.test()
async def rows_of_an_expert(dut):
    """Only the last row of an expert is closed by its announcement; earlier ones are full."""
    env = TokenTrackerEnv(dut)
    await env.start()
    model = TileModel()
    rows = max(1, env.tile_entries // env.slots)
    tokens = (rows - 1) * TILE_TOKENS + 3
    await env.expect_flits(model, 2, 1, 8)
    await env.announce(model, 2, 1, tokens)
    for lidx in range(tokens):
        env.written.send(object=2, slot=1, lidx=lidx, flits=8)
        model.dacc[Tile(2, 1, lidx // TILE_TOKENS)] += 8
    await env.bench.within(env.written.drained(), 20_000)
    await env.bench.cycles(4)
    for row in range(rows):
        await env.check_tile(model, Tile(2, 1, row))
        assert model.ready(Tile(2, 1, row))
    env.bench.check()


@cocotb.test()
async def an_entry_is_taken(dut):
    """A tile whose entry another one holds is told as lost and changes nothing, until freed."""
    env = TokenTrackerEnv(dut)
    await env.start()
    model = TileModel()
    one, other = Tile(3, 2, 0), Tile(4, 2, 0)
    for tile in (one, other):
        await env.expect_flits(model, tile.object, tile.slot, 4)
    for tile in (one, other, other, one):
        env.written.send(object=tile.object, slot=tile.slot, lidx=1, flits=2)
    model.dacc[one] += 4
    await env.bench.within(env.written.drained(), 200)
    await env.bench.cycles(4)
    await env.check_tile(model, one)
    assert env.events["lost"] == 2
    await env.tiles.write(env.entry_of(one), "tile")
    assert not (await env.tiles.read(env.entry_of(one), "tile"))["valid"]
    env.written.send(object=other.object, slot=other.slot, lidx=1, flits=2)
    model.dacc[other] += 2
    await env.bench.within(env.written.drained(), 200)
    await env.bench.cycles(4)
    await env.check_tile(model, other)
    env.bench.check()


@cocotb.test()
async def events_are_always_taken(dut):
    """One event of each kind every cycle, with the link stopped: nothing waits."""
    env = TokenTrackerEnv(dut)
    await env.start()
    env.link.paused = True
    await env.notices.write(0, "send", gpu=1, object=1)
    sources = (env.touch, env.written, env.notify)
    for index in range(100):
        env.touch.send(object=0, slot=0, aidx=index, lidx=index)
        env.written.send(object=0, slot=0, lidx=index, flits=1)
        env.notify.send(object=0, token=index % 2)
    for source in sources:
        await env.bench.within(source.drained(), 400)
        assert source.last_cycle - source.first_cycle + 1 == 100
    await env.bench.cycles(4)
    assert env.events["touched"] == 100
    env.bench.check()


@cocotb.test()
async def notices_leave(dut):
    """A write sends one NOTIFY of its token; what finds no room is told, the rest leaves."""
    env = TokenTrackerEnv(dut)
    await env.start()
    room = (await env.notices.read(0, "room"))["room"]
    env.link.paused = True
    sent = []
    for number in range(room + 8):
        token, gpu, object_ = (env.choose.getrandbits(bits) for bits in (32, 7, 4))
        await env.notices.write(0, "token", token=token)
        await env.notices.write(0, "send", gpu=gpu, object=object_)
        if number < room:
            sent.append(Packet.unicast(Cmd.NOTIFY, addr=gpu << 40 | object_ << 36 | token))
    assert (await env.notices.read(0, "room"))["room"] == 0
    assert env.events["refused"] == 8
    env.link.paused = False
    await env.bench.until(lambda: len(env.sent) == room, limit=500)
    assert env.sent == sent and env.events["notified"] == room
    env.bench.check()


@cocotb.test()
async def reset_forgets(dut):
    """After a reset no tile and no token is followed."""
    env = TokenTrackerEnv(dut)
    await env.start()
    await env.tokens.write(3, "token", token=3)
    await env.tokens.write(3, "follow", object=0, threshold=1)
    env.written.send(object=0, slot=3, lidx=0, flits=1)
    env.notify.send(object=0, token=3)
    await env.bench.cycles(10)
    assert (await env.tokens.read(3, "readiness"))["ready"]
    await env.bench.reset()
    await env.cleared()
    for entry in range(env.token_entries):
        assert not (await env.tokens.read(entry, "readiness"))["valid"]
    for entry in range(env.tile_entries):
        assert not (await env.tiles.read(entry, "tile"))["valid"]
    env.bench.check()
