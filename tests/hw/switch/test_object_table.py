"""The object table as software writes it and as an ingress reads it."""

from __future__ import annotations

import random

import pytest
from amaranth.sim import Simulator

from dysharp.hw.switch.object_table import ObjectTable


def run(table, process):
    """Run ``process`` against the table."""
    simulator = Simulator(table)
    simulator.add_clock(1e-9)
    simulator.add_testbench(process)
    simulator.run()


async def write(ctx, table, index, **registers):
    """Write whole registers of an entry through the window."""
    for name, values in registers.items():
        for address, word in table.words.writes(index, name, **values):
            offset = address - table.words.base
            ctx.set(table.window.index, offset // table.words.stride)
            ctx.set(table.window.word, offset % table.words.stride // 4)
            ctx.set(table.window.write_data, word)
            ctx.set(table.window.write_en, 1)
            await ctx.tick()
    ctx.set(table.window.write_en, 0)


def read(ctx, table, index, name):
    """A register of an entry, read back."""
    value = 0
    register = table.words[name]
    for word in range(register.words):
        ctx.set(table.window.index, index)
        ctx.set(table.window.word, register.word + word)
        value |= ctx.get(table.window.read_data) << 32 * word
    return register.unpack(value)


@pytest.mark.parametrize(("gpus", "objects"), [(4, 16), (33, 2), (72, 4)])
def test_what_is_written_is_read_and_shown(gpus, objects):
    table = ObjectTable(gpus=gpus, objects=objects)
    values = random.Random(gpus)

    async def process(ctx):
        for _ in range(12):
            index = values.randrange(objects)
            members, group = values.getrandbits(gpus), values.getrandbits(gpus)
            attr = values.getrandbits(8) & 0x80 | 0x18
            base, size = values.getrandbits(48), values.getrandbits(48)
            others = [ctx.get(table.entries[k]).as_bits() for k in range(objects) if k != index]
            await write(
                ctx,
                table,
                index,
                base={"base": base},
                size={"size": size},
                members={"members": members},
                group={"group": group},
                route={"split": 5, "slots": 1024, "attr": attr},
                control={"valid": 1},
            )
            await ctx.tick()
            entry = ctx.get(table.entries[index])
            assert (entry.base, entry.size, entry.valid) == (base, size, 1)
            assert (entry.members, entry.group) == (members, group)
            assert entry.group_size == group.bit_count()
            assert (entry.split, entry.slots, entry.attr.as_bits()) == (5, 1024, attr)
            assert read(ctx, table, index, "members") == {"members": members}
            assert read(ctx, table, index, "base") == {"base": base}
            assert read(ctx, table, index, "route")["slots"] == 1024
            assert others == [
                ctx.get(table.entries[k]).as_bits() for k in range(objects) if k != index
            ]
        await write(ctx, table, 0, control={"valid": 0})
        assert not ctx.get(table.entries[0]).valid

    run(table, process)


def test_all_entries_are_invalid_after_reset():
    table = ObjectTable(gpus=4, objects=3)

    async def process(ctx):
        assert not any(ctx.get(table.entries[k]).valid for k in range(3))

    run(table, process)


def test_wrong_sizes_are_refused():
    with pytest.raises(ValueError, match="GPUs must be from 2 to 72, not 73"):
        ObjectTable(gpus=73, objects=1)
    with pytest.raises(ValueError, match="Objects must be from 1 to 16, not 17"):
        ObjectTable(gpus=4, objects=17)
