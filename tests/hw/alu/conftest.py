"""A verilated exact sum: lists of flits in, results out."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from amaranth import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.exact import ExactAlu
from dysharp.hw.alu.exact_rounder import ExactRounder
from dysharp.hw.alu.reductions import ALL_DTYPES
from dysharp.hw.generate import elaborate, run_yosys
from dysharp.hw.memory import Ram
from dysharp.hw.packet import FLIT_BITS, Dtype
from dysharp.hw.share import place
from dysharp.sim_tb.tools import find_simulator

SLOTS = 4
"""Lists that are summed at once, a flit of each in turn."""


class ExactCheck(Component):
    """ALU, accumulators and rounder: ``o`` follows ``operand`` by :attr:`latency` cycles."""

    attr: In(8)
    load: In(1)
    slot: In(range(SLOTS))
    operand: In(FLIT_BITS)
    o: Out(FLIT_BITS)

    latency = ExactAlu.latency + ExactRounder.latency

    def __init__(self, dtypes: tuple[Dtype, ...], **options):
        self.dtypes, self.options = dtypes, options
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        alu = ExactAlu(dtypes=self.dtypes, **self.options)
        rounder = ExactRounder(dtypes=self.dtypes, **self.options)
        words = Ram(width=alu.accumulator_bits, depth=SLOTS, transparent=True)
        for name, part in (("alu", alu), ("rounder", rounder), ("words", words)):
            m.submodules[name] = place(part)

        def later(value, cycles):
            for _ in range(cycles):
                now, value = value, Signal.like(value)
                m.d.sync += value.eq(now)
            return value

        # A read takes as long as the accumulators may come later than the operand.
        m.d.comb += [
            words.read_en.eq(1),
            words.read_addr.eq(self.slot),
            alu.attr.eq(self.attr),
            alu.load.eq(self.load),
            alu.operand.eq(self.operand),
            alu.accumulator.eq(words.read_data),
            words.write_en.eq(1),
            words.write_addr.eq(later(self.slot, alu.latency)),
            words.write_data.eq(alu.result),
            rounder.attr.eq(later(self.attr, alu.latency)),
            rounder.accumulator.eq(alu.result),
            self.o.eq(rounder.o),
        ]
        return m


class Player:
    """The verilated check; sums lists of flits.

    Parameters
    ----------
    folder : where the program is built
    dtypes, options : as for :class:`ExactCheck`
    """

    def __init__(self, folder: Path, dtypes: tuple[Dtype, ...], **options):
        self.folder = folder
        text, _ = elaborate(ExactCheck(dtypes, **options), "exact_check")
        (folder / "exact_check.il").write_text(text)
        run_yosys(
            "read_rtlil exact_check.il; proc; opt; write_verilog exact_check.v", folder=folder
        )
        source = Path(__file__).with_name("exact_player.cpp")
        command = ["verilator", "--cc", "--exe", "--build", "-Wno-lint", "-O3", "--top-module"]
        command += ["exact_check", "-CFLAGS", "-O1", "exact_check.v", str(source), "-o", "player"]
        environment = find_simulator(optimize=True).environment
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]

    def reduce(self, lists: list[tuple[int, list[int]]]) -> list[int]:
        """Result of each list of flits, each with its attr; several at once, interleaved."""
        records, ends = bytearray(), []
        waiting = list(enumerate(lists))
        running: list[tuple[int, int, list[int], int] | None] = [None] * SLOTS
        results = [0] * len(lists)
        cycle = 0
        while waiting or any(running):
            for slot in range(SLOTS):
                if running[slot] is None and waiting:
                    number, (attr, flits) = waiting.pop(0)
                    running[slot] = (number, attr, flits, 0)
                if (now := running[slot]) is None:
                    records += bytes([0, 1, slot, 0]) + bytes(16)
                else:
                    number, attr, flits, at = now
                    records += bytes([attr, at == 0, slot, 0]) + flits[at].to_bytes(16, "little")
                    running[slot] = (number, attr, flits, at + 1)
                    if at + 1 == len(flits):
                        ends.append((number, cycle))
                        running[slot] = None
                cycle += 1
        records += bytes(20 * ExactCheck.latency)
        (self.folder / "input").write_bytes(records)
        subprocess.run(["obj_dir/player", "input", "output"], cwd=self.folder, check=True)
        output = (self.folder / "output").read_bytes()
        for number, cycle in ends:
            at = 16 * (cycle + ExactCheck.latency)
            results[number] = int.from_bytes(output[at : at + 16], "little")
        return results


@pytest.fixture(scope="session")
def exact_player(tmp_path_factory) -> Callable[..., Player]:
    """Builds a player; the same one for the same arguments."""
    built: dict[str, Player] = {}

    def build(dtypes: tuple[Dtype, ...] = ALL_DTYPES, **options) -> Player:
        name = repr((dtypes, options))
        if name not in built:
            built[name] = Player(tmp_path_factory.mktemp("exact"), dtypes, **options)
        return built[name]

    return build
