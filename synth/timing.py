"""Static timing of a mapped netlist with OpenSTA, where it is installed.

Nothing is placed or routed: wires have no delay and the clock reaches all registers at once. Every
figure carries the corner it was taken in.
"""

import functools
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dysharp.hw.errors import UserError
from dysharp.synth.corner import Corner

__all__ = ["Timing", "analyse", "sta_version"]

_PROGRAM = "sta"
_SCRIPT = """\
{libraries}
set_cmd_units -time ps -capacitance fF
read_verilog {netlist}
link_design {top}
{clock}
set inputs [list]
foreach port [all_inputs] {{
  if {{[lsearch -exact {{{untimed}}} [get_property $port full_name]] < 0}} {{
    lappend inputs $port
  }}
}}
if {{[llength $inputs]}} {{
  set_driving_cell -lib_cell {driving_cell} $inputs
  set_input_delay 0 -clock clock $inputs
}}
set_load {load} [all_outputs]
set_output_delay 0 -clock clock [all_outputs]
report_checks -path_delay max -digits 3 -fields {{capacitance slew fanout}}
"""
"""The units come behind the libraries: the other way round OpenSTA misreads the libraries' own."""
_NUMBER = r"^\s*(-?\d+\.\d+)\s+"
_ARRIVAL = re.compile(_NUMBER + "data arrival time", re.MULTILINE)
_SLACK = re.compile(_NUMBER + "slack", re.MULTILINE)
_POINT = r"^{}: (\S+)"


@dataclass(frozen=True)
class Timing:
    """The slowest path. Times are in picoseconds.

    Attributes
    ----------
    corner : libraries and conditions
    period : what was asked for
    slack : what is left of it; negative if the path is too slow
    arrival : when the last data arrives, counted from the clock's edge
    startpoint, endpoint : where the path begins and ends: a port or a register
    path : OpenSTA's report of it, cell by cell
    """

    corner: str
    period: float
    slack: float
    arrival: float
    startpoint: str
    endpoint: str
    path: str

    @property
    def shortest_period(self) -> float:
        """The period at which nothing is left, set-up of the register included."""
        return self.period - self.slack

    @property
    def ghz(self) -> float:
        """The highest frequency."""
        return 1e3 / self.shortest_period


@functools.cache
def sta_version() -> str | None:
    """Version of the OpenSTA on the path; None if there is none."""
    if shutil.which(_PROGRAM) is None:
        return None
    done = subprocess.run([_PROGRAM, "-version"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def analyse(
    netlist: Path,
    top: str,
    corner: Corner,
    *,
    period: float,
    clock: str | None = "clk",
    untimed: Sequence[str] = ("rst",),
    driving_cell: str | None = None,
    load: float | None = None,
) -> Timing | None:
    """Find the slowest path from a register or an input to a register or an output.

    Inputs change at the clock's edge, each driven by ``driving_cell``; outputs must be there at the
    next one.

    Parameters
    ----------
    netlist : Verilog of cells of the corner
    top : the module to look at
    corner : the libraries
    period : of the clock, in picoseconds
    clock : the input that is the clock; None for a design without registers, which is then timed
        from its inputs to its outputs
    untimed : inputs that do not count, such as a reset; those that do not exist are ignored
    driving_cell, load : at the edges, the load in femtofarad; the corner's by default

    Returns
    -------
    Timing or None
        None if OpenSTA is not installed.

    Raises
    ------
    UserError
        For a corner without delays, and for what OpenSTA refuses: the message is its own.
    """
    if sta_version() is None:
        return None
    if period <= 0:
        raise ValueError(f"Period must be above 0 ps, not {period!r}")
    driver = driving_cell or corner.driving_cell
    if not corner.has_timing or driver is None:
        raise UserError(f"{corner.name}: timing needs a library with delays and an inverter")
    folder = netlist.parent
    written = _SCRIPT.format(
        libraries="\n".join(f"read_liberty {{{name}}}" for name in corner.write(folder)),
        netlist=netlist.name,
        top=top,
        clock=f"create_clock -name clock -period {period:g} {clock or ''}",
        untimed=" ".join(filter(None, (clock, *untimed))),
        driving_cell=driver,
        load=f"{corner.load if load is None else load:g}",
    )
    script = netlist.with_suffix(".tcl")
    script.write_text(written)
    return _read_report(_run(script), corner, period, netlist)


def _run(script: Path) -> str:
    done = subprocess.run(
        [_PROGRAM, "-no_init", "-no_splash", "-exit", script.name],
        cwd=script.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    report = done.stdout
    # It goes on after an error, and its status is 0 all the same.
    error = re.search(r"^Error: (.*)", report, re.MULTILINE)
    if done.returncode or error:
        said = error[1] if error else report.strip()[-300:]
        raise UserError(f"OpenSTA failed in {script.parent}: {said}")
    return report


def _read_report(report: str, corner: Corner, period: float, netlist: Path) -> Timing:
    arrival, slack = _ARRIVAL.search(report), _SLACK.search(report)
    points = [
        re.search(_POINT.format(name), report, re.MULTILINE) for name in ("Startpoint", "Endpoint")
    ]
    start, end = points
    if not (arrival and slack and start and end):
        raise UserError(f"{netlist}: OpenSTA must find a path from a register or an input")
    return Timing(
        corner=str(corner),
        period=period,
        slack=float(slack[1]),
        arrival=float(arrival[1]),
        startpoint=start[1],
        endpoint=end[1],
        path=report[report.index("Startpoint:") :].strip(),
    )
