"""The checker of a target: its unit verilated, and the loop and the oracle in C++ round it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dysharp.hw.errors import UserError
from dysharp.hw.generate import elaborate
from dysharp.sim_tb.build import build_root, locked
from dysharp.sim_tb.native.planes import TOP, to_planes
from dysharp.sim_tb.native.targets import Target
from dysharp.sim_tb.tools import Simulator, find_simulator

__all__ = ["build_checker", "compiler"]

_HERE = Path(__file__).resolve().parent
_SOURCES = ("check.cpp", "blocks.h", "formats.h", "planes.py", "build.py")

# The oracle stands on the host's arithmetic as IEEE 754 has it: nothing fused, nothing reordered.
_FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-fno-fast-math")
_DEFINES = tuple(f"-DVM_{name}=0" for name in ("COVERAGE", "SC", "TIMING", "TRACE"))
_RUNTIME = ("verilated.cpp", "verilated_threads.cpp")


def _run(command: Sequence[str | Path], folder: Path, simulator: Simulator) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=simulator.environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        wrong = [line for line in said if "rror" in line][:3] or said[-3:]
        raise UserError(f"{command[0]} failed in {folder}: " + " | ".join(wrong))
    return done.stdout


def compiler() -> str:
    """The C++ compiler: ``CXX``, or what there is."""
    return os.environ.get("CXX") or shutil.which("g++") or "c++"


def _runtime(simulator: Simulator, include: list[str], root: Path) -> list[Path]:
    """Verilator's own library, compiled once."""
    folder = build_root() / f"runtime-native-{simulator.version}"
    objects = [folder / name.replace(".cpp", ".o") for name in _RUNTIME]
    with locked(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, target in zip(_RUNTIME, objects, strict=True):
            if not target.exists():
                part = target.with_suffix(".part")
                source = root / "include" / name
                options = ["-std=c++17", "-O1", "-w", *_DEFINES, *include]
                _run([compiler(), *options, "-c", source, "-o", part], folder, simulator)
                part.rename(target)
    return objects


def build_checker(target: Target) -> Path:
    """Build the checker of ``target``, or find the one built from the same text.

    Returns
    -------
    Path
        The program; ``check.cpp`` tells its arguments and what it prints.

    Errors
    ------
    UserError if a tool is missing or fails.
    """
    simulator = find_simulator()
    rtlil, _ = elaborate(target.unit(), TOP)
    defines = [f"-DOPERATION={target.operation}", f"-DSOURCE={target.source.name.upper()}"]
    defines += [f"-DRESULT={target.result.name.upper()}"]
    key = hashlib.sha256(rtlil.encode())
    for name in _SOURCES:
        key.update((_HERE / name).read_bytes())
    key.update(repr((defines, simulator.version, compiler())).encode())
    folder = build_root() / f"exhaust-{target.name}-{key.hexdigest()[:12]}"
    program = folder / "check"
    with locked(folder):
        if program.exists():
            return program
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        planes = to_planes(rtlil, folder)
        verilate = ["verilator", "--cc", "--quiet", "-Wno-fatal", "-O3", "--top-module", TOP]
        _run([*verilate, "--prefix", "Vunit", "--Mdir", ".", planes.name], folder, simulator)
        root = Path(_run(["verilator", "--getenv", "VERILATOR_ROOT"], folder, simulator).strip())
        include = ["-I.", f"-I{_HERE}"]
        include += [f"-isystem{root / 'include' / part}" for part in ("", "vltstd")]
        # One file, since most of the compiler's time goes into Verilator's headers.
        sources = [_HERE / "check.cpp", *sorted(folder.glob("Vunit*.cpp"))]
        (folder / "all.cpp").write_text("".join(f'#include "{source}"\n' for source in sources))
        objects = _runtime(simulator, include, root)
        command = [compiler(), *_FLAGS, *_DEFINES, *defines, *include, "all.cpp"]
        command += [*objects, "-lpthread", "-o", "check.part"]
        _run(command, folder, simulator)
        (folder / "check.part").rename(program)
    return program
