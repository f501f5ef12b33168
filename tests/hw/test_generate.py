"""Generated Verilog: names that tools expect, each module once, no initial values, lint clean."""

import json
import re
import sys
from pathlib import Path

import pytest
from amaranth import Module
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import Component, In, Out, Signature

from dysharp.hw import generate
from dysharp.hw.axi import axi4
from dysharp.hw.config import load_preset
from dysharp.hw.errors import UserError
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.share import ModuleLibrary, place


class Record(data.Struct):
    one: 1
    two: 2


class Queues(Component):
    """Two queues a port, to see them written once."""

    def __init__(self, ports: int):
        port = Signature({"rx": In(FlitStream), "tx": Out(FlitStream)})
        super().__init__(
            {
                "p": Out(port).array(ports),
                "record": In(stream.Signature(Record)),
                "plain": Out(Record),
                "m_axi": Out(axi4(data_width=128)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        for port in self.p:
            first, second = Fifo(shape=Flit, depth=8), Fifo(shape=Flit, depth=8)
            m.submodules += [place(first), place(second)]
            wiring.connect(m, wiring.flipped(port.rx), first.i)
            wiring.connect(m, first.o, second.i)
            wiring.connect(m, second.o, wiring.flipped(port.tx))
        return m


@pytest.fixture
def queues(monkeypatch, tmp_path):
    monkeypatch.setitem(generate.BLOCKS, "queues", ("", ""))
    monkeypatch.setattr(generate, "build_block", lambda block, config: Queues(config.ports))
    return tmp_path


def test_ports_have_the_names_that_other_tools_expect(queues):
    manifest = generate.generate(load_preset("tiny"), "queues", queues)
    assert {f"p3_rx_t{name}" for name in ("data", "valid", "ready", "last", "user")} <= set(
        manifest["ports"]
    )
    assert manifest["ports"]["p0_tx_tdata"] == {"direction": "output", "width": 128}
    assert manifest["ports"]["p0_tx_tready"]["direction"] == "input"
    assert manifest["ports"]["record_two"] == {"direction": "input", "width": 2}
    assert manifest["ports"]["record_ready"]["direction"] == "output"
    assert manifest["ports"]["plain_one"]["direction"] == "output"
    assert manifest["ports"]["m_axi_rdata"] == {"direction": "input", "width": 128}
    verilog = (queues / "dysharp_queues.v").read_text()
    declared = set(
        re.findall(r"^  (?:in|out)put (?:\[\d+:0\] )?(\w+);", verilog.split("endmodule")[0], re.M)
    )
    assert declared >= set(manifest["ports"])


def test_a_module_placed_many_times_is_written_once(queues):
    manifest = generate.generate(load_preset("nvl8"), "queues", queues)
    verilog = (queues / "dysharp_queues.v").read_text()
    assert len(re.findall(r"^module fifo_8x130\(", verilog, re.M)) == 1
    assert manifest["modules"]["fifo_8x130"] == 16
    assert manifest["memories"] == [
        {"module": "ram_8x130_wt", "width": 130, "depth": 8, "instances": 16, "bits": 16 * 8 * 130}
    ]
    assert json.loads((queues / "dysharp_queues.json").read_text()) == manifest


def test_nothing_depends_on_initial_values(queues):
    generate.generate(load_preset("tiny"), "queues", queues)
    verilog = (queues / "dysharp_queues.v").read_text()
    assert "initial" not in verilog
    assert not re.search(r"^  reg .*=", verilog, re.M)


def test_modules_of_one_name_must_have_the_same_ports():
    class Liar(Component):
        module_name = "liar"

        def __init__(self, width):
            super().__init__({"o": Out(width)})

        def elaborate(self, platform):
            return Module()

    with ModuleLibrary():
        place(Liar(1))
        with pytest.raises(ValueError, match="with different ports apart"):
            place(Liar(2))


def test_unknown_blocks_and_formats_are_plain_errors(tmp_path):
    with pytest.raises(UserError, match="block: Block must be one of"):
        generate.generate(load_preset("tiny"), "swich", tmp_path)
    with pytest.raises(UserError, match="formats: must be of verilog, rtlil, not 'vhdl'"):
        generate.generate(load_preset("tiny"), "switch", tmp_path, formats=("vhdl",))


def test_yosys_with_a_home_that_cannot_be_written(monkeypatch, tmp_path):
    """Its own cache is then in the environment of Python."""
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("YOWASP_CACHE_DIR", raising=False)
    monkeypatch.setattr(generate.platformdirs, "user_cache_path", lambda *a, **k: tmp_path / "file")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    environment = generate._yosys_environment.__wrapped__()
    assert environment
    assert Path(environment["YOWASP_CACHE_DIR"]).is_relative_to(tmp_path / "venv")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set YOWASP_CACHE_DIR"):
        generate._yosys_environment.__wrapped__()
