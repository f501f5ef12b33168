"""A library of four cells with round delays, for tests whose timing can be counted by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest

DELAYS = {"INV": 100, "NAND2": 200, "BUF": 150, "DFF": 300, "SETUP": 50}
"""Picoseconds."""


def _scalars(ps: float, *tables: str) -> str:
    return " ".join(f'{table}(scalar) {{ values("{ps / 1e3}"); }}' for table in tables)


def _arc(pin: str, ps: int, extra: str = "") -> str:
    delays = _scalars(ps, "cell_rise", "cell_fall")
    slews = _scalars(10, "rise_transition", "fall_transition")
    return f'timing() {{ related_pin : "{pin}"; {extra} {delays} {slews} }}'


def _input(name: str, extra: str = "") -> str:
    return f"pin ({name}) {{ direction : input; capacitance : 0.002; {extra} }}"


def _gate(name: str, area: float, pins: str, function: str, sense: str) -> str:
    arcs = "".join(_arc(pin, DELAYS[name], f"timing_sense : {sense};") for pin in pins)
    inputs = "".join(map(_input, pins))
    output = f'pin (Y) {{ direction : output; function : "{function}"; {arcs} }}'
    return f"cell ({name}) {{ area : {area}; {inputs} {output} }}\n"


def _write_library(path: Path, *, voltage: str = "1.2", flipflops: bool = True) -> Path:
    """Write it; times are in nanoseconds and loads in picofarad."""
    limits = _scalars(DELAYS["SETUP"], "rise_constraint", "fall_constraint")
    setup = f'timing() {{ related_pin : "C"; timing_type : setup_rising; {limits} }}'
    flipflop = (
        'cell (DFF) { area : 5; ff (IQ, IQN) { clocked_on : "C"; next_state : "D"; } '
        + _input("C", "clock : true;")
        + _input("D", setup)
        + 'pin (Q) { direction : output; function : "IQ"; '
        + _arc("C", DELAYS["DFF"], "timing_type : rising_edge;")
        + "} }\n"
    )
    thresholds = "".join(
        f"{kind}_{edge} : {percent};\n"
        for edge in ("rise", "fall")
        for kind, percent in (
            ("input_threshold_pct", 50),
            ("output_threshold_pct", 50),
            ("slew_lower_threshold_pct", 20),
            ("slew_upper_threshold_pct", 80),
        )
    )
    path.write_text(
        "library (round_tt) {\n"
        'time_unit : "1ns"; capacitive_load_unit (1, pf); voltage_unit : "1V";\n'
        'current_unit : "1mA"; pulling_resistance_unit : "1kohm"; delay_model : table_lookup;\n'
        f"nom_voltage : {voltage}; nom_temperature : 25; nom_process : 1;\n"
        + thresholds
        + _gate("INV", 1, "A", "!A", "negative_unate")
        + _gate("BUF", 1.5, "A", "A", "positive_unate")
        + _gate("NAND2", 2, "AB", "!(A*B)", "negative_unate")
        + (flipflop if flipflops else "")
        + "}\n"
    )
    return path


@pytest.fixture
def round_library(tmp_path: Path) -> Callable[..., Path]:
    """Writes the library: a NAND2 is 2 and takes 200 ps, whatever it drives."""

    def write(name: str = "round_tt.lib", **options) -> Path:
        return _write_library(tmp_path / name, **options)

    return write
