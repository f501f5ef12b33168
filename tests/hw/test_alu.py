"""The arithmetic of the reduction: against the host's floats, and as a datapath."""

import random
import subprocess

import pytest
from amaranth import Module
from amaranth.hdl import Fragment
from amaranth.lib.wiring import Component, In, Out
from amaranth.sim import Simulator

from dysharp.hw.alu.adder import FloatAdder
from dysharp.hw.alu.alu import ReductionAlu, ResultRounder
from dysharp.hw.alu.float_format import BF16, F32, FloatFormat, narrow, widen
from dysharp.hw.generate import elaborate, run_yosys
from dysharp.hw.packet import Attr, Dtype, Op
from dysharp.hw.share import place
from dysharp.model import numerics
from dysharp.sim_tb.tools import find_simulator

ATTR = {"dtype": Dtype.BF16, "op": Op.ADD, "acc": 1}


class AluCheck(Component):
    """All arithmetic side by side, for the check in C++."""

    a: In(32)
    b: In(32)
    sum: Out(32)
    bf16: In(16)
    widened: Out(32)
    f32: In(32)
    narrowed: Out(16)

    def elaborate(self, platform):
        m = Module()
        adder = FloatAdder(formats=(F32,), depth=3)
        m.submodules.adder = place(adder)
        m.d.comb += [
            adder.a.eq(self.a),
            adder.b.eq(self.b),
            self.sum.eq(adder.o),
            self.widened.eq(widen(self.bf16, source=BF16, target=F32)),
            self.narrowed.eq(narrow(self.f32, source=F32, target=BF16)),
        ]
        return m


@pytest.fixture(scope="module")
def checker(tmp_path_factory):
    """The program of alu_check.cpp with the verilated arithmetic in it."""
    folder = tmp_path_factory.mktemp("alu")
    text, _ = elaborate(AluCheck(), "alu_check")
    (folder / "alu_check.il").write_text(text)
    run_yosys("read_rtlil alu_check.il; proc; opt; write_verilog alu_check.v", folder=folder)
    source = __file__.replace("test_alu.py", "alu_check.cpp")
    simulator = find_simulator(optimize=True)
    command = ["verilator", "--cc", "--exe", "--build", "-Wno-fatal", "-O3", "--top-module"]
    command += ["alu_check", "-CFLAGS", "-O2", "alu_check.v", source, "-o", "check"]
    done = subprocess.run(
        command, cwd=folder, env=simulator.environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "obj_dir" / "check"


def run_checker(program, millions: int, seed: int) -> str:
    done = subprocess.run([program, str(millions), str(seed)], capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}\n{done.stdout}"
    assert "mismatches 0" in done.stdout
    return done.stdout


def test_arithmetic_is_the_hosts(checker):
    """f32 sums of directed random pairs, every bf16 widened, f32 around every bf16 narrowed."""
    printed = run_checker(checker, 5, 1)
    counts = dict(line.split() for line in printed.splitlines())
    assert int(counts["sums"]) > 5_000_000


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 6))
def test_arithmetic_is_the_hosts_at_length(checker, seed):
    """The same for two hundred million pairs a seed."""
    run_checker(checker, 200, seed)


def simulate(component, process) -> None:
    simulator = Simulator(Fragment.get(component, None))
    simulator.add_clock(1e-9)
    simulator.add_testbench(process)
    simulator.run()


INTERESTING = (0x0000, 0x8000, 0x0001, 0x8001, 0x007F, 0x0080, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F,
               0x7F80, 0xFF80, 0x7F81, 0x7FC0, 0xFFFF)  # fmt: skip


def number(rng: random.Random) -> int:
    return rng.choice(INTERESTING) if rng.random() < 0.3 else rng.getrandbits(16)


def test_flit_every_cycle():
    """Three sums at once, a flit every cycle: each lane of each equals the golden model's."""
    alu, rounder = ReductionAlu(lanes=8), ResultRounder(lanes=8)
    top = Module()
    top.submodules.alu, top.submodules.rounder = alu, rounder
    top.d.comb += [
        alu.accumulator.eq(alu.result),
        alu.attr.eq(Attr.const(ATTR)),
        rounder.accumulator.eq(alu.result),
        rounder.attr.eq(Attr.const(ATTR)),
    ]
    rng = random.Random(7)
    length, rounds = 6, 15
    flits = [[number(rng) for _ in range(8)] for _ in range(alu.latency * length * rounds)]
    sums = [
        flits[start + at : start + alu.latency * length : alu.latency]
        for start in range(0, len(flits), alu.latency * length)
        for at in range(alu.latency)
    ]
    expected = [pack(numerics.reduce_list(column) for column in zip(*s, strict=True)) for s in sums]
    got: list[int] = []

    async def process(ctx):
        for cycle, lanes in enumerate([*flits, *[[0] * 8] * alu.latency]):
            step = cycle // alu.latency % length
            if step == 0 and cycle >= alu.latency:
                got.append(ctx.get(rounder.o))
            ctx.set(alu.load, int(step == 0))
            ctx.set(alu.operand, pack(lanes))
            await ctx.tick()

    simulate(top, process)
    assert got == expected


def pack(lanes) -> int:
    return sum(lane << 16 * k for k, lane in enumerate(lanes))


def test_formats_are_checked():
    """Only formats with exponents of one width can be widened and narrowed into each other."""
    half = FloatFormat("f16", exponent_bits=5, mantissa_bits=10, nan=0x7FFF)
    with pytest.raises(ValueError, match="exponents of one width"):
        widen(0, source=half, target=F32)
    with pytest.raises(ValueError, match="longer mantissa first"):
        narrow(0, source=BF16, target=F32)


@pytest.mark.parametrize("unit", [ReductionAlu, ResultRounder])
def test_lanes_are_checked(unit):
    with pytest.raises(ValueError, match="Lanes must be at least 1, not 0"):
        unit(lanes=0)
