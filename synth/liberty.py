"""Reads what area and timing need from a Liberty library: cells, areas, NAND2s and inverters."""

import gzip
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from dysharp.hw.errors import UserError

__all__ = ["OWN_LIBRARY", "Cell", "Library", "read_cells", "read_library"]

OWN_LIBRARY = Path(__file__).resolve().parent / "cells.lib"
"""The project's own cells, in which a NAND2 is 1."""

_CELL = re.compile(r'"[^"]*"|[{}]|\bcell\s*\(\s*"?([^\s")]+)"?\s*\)\s*\{')
_AREA = re.compile(r'\barea\s*:\s*"?([^\s";}]+)')
_FUNCTION = re.compile(r'\bfunction\s*:\s*"([^"]*)"')
_CAPACITANCE = re.compile(r'\bcapacitance\s*:\s*"?([\d.eE+-]+)')
_NO_GATE = re.compile(
    r"\b(?:(?:ff|latch|ff_bank|latch_bank|statetable|memory)\s*\(|three_state\s*:)"
)
_NAND2 = (True, True, True, False)
_INVERTER = (True, False)


@dataclass(frozen=True)
class Cell:
    """A cell of a library.

    Attributes
    ----------
    name, area : as in the library, in its own unit
    is_nand2, is_inverter : it is a two-input NAND, or an inverter, and nothing else
    capacitance : largest capacitance of a pin, in the library's unit; 0 if it has none
    """

    name: str
    area: float
    is_nand2: bool
    is_inverter: bool
    capacitance: float


@dataclass(frozen=True)
class Library:
    """A library of cells.

    Attributes
    ----------
    path : where it was read
    text : its text, unpacked
    cells : by name
    nand2 : the smallest two-input NAND, whose area is one gate equivalent
    """

    path: Path
    text: str
    cells: dict[str, Cell]
    nand2: Cell

    def ge(self, cell: str) -> float:
        """Area of a cell in gate equivalents."""
        return self.cells[cell].area / self.nand2.area


def read_library(path: Path | str | None = None) -> Library:
    """Read a Liberty file, packed with gzip or not; by default the project's own.

    Raises
    ------
    UserError
        For a file that cannot be read, has no cells, or has no two-input NAND.
    """
    path = OWN_LIBRARY if path is None else Path(path)
    text, cells = read_cells(path)
    gates = [cell for cell in cells.values() if cell.is_nand2 and cell.area > 0]
    if not gates:
        raise UserError(f"{path}: library must have a two-input NAND with an area, to count in")
    return Library(path, text, cells, min(gates, key=lambda cell: cell.area))


def read_cells(path: Path) -> tuple[str, dict[str, Cell]]:
    """Text of a Liberty file, unpacked, and its cells by name.

    Raises
    ------
    UserError
        For a file that cannot be read or has no cells.
    """
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8", "replace")
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path}: library cannot be read: {reason}") from None
    try:
        cells = {name: _read_cell(name, body) for name, body in _cells(_without_comments(text))}
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    if not cells:
        raise UserError(f"{path}: library must be a Liberty file with cells, and has none")
    return text, cells


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)


def _cells(text: str):
    """Name and body of each cell group."""
    depth, start, inside, name = 0, 0, 0, ""
    for token in _CELL.finditer(text):
        if token[0][0] == '"':
            continue
        if token[1] is not None and not inside:
            name, start, inside = token[1], token.end(), depth + 1
        if token[0][-1] == "{":
            depth += 1
        else:
            if depth == inside and inside:
                yield name, text[start : token.start()]
                inside = 0
            depth -= 1


def _read_cell(name: str, body: str) -> Cell:
    written = _AREA.search(body)
    try:
        area = float(written[1]) if written else 0.0
    except ValueError:
        area = math.nan
    if not 0 <= area < math.inf:
        raise UserError(
            f"cell {name}: area must be a number of at least 0, not {written and written[1]}"
        )
    functions = _FUNCTION.findall(body)
    is_gate = len(functions) == 1 and _NO_GATE.search(body) is None
    table = _truth_table(functions[0]) if is_gate else None
    capacitance = max(map(float, _CAPACITANCE.findall(body)), default=0.0)
    return Cell(name, area, table == _NAND2, table == _INVERTER, capacitance)


def _truth_table(function: str) -> tuple[bool, ...] | None:
    """Values of a function of one or two inputs, all 0 first; None for more or a fragment."""
    names = sorted(set(re.findall(r"[A-Za-z_]\w*", function)))
    if not 1 <= len(names) <= 2:
        return None
    rows = product((False, True), repeat=len(names))
    try:
        return tuple(_Function(function, dict(zip(names, row, strict=True))).value for row in rows)
    except IndexError:
        return None


class _Function:
    """Evaluates a Liberty function: not is ``!`` or ``'`` behind, and ``*``, ``&`` or a space."""

    def __init__(self, text: str, values: Mapping[str, bool]):
        self.tokens = re.findall(r"[A-Za-z_]\w*|[01]|[!'^*&+|()]", text)
        self.values = values
        self.value = self._sum()

    def _peek(self) -> str:
        return self.tokens[0] if self.tokens else ""

    def _sum(self) -> bool:
        value = self._product()
        while self._peek() in ("+", "|"):
            self.tokens.pop(0)
            value |= self._product()
        return value

    def _product(self) -> bool:
        value = self._difference()
        while self._peek() and self._peek() not in ("+", "|", ")"):
            if self._peek() in ("*", "&"):
                self.tokens.pop(0)
            value &= self._difference()
        return value

    def _difference(self) -> bool:
        value = self._factor()
        while self._peek() == "^":
            self.tokens.pop(0)
            value ^= self._factor()
        return value

    def _factor(self) -> bool:
        token = self.tokens.pop(0)
        value = self.values.get(token, token == "1")
        if token == "!":
            value = not self._factor()
        elif token == "(":
            value = self._sum()
            self.tokens.pop(0)
        while self._peek() == "'":
            self.tokens.pop(0)
            value = not value
        return value
