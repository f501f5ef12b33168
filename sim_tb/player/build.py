"""The player of a switch: its Verilog verilated, and the player in C++ round it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.packet import CMD_RULES, Header, Tag
from dysharp.sim_tb.build import build_root, locked
from dysharp.sim_tb.native.build import compiler
from dysharp.sim_tb.player.wire import place_of
from dysharp.sim_tb.run import generated
from dysharp.sim_tb.tools import Simulator, find_simulator

__all__ = ["build_player"]

_HERE = Path(__file__).resolve().parent
_SOURCES = ("player.cpp", "port.h", "script.h", "arrays.h", "pins.h")
_PREFIX = "Vtop"
_FLAGS = ("-std=c++17", "-O2", *(f"-DVM_{name}=0" for name in ("COVERAGE", "SC", "TRACE")))
_BLOCK = "port_"
"""Start of the name of the module that is compiled once and placed at every port."""


def _wire_header() -> str:
    """The few bit positions that C++ needs, from the one place where they are declared."""
    answered = sum(1 << cmd.value for cmd, rule in CMD_RULES.items() if rule.answered)
    values = {
        "TAG_SHIFT": place_of(Header, "tag")[0],
        "LOCAL_BITS": place_of(Tag, "local")[1],
        "PORT_BITS": place_of(Tag, "port")[1],
        "CMD_SHIFT": place_of(Header, "cmd")[0],
        "CMD_BITS": place_of(Header, "cmd")[1],
        "ANSWERED_CMDS": f"{answered}u",
    }
    lines = [f"static const unsigned {name} = {value};" for name, value in values.items()]
    return "\n".join(["#pragma once", *lines, ""])


def _pins(ports: int) -> str:
    """pins.cpp: what pins.h declares, for a switch of so many ports."""

    def stream(name: str) -> str:
        fields = ("tvalid", "tready", "tlast", "tuser")
        return ", ".join([*(f"&top->{name}_{f}" for f in fields), f"top->{name}_tdata.data()"])

    def entry(p: int) -> str:
        streams = ", ".join(
            "{" + stream(f"p{p}_{name}") + "}" for name in ("rx_req", "rx_rsp", "tx_req", "tx_rsp")
        )
        log = ", ".join(f"&top->p{p}_log_{name}" for name in ("valid", "stage", "source", "maddr"))
        return f"        {{{streams}, {log}}},"

    axil = "awvalid awready wvalid wready bvalid bready bresp arvalid arready rvalid rready rresp"
    pins = ", ".join(f"&top->s_axil_{name}" for name in [*axil.split(), "wstrb", "wdata", "rdata"])
    return "\n".join(
        [
            f'#include "{_PREFIX}.h"',
            '#include "pins.h"',
            f"static {_PREFIX}* top = new {_PREFIX};",
            "Dut::Dut() {",
            "    ports = {",
            *(entry(p) for p in range(ports)),
            "    };",
            f"    axil = {{{pins}}};",
            "}",
            "void Dut::eval(bool clk, bool rst) {",
            "    top->clk = clk;",
            "    top->rst = rst;",
            "    top->eval();",
            "}",
            "void Dut::address(uint32_t write, uint32_t read) {",
            "    top->s_axil_awaddr = write;",
            "    top->s_axil_araddr = read;",
            "}",
            "",
        ]
    )


def _run(command: Sequence[str | Path], folder: Path, simulator: Simulator) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=simulator.environment,
        capture_output=True,
        text=True,
    )
    (folder / "build.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        said = (done.stderr + done.stdout).strip().splitlines()
        wrong = [line for line in said if "rror" in line][:3] or said[-3:]
        raise UserError(f"{command[0]} failed in {folder}: " + " | ".join(wrong))
    return done.stdout


def _build_switch(config: Config, simulator: Simulator) -> Path:
    """The folder of the Verilated switch, its libraries in it; built or found."""
    manifest = generated("switch", config)
    verilog = Path(manifest["verilog"])
    blocks = [name for name in manifest["modules"] if name.startswith(_BLOCK)]
    control = [f'hier_block -module "{name}"' for name in blocks]
    arguments = ["--cc", "--hierarchical", "-Wno-fatal", "-O3"]
    key = hashlib.sha256(verilog.read_bytes())
    key.update(repr((arguments, simulator.version, simulator.environment["MAKEFLAGS"])).encode())
    folder = build_root() / f"switch-{config.name}-{key.hexdigest()[:12]}"
    mark = folder / "built"
    with locked(folder):
        if mark.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "separate.vlt").write_text("\n".join(["`verilator_config", *control, ""]))
        names = ["--top-module", manifest["top"], "--prefix", _PREFIX, "--Mdir", "."]
        _run(["verilator", *arguments, *names, "separate.vlt", verilog], folder, simulator)
        jobs = f"-j{os.cpu_count() or 1}"
        _run(["make", jobs, "-f", f"{_PREFIX}_hier.mk"], folder, simulator)
        mark.touch()
    return folder


def build_player(config: Config) -> Path:
    """Build the player of a configuration's switch, or find the one built from the same text.

    Parameters
    ----------
    config : the configuration

    Returns
    -------
    Path
        The program; player.cpp tells its arguments.

    Raises
    ------
    UserError
        If a tool is missing or fails.
    """
    simulator = find_simulator(optimize=True, level="-O2")
    switch = _build_switch(config, simulator)
    texts = {"pins.cpp": _pins(config.ports), "wire.h": _wire_header()}
    texts |= {name: (_HERE / name).read_text() for name in _SOURCES}
    key = hashlib.sha256(repr((texts, _FLAGS)).encode())
    folder = switch / f"player-{key.hexdigest()[:12]}"
    program = folder / "player"
    with locked(folder):
        if program.exists():
            return program
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text)
        where = _run(["verilator", "--getenv", "VERILATOR_ROOT"], folder, simulator).strip()
        root = Path(where) / "include"
        include = [f"-I{switch}", f"-isystem{root}", f"-isystem{root / 'vltstd'}"]
        # A library needs those that come behind it: the top its blocks, all of them Verilator's.
        libraries = sorted(switch.rglob("lib*.a"), key=lambda path: path.name != f"lib{_PREFIX}.a")
        libraries.sort(key=lambda path: path.name == "libverilated.a")
        command = [compiler(), *_FLAGS, *include, "player.cpp", "pins.cpp", *libraries]
        _run([*command, "-lpthread", "-o", "player.part"], folder, simulator)
        (folder / "player.part").rename(program)
    return program
