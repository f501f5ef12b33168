"""Headers as arrays: the wire format of :mod:`dysharp.hw.packet` on numpy's unsigned numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from amaranth.lib import data
from numpy.typing import NDArray

from dysharp.hw.packet import Header, MultimemAddress, tx_flits

__all__ = ["field_of", "headers", "links_of", "list_flits", "multimem_address", "place_of"]

_WORD = 64


def place_of(layout: Any, field: str) -> tuple[int, int]:
    """Lowest bit and width of a field."""
    found = data.Layout.cast(layout)[field]
    return found.offset, found.width


def _field(layout: Any, name: str, values: Any) -> NDArray[np.uint64]:
    """Values in a field's place; a field lies inside of one word of 64 bits."""
    return np.asarray(values).astype(np.uint64) << np.uint64(place_of(layout, name)[0] % _WORD)


def field_of(layout: Any, name: str, words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """A field of at most 63 bits, from the word of 64 bits that holds it."""
    first, width = place_of(layout, name)
    shifted = words >> np.uint64(first % _WORD)
    return (shifted & np.uint64((1 << width) - 1)).astype(np.int64)


def multimem_address(maddr: Any, stage: Any, count: Any, attr: Any) -> NDArray[np.uint64]:
    """The ``addr`` field of packets with ``tx = 1``."""
    parts = {"maddr": maddr, "stage": stage, "count": count, "attr": attr}
    first, *rest = (_field(MultimemAddress, name, value) for name, value in parts.items())
    for part in rest:
        first = first | part
    return first


def headers(
    *, flits: Any, cmd: Any, tx: Any, addr: NDArray[np.uint64], ae: Any = 0, be: Any = 0
) -> NDArray[np.uint64]:
    """Headers [n, 2] with an empty tag, of packets of so many flits."""
    length = np.asarray(flits).astype(np.int64) - 1
    parts = {"len": length, "cmd": cmd, "tx": tx, "ae": ae, "be": be}
    low = np.zeros(len(addr), np.uint64)
    for name, value in parts.items():
        low |= _field(Header, name, value)
    return np.stack([low, addr], axis=1)


def list_flits(counts: NDArray[Any]) -> NDArray[np.int64]:
    """TX flits of lists of so many entries."""
    return tx_flits(counts.astype(np.int64))


def links_of(addr: NDArray[np.uint64], *, links: int, chunk_bytes: int) -> NDArray[np.int64]:
    """The link of a GPU on which each chunk travels: its number folded by xor."""
    chunk = (addr & np.uint64((1 << 48) - 1)).astype(np.int64) // chunk_bytes
    bits = links.bit_length() - 1
    folded = np.zeros_like(chunk)
    for low in range(0, 48, bits or 48):
        folded ^= chunk >> low & links - 1
    return folded
