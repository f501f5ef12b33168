"""A combinational unit as bit planes: 64 copies of it at work in every machine word.

Yosys turns the unit into gates; here every wire becomes a 64-bit word and every gate one operation
on words, so that a simulator that compiles to machine code computes 64 results at once. That is
some ten times faster than 64 evaluations of the unit as it was written.
"""

from __future__ import annotations

import json
from pathlib import Path

from dysharp.hw.generate import run_yosys

__all__ = ["TOP", "to_planes"]

TOP = "unit"
"""Name of the module, before and after."""

_SCRIPT = """\
read_rtlil {top}.il
synth -flatten -noabc -top {top}
abc -g AND,OR,XOR,ANDNOT,ORNOT,NAND,NOR,XNOR,MUX
opt_clean -purge
delete t:$scopeinfo
write_json {top}.json
"""

_GATES = {
    "$_NOT_": "~{A}",
    "$_AND_": "{A} & {B}",
    "$_OR_": "{A} | {B}",
    "$_XOR_": "{A} ^ {B}",
    "$_ANDNOT_": "{A} & ~{B}",
    "$_ORNOT_": "{A} | ~{B}",
    "$_NAND_": "~({A} & {B})",
    "$_NOR_": "~({A} | {B})",
    "$_XNOR_": "~({A} ^ {B})",
    "$_MUX_": "({S} & {B}) | (~{S} & {A})",
}


def to_planes(rtlil: str, folder: Path) -> Path:
    """Write SystemVerilog of the unit as bit planes.

    Parameters
    ----------
    rtlil : str
        A combinational module :data:`TOP` with inputs ``a`` and perhaps ``b``, output ``o``.
    folder : Path
        Where the files go.

    Returns
    -------
    Path
        A module :data:`TOP` with ports of the same names, each an array of 64-bit planes: bit n of
        plane k is bit k of copy n. It always has a port ``b``.

    Errors
    ------
    ValueError for a unit that has registers or other ports.
    """
    (folder / f"{TOP}.il").write_text(rtlil)
    run_yosys(_SCRIPT.format(top=TOP), folder=folder)
    module = json.loads((folder / f"{TOP}.json").read_text())["modules"][TOP]
    ports = module["ports"]
    if set(ports) - {"b"} != {"a", "o"}:
        raise ValueError(f"Ports must be a, b and o, or a and o, not {', '.join(sorted(ports))}")

    words: dict[int | str, str] = {"0": "64'd0", "1": "~64'd0", "x": "64'd0"}
    for port in ("a", "b"):
        for k, bit in enumerate(ports.get(port, {"bits": []})["bits"]):
            words[bit] = f"{port}[{k}]"
    cells = [(cell["type"], cell["connections"]) for cell in module["cells"].values()]
    for kind, links in cells:
        if kind not in _GATES:
            raise ValueError(f"Unit must be combinational, not with a {kind}")
        words[links["Y"][0]] = f"n{links['Y'][0]}"

    widths = {"a": len(ports["a"]["bits"]), "o": len(ports["o"]["bits"])}
    widths["b"] = widths["a"]
    lines = [f"module {TOP}("]
    lines += [f"  input logic [63:0] {port} [0:{widths[port] - 1}]," for port in ("a", "b")]
    lines += [f"  output logic [63:0] o [0:{widths['o'] - 1}]", ");"]
    for kind, links in cells:
        gate = _GATES[kind].format(**{pin: words[bits[0]] for pin, bits in links.items()})
        lines.append(f"  wire [63:0] {words[links['Y'][0]]} = {gate};")
    for k, bit in enumerate(ports["o"]["bits"]):
        lines.append(f"  assign o[{k}] = {words[bit]};")
    path = folder / f"{TOP}.sv"
    path.write_text("\n".join([*lines, "endmodule", ""]))
    return path
