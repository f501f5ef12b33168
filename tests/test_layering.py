"""Who may import whom: data flows from model and hw to sim_tb and synth, never back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOP = ("hw", "model", "sim_tb", "synth")

# What each package may import of ours: a package whole, or single modules of it.
ALLOWED: dict[str, tuple[str, ...]] = {
    "hw": ("dysharp.hw",),
    "model": (
        "dysharp.model",
        "dysharp.hw.al_table",
        "dysharp.hw.packet",
        "dysharp.hw.config",
        "dysharp.hw.errors",
        "dysharp.hw.register_map",
        "dysharp.hw.registers",
    ),
    "sim_tb": ("dysharp.sim_tb", "dysharp.hw", "dysharp.model"),
    "synth": (
        "dysharp.synth",
        "dysharp.hw.alu",
        "dysharp.hw.config",
        "dysharp.hw.errors",
        "dysharp.hw.generate",
        "dysharp.hw.packet",
    ),
}
# The face itself imports nothing; all may ask it for its place and version.
FACE = ("dysharp.__version__",)


def imports(source: str) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that a file imports, at any depth."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{name.name}") for name in node.names)


def offences(source: str, package: str | None) -> list[str]:
    """What a file of a package may not import."""
    found = []
    for line, name in imports(source):
        if name.partition(".")[0] in TOP:
            found.append(f"{line}: {name} would be a second copy; write dysharp.{name}")
        elif name.startswith("."):
            found.append(f"{line}: {name} is relative; write it out")
        elif name.partition(".")[0] == "dysharp" and package is not None:
            allowed = (*ALLOWED[package], *FACE)
            if name != "dysharp" and not any(f"{name}.".startswith(f"{good}.") for good in allowed):
                found.append(f"{line}: {package} may not import {name}")
    return found


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("package", TOP)
def test_packages_import_only_what_they_may(package: str) -> None:
    assert files(package)
    found = [
        f"{path.relative_to(ROOT)}:{what}"
        for path in files(package)
        for what in offences(path.read_text(encoding="utf-8"), package)
    ]
    assert not found, "\n".join(found)


def test_nothing_imports_a_top_level_copy() -> None:
    paths = [*(ROOT / "dysharp").glob("*.py"), *(ROOT / "dysharp/verbs").glob("*.py")]
    paths += files("tests") + files("docs")
    found = [
        f"{path.relative_to(ROOT)}:{what}"
        for path in paths
        for what in offences(path.read_text(encoding="utf-8"), None)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("package", "line", "good"),
    [
        ("hw", "from dysharp.hw.link.flit import Flit", True),
        ("hw", "from dysharp.hw import packet", True),
        ("hw", "from dysharp.model.numerics import add", False),
        ("hw", "import dysharp", True),
        ("hw", "from dysharp import __version__", True),
        ("hw", "import dysharp.cli", False),
        ("hw", "from dysharp import cli", False),
        ("hw", "from hw.packet import Header", False),
        ("hw", "from .packet import Header", False),
        ("model", "from dysharp.hw.packet import Header", True),
        ("model", "from dysharp.hw import packet", True),
        ("model", "from dysharp.hw.packets import Header", False),
        ("model", "from dysharp.hw.alu import Adder", False),
        ("model", "from dysharp.sim_tb import run", False),
        ("synth", "from dysharp.hw.generate import generate", True),
        ("synth", "from dysharp.hw.switch.parser import Parser", False),
        ("sim_tb", "def f():\n    from dysharp.synth import area", False),
        ("sim_tb", "from dysharp.model.trace import Trace", True),
    ],
)
def test_the_walk_tells_good_from_bad(package: str, line: str, good: bool) -> None:
    assert (not offences(line, package)) == good
