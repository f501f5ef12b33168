"""The testplan and its rendering agree with the tests that exist."""

from __future__ import annotations

import ast
from pathlib import Path

from dysharp.sim_tb.testplan import load, render

ROOT = Path(__file__).parent.parent


def functions(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


def test_every_named_test_exists():
    missing = []
    for item in load():
        file, _, name = item.test.partition("::")
        if not (ROOT / file).exists() or name not in functions(ROOT / file):
            missing.append(f"{item.block}: {item.test}")
    assert not missing, "the testplan names tests that do not exist: " + ", ".join(missing)


def test_rendered_page_is_up_to_date():
    page = (ROOT / "docs/testplan.md").read_text()
    assert page == render(load()), "run `python -m dysharp.sim_tb.testplan`"
