"""Areas by place in the hierarchy, from the areas of modules."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dysharp.synth.liberty import Library
from dysharp.synth.netlist import NetlistModule

__all__ = ["Block", "build_tree"]

_PARAMETERS = re.compile(r"_[a-z]?\d.*")


@dataclass(frozen=True)
class Block:
    """One place in the hierarchy: all equal instances of a module inside equal parents.

    Attributes
    ----------
    name : name of the module, without its parent's name in front
    instances : instances in the whole design
    own_ge : gate equivalents of its own cells, all instances together
    own_bits : bits of its own memory macros, all instances together
    children : blocks inside it, the largest first
    """

    name: str
    instances: int
    own_ge: float
    own_bits: int
    children: tuple["Block", ...] = field(default=())

    @property
    def ge(self) -> float:
        """Gate equivalents, children included."""
        return self.own_ge + sum(child.ge for child in self.children)

    @property
    def memory_bits(self) -> int:
        """Bits of memory macros, children included."""
        return self.own_bits + sum(child.memory_bits for child in self.children)

    def walk(self, path: str = ""):
        """Path and block of this block and everything inside it, parents first."""
        path = f"{path}/{self.name}" if path else self.name
        yield path, self
        for child in self.children:
            yield from child.walk(path)

    def kinds(self) -> list[str]:
        """Names of the children without their parameters, where that tells them apart."""
        kinds = [_PARAMETERS.sub("", child.name) for child in self.children]
        return [
            kind if kinds.count(kind) == 1 else child.name
            for child, kind in zip(self.children, kinds, strict=True)
        ]

    def parts(self, *, share: float = 0.25, least: float = 0.01) -> dict[str, dict[str, float]]:
        """A partition: blocks that add up to the whole, by path below this one.

        Parameters
        ----------
        share : a block with more of the whole than this is shown by its parts
        least : what has less of the whole, cells and memory, is put together as ``other``
        """
        found: dict[str, dict[str, float]] = {}
        total, total_bits = self.ge or 1.0, self.memory_bits or 1

        def add(name: str, ge: float, bits: int) -> None:
            part = found.setdefault(name, {"ge": 0.0, "memory_bits": 0})
            part["ge"] += ge
            part["memory_bits"] += bits

        def visit(block: Block, path: str) -> None:
            if not block.children:
                add(path or block.name, block.own_ge, block.own_bits)
            elif block.own_ge or block.own_bits:
                add(f"{path}/own logic" if path else "own logic", block.own_ge, block.own_bits)
            for child, kind in zip(block.children, block.kinds(), strict=True):
                name = f"{path}/{kind}" if path else kind
                if child.ge > share * total:
                    visit(child, name)
                elif child.ge < least * total and child.memory_bits < least * total_bits:
                    add(f"{path}/other" if path else "other", child.ge, child.memory_bits)
                else:
                    add(name, child.ge, child.memory_bits)

        visit(self, "")
        for part in found.values():
            part["ge"] = round(part["ge"], 2)
        return dict(sorted(found.items(), key=lambda item: -item[1]["ge"]))


def build_tree(
    modules: Mapping[str, NetlistModule],
    cells: Mapping[str, Mapping[str, int]],
    library: Library,
    *,
    top: str,
    name: str,
) -> Block:
    """The tree below module ``top``, under the name ``name``.

    A wrapper that only renames ports is left out.
    """
    areas = {
        module: sum(library.ge(cell) * count for cell, count in found.items())
        for module, found in cells.items()
    }

    def build(module: str, shown: str, instances: int) -> Block:
        children = (
            build(child, child.removeprefix(f"{module}__"), instances * count)
            for child, count in modules[module].children.items()
            if child in modules
        )
        return Block(
            shown,
            instances,
            areas[module] * instances,
            modules[module].own_bits * instances,
            tuple(sorted(children, key=lambda child: (-child.ge, -child.memory_bits, child.name))),
        )

    while not areas[top] and [*modules[top].children.values()] == [1]:
        (inner,) = modules[top].children
        if inner not in modules:
            break
        top = inner
    return build(top, name, 1)
