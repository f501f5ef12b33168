"""Mutation of the RTL's source: proof that a checker bites.

A mutant is one edit of a file under ``hw/``. The edited copy of the package runs in a process of
its own; the test that the mutant names, a block's cocotb test or one of ``tests/``, must then fail.
A mutant that does not build, or fails for another reason, proves nothing and is reported as such.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dysharp
from dysharp.hw.errors import UserError
from dysharp.sim_tb.build import build_root

__all__ = ["Mutant", "run_mutant"]

_CAUGHT, _SURVIVED, _BROKEN = 3, 0, 4
_RUN = f"""
import json, sys
from dysharp.hw.config import load_preset
from dysharp.sim_tb.run import SimulationFailed, run_block
block, preset, changes, module, test = sys.argv[1:]
try:
    run_block(block, load_preset(preset, **json.loads(changes)), module, tests=[test])
except SimulationFailed as failure:
    print(failure)
    sys.exit({_CAUGHT} if str(failure).startswith(test + ": ") else {_BROKEN})
"""


@dataclass(frozen=True)
class Mutant:
    """One edit and the test that must see it.

    Parameters
    ----------
    name : str
        What the edit does wrong, as a short phrase.
    file : str
        The file edited, below ``hw/``.
    before, after : str
        Text that occurs once in the file, and what stands there instead.
    test : str
        The test that must fail: a cocotb test, or one of pytest's, ``tests/file.py::test[case]``.
    block : str
        The block that is simulated, as ``hw.generate`` names it; this and all that follow are for
        cocotb tests only.
    preset : str
        Configuration to build.
    changes : mapping
        Fields of the configuration that differ from the preset's.
    module : str
        Full name of the test's module; that of ``sim_tb/<block>/<block>_tests.py`` by default.
    """

    name: str
    file: str
    before: str
    after: str
    test: str
    block: str = ""
    preset: str = "tiny"
    changes: Mapping[str, int | str | bool] = field(default_factory=dict)
    module: str = ""

    @property
    def caught_by(self) -> str:
        """The test that must fail, with its place, for people."""
        return f"`{self.test}`" if "::" in self.test else f"`sim_tb/{self.block}`: `{self.test}`"


def run_mutant(mutant: Mutant) -> str:
    """Build the mutant and run its test.

    Returns
    -------
    str
        The failure that the test reported.

    Raises
    ------
    AssertionError
        If the test passed, so the mutant survived, or failed for another reason than a check.
    UserError
        If ``before`` does not occur exactly once in the file.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        package = Path(folder) / "dysharp"
        shutil.copytree(Path(dysharp.__file__).parent, package, ignore=_no_caches)
        path = package / "hw" / mutant.file
        text = path.read_text()
        if text.count(mutant.before) != 1:
            raise UserError(
                f"hw/{mutant.file}: mutant {mutant.name!r}: before: must occur once, "
                f"not {text.count(mutant.before)} times"
            )
        path.write_text(text.replace(mutant.before, mutant.after))
        run = _run_pytest if "::" in mutant.test else _run_cocotb
        status, report = run(mutant, Path(folder))
    assert status != _SURVIVED, f"mutant survived {mutant.test}: {mutant.name}"
    assert status == _CAUGHT, f"mutant proves nothing: {mutant.name}\n{report[-2000:]}"
    return report


def _python(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python on the edited package."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(folder), "DYSHARP_BUILD": str(build_root())},
        cwd=folder,  # the first place that Python looks for packages
        capture_output=True,
        text=True,
    )


def _run_cocotb(mutant: Mutant, folder: Path) -> tuple[int, str]:
    changes = json.dumps(dict(mutant.changes))
    arguments = [mutant.block, mutant.preset, changes, mutant.module, mutant.test]
    done = _python(["-c", _RUN, *arguments], folder)
    return done.returncode, (done.stdout + done.stderr).strip()


def _run_pytest(mutant: Mutant, folder: Path) -> tuple[int, str]:
    root = Path(dysharp.__file__).parents[1]
    report = folder / "report.xml"
    options = ["-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(root)]
    options += ["-c", str(root / "pyproject.toml"), f"--junit-xml={report}"]
    done = _python(["-m", "pytest", *options, str(root / mutant.test)], folder)
    if done.returncode == 0:
        return _SURVIVED, ""
    if done.returncode == 1:
        failures = xml.parse(report).getroot().iter("failure")
        said = [str(failure.get("message")) for failure in failures]
        if said and all(map(_is_check, said)):
            return _CAUGHT, f"{mutant.test}: {said[0]}"
    return _BROKEN, (done.stdout + done.stderr).strip()


def _is_check(said: str) -> bool:
    """Whether a failure says that an assertion does not hold, here or in a proof."""
    by_proof = "ProofFailed" in said and ("Assert failed" in said or "a path leads" in said)
    return by_proof or said.startswith(("AssertionError", "assert "))


def _no_caches(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "__pycache__"]
