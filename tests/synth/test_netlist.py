"""Hierarchy out of RTLIL, and the tree of areas made of it."""

import pytest

from dysharp.hw.errors import UserError
from dysharp.synth.liberty import read_library
from dysharp.synth.netlist import macro_bits, read_rtlil, used_modules
from dysharp.synth.tree import build_tree


def rtlil(**modules: dict[str, int]) -> str:
    """Text of modules, each with children and how often they occur."""
    parts = ["autoidx 7"]
    for name, children in modules.items():
        parts.append(f"attribute \\keep 1\nmodule \\{name}")
        cells = [child for child, count in children.items() for _ in range(count)]
        for number, child in enumerate(cells):
            parts.append(f"  cell \\{child} \\c{number}\n  end")
        parts.append("end")
    return "\n".join(parts)


DIAMOND = rtlil(
    top={"top__core": 1},
    leaf={},
    ram_8x4={"sram_8x4": 1},
    pair={"leaf": 2, "ram_8x4": 1},
    top__core={"pair": 3, "leaf": 1, "top__core__alu": 1},
    top__core__alu={},
    unused={"leaf": 9},
)


def test_instances_multiply_along_every_path():
    modules = read_rtlil(DIAMOND)
    used = used_modules(modules, "top")
    assert used == {
        "top": 1,
        "top__core": 1,
        "top__core__alu": 1,
        "pair": 3,
        "ram_8x4": 3,
        "leaf": 7,
    }
    assert modules["leaf"].text.startswith("attribute \\keep 1\nmodule \\leaf\n")


def test_memory_that_would_become_flipflops_is_refused():
    """An inferred memory reached Yosys and was built of flip-flops without a word."""
    for line in ("memory width 8 size 4 \\words", "cell $mem_v2 \\words"):
        text = rtlil(top={}).replace("\nend", f"\n  {line}\nend")
        with pytest.raises(UserError, match="Memory in module top must be a macro"):
            read_rtlil(text)


def test_macro_bits():
    assert macro_bits("sram_64x131") == 64 * 131
    assert macro_bits("sram_1024x48_g24") == 1024 * 48
    assert macro_bits("ram_64x131") is None
    assert read_rtlil(DIAMOND)["ram_8x4"].own_bits == 32


def tree():
    modules = read_rtlil(DIAMOND)
    cells = {
        "top": {},
        "top__core": {"NAND2": 10},
        "top__core__alu": {"NAND2": 60},
        "pair": {"NAND2": 2},
        "leaf": {"NAND2": 5, "DFF": 0},
        "ram_8x4": {"INV": 100},
    }
    return build_tree(modules, cells, read_library(), top="top", name="thing")


def test_tree_leaves_the_wrapper_out_and_adds_up():
    root = tree()
    paths = dict(root.walk())
    assert list(paths) == [
        "thing",
        "thing/pair",
        "thing/pair/ram_8x4",
        "thing/pair/leaf",
        "thing/alu",
        "thing/leaf",
    ]
    assert paths["thing/pair/leaf"].instances == 6
    assert paths["thing/pair/leaf"].ge == 30
    assert paths["thing/pair"].ge == pytest.approx(3 * (2 + 10 + 67))
    assert root.memory_bits == 3 * 32
    assert root.ge == pytest.approx(10 + 60 + 5 + 3 * 79)


@pytest.mark.parametrize("share", [0.01, 0.25, 0.6, 1.0])
@pytest.mark.parametrize("least", [0.0, 0.05, 0.5])
def test_parts_are_a_partition(share, least):
    root = tree()
    parts = root.parts(share=share, least=least)
    assert sum(part["ge"] for part in parts.values()) == pytest.approx(root.ge)
    assert sum(part["memory_bits"] for part in parts.values()) == root.memory_bits


def test_names_of_parts_leave_parameters_out_where_they_may():
    assert tree().kinds() == ["pair", "alu", "leaf"]
    modules = read_rtlil(
        rtlil(a={"fifo_4x8": 1, "fifo_8x8": 1, "skid_8": 1}, fifo_4x8={}, fifo_8x8={}, skid_8={})
    )
    cells = {"a": {}, "fifo_4x8": {"DFF": 3}, "fifo_8x8": {"DFF": 2}, "skid_8": {"DFF": 1}}
    root = build_tree(modules, cells, read_library(), top="a", name="a")
    assert root.kinds() == ["fifo_4x8", "fifo_8x8", "skid"]
