"""What the AL-TLB must remember, forget, and never mix up."""

from __future__ import annotations

import cocotb

from dysharp.sim_tb.al_tlb.env import Key, TlbEnv


def _keys(values, count: int) -> list[Key]:
    """Distinct keys that differ in one field as often as in all."""
    keys: dict[Key, None] = {}
    while len(keys) < count:
        keys[Key(values.randrange(4), values.randrange(8), values.randrange(64))] = None
        base = values.choice(list(keys))
        keys[base._replace(aidx=values.getrandbits(24))] = None
        keys[base._replace(object=values.randrange(16))] = None
        keys[base._replace(slot=values.randrange(64))] = None
    return list(keys)[:count]


@cocotb.test()
async def a_fill_is_found(dut):
    """As many keys as a set has ways, each filled once, are all found with their own LIdx."""
    tb = TlbEnv(dut)
    await tb.bench.start()
    ways = tb.bench.params.get("ways", 2)
    values = tb.bench.random("keys")
    for key in _keys(values, 40):
        tb.look(key)
        assert (await tb.settle())[0][1] == 0, f"{key} must miss after a flush"
        others = [key._replace(aidx=key.aidx ^ 1 << bit) for bit in range(20)][: ways - 1]
        for number, one in enumerate([key, *others]):
            tb.fill(one, values.getrandbits(24))
            if number == 0:
                await tb.settle()
        await tb.settle()
        tb.look(key)
        ((_, hit, lidx),) = await tb.settle()
        assert hit and lidx == tb.known[key], f"{key}: must be found"
        tb.flush(None)
        await tb.settle()
    tb.bench.check()


@cocotb.test()
async def similar_keys_are_told_apart(dut):
    """A key that differs in one bit or two of object, slot and AIdx is not found."""
    tb = TlbEnv(dut)
    await tb.bench.start()
    key = Key(5, 21, 0x2AAAAA)
    tb.fill(key, 0x123456)
    await tb.settle()
    bits = [(field, bit) for field, width in zip(Key._fields, (4, 6, 24), strict=True)
            for bit in range(width)]  # fmt: skip
    for first in bits:
        for second in bits:
            other = key
            for field, bit in {first, second}:
                other = other._replace(**{field: getattr(other, field) ^ 1 << bit})
            tb.look(other)
    tb.look(key)
    results = await tb.settle()
    assert [hit for _, hit, _ in results] == [0] * len(bits) ** 2 + [1]
    tb.bench.check()


@cocotb.test()
async def a_full_set_gives_way(dut):
    """Many fills of one object: hits stay right, and all entries are in use in the end."""
    tb = TlbEnv(dut)
    await tb.bench.start()
    entries = tb.bench.params.get("entries", 16)
    values = tb.bench.random("fills")
    keys = [Key(1, slot, aidx) for aidx in range(4 * entries) for slot in range(4)]
    for key in keys:
        tb.fill(key, values.getrandbits(24))
    await tb.settle()
    for key in keys:
        tb.look(key)
    hits = sum(hit for _, hit, _ in await tb.settle())
    assert hits == entries, f"{entries} entries hold {hits} keys"
    tb.bench.check()


@cocotb.test()
async def flush_forgets_one_object(dut):
    """Flushing an object forgets its keys, and no others as long as its epoch does not wrap."""
    tb = TlbEnv(dut)
    await tb.bench.start()
    for turn in range(9):
        keys = [Key(number, 3, 7) for number in (2, 9)]
        for key in keys:
            tb.look(key)
        for key, hit, _ in await tb.settle():
            if not hit:
                tb.fill(key, 100 * turn + key.object)
        await tb.settle()
        tb.flush(2)
        await tb.settle()
        for key in keys:
            tb.look(key)
        (_, flushed, _), (_, kept, _) = await tb.settle()
        assert not flushed, f"turn {turn}: found after its flush"
        assert kept or turn % 4 == 3, f"turn {turn}: another object was forgotten"
    tb.flush(None)
    await tb.settle()
    tb.look(Key(9, 3, 7))
    assert not (await tb.settle())[0][1], "found after a flush of everything"
    tb.bench.check()


@cocotb.test()
async def a_fill_meets_its_lookup(dut):
    """A lookup sees a fill of its key in the cycle in which it enters; results never change."""
    tb = TlbEnv(dut)
    await tb.bench.start()
    found = []
    for delay in range(6):
        key, same_set = Key(3, delay, 1000 + delay), Key(3, delay, 5000 + delay)
        tb.look(key)
        await tb.bench.cycles(delay)
        tb.fill(key, 500 + delay)
        tb.fill(same_set, 77)
        found.append((await tb.settle())[0][1])
        tb.look(key)
        tb.look(same_set)
        assert [hit for _, hit, _ in await tb.settle()] == [1, 1]
    if not tb.bench.stall_probability:
        assert found == sorted(found, reverse=True), f"hits by lateness of the fill: {found}"
        assert 0 < sum(found) < len(found)
    tb.bench.check()


@cocotb.test()
async def random_traffic(dut):
    """Lookups, fills of what missed, and flushes at random: never a wrong LIdx."""
    tb = TlbEnv(dut)
    await tb.bench.start()
    values = tb.bench.random("traffic")
    keys = _keys(values, 60)
    hits = looks = 0
    for turn in range(150):
        for key in values.choices(keys[:20] if turn % 3 else keys, k=values.randint(1, 6)):
            tb.look(key)
        results = await tb.settle()
        hits += sum(hit for _, hit, _ in results)
        looks += len(results)
        for key in dict.fromkeys(key for key, hit, _ in results if not hit):
            if key not in {key for key, hit, _ in results if hit}:
                tb.fill(key, values.getrandbits(24))
        if values.random() < 0.05:
            tb.flush(values.choice([None, 0, 1, 2, 3]))
        await tb.settle()
    assert hits > looks // 5, f"only {hits} hits in {looks} lookups"
    tb.bench.check()


@cocotb.test()
async def one_lookup_a_cycle(dut):
    """Without stalls a result comes in every cycle."""
    tb = TlbEnv(dut)
    await tb.bench.start()
    key = Key(1, 2, 3)
    tb.fill(key, 4)
    await tb.settle()
    for _ in range(100):
        tb.look(key)
    await tb.settle()
    if not tb.bench.stall_probability:
        assert tb.source.last_cycle - tb.source.first_cycle == 99
        assert tb.sink.last_cycle - tb.sink.first_cycle == 99
    tb.bench.check()


@cocotb.test()
async def reset_forgets(dut):
    """After a reset nothing is found."""
    tb = TlbEnv(dut)
    await tb.bench.start()
    keys = [Key(2, 1, aidx) for aidx in range(8)]
    for key in keys:
        tb.fill(key, 9)
    await tb.settle()
    await tb.bench.reset()
    tb._asked.clear()
    for key in keys:
        tb.look(key)
    assert not any(hit for _, hit, _ in await tb.settle())
    tb.bench.check()
