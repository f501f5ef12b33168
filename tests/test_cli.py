"""The command line: help with examples, and one plain line for what a user can mend."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from dysharp.cli import VERBS, build_parser, main


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
        ("demo --tokens 0", "Value must be an integer of at least 1, not '0'"),
        ("demo --seed -1", "at least 0, not '-1'"),
    ],
)
def test_a_mistake_is_one_plain_line(
    line: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    argv = line.format(out=tmp_path / "out", file=tmp_path / "file").split()
    assert text in said(argv, capsys)


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
