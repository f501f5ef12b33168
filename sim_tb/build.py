"""Turning Verilog into a simulation, once.

A build is filed under the hash of the Verilog, the options and the tool, so it is made once and
found again by every later run; a file lock lets two test workers share it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocotb_tools import runner as cocotb_runner

from dysharp.sim_tb.tools import Simulator

__all__ = ["Build", "SimulationFailed", "build_root", "build_simulation", "locked", "make_runner"]

_MARK = "built"
_RUNTIME = ("verilated.o", "verilated_dpi.o", "verilated_vpi.o", "verilated_threads.o")


class SimulationFailed(AssertionError):
    """A test in the simulator failed, or the simulation could not be built; the text says how."""


@dataclass(frozen=True)
class Build:
    """A simulation that is ready to run.

    Parameters
    ----------
    path : Path
        Its folder.
    top : str
        Name of the top module.
    simulator : Simulator
    waves : bool
        Whether it can record waves.
    """

    path: Path
    top: str
    simulator: Simulator
    waves: bool


def build_root() -> Path:
    """Where generated RTL and simulations are kept: ``build/sim`` here, or ``DYSHARP_BUILD``."""
    return Path(os.environ.get("DYSHARP_BUILD", "build/sim")).resolve()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of ``path`` (a file of that name and ``.lock``) against other processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _VerilatorRunner(cocotb_runner.Verilator):
    """cocotb's runner, with only the top's ports visible and the runtime library compiled once.

    Making every signal public, as cocotb does, forbids Verilator most of its optimisations.
    """

    public: Sequence[str] = ("--public-depth", "1")
    runtime: Path | None = None

    def _build_command(self) -> list[Any]:
        commands = [list(command) for command in super()._build_command()]
        at = commands[0].index("--public-flat-rw")
        commands[0][at : at + 1] = self.public
        return commands

    def _execute_cmds(self, cmds: Any, cwd: Any, stdout: Any = None) -> None:
        if len(cmds) != 2 or self.runtime is None:
            return super()._execute_cmds(cmds, cwd, stdout)
        super()._execute_cmds(cmds[:1], cwd, stdout)
        with locked(self.runtime):
            for name in _RUNTIME:
                if (self.runtime / name).exists():
                    shutil.copy(self.runtime / name, self.build_dir / name)
        super()._execute_cmds(cmds[1:], cwd, stdout)
        with locked(self.runtime):
            self.runtime.mkdir(exist_ok=True)
            for name in _RUNTIME:
                if not (self.runtime / name).exists() and (self.build_dir / name).exists():
                    shutil.copy(self.build_dir / name, self.runtime / name)


def make_runner(simulator: Simulator) -> cocotb_runner.Runner:
    """cocotb's runner for ``simulator``, with its environment."""
    if simulator.name == "verilator":
        runner: cocotb_runner.Runner = _VerilatorRunner()
    else:
        runner = cocotb_runner.get_runner(simulator.name)
    runner.env = {}
    return runner


@contextlib.contextmanager
def environment(simulator: Simulator) -> Iterator[None]:
    """Run code under the simulator's environment: cocotb's runner reads ``os.environ``."""
    saved = dict(os.environ)
    os.environ.update(simulator.environment)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def build_simulation(
    verilog: Path,
    top: str,
    simulator: Simulator,
    *,
    name: str,
    waves: bool = False,
    public: bool = False,
    separate: Sequence[str] = (),
    build_dir: Path | None = None,
) -> Build:
    """Build ``verilog``, or find the build of the same text and options.

    Parameters
    ----------
    verilog : Path
    top : str
        Name of the top module.
    simulator : Simulator
    name : str
        Start of the folder's name, for people.
    waves : bool
        Make it able to record waves (a VCD).
    public : bool
        Make every inner signal readable by the test, at a great cost in speed.
    separate : sequence of str
        Modules that Verilator compiles once each and instantiates. It flattens everything else:
        the code of eight equal GPUs is eight times as long and as slow to compile.
    build_dir : Path or None
        Folder for it; by default one under :func:`build_root` named by the hash.

    Raises
    ------
    SimulationFailed
        With the first error lines of the tool.
    """
    # Icarus starts at an unknown time unit otherwise.
    arguments = ["-Wno-fatal"] if simulator.name == "verilator" else []
    key = hashlib.sha256(verilog.read_bytes())
    separate = sorted(separate) if simulator.name == "verilator" and not public else []
    if separate:
        arguments.append("--hierarchical")
    options = (top, simulator.name, simulator.version, waves, public, *arguments, *separate)
    key.update(repr((options, simulator.environment.get("MAKEFLAGS"))).encode())
    digest = key.hexdigest()[:12]
    path = build_dir.resolve() if build_dir else build_root() / f"{name}-{digest}"
    build = Build(path, top, simulator, waves)
    with locked(path):
        mark = path / _MARK
        if mark.exists() and mark.read_text() == digest:
            return build
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        runner = make_runner(simulator)
        if isinstance(runner, _VerilatorRunner):
            runner.runtime = build_root() / f"runtime-{simulator.version}-{int(waves)}"
            if public:
                runner.public = ("--public-flat-rw",)
        sources: list[Path] = [verilog.resolve()]
        if separate:
            control = path / "separate.vlt"
            lines = [f'hier_block -module "{module}"' for module in separate]
            control.write_text("\n".join(["`verilator_config", *lines, ""]))
            sources.insert(0, control)
        log = path / "build.log"
        try:
            with environment(simulator):
                runner.build(
                    sources=sources,
                    hdl_toplevel=top,
                    build_dir=path,
                    build_args=arguments,
                    timescale=("1ns", "1ps"),
                    waves=waves,
                    log_file=log,
                )
        except (RuntimeError, SystemExit, subprocess.SubprocessError) as error:
            lines = log.read_text(errors="replace").splitlines() if log.exists() else [str(error)]
            wrong = [line for line in lines if "rror" in line][:5] or lines[-5:]
            raise SimulationFailed(
                f"building {name} failed ({log}):\n" + "\n".join(wrong)
            ) from error
        mark.write_text(digest)
    return build
