"""What a user installs: the wheel holds every package and every file that they read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("hw", "model", "sim_tb", "synth")

IMPORT_ALL = """
import importlib, pkgutil, sys
import dysharp
names = [m.name for m in pkgutil.walk_packages(dysharp.__path__, "dysharp.")]
for name in names:
    # Files that cocotb loads inside the simulator cannot be imported outside of it.
    if not name.endswith(("_tests", "__main__")):
        importlib.import_module(name)
from dysharp.hw.config import load, preset_names
assert dysharp.__file__.startswith(sys.argv[1]), dysharp.__file__
assert len(preset_names()) >= 5
print(*names, *(load(preset).name for preset in preset_names()))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree: setuptools leaves a build folder behind."""
    tree = tmp_path_factory.mktemp("tree") / "dysharp"
    ignore = shutil.ignore_patterns(".venv", ".git", "build", "dist", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, tree, symlinks=True, ignore=ignore)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "--wheel-dir", str(out), "."]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_every_source_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            assert f"dysharp/{path.relative_to(ROOT)}" in held
    tops = {name.partition("/")[0] for name in held}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dysharp"}


def test_the_wheel_holds_the_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    assert "dysharp/py.typed" in held
    wanted = [*ROOT.glob("configs/*.yaml")]
    for package in PACKAGES:
        for suffix in ("v", "sv", "vlt", "cpp", "h", "lib", "tcl", "json"):
            wanted += (ROOT / package).rglob(f"*.{suffix}")
    missing = [path for path in wanted if f"dysharp/{path.relative_to(ROOT)}" not in held]
    assert not missing


def test_the_wheel_works_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    """Only the dependencies are borrowed from this environment; the project is the wheel's."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    site = next(place.glob("lib/python*/site-packages"))
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    install += ["--disable-pip-version-check", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    # Put behind the wheel's own folder, and without .pth files: no editable copy shows through.
    environment = {**os.environ, "BORROWED": sysconfig.get_path("purelib")}
    environment.pop("PYTHONPATH", None)
    borrow = "import os, sys; sys.path.append(os.environ['BORROWED'])\n"
    done = subprocess.run(
        [python, "-c", borrow + IMPORT_ALL, str(site)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for package in PACKAGES:
        assert f"dysharp.{package}" in done.stdout.split()
    assert "nvl72" in done.stdout.split()


def test_the_faces_are_relative_symlinks() -> None:
    for name in (*PACKAGES, "configs"):
        link = ROOT / "dysharp" / name
        assert os.readlink(link) == f"../{name}"
