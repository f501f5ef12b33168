"""Area of any block for any configuration, by hierarchy: gate equivalents, and memories in bits."""

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.generate import generate
from dysharp.synth.liberty import read_library
from dysharp.synth.netlist import NetlistModule, read_rtlil, used_modules
from dysharp.synth.picture import draw
from dysharp.synth.tree import Block, build_tree
from dysharp.synth.yosys import map_to_cells

__all__ = ["AreaReport", "report"]

CACHE = Path("build/synth/cache")
"""Where mapped modules are remembered by default, below the current folder."""
SHOWN_SHARE = 0.005
"""A block with less of the whole than this is not in the table; it is in the JSON."""
SHOWN_DEPTH = 4


@dataclass(frozen=True)
class AreaReport:
    """What was measured.

    Attributes
    ----------
    block : name of the block
    config : the configuration as plain values
    library : file name of the cells
    nand2 : the cell that is one gate equivalent, and its area in the library's unit
    tools : versions
    tree : areas by place in the hierarchy
    files : what was written, by kind
    """

    block: str
    config: dict[str, Any]
    library: str
    nand2: tuple[str, float]
    tools: dict[str, str]
    tree: Block
    files: dict[str, Path]

    @property
    def total_ge(self) -> float:
        """Gate equivalents of all cells; memory macros are not in it."""
        return self.tree.ge

    @property
    def memory_bits(self) -> int:
        """Bits of all memory macros."""
        return self.tree.memory_bits

    @property
    def unit(self) -> str:
        """What a gate equivalent is."""
        name, area = self.nand2
        return f"1 = {name} of {self.library}, area {area:g}"

    def summary(self) -> dict[str, Any]:
        """``total_ge``, ``memory_bits`` and ``blocks``, which add up to both."""
        return {
            "total_ge": round(self.total_ge, 2),
            "memory_bits": self.memory_bits,
            "blocks": self.tree.parts(),
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; ``blocks`` are all places of the hierarchy by path."""
        return {
            "block": self.block,
            "config": self.config,
            "library": self.library,
            "nand2": {"cell": self.nand2[0], "area": self.nand2[1]},
            "tools": self.tools,
            "total_ge": round(self.total_ge, 2),
            "memory_bits": self.memory_bits,
            "blocks": {
                path: {
                    "ge": round(block.ge, 2),
                    "own_ge": round(block.own_ge, 2),
                    "memory_bits": block.memory_bits,
                    "instances": block.instances,
                }
                for path, block in self.tree.walk()
            },
        }

    def __str__(self) -> str:
        """The table: blocks with at least half a percent of the area, four levels deep."""
        rows = [("block", "instances", "GE", "%", "memory bits")]
        for path, block in self.tree.walk():
            depth = path.count("/")
            if depth < SHOWN_DEPTH and block.ge >= SHOWN_SHARE * self.total_ge:
                rows.append(_row("  " * depth + block.name, block, block.ge, self.total_ge))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, "", f"Gate equivalents: {self.unit}. Memories: bits, apart."])


def _row(name: str, block: Block, ge: float, total: float) -> tuple[str, str, str, str, str]:
    share = ge / total if total else 0.0
    return (
        name,
        f"{block.instances:,}",
        f"{ge:,.0f}",
        f"{100 * share:.1f}",
        f"{block.memory_bits:,}",
    )


def report(
    config: Config,
    block: str,
    *,
    liberty: Path | str | None = None,
    out_dir: Path | str,
    cache: Path | str | None = CACHE,
) -> AreaReport:
    """Measure the area of a block, and write ``area.txt``, ``area.json``, and the pictures.

    Every distinct module is mapped to cells once, with the hierarchy kept. Memories are macros and
    count in bits; the logic round a macro, such as its write-through, counts as cells. With
    ``memory = flipflops`` in the configuration there are no macros and everything counts as cells.

    Parameters
    ----------
    config : the configuration
    block : name of the block, as in :data:`dysharp.hw.generate.BLOCKS`
    liberty : cells to map to; the project's own by default
    out_dir : folder for the results, made if missing
    cache : folder in which mapped modules are remembered by content; None for none

    Raises
    ------
    UserError
        For an unknown block, a library without a NAND2 or a cell that is needed, a memory that is
        not a macro, or a failure of Yosys.
    """
    library = read_library(liberty)
    out_dir = Path(out_dir)
    style = "flipflops" if config.memory == "flipflops" else "macro"
    manifest = generate(replace(config, memory=style), block, out_dir / "rtl", formats=("rtlil",))
    modules = read_rtlil(Path(manifest["rtlil"]).read_text())
    instances = used_modules(modules, manifest["top"])
    _check_memories(manifest, modules, instances, style)
    with _bar(f"mapping {block} to cells") as progress:
        cells = map_to_cells(
            [modules[name] for name in instances if name in modules],
            library,
            folder=out_dir / "yosys",
            cache=None if cache is None else Path(cache),
            progress=progress,
        )
    tree = build_tree(modules, cells, library, top=manifest["top"], name=block)
    result = AreaReport(
        block=block,
        config=config.to_dict(),
        library=library.path.name,
        nand2=(library.nand2.name, library.nand2.area),
        tools=manifest["tools"],
        tree=tree,
        files={kind: out_dir / f"area.{kind}" for kind in ("txt", "json", "svg", "png")},
    )
    _write(result, out_dir)
    return result


def _check_memories(
    manifest: dict[str, Any],
    modules: dict[str, NetlistModule],
    instances: dict[str, int],
    style: str,
) -> None:
    """All the memories that were generated must be macros, and none may be a macro twice."""
    wanted = sum(memory["bits"] for memory in manifest["memories"]) if style == "macro" else 0
    found = sum(
        modules[name].own_bits * count for name, count in instances.items() if name in modules
    )
    if found != wanted:
        raise UserError(
            f"Memory macros of {manifest['block']} must hold {wanted} bits, not {found}: "
            "a memory became flip-flops, or is not listed"
        )


def _write(result: AreaReport, out_dir: Path) -> None:
    (out_dir / "area.txt").write_text(f"{result}\n")
    (out_dir / "area.json").write_text(json.dumps(result.to_dict(), indent=2) + "\n")
    title = (
        f"{result.block} of {result.config['name']}: {result.total_ge / 1e3:,.0f} thousand gate "
        f"equivalents, {result.memory_bits / 1e3:,.0f} thousand bits of memory"
    )
    draw(result.tree, out_dir / "area", title=title, unit=result.unit)


@contextmanager
def _bar(title: str):
    """A progress bar on a terminal; bytes of RTLIL stand for work."""
    with tqdm(desc=title, unit="B", unit_scale=True, disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield progress
