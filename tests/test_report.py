"""The demo's report, from given numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dysharp import report as reports


@pytest.fixture
def report() -> dict[str, Any]:
    return {
        "preset": "nvl8",
        "seed": 1,
        "tools": reports.tool_versions(),
        "trace": {"tokens": 16, "packets": 14336, "flits": 143360},
        "check": {"values": 123456, "mismatches": 0},
        "cycles": {"dispatch": 12000, "combine": 13000},
        "utilisation": {"dispatch": 0.91, "combine": 0.875},
        "traffic": {"deepep_flits": 200000, "dysharp_flits": 150000, "saved": 0.25},
        "area": {
            "total_ge": 3000.5,
            "memory_bits": 4096,
            "blocks": {
                "parser": {"ge": 1000.0, "memory_bits": 0},
                "queues": {"ge": 2000.5, "memory_bits": 4096},
            },
        },
    }


def test_write(report: dict[str, Any], tmp_path: Path) -> None:
    reports.write(report, tmp_path, title="a model on nvl8")
    assert json.loads((tmp_path / "report.json").read_text()) == report
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# a model on nvl8\n")
    assert "(report.png)" in text
    assert "Mismatches: **0**" in text
    assert "| DySHARP | 150,000 | -25.0% |" in text
    assert "| parser | 1,000 | 0 |" in text
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


def test_summary(report: dict[str, Any]) -> None:
    assert "123,456 values against the golden model: all equal" in reports.summary(report)
    report["check"]["mismatches"] = 3
    assert "3 MISMATCHES" in reports.summary(report)


@pytest.mark.parametrize("spoil", [lambda r: r.pop("area"), lambda r: r["check"].pop("values")])
def test_the_keys_are_held(report: dict[str, Any], tmp_path: Path, spoil: Any) -> None:
    spoil(report)
    with pytest.raises(ValueError, match="must have the keys"):
        reports.write(report, tmp_path, title="x")


def test_tools_are_all_known() -> None:
    versions = reports.tool_versions()
    assert all(versions[tool] for tool in versions if tool != "commit")
