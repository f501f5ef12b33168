"""A byte-addressable sparse memory that starts out full of NaN."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["NAN_FILL", "PAGE_BYTES", "SparseMemory"]

PAGE_BYTES = 4096
NAN_FILL = b"\xa5\x7f"
"""A bf16 NaN with a payload no arithmetic produces, little-endian; 0x7FA57FA5 as an f32 too."""


class SparseMemory:
    """Pages of 4096 bytes, made when first touched.

    Parameters
    ----------
    fill : bytes
        What memory holds before it is written, repeated from each page's start; its length divides
        4096.

    Attributes
    ----------
    pages : dict of int to bytearray
        Pages by number (address / 4096); those never written are missing.
    fresh : bytes
        What a missing page holds.
    """

    def __init__(self, fill: bytes = NAN_FILL):
        if not fill or PAGE_BYTES % len(fill):
            raise ValueError(f"Fill pattern must have a length that divides 4096, not {fill!r}")
        self.fill = fill
        self.pages: dict[int, bytearray] = {}
        self.fresh = fill * (PAGE_BYTES // len(fill))

    def page(self, number: int) -> bytearray:
        """Page ``number``, to read or to write."""
        found = self.pages.get(number)
        if found is None:
            found = self.pages[number] = bytearray(self.fresh)
        return found

    def read_bytes(self, address: int, length: int) -> bytes:
        """``length`` bytes from ``address``; makes no pages."""
        parts = []
        while length:
            number, offset = divmod(address, PAGE_BYTES)
            take = min(length, PAGE_BYTES - offset)
            page = self.pages.get(number, self.fresh)
            parts.append(page[offset : offset + take])
            address += take
            length -= take
        return b"".join(parts)

    def write_bytes(self, address: int, data: bytes | bytearray | memoryview) -> None:
        """Store ``data`` from ``address`` on."""
        view = memoryview(data).cast("B")
        while view:
            number, offset = divmod(address, PAGE_BYTES)
            take = min(len(view), PAGE_BYTES - offset)
            self.page(number)[offset : offset + take] = view[:take]
            address += take
            view = view[take:]

    def read_array(self, address: int, count: int, dtype: str = "<u2") -> NDArray:
        """``count`` elements as a numpy array (a copy)."""
        width = np.dtype(dtype).itemsize
        return np.frombuffer(self.read_bytes(address, count * width), dtype=dtype).copy()

    def write_array(self, address: int, values: NDArray) -> None:
        """Store an array as it lies in memory; its dtype should be little-endian."""
        self.write_bytes(address, np.ascontiguousarray(values).tobytes())
