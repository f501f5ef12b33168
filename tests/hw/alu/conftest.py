"""Verilated ALUs: flits in, results out."""

import itertools
import subprocess
from collections.abc import Callable, Iterable
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
from dysharp.model.numerics import attr_bits, elements, flit
from dysharp.sim_tb.exact_sums import FORMATS, exact_sum
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


class FlitPlayer:
    """A verilated check of an ALU that takes a flit a cycle.

    Parameters
    ----------
    folder : where the program is built
    check : with ``attr``, ``load``, ``operand`` and ``o``, and ``slot`` if it has several sums
    """

    def __init__(self, folder: Path, check: Component):
        self.folder = folder
        text, _ = elaborate(check, "check")
        (folder / "check.il").write_text(text)
        run_yosys("read_rtlil check.il; proc; opt; write_verilog check.v", folder=folder)
        source = Path(__file__).with_name("flit_player.cpp")
        slots = int(hasattr(check, "slot"))
        command = ["verilator", "--cc", "--exe", "--build", "-Wno-lint", "--top-module"]
        command += ["check", "-CFLAGS", f"-O1 -DSLOTS={slots}", "check.v", str(source)]
        environment = find_simulator(optimize=True).environment
        done = subprocess.run(
            [*command, "-o", "player"], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]

    def play(self, records: Iterable[tuple[int, int, int, int]], latency: int) -> list[int]:
        """What comes out ``latency`` cycles after each record: attr, load, slot, operand."""
        text = b"".join(bytes([*head, 0]) + flit.to_bytes(16, "little") for *head, flit in records)
        (self.folder / "input").write_bytes(text + bytes(20 * latency))
        subprocess.run(["obj_dir/player", "input", "output"], cwd=self.folder, check=True)
        output = (self.folder / "output").read_bytes()[16 * latency :]
        return [int.from_bytes(output[at : at + 16], "little") for at in range(0, len(output), 16)]


@pytest.fixture(scope="session")
def flit_player(tmp_path_factory) -> Callable[[Component], FlitPlayer]:
    """Builds the player of a check."""
    return lambda check: FlitPlayer(tmp_path_factory.mktemp("player"), check)


class ExactPlayer:
    """Sums lists of flits, and lists of numbers, in order ``exact``.

    Parameters
    ----------
    player : of an :class:`ExactCheck`
    """

    def __init__(self, player: FlitPlayer):
        self.player = player

    def reduce(self, lists: list[tuple[int, list[int]]]) -> list[int]:
        """Result of each list of flits, each with its attr; several at once, interleaved."""
        records: list[tuple[int, int, int, int]] = []
        ends: list[tuple[int, int]] = []
        waiting = list(enumerate(lists))
        running: list[tuple[int, int, list[int], int] | None] = [None] * SLOTS
        while waiting or any(running):
            for slot in range(SLOTS):
                if running[slot] is None and waiting:
                    number, (attr, flits) = waiting.pop(0)
                    running[slot] = (number, attr, flits, 0)
                if (now := running[slot]) is None:
                    records.append((0, 1, slot, 0))
                    continue
                number, attr, flits, at = now
                if at + 1 == len(flits):
                    ends.append((number, len(records)))
                running[slot] = (number, attr, flits, at + 1) if at + 1 < len(flits) else None
                records.append((attr, at == 0, slot, flits[at]))
        played = self.player.play(records, ExactCheck.latency)
        return [played[cycle] for _, cycle in sorted(ends)]

    def sums_of(self, form: str, lists: list[list[int]]) -> list[int]:
        """Sum of each list of numbers; lists of one length go side by side."""
        dtype = Dtype[form.removesuffix("_ftz").upper()]
        lanes = FLIT_BITS // FORMATS[form].bits
        packed: list[tuple[int, list[int]]] = []
        places: list[tuple[int, int]] = [(0, 0)] * len(lists)
        by_length = sorted(range(len(lists)), key=lambda number: len(lists[number]))
        for _, same in itertools.groupby(by_length, key=lambda number: len(lists[number])):
            group = list(same)
            for start in range(0, len(group), lanes):
                batch = group[start : start + lanes]
                rows = zip(*(lists[number] for number in batch), strict=True)
                idle = [0] * (lanes - len(batch))
                for lane, number in enumerate(batch):
                    places[number] = (len(packed), lane)
                packed.append((attr_bits(dtype), [flit([*row, *idle], dtype) for row in rows]))
        results = [elements(result, dtype) for result in self.reduce(packed)]
        return [results[k][lane] for k, lane in places]

    def check(self, form: str, lists: list[list[int]]) -> None:
        """Each list's sum is that of the fractions."""
        digits = FORMATS[form].bits // 4
        for numbers, got in zip(lists, self.sums_of(form, lists), strict=True):
            wanted = exact_sum(numbers, FORMATS[form])
            shown = " ".join(f"{number:0{digits}x}" for number in numbers)
            assert got == wanted, f"{form} {shown}: {got:0{digits}x}, not {wanted:0{digits}x}"


@pytest.fixture(scope="session")
def exact_player(flit_player) -> Callable[..., ExactPlayer]:
    """Builds a player; the same one for the same arguments."""
    built: dict[str, ExactPlayer] = {}

    def build(dtypes: tuple[Dtype, ...] = ALL_DTYPES, **options) -> ExactPlayer:
        name = repr((dtypes, options))
        if name not in built:
            built[name] = ExactPlayer(flit_player(ExactCheck(dtypes, **options)))
        return built[name]

    return build


@pytest.fixture(scope="session")
def everything(exact_player) -> ExactPlayer:
    """Order ``exact`` with all types and room for 128 contributions."""
    return exact_player()
