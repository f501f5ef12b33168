"""One process corner: the Liberty files that together make a set of cells, and its conditions."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dysharp.hw.errors import UserError
from dysharp.synth.liberty import Cell, read_cells

__all__ = ["Corner", "read_corner"]

_GROUP = re.compile(r'\blibrary\s*\(\s*"?([^")\s]+)')
_TIMING = re.compile(r"\btiming\s*\(")
_FLIPFLOP = re.compile(r"\bff\s*\(")
_UNIT = re.compile(r'\bcapacitive_load_unit\s*\(\s*"?([\d.]+)"?\s*,\s*"?([fFpP][fF])')
_VALUE = r'\b{}\s*:\s*"?([^\s";]+)'
_UNITS = {"nom_voltage": "V", "nom_temperature": "C"}
_FEMTO = {"ff": 1.0, "pf": 1e3}

_DRIVER_SIZE = 4
_LOAD_INPUTS = 5
_EDGES = {"osu018_stdcells": ("INVX4", 50.0)}
"""Driving cell and load by library, where the figures of others were taken with them."""


@dataclass(frozen=True)
class Corner:
    """Cells and conditions.

    Attributes
    ----------
    name : what the names of all its libraries have in common
    conditions : process, voltage and temperature, such as ``typical, 1.8 V, 25 C``
    files : texts of the libraries, unpacked, by file name
    cells : by name, of all the libraries
    nand2 : the smallest two-input NAND, whose area is one gate equivalent; None if there is none
    driving_cell : the cell that drives each input; None without an inverter
    load : what each output drives, in femtofarad
    has_timing, has_flipflops : whether there are delays, and registers
    """

    name: str
    conditions: str
    files: dict[str, str]
    cells: dict[str, Cell]
    nand2: Cell | None
    driving_cell: str | None
    load: float
    has_timing: bool
    has_flipflops: bool

    def __str__(self) -> str:
        """Library and conditions, as they stand beside every frequency."""
        return f"{self.name}, {self.conditions}" if self.conditions else self.name

    def write(self, folder: Path) -> list[str]:
        """Write the libraries into a folder and return their names there."""
        for name, text in self.files.items():
            (folder / name).write_text(text)
        return list(self.files)


def read_corner(paths: Sequence[Path | str]) -> Corner:
    """Read the libraries of a corner, each packed with gzip or not.

    Driving cell and load are those of the library's published figures where there are some
    (osu018); for any other, the inverter nearest to four times the smallest one, and five inputs of
    the smallest one.

    Raises
    ------
    UserError
        For no file, a file that cannot be read or has no cells, and libraries of different
        conditions.
    """
    if not paths:
        raise UserError("Libraries must be one file or more, not none")
    files: dict[str, str] = {}
    cells: dict[str, Cell] = {}
    names: list[str] = []
    conditions: dict[str, Path] = {}
    inverters: list[tuple[float, str]] = []
    for path in map(Path, paths):
        text, own = read_cells(path)
        group, unit = _GROUP.search(text), _UNIT.search(text)
        names.append(group[1] if group else path.stem)
        conditions.setdefault(_conditions(text), path)
        scale = float(unit[1]) * _FEMTO[unit[2].lower()] if unit else 1.0
        inverters += [
            (cell.capacitance * scale, cell.name)
            for cell in own.values()
            if cell.is_inverter and cell.capacitance
        ]
        cells |= own
        files[f"{len(files)}_{path.name.removesuffix('.gz')}"] = text
    if len(conditions) > 1:
        told = "; ".join(f"{path}: {found or 'none'}" for found, path in conditions.items())
        raise UserError(f"Libraries of one corner must have the same conditions: {told}")
    gates = [cell for cell in cells.values() if cell.is_nand2 and cell.area > 0]
    driving_cell, load = _edge(names[0], inverters)
    return Corner(
        name=_common_name(names),
        conditions=next(iter(conditions)),
        files=files,
        cells=cells,
        nand2=min(gates, key=lambda cell: cell.area, default=None),
        driving_cell=driving_cell,
        load=load,
        has_timing=any(_TIMING.search(text) for text in files.values()),
        has_flipflops=any(_FLIPFLOP.search(text) for text in files.values()),
    )


def _conditions(text: str) -> str:
    """Name of the operating conditions, voltage, temperature, as far as they are written."""
    found = {
        key: match[1]
        for key in ("default_operating_conditions", "nom_voltage", "nom_temperature")
        if (match := re.search(_VALUE.format(key), text))
    }
    words = [found.get("default_operating_conditions", "")]
    words += [f"{float(found[key]):g} {unit}" for key, unit in _UNITS.items() if key in found]
    return ", ".join(filter(None, words))


def _common_name(names: Sequence[str]) -> str:
    """The parts, between underscores, that all the names share: without each file's own ones."""
    first, *others = (name.split("_") for name in names)
    return "_".join(part for part in first if all(part in other for other in others)) or names[0]


def _edge(name: str, inverters: list[tuple[float, str]]) -> tuple[str | None, float]:
    if name in _EDGES:
        return _EDGES[name]
    if not inverters:
        return None, 0.0
    smallest = min(inverters)[0]
    driver = min(inverters, key=lambda found: abs(found[0] - _DRIVER_SIZE * smallest))
    return driver[1], _LOAD_INPUTS * smallest
