"""A combinational unit evaluated for whole arrays of operands, without a simulator.

Yosys turns the unit into gates. Each wire is then a numpy array of bits and each gate one operation
on arrays: a million operands take a fraction of a second, and nothing is compiled.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from amaranth.lib.wiring import Component
from numpy.typing import ArrayLike, NDArray

from dysharp.hw.generate import elaborate, run_yosys

__all__ = ["Gates"]

Plane = NDArray[np.uint8]

_SCRIPT = (
    "read_rtlil unit.il; synth -flatten -noabc -top unit; delete t:$scopeinfo; write_json unit.json"
)

_GATES: dict[str, Callable[..., Plane]] = {
    "$_NOT_": lambda A: ~A,
    "$_AND_": lambda A, B: A & B,
    "$_OR_": lambda A, B: A | B,
    "$_XOR_": lambda A, B: A ^ B,
    "$_ANDNOT_": lambda A, B: A & ~B,
    "$_ORNOT_": lambda A, B: A | ~B,
    "$_NAND_": lambda A, B: ~(A & B),
    "$_NOR_": lambda A, B: ~(A | B),
    "$_XNOR_": lambda A, B: ~(A ^ B),
    "$_MUX_": lambda A, B, S: A ^ ((A ^ B) & S),
}


class Gates:
    """The gates of a component, ready to be evaluated.

    Parameters
    ----------
    component : Component
        Combinational, with ports of at most 64 bits.

    Errors
    ------
    ValueError if it has registers.
    """

    def __init__(self, component: Component):
        text, _ = elaborate(component, "unit")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "unit.il").write_text(text)
            run_yosys(_SCRIPT, folder=folder)
            module = json.loads((folder / "unit.json").read_text())["modules"]["unit"]
        self._ports: dict[str, dict[str, Any]] = module["ports"]
        self._cells = _in_order(module["cells"].values())

    def __call__(self, **inputs: ArrayLike) -> dict[str, NDArray[np.uint64]]:
        """Evaluate.

        Parameters
        ----------
        **inputs : array_like
            An array for each input port, all of one length, or single numbers.

        Returns
        -------
        dict
            An array for each output port.
        """
        arrays = np.broadcast_arrays(*(np.asarray(v, dtype=np.uint64) for v in inputs.values()))
        count = arrays[0].size
        zeros = np.zeros(-(-count // 8), dtype=np.uint8)
        wires: dict[int | str, Plane] = {"0": zeros, "1": ~zeros, "x": zeros}
        for name, values in zip(inputs, arrays, strict=True):
            for k, wire in enumerate(self._ports[name]["bits"]):
                wires[wire] = np.packbits((values.ravel() >> np.uint64(k)).astype(np.uint8) & 1)
        for kind, output, pins in self._cells:
            wires[output] = _GATES[kind](**{pin: wires[wire] for pin, wire in pins.items()})
        return {
            name: _number([wires[wire] for wire in port["bits"]], count)
            for name, port in self._ports.items()
            if port["direction"] == "output"
        }


def _number(planes: list[Plane], count: int) -> NDArray[np.uint64]:
    total = np.zeros(count, dtype=np.uint64)
    for k, plane in enumerate(planes):
        total |= np.unpackbits(plane, count=count).astype(np.uint64) << np.uint64(k)
    return total


def _in_order(cells) -> list[tuple[str, int | str, dict[str, int | str]]]:
    """Gates with their output and input wires, each after those that it depends on."""
    waiting = []
    for cell in cells:
        if cell["type"] not in _GATES:
            raise ValueError(f"Unit must be combinational, not with a {cell['type']}")
        pins = {pin: wires[0] for pin, wires in cell["connections"].items()}
        waiting.append((cell["type"], pins.pop("Y"), pins))
    driver = {output: (kind, output, pins) for kind, output, pins in waiting}
    ordered: dict[int | str, tuple[str, int | str, dict[str, int | str]]] = {}
    stack = list(driver)
    while stack:
        output = stack[-1]
        missing = [w for w in driver[output][2].values() if w in driver and w not in ordered]
        if missing:
            stack += missing
        else:
            ordered[output] = driver[stack.pop()]
    return list(ordered.values())
