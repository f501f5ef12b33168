"""The hierarchy of a design, read from RTLIL: what each module holds, and what memory is in it."""

import re
from collections import Counter
from dataclasses import dataclass

from dysharp.hw.errors import UserError

__all__ = ["NetlistModule", "macro_bits", "read_rtlil", "used_modules"]

_MACRO = re.compile(r"sram_(\d+)x(\d+)(?:_g\d+)?")
_LOGIC = re.compile(r"^  (?:process |cell \$)", re.MULTILINE)
_MEMORY = re.compile(r"^  (?:memory |cell \$mem)", re.MULTILINE)


def macro_bits(cell: str) -> int | None:
    """Bits of a memory macro by the name of its module; None for anything else."""
    match = _MACRO.fullmatch(cell)
    return int(match[1]) * int(match[2]) if match else None


@dataclass(frozen=True)
class NetlistModule:
    """One module.

    Attributes
    ----------
    name : name without the backslash
    text : its RTLIL
    children : instances by module, memory macros included
    """

    name: str
    text: str
    children: Counter[str]

    @property
    def has_logic(self) -> bool:
        """It holds more than wires and instances."""
        return _LOGIC.search(self.text) is not None

    @property
    def own_bits(self) -> int:
        """Bits of the memory macros that stand directly in it."""
        return sum((macro_bits(name) or 0) * count for name, count in self.children.items())


def read_rtlil(text: str) -> dict[str, NetlistModule]:
    """Modules by name.

    Raises
    ------
    UserError
        If a module holds a memory that is not a macro: it would silently become flip-flops.
    """
    modules: dict[str, NetlistModule] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("autoidx"):
            continue
        lines.append(line)
        if line == "end":
            module = _read_module(lines)
            modules[module.name] = module
            lines = []
    return modules


def _read_module(lines: list[str]) -> NetlistModule:
    text = "\n".join(lines) + "\n"
    head = next(line for line in lines if line.startswith("module "))
    name = head.split()[1].lstrip("\\")
    if _MEMORY.search(text):
        raise UserError(
            f"Memory in module {name} must be a macro, or it becomes flip-flops: build it as a Ram"
        )
    cells = (line.split()[1] for line in lines if line.startswith("  cell \\"))
    return NetlistModule(name, text, Counter(cell.lstrip("\\") for cell in cells))


def used_modules(modules: dict[str, NetlistModule], top: str) -> dict[str, int]:
    """Instances of every module below ``top``, itself once; children after their parents."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in seen or name not in modules:
            return
        seen.add(name)
        for child in modules[name].children:
            visit(child)
        order.append(name)

    seen: set[str] = set()
    visit(top)
    instances = Counter({top: 1})
    for name in reversed(order):
        for child, count in modules[name].children.items():
            instances[child] += count * instances[name]
    return {name: instances[name] for name in reversed(order)}
