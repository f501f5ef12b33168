"""The generated RTL of the whole: lint clean, no latches, and it grows slower than the ports."""

import subprocess

import pytest

from dysharp.hw.config import load_preset
from dysharp.hw.generate import generate
from dysharp.sim_tb.tools import find_simulator

LINKS = {"one_link": {}, "two_links": {"links": 2, "chunk_bytes": 256}}


@pytest.mark.slow
@pytest.mark.parametrize("changes", LINKS.values(), ids=LINKS)
def test_the_system_lints_clean(changes, tmp_path):
    """Every module is in it. ``-Wall`` includes widths, latches, loops and missing pins."""
    manifest = generate(load_preset("tiny", **changes), "system", tmp_path)
    simulator = find_simulator("verilator")
    done = subprocess.run(
        ["verilator", "--lint-only", "-Wall", manifest["verilog"]],
        env=simulator.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not done.stderr


@pytest.mark.slow
def test_four_times_the_ports_are_at_most_three_times_the_text(tmp_path):
    """Modules are written once; only what joins ports grows with them."""
    lines = {}
    for preset in ("nvl8", "nvl32"):
        manifest = generate(load_preset(preset), "switch", tmp_path / preset)
        with open(manifest["verilog"]) as file:
            lines[preset] = sum(1 for _ in file)
        assert manifest["modules"]["dysharp_switch"] == 1
    assert lines["nvl32"] <= 3 * lines["nvl8"], lines
