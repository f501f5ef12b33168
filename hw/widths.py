"""Operand widths in RTLIL made equal, so that the Verilog written from it lints clean.

Amaranth and Yosys let operands have any width and extend them by rule; Verilog has the same rules,
but linters take every silent extension or truncation for a mistake. :func:`match_widths` says each
one out loud: it extends or cuts operands to the width at which the operator works. Values do not
change.
"""

import re
from collections.abc import Iterator

__all__ = ["match_widths"]

_ARITHMETIC = {"$add", "$sub", "$mul", "$and", "$or", "$xor", "$xnor"}
_COMPARE = {"$eq", "$ne", "$eqx", "$nex", "$lt", "$le", "$gt", "$ge"}
_UNARY = {"$not", "$neg", "$pos"}
_SHIFT = {"$shl", "$shr", "$sshl", "$sshr", "$shift", "$shiftx"}

_TOKEN = re.compile(r"\d+'[^\s]+|[\\$]\S+(?: \[\d+(?::\d+)?\])?|[{}]|\d+")
_INTEGER_BITS = 32
"""What Yosys means by a number without a width."""
_WIRE = re.compile(r"  wire (?:width (\d+) )?.*?([\\$]\S+)$")

Piece = tuple[str, int]
"""Text and width of one part of a signal, as RTLIL writes it."""


class _Signals:
    """Reads and writes RTLIL's signal expressions within one module."""

    def __init__(self):
        self.widths: dict[str, int] = {}

    def pieces(self, text: str) -> list[Piece]:
        """Parts of an expression, high bits first."""
        tokens = [
            f"{_INTEGER_BITS}'{int(token):0{_INTEGER_BITS}b}" if token.isdigit() else token
            for token in _TOKEN.findall(text)
            if token not in "{}"
        ]
        return [(token, self._width(token)) for token in tokens]

    def _width(self, token: str) -> int:
        if token[0].isdigit():
            return int(token.split("'")[0])
        name, _, index = token.partition(" [")
        if not index:
            return self.widths[name]
        high, _, low = index.rstrip("]").partition(":")
        return int(high) - int(low or high) + 1

    def cut(self, piece: Piece, width: int) -> Piece:
        """The low ``width`` bits of a part."""
        token, old = piece
        if width == old:
            return piece
        if token[0].isdigit():
            return f"{width}'{token.split(chr(39))[1][-width:]}", width
        name, _, index = token.partition(" [")
        low = int(index.rstrip("]").rpartition(":")[2]) if index else 0
        return f"{name} [{low + width - 1}:{low}]" if width > 1 else f"{name} [{low}]", width

    def top_bit(self, piece: Piece) -> Piece:
        """The highest bit of a part."""
        token, width = piece
        if token[0].isdigit():
            return f"1'{token.split(chr(39))[1][0]}", 1
        name, _, index = token.partition(" [")
        high = int(index.rstrip("]").partition(":")[0]) if index else width - 1
        return f"{name} [{high}]", 1

    def resize(self, text: str, width: int, *, signed: bool) -> str:
        """An expression of exactly ``width`` bits with the same value modulo ``2 ** width``."""
        pieces = self.pieces(text)
        have = sum(piece_width for _, piece_width in pieces)
        if have == width:
            return text
        if have < width and signed:
            pieces = [self.top_bit(pieces[0])] * (width - have) + pieces
        elif have < width:
            pieces = [(f"{width - have}'{'0' * (width - have)}", width - have), *pieces]
        else:
            kept, room = [], width
            for piece in reversed(pieces):
                if room:
                    kept.append(self.cut(piece, min(room, piece[1])))
                    room -= kept[-1][1]
            pieces = kept[::-1]
        return _join(pieces)


def _join(pieces: list[Piece]) -> str:
    return pieces[0][0] if len(pieces) == 1 else f"{{ {' '.join(text for text, _ in pieces)} }}"


def match_widths(rtlil: str) -> str:
    """RTLIL in which both operands of an operator are as wide as it works.

    Parameters
    ----------
    rtlil : text as Yosys's ``write_rtlil`` writes it, without processes

    Returns
    -------
    str
        The same circuit.
    """
    return "\n".join(_lines(rtlil.splitlines())) + "\n"


def _lines(lines: list[str]) -> Iterator[str]:
    signals = _Signals()
    position = 0
    while position < len(lines):
        line = lines[position]
        if line.startswith("module "):
            signals = _Signals()
        elif found := _WIRE.match(line):
            signals.widths[found[2]] = int(found[1] or 1)
        if line.startswith("  cell $"):
            end = lines.index("  end", position)
            yield from _cell(lines[position : end + 1], signals)
            position = end
        else:
            yield line
        position += 1


def _cell(lines: list[str], signals: _Signals) -> list[str]:
    kind = lines[0].split()[1]
    if kind not in _ARITHMETIC | _COMPARE | _UNARY | _SHIFT:
        return lines
    cell = _Cell(lines, signals)
    if kind in _COMPARE:
        cell.resize("A", width := max(cell.width("A"), cell.width("B")))
        cell.resize("B", width)
    elif kind in _SHIFT:
        cell.resize("A", max(cell.width("A"), cell.width("Y")))
        cell.widen_result(cell.width("A"))
    else:
        for port in "A" if kind in _UNARY else "AB":
            cell.resize(port, cell.width("Y"))
    return cell.lines


class _Cell:
    """The lines of one cell, with its parameters and connections in place."""

    def __init__(self, lines: list[str], signals: _Signals):
        self.lines = list(lines)
        self.signals = signals
        self.at = {line.split()[1]: k for k, line in enumerate(lines) if line.startswith("    ")}

    def width(self, port: str) -> int:
        """Width of a port."""
        return int(self.lines[self.at[f"\\{port}_WIDTH"]].split()[2])

    def _signed(self) -> bool:
        flags = [self.at.get(f"\\{port}_SIGNED") for port in "AB"]
        return all(self.lines[k].split()[2] == "1" for k in flags if k is not None)

    def _set(self, port: str, width: int, text: str) -> None:
        self.lines[self.at[f"\\{port}_WIDTH"]] = f"    parameter \\{port}_WIDTH {width}"
        self.lines[self.at[f"\\{port}"]] = f"    connect \\{port} {text}"

    def resize(self, port: str, width: int) -> None:
        """Give an operand exactly ``width`` bits."""
        text = self.lines[self.at[f"\\{port}"]].split(maxsplit=2)[2]
        self._set(port, width, self.signals.resize(text, width, signed=self._signed()))

    def widen_result(self, width: int) -> None:
        """Let the result have ``width`` bits, of which the old ones are used."""
        old = self.width("Y")
        if old == width:
            return
        text = self.lines[self.at["\\Y"]].split(maxsplit=2)[2]
        wide = self.lines[0].split()[2] + "_wide"
        self._set("Y", width, wide)
        self.lines.insert(0, f"  wire width {width} {wide}")
        self.lines.append(f"  connect {text} {wide} [{old - 1}:0]")
