"""The documents are current, short where they must be, and lead nowhere that is not there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]

# What a reader of a clone cannot follow: paths of one machine, and papers that are not in the tree.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.~])/(?:root|home|work|Users)/\w",
    "a document that is not here": r"(?i)\bcontract(?:'s)? sections?\b",
    "something left to do": r"\b(?:TODO|FIXME|XXX)\b",
}


def load_make_tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tables", ROOT / "docs/make_tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sources() -> list[Path]:
    """Every text file of the tree; those that git knows, or all in an unpacked archive."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True
    )
    if listed.returncode == 0 and listed.stdout:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        folders = ("configs", "docs", "dysharp", "hw", "model", "sim_tb", "synth", "tests")
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    suffixes = {".py", ".md", ".yaml", ".toml", ".cpp", ".v", ".sv", ".lib", ".json", ""}
    return [path for path in paths if path.suffix in suffixes and path.is_file()]


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_tables_are_current() -> None:
    """`make tables` renews them."""
    tables = load_make_tables()
    old = [
        str(path)
        for path in tables.documents()
        if tables.renew(path.read_text()) != path.read_text()
    ]
    assert not old, f"not current, run make tables: {old}"


def test_results_have_the_reports_shape() -> None:
    import json

    from dysharp.report import check_keys

    for path in (ROOT / "docs/results").glob("*.json"):
        check_keys(json.loads(path.read_text()))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not re.match(r"[a-z]+:", target):
            assert (path.parent / target).exists(), target


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_that_a_reader_cannot_follow(what: str) -> None:
    found = []
    for path in sources():
        if path == Path(__file__).resolve():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(FORBIDDEN[what], line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found, what + ":\n" + "\n".join(found)


def test_blocks_have_a_page() -> None:
    """A page for each block that exists, except those that another block's page covers."""
    from dysharp.hw.generate import BLOCKS

    for name, (module, _) in BLOCKS.items():
        if (
            importlib.util.find_spec(module.rpartition(".")[0])
            and (ROOT / (module.removeprefix("dysharp.").replace(".", "/") + ".py")).exists()
        ):
            pages = " ".join(
                page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")
            )
            assert f"`{name}`" in pages or (ROOT / "docs" / f"{name}.md").exists(), name
