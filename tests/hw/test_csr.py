"""The CSR bank against its declaration, in Amaranth's simulator."""

import random
from dataclasses import replace
from typing import Any

import pytest
from amaranth import Module, Signal, Value
from amaranth.hdl import Elaboratable
from amaranth.lib.memory import Memory
from amaranth.sim import Simulator

from dysharp.hw.csr import CsrBank, Response
from dysharp.hw.register_map import Access, Field, Register, RegisterMap, Window

SMALL = RegisterMap(
    "small",
    (
        Register(
            "identity", 0x00, (Field("identity", 0, 32, "who"),), "Who.", Access.CONSTANT, 0xC0FFEE
        ),
        Register("mode", 0x04, (Field("low", 0, 5, ""), Field("high", 12, 20, "")), "Mode."),
        Register("wide", 0x08, (Field("wide", 0, 72, ""),), "Three words."),
        Register("level", 0x14, (Field("level", 0, 16, ""),), "Level.", Access.STATUS),
        Register("go", 0x18, (Field("a", 0, 4, ""), Field("b", 8, 1, "")), "Go.", Access.COMMAND),
        Register("seen", 0x20, (Field("x", 1, 1, ""), Field("y", 5, 1, "")), "", Access.STICKY),
        Register(
            "first", 0x24, (Field("valid", 0, 1, ""), Field("code", 8, 40, "")), "", Access.FIRST
        ),
        Register(
            "beats", 0x40, (Field("beats", 0, 32, ""),), "Beats.", Access.COUNTER, step_bits=3
        ),
    ),
    (
        Window(
            "flops",
            0x400,
            3,
            (
                Register("base", 0x0, (Field("base", 0, 48, ""),), ""),
                Register("control", 0xC, (Field("valid", 0, 1, ""),), ""),
            ),
            "Answers in the same cycle.",
        ),
        Window(
            "ram",
            0x800,
            8,
            (
                Register("a", 0x0, (Field("a", 0, 32, ""),), ""),
                Register("b", 0x4, (Field("b", 0, 32, ""),), ""),
            ),
            "Answers a cycle later.",
        ),
        Window(
            "blind",
            0xA00,
            4,
            (Register("a", 0x0, (Field("a", 0, 32, ""),), ""),),
            "Cannot be read.",
            readable=False,
        ),
    ),
    "A map with one of each.",
)


class Bench(Elaboratable):
    """A bank with a table of flip-flops and one of RAM behind its windows."""

    def __init__(self):
        self.bank: Any = CsrBank(registers=SMALL)
        self.bus = self.bank.bus
        self.blind = [Signal(32, name=f"blind{k}") for k in range(4)]

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = bank = self.bank
        flops = [[Signal(32, name=f"flop{e}_{w}") for w in range(4)] for e in range(3)]
        for entry, words in enumerate(flops):
            for number, word in enumerate(words):
                here = (bank.flops.index == entry) & (bank.flops.word == number)
                with m.If(here & bank.flops.write_en):
                    m.d.sync += word.eq(bank.flops.write_data)
                with m.If(here):
                    m.d.comb += bank.flops.read_data.eq(word)
        m.submodules.memory = memory = Memory(shape=32, depth=16, init=[])
        write, read = memory.write_port(), memory.read_port()
        address = bank.ram.word + 2 * bank.ram.index
        m.d.comb += [
            write.addr.eq(address),
            write.en.eq(bank.ram.write_en),
            write.data.eq(bank.ram.write_data),
            read.addr.eq(address),
            read.en.eq(1),
            bank.ram.read_data.eq(read.data),
        ]
        for index, word in enumerate(self.blind):
            with m.If(bank.blind.write_en & (bank.blind.index == index)):
                m.d.sync += word.eq(bank.blind.write_data)
        return m


class Master:
    """Drives the bus; each wait is a number of cycles, or random with ``stalls``."""

    def __init__(self, ctx, bus, stalls: random.Random | None = None):
        self.ctx, self.bus, self.stalls = ctx, bus, stalls

    async def _pause(self):
        if self.stalls and self.stalls.random() < 0.5:
            await self.ctx.tick().repeat(self.stalls.randrange(1, 6))

    async def _send(self, valid, ready, **payload):
        await self._pause()
        for name, value in payload.items():
            self.ctx.set(getattr(self.bus, name), value)
        self.ctx.set(valid, 1)
        await self.ctx.tick().until(ready)
        self.ctx.set(valid, 0)

    async def address(self, address):
        await self._send(self.bus.awvalid, self.bus.awready, awaddr=address)

    async def data(self, value, strobes=0xF):
        await self._send(self.bus.wvalid, self.bus.wready, wdata=value, wstrb=strobes)

    async def written(self) -> int:
        await self._pause()
        self.ctx.set(self.bus.bready, 1)
        (response,) = await self.ctx.tick().sample(self.bus.bresp).until(self.bus.bvalid)
        self.ctx.set(self.bus.bready, 0)
        return response

    async def write(self, address, value, strobes=0xF) -> int:
        await self.address(address)
        await self.data(value, strobes)
        return await self.written()

    async def read(self, address) -> tuple[int, int]:
        await self._send(self.bus.arvalid, self.bus.arready, araddr=address)
        await self._pause()
        self.ctx.set(self.bus.rready, 1)
        value, response = await (
            self.ctx.tick().sample(self.bus.rdata, self.bus.rresp).until(self.bus.rvalid)
        )
        self.ctx.set(self.bus.rready, 0)
        return value, response


OKAY, SLVERR = Response.OKAY.value, Response.SLVERR.value


def simulate(testbench, *others):
    """Run ``testbench(ctx, bench, master)``, with others beside it."""
    bench = Bench()
    simulator = Simulator(bench)
    simulator.add_clock(1e-6)

    async def main(ctx):
        await testbench(ctx, bench, Master(ctx, bench.bus))

    simulator.add_testbench(main)
    for other in others:

        async def beside(ctx, other=other):
            await other(ctx, bench)

        simulator.add_testbench(beside)
    simulator.run()


def test_constant_status_and_refusals():
    async def main(ctx, bench, master):
        ctx.set(bench.bank.level, 0x1234)
        assert await master.read(0x00) == (0xC0FFEE, OKAY)
        assert await master.read(0x14) == (0x1234, OKAY)
        assert await master.write(0x00, 1) == SLVERR
        assert await master.write(0x14, 1) == SLVERR
        assert await master.read(0x18) == (0, SLVERR), "a command is not read"
        for hole in (0x1C, 0x30, 0x44, 0x200, 0x408, 0x430, 0x840, 0xC00):
            assert await master.read(hole) == (0, SLVERR), hex(hole)
            assert await master.write(hole, 1) == SLVERR, hex(hole)
        assert await master.read(0x00) == (0xC0FFEE, OKAY)

    simulate(main)


def test_strobes_write_bytes_and_reserved_bits_read_zero():
    async def main(ctx, bench, master):
        assert await master.write(0x04, 0xFFFFFFFF) == OKAY
        assert await master.read(0x04) == (SMALL["mode"].mask, OKAY)
        assert await master.write(0x04, 0, strobes=0b0100) == OKAY
        assert await master.read(0x04) == (0xFF00F01F, OKAY)
        assert await master.write(0x04, 0, strobes=0) == OKAY
        assert await master.read(0x04) == (0xFF00F01F, OKAY)
        assert ctx.get(bench.bank.mode.low) == 0x1F
        for address, value in zip(range(0x08, 0x14, 4), (1, 2, 0xFFF03), strict=True):
            assert await master.write(address, value) == OKAY
        assert ctx.get(bench.bank.wide) == 3 << 64 | 2 << 32 | 1
        assert await master.read(0x10) == (3, OKAY)

    simulate(main)


def test_command_lasts_one_cycle():
    pulses = []

    async def watch(ctx, bench):
        for _ in range(30):
            *_, value = await ctx.tick().sample(Value.cast(bench.bank.go))
            pulses.append(value)

    async def main(ctx, bench, master):
        assert await master.write(0x18, 0xFFF) == OKAY
        assert await master.write(0x18, 0xFFF, strobes=0b10) == OKAY
        await ctx.tick().repeat(4)

    simulate(main, watch)
    assert [value for value in pulses if value] == [0x10F, 0x100]


def test_sticky_bit_survives_a_clear_in_the_same_cycle():
    async def main(ctx, bench, master):
        ctx.set(bench.bank.seen.x, 1)
        ctx.set(bench.bank.seen.y, 1)
        await ctx.tick()
        ctx.set(bench.bank.seen.y, 0)
        assert await master.read(0x20) == (0b100010, OKAY)
        assert await master.write(0x20, 0xFF) == OKAY
        assert await master.read(0x20) == (0b000010, OKAY)
        assert ctx.get(bench.bank.seen_held.x) == 1 and ctx.get(bench.bank.seen_held.y) == 0
        ctx.set(bench.bank.seen.x, 0)
        assert await master.write(0x20, 0b100000) == OKAY
        assert await master.read(0x20) == (0b000010, OKAY)
        assert await master.write(0x20, 0b000010) == OKAY
        assert await master.read(0x20) == (0, OKAY)

    simulate(main)


def test_first_error_is_kept_until_rearmed():
    async def main(ctx, bench, master):
        first = bench.bank.first
        for code in (0xAB_CDEF0123, 7):
            ctx.set(first.valid, 1)
            ctx.set(first.code, code)
            await ctx.tick()
        ctx.set(first.valid, 0)
        assert await master.read(0x24) == (0xEF012301, OKAY)
        assert await master.read(0x28) == (0xABCD, OKAY)
        assert await master.write(0x24, 1) == OKAY
        assert await master.read(0x24) == (0, OKAY)
        ctx.set(first.valid, 1)
        await ctx.tick()
        assert await master.read(0x24) == (0x0701, OKAY)

    simulate(main)


def test_counter_adds_steps_and_loses_none_when_cleared():
    async def main(ctx, bench, master):
        ctx.set(bench.bank.events.beats, 5)
        await ctx.tick().repeat(100)
        ctx.set(bench.bank.events.beats, 0)
        assert await master.read(0x40) == (500, OKAY)
        ctx.set(bench.bank.events.beats, 1)
        await master.write(0x40, 0)
        ctx.set(bench.bank.events.beats, 0)
        count, _ = await master.read(0x40)
        assert 1 <= count <= 4
        assert await master.write(0x40, 9, strobes=0) == OKAY
        assert await master.read(0x40) == (count, OKAY)

    simulate(main)


def test_windows_take_whole_words_only():
    async def main(ctx, bench, master):
        flops, ram = SMALL.window("flops"), SMALL.window("ram")
        for address, value in flops.writes(2, "base", base=0xFEDC_BA987654):
            assert await master.write(address, value) == OKAY
        assert await master.write(flops.address(2, "base"), 0, strobes=0b0011) == SLVERR
        assert await master.write(flops.address(2, "base"), 0, strobes=0) == OKAY
        assert await master.read(flops.address(2, "base")) == (0xBA987654, OKAY)
        assert await master.read(flops.address(2, "base") + 4) == (0xFEDC, OKAY)
        assert await master.read(flops.address(1, "base")) == (0, OKAY)
        for index in range(8):
            await master.write(ram.address(index, "a"), index)
            await master.write(ram.address(index, "b"), 100 + index)
        for index in range(8):
            assert await master.read(ram.address(index, "a")) == (index, OKAY)
            assert await master.read(ram.address(index, "b")) == (100 + index, OKAY)
        blind = SMALL.window("blind").address(3, "a")
        assert await master.write(blind, 77) == OKAY
        assert await master.read(blind) == (0, SLVERR)
        assert ctx.get(bench.blind[3]) == 77

    simulate(main)


def test_data_may_come_before_its_address():
    async def main(ctx, bench, master):
        await master.data(21)
        await ctx.tick().repeat(3)
        assert ctx.get(bench.bank.mode.low) == 0
        await master.address(0x04)
        assert await master.written() == OKAY
        assert ctx.get(bench.bank.mode.low) == 21

    simulate(main)


def test_answers_wait_and_later_accesses_are_held():
    """A second write must not be executed while the first answer is still on the bus."""

    async def main(ctx, bench, master):
        await master.address(0x04)
        await master.data(1)
        await master.address(0x04)
        await master.data(2)
        await ctx.tick().repeat(5)
        assert ctx.get(bench.bank.mode.low) == 1
        assert await master.written() == OKAY
        assert await master.written() == OKAY
        assert ctx.get(bench.bank.mode.low) == 2

    simulate(main)


@pytest.mark.parametrize("seed", range(4))
def test_random_accesses_with_stalls_follow_a_dictionary(seed):
    """Writes and reads at random times on both sides; every read shows what was acked before."""
    rng = random.Random(seed)
    ram = SMALL.window("ram")
    shadow: dict[int, int] = {}

    async def main(ctx, bench, master):
        master.stalls = random.Random(seed)
        reader = Master(ctx, bench.bus, random.Random(seed + 100))
        for _ in range(120):
            register = rng.choice("ab")
            address = ram.address(rng.randrange(8), register)
            if rng.random() < 0.5 or address not in shadow:
                value = rng.getrandbits(32)
                assert await master.write(address, value) == OKAY
                shadow[address] = value
            else:
                assert await reader.read(address) == (shadow[address], OKAY)

    simulate(main)


def test_reads_pass_beside_writes_that_never_stop():
    """Neither direction starves the other, and each keeps its own answers."""
    ram = SMALL.window("ram")
    done = []

    async def write(ctx, bench):
        master = Master(ctx, bench.bus)
        await master.write(ram.address(6, "b"), 0x5A)
        number = 0
        while len(done) < 50:
            await master.write(ram.address(number % 4, "a"), number)
            number += 1

    async def main(ctx, bench, master):
        await ctx.tick().repeat(10)
        for _ in range(50):
            assert await master.read(ram.address(6, "b")) == (0x5A, OKAY)
            done.append(1)

    simulate(main, write)
    assert len(done) == 50


def test_declaration_checks():
    with pytest.raises(ValueError, match="ascending and apart"):
        Register("x", 0, (Field("a", 0, 4, ""), Field("b", 3, 4, "")), "")
    with pytest.raises(ValueError, match="must fit 5 bits, not 32"):
        SMALL["mode"].pack(low=32)
    with pytest.raises(ValueError, match="must have the field, not 'middle'"):
        SMALL["mode"].pack(middle=1)
    with pytest.raises(ValueError, match="Base of flops must be a multiple of 0x40"):
        replace(SMALL.window("flops"), base=0x410)
    with pytest.raises(ValueError, match="Entry of flops must be below 3, not 3"):
        SMALL.window("flops").address(3, "base")
    with pytest.raises(KeyError, match="must have the register, not 'x'"):
        SMALL["x"]
    with pytest.raises(ValueError, match="Parts of small must be ascending and apart"):
        replace(SMALL, windows=SMALL.windows[::-1])


def test_pack_and_unpack_are_inverse():
    fields = {"low": 9, "high": 0xABCDE}
    assert SMALL["mode"].unpack(SMALL["mode"].pack(**fields)) == fields
