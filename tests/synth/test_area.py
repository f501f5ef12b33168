"""Area of small designs whose cells can be counted by hand."""

import json
import re
from typing import Any

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dysharp.hw import generate
from dysharp.hw.config import load_preset
from dysharp.hw.errors import UserError
from dysharp.hw.memory import Ram
from dysharp.hw.share import place
from dysharp.synth import yosys
from dysharp.synth.area import report
from dysharp.synth.liberty import read_library
from dysharp.synth.netlist import read_rtlil

TINY = load_preset("tiny")


class Delay(wiring.Component):
    """``width`` flip-flops and nothing else."""

    i: Any
    o: Any

    def __init__(self, *, width: int):
        self.width = width
        super().__init__({"i": In(width), "o": Out(width)})

    @property
    def module_name(self) -> str:
        return f"delay_{self.width}"

    def elaborate(self, platform):
        m = Module()
        held = Signal(self.width, reset_less=True)
        m.d.sync += held.eq(self.i)
        m.d.comb += self.o.eq(held)
        return m


class Toy(wiring.Component):
    """Three delays in a row, one xor a bit, and two equal RAMs."""

    i: Any
    a: Any
    o: Any
    r: Any

    def __init__(self):
        super().__init__({"i": In(8), "a": In(4), "o": Out(8), "r": Out(8)})

    def elaborate(self, platform):
        m = Module()
        last = self.i
        for number in range(3):
            delay = Delay(width=8)
            m.submodules[f"delay{number}"] = place(delay)
            m.d.comb += delay.i.eq(last)
            last = delay.o
        m.d.comb += self.o.eq(last ^ self.i)
        data = self.i
        for number in range(2):
            ram = Ram(width=8, depth=16)
            m.submodules[f"ram{number}"] = place(ram)
            m.d.comb += [
                ram.write_en.eq(1),
                ram.write_addr.eq(self.a),
                ram.write_data.eq(data),
                ram.read_en.eq(1),
                ram.read_addr.eq(self.a),
            ]
            data = ram.read_data
        m.d.comb += self.r.eq(data)
        return m


class Forgotten(wiring.Component):
    """A memory that is not a Ram."""

    a: Any
    o: Any

    def __init__(self):
        super().__init__({"a": In(4), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=8, depth=16, init=[1, 2, 3])
        read = memory.read_port()
        m.d.comb += [read.addr.eq(self.a), self.o.eq(read.data)]
        return m


TRISTATE = """
module \\held
  wire input 1 \\e
  wire input 2 \\d
  wire output 3 \\q
  cell $tribuf \\t
    parameter \\WIDTH 1
    connect \\EN \\e
    connect \\A \\d
    connect \\Y \\q
  end
end
"""


def toy_block(config):
    return Toy()


def forgotten_block(config):
    return Forgotten()


@pytest.fixture(autouse=True)
def blocks(monkeypatch):
    for name in ("toy", "forgotten"):
        monkeypatch.setitem(generate.BLOCKS, name, (__name__, f"{name}_block"))


def test_toy_is_counted_cell_by_cell(tmp_path):
    result = report(TINY, "toy", out_dir=tmp_path, cache=None)
    paths = dict(result.tree.walk())
    dff, xor = (read_library().ge(name) for name in ("DFF", "XOR2"))
    assert paths["toy/delay_8"].instances == 3
    assert paths["toy/delay_8"].ge == pytest.approx(3 * 8 * dff)
    assert paths["toy"].own_ge == pytest.approx(8 * xor)
    assert paths["toy/ram_16x8"].memory_bits == result.memory_bits == 2 * 16 * 8
    assert result.total_ge == pytest.approx(24 * dff + 8 * xor)


def test_files(tmp_path):
    result = report(TINY, "toy", out_dir=tmp_path, cache=None)
    written = json.loads((tmp_path / "area.json").read_text())
    assert written["total_ge"] == pytest.approx(result.total_ge)
    assert written["memory_bits"] == 256
    assert written["blocks"]["toy/delay_8"] == {
        "ge": 136.08,
        "own_ge": 136.08,
        "memory_bits": 0,
        "instances": 3,
    }
    assert written["config"]["name"] == "tiny"
    table = (tmp_path / "area.txt").read_text()
    assert table.splitlines()[0].split() == ["block", "instances", "GE", "%", "memory", "bits"]
    assert re.search(r"^  delay_8 +3 +136 ", table, re.M)
    assert "1 = NAND2 of cells.lib, area 1" in table
    assert (tmp_path / "area.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "area.svg").read_text()
    summary = result.summary()
    assert list(summary) == ["total_ge", "memory_bits", "blocks"]
    assert set(summary["blocks"]) == {"delay", "own logic", "ram"}


def test_flipflop_memories_count_as_cells(tmp_path):
    config = load_preset("tiny", memory="flipflops")
    result = report(config, "toy", out_dir=tmp_path, cache=None)
    assert result.memory_bits == 0
    assert dict(result.tree.walk())["toy/ram_16x8"].ge > 2 * 16 * 8 * read_library().ge("DFF")


def test_a_memory_that_is_not_a_ram_is_refused(tmp_path):
    with pytest.raises(UserError, match="must be a macro, or it becomes flip-flops"):
        report(TINY, "forgotten", out_dir=tmp_path, cache=None)


def test_unknown_block(tmp_path):
    with pytest.raises(UserError, match="block: Block must be one of"):
        report(TINY, "nothing", out_dir=tmp_path)


POOR = """
library (poor) {
  cell (I) { area : 1; pin (A) { direction : input; }
    pin (Y) { direction : output; function : "!A"; } }
  cell (B) { area : 1; pin (A) { direction : input; }
    pin (Y) { direction : output; function : "A"; } }
  cell (N) { area : 2; pin (A) { direction : input; } pin (B) { direction : input; }
    pin (Y) { direction : output; function : "!(A*B)"; } }
}
"""


def test_a_library_without_flipflops(tmp_path):
    library = tmp_path / "poor.lib"
    library.write_text(POOR)
    with pytest.raises(UserError, match=r"poor\.lib: module delay_8 cannot be mapped: .*flip-flop"):
        report(TINY, "toy", liberty=library, out_dir=tmp_path / "out", cache=None)


def test_what_yosys_leaves_unmapped_is_told(tmp_path):
    """Yosys leaves what it has no cell for in place and reports success."""
    library = tmp_path / "poor.lib"
    library.write_text(POOR)
    (module,) = read_rtlil(TRISTATE).values()
    with pytest.raises(UserError, match=r"must have a cell for \$_TBUF_, of which module held"):
        yosys.map_to_cells([module], read_library(library), folder=tmp_path / "out")


def test_results_are_remembered_by_content(tmp_path, monkeypatch):
    first = report(TINY, "toy", out_dir=tmp_path / "first", cache=tmp_path / "cache")

    def broken(*arguments, **options):
        raise AssertionError("nothing is left to map")

    monkeypatch.setattr(yosys, "run_yosys", broken)
    again = report(TINY, "toy", out_dir=tmp_path / "again", cache=tmp_path / "cache")
    assert again.to_dict() == first.to_dict()


def test_a_module_costs_the_same_whatever_is_beside_it(tmp_path):
    """Several modules in one run of Yosys gave areas that depended on their neighbours."""
    text, _ = generate.elaborate(generate.build_block("parser", TINY), "top", memory="macro")
    modules = list(read_rtlil(text).values())
    library = read_library()
    together = yosys.map_to_cells(modules, library, folder=tmp_path / "together")
    largest = max(modules, key=lambda module: len(module.text))
    alone = yosys.map_to_cells([largest], library, folder=tmp_path / "alone")
    assert alone == {largest.name: together[largest.name]}
