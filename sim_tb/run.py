"""One call from a configuration to a verdict: generate, build, simulate, read the results.

``run_block`` is what pytest calls. A failure is one exception whose text names the failed tests,
their messages, and the one command that repeats the run with the same seed.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from dysharp.hw.errors import UserError
from dysharp.sim_tb.build import (
    Build,
    SimulationFailed,
    build_root,
    build_simulation,
    environment,
    locked,
    make_runner,
)
from dysharp.sim_tb.tools import find_simulator

__all__ = ["Run", "SimulationFailed", "default_seed", "generated", "main", "run_block"]


@dataclass(frozen=True)
class Run:
    """What a simulation run left behind.

    Attributes
    ----------
    path : Path
        Its folder: ``sim.log``, ``results.xml``, ``run.json``, waves, and whatever the test wrote
        to its current folder.
    tests : dict of str to float
        Seconds each test took.
    seconds : float
        Wall time of the simulation, without generating and building.
    seed : int
    """

    path: Path
    tests: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    seed: int = 0


def default_seed() -> int:
    """The seed of a run that is given none: ``DYSHARP_SEED``, or 1."""
    return int(os.environ.get("DYSHARP_SEED", "1"))


@functools.cache
def _hardware_digest() -> str:
    """Hash of all that generates RTL, so that generated files are found again."""
    digest = hashlib.sha256()
    root = Path(__file__).resolve().parent.parent / "hw"
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def generated(block: str, config: Any) -> dict[str, Any]:
    """The manifest of ``block`` in ``config``, generated now or found from an earlier run.

    Parameters
    ----------
    block : str
        As ``hw.generate`` names it.
    config : dysharp.hw.config.Config

    Returns
    -------
    dict
        What ``hw.generate`` returned; ``verilog`` is an absolute path.
    """
    from dysharp.hw.generate import generate

    key = hashlib.sha256(f"{block} {config!r} {_hardware_digest()}".encode()).hexdigest()[:12]
    path = build_root() / "rtl" / f"{block}-{config.name}-{key}"
    with locked(path):
        saved = path / "manifest.json"
        if saved.exists():
            return json.loads(saved.read_text())
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        manifest = dict(generate(config, block, path))
        manifest["verilog"] = str((path / manifest["verilog"]).resolve())
        saved.write_text(json.dumps(manifest, default=str, indent=1))
    return manifest


def run_block(
    block: str | Path,
    config: Any = None,
    test_module: str = "",
    *,
    top: str = "top",
    tests: Sequence[str] | None = None,
    seed: int | None = None,
    params: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    waves: bool = False,
    stalls: float = 0.0,
    optimize: bool = False,
    public: bool = False,
    separate: Sequence[str] = (),
    simulator: str = "verilator",
    build_dir: Path | None = None,
) -> Run:
    """Run the cocotb tests of ``test_module`` on a block.

    Parameters
    ----------
    block : str or Path
        A block that ``hw.generate`` knows, or a Verilog file (then ``top`` names its top module).
    config : dysharp.hw.config.Config
        Not needed for a Verilog file.
    test_module : str
        Full name, or several, joined by commas; all of ``sim_tb/<block>/*_tests.py`` by default.
    tests : sequence of str or None
        Which of its tests; all by default.
    seed : int or None
        For every random choice; :func:`default_seed` by default.
    params : mapping or None
        JSON types, handed to the test as ``Bench.params``.
    env : mapping or None
        More environment variables.
    waves : bool
        Record ``dump.vcd`` in the run's folder.
    stalls : float
        Stall probability that agents use by default on every interface.
    optimize : bool
        Compile the model with -Os: for runs above about a minute.
    public : bool
        Make inner signals readable.
    separate : sequence of str
        Start of the names of modules that occur several times and are large enough to be compiled
        once each, see :func:`~dysharp.sim_tb.build.build_simulation`.
    simulator : str
        ``"verilator"`` or ``"icarus"``.
    build_dir : Path or None
        Folder of the build; one under ``build/sim`` named by content by default.

    Returns
    -------
    Run

    Raises
    ------
    SimulationFailed
        If the build or a test fails.
    UserError
        If there is no simulator or compiler.
    """
    tool = find_simulator(simulator, optimize=optimize)
    seed = default_seed() if seed is None else seed
    settings = {"DYSHARP_PARAMS": json.dumps(dict(params or {})), "DYSHARP_STALLS": str(stalls)}
    modules: list[str] = []
    if isinstance(block, Path):
        verilog, name = block, block.stem
    else:
        manifest = generated(block, config)
        verilog, top, name = Path(manifest["verilog"]), manifest["top"], f"{block}-{config.name}"
        counts = manifest.get("modules", {})
        modules = [m for m, count in counts.items() if count > 1 and m.startswith(tuple(separate))]
        settings["DYSHARP_MANIFEST"] = str(verilog.parent / "manifest.json")
    build = build_simulation(
        verilog,
        top,
        tool,
        name=name,
        waves=waves,
        public=public,
        separate=modules,
        build_dir=build_dir,
    )
    test_module = test_module or _test_modules(str(block))
    return _simulate(build, test_module, tests, seed, {**settings, **(env or {})})


def _test_modules(block: str) -> str:
    """The modules with a block's tests."""
    files = sorted(Path(__file__).parent.joinpath(block).glob("*_tests.py"))
    return ",".join(f"dysharp.sim_tb.{block}.{file.stem}" for file in files)


def _simulate(
    build: Build,
    module: str,
    tests: Sequence[str] | None,
    seed: int,
    settings: dict[str, str],
) -> Run:
    node = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    identity = json.dumps([node, module, tests, seed, settings], sort_keys=True)
    label = re.sub(r"[^\w.-]+", "_", node.rpartition("::")[2] or module.rpartition(".")[2])[:60]
    path = build.path / "runs" / f"{label}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    with locked(path):
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        again = {
            "build": str(build.path),
            "top": build.top,
            "simulator": build.simulator.name,
            "waves": build.waves,
            "module": module,
            "tests": list(tests) if tests else None,
            "seed": seed,
            "settings": settings,
        }
        (path / "run.json").write_text(json.dumps(again, indent=1))
        if node and seed == default_seed():
            repeat = f"DYSHARP_SEED={seed} python -m pytest '{node}'"
        else:
            repeat = f"python -m dysharp.sim_tb.run {_short(path / 'run.json')}"
        started = time.perf_counter()
        runner = make_runner(build.simulator)
        pattern = rf"\.({'|'.join(map(re.escape, tests))})$" if tests else None
        try:
            with environment(build.simulator):
                os.environ.pop("PYTEST_CURRENT_TEST", None)
                runner.test(
                    test_module=module,
                    hdl_toplevel=build.top,
                    hdl_toplevel_lang="verilog",
                    test_filter=pattern,
                    seed=seed,
                    extra_env={"DYSHARP_SEED": str(seed), "COCOTB_ANSI_OUTPUT": "0", **settings},
                    waves=build.waves,
                    build_dir=build.path,
                    test_dir=path,
                    results_xml=str(path / "results.xml"),
                    log_file=path / "sim.log",
                )
        except (SystemExit, RuntimeError):
            pass  # The results say more; if there are none, _read_results says so.
        seconds = time.perf_counter() - started
        return Run(path, _read_results(path, repeat), seconds, seed)


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _read_results(path: Path, repeat: str) -> dict[str, float]:
    where = f"log: {_short(path / 'sim.log')}\nrepeat: {repeat}"
    log = (path / "sim.log").read_text(errors="replace") if (path / "sim.log").exists() else ""
    try:
        root = ElementTree.parse(path / "results.xml").getroot()
    except (OSError, ElementTree.ParseError):
        tail = "\n".join(log.splitlines()[-15:])
        raise SimulationFailed(f"the simulation ended without results:\n{tail}\n{where}") from None
    cases = root.findall(".//testcase")
    if not cases:
        raise SimulationFailed(f"no test was found to run\n{where}")
    failures = []
    for case in cases:
        for wrong in [*case.findall("failure"), *case.findall("error")]:
            message = wrong.get("message") or (wrong.text or "").strip() or "failed"
            failures.append(f"{case.get('name')}: {message}")
    if failures:
        raise SimulationFailed("\n".join([*failures, where]))
    return {case.get("name", ""): float(case.get("time", "0")) for case in cases}


def main(arguments: Sequence[str] | None = None) -> int:
    """Repeat a run from its ``run.json``; ``--seed`` tries another one."""
    parser = argparse.ArgumentParser(prog="python -m dysharp.sim_tb.run", description=main.__doc__)
    parser.add_argument("run", type=Path, help="run.json of the run to repeat")
    parser.add_argument("--seed", type=int, help="another seed")
    options = parser.parse_args(arguments)
    try:
        again = json.loads(options.run.read_text())
        tool = find_simulator(again["simulator"])
        build = Build(Path(again["build"]), again["top"], tool, again["waves"])
        seed = again["seed"] if options.seed is None else options.seed
        run = _simulate(build, again["module"], again["tests"], seed, again["settings"])
    except (OSError, json.JSONDecodeError, UserError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except SimulationFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(run.tests)} tests passed in {run.seconds:.1f} s (seed {run.seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
