"""`make` says plainly what the machine lacks, before it builds anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def make(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run make as a user would, not as a part of the make that runs these tests."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFL"))}
    return subprocess.run(
        ["make", *words],
        cwd=ROOT,
        env=clean | environment,
        capture_output=True,
        text=True,
    )


def test_help_is_the_default() -> None:
    for target in ("demo", "test", "nightly", "lint", "clean"):
        assert f"make {target} " in make().stdout


@pytest.mark.parametrize(
    ("words", "environment", "text"),
    [
        (["PYTHON=/bin/false"], {}, "error: Python 3.11 or newer is needed"),
        ([], {"CXX": "no-such-compiler"}, "error: a C++ compiler is needed"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, words: list[str], environment: dict[str, str], text: str
) -> None:
    done = make("lint", f"VENV={tmp_path}/venv", *words, **environment)
    assert done.returncode == 2
    assert text in done.stderr
    assert not (tmp_path / "venv").exists()
