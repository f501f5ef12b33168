"""Files of named arrays, which the player maps into memory: a script, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_arrays", "write_arrays"]

_MAGIC = int.from_bytes(b"DARRAYS1", "little")
_ALIGN = 64
_ENTRY = np.dtype([("name", "S24"), ("item", "<u8"), ("offset", "<u8"), ("count", "<u8")])


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays; those of more than one dimension row by row."""
    entries = np.zeros(len(arrays), _ENTRY)
    place = 16 + entries.nbytes
    for entry, (name, array) in zip(entries, arrays.items(), strict=True):
        place = -(-place // _ALIGN) * _ALIGN
        entry["name"], entry["item"], entry["offset"] = name, array.itemsize, place
        entry["count"] = array.size
        place += array.nbytes
    with open(path, "wb") as file:
        file.write(np.array([_MAGIC, len(arrays)], "<u8").tobytes() + entries.tobytes())
        for entry, array in zip(entries, arrays.values(), strict=True):
            file.seek(int(entry["offset"]))
            np.ascontiguousarray(array).tofile(file)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read arrays as unsigned numbers in one dimension; records are words of 64 bits."""
    raw = np.fromfile(path, np.uint8)
    magic, number = raw[:16].view("<u8")
    if magic != _MAGIC:
        raise ValueError(f"{path} must be a file of arrays")
    found = {}
    for entry in raw[16 : 16 + int(number) * _ENTRY.itemsize].view(_ENTRY):
        first, size = int(entry["offset"]), int(entry["item"] * entry["count"])
        kind = np.dtype(f"<u{min(8, entry['item'])}")
        found[entry["name"].decode()] = raw[first : first + size].view(kind)
    return found
