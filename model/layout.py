"""Where everything stands in a GPU's memory: the software view of one multicast object."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.al_table import AL_ENTRY_BYTES, AlEntry
from dysharp.hw.errors import UserError
from dysharp.hw.packet import FLIT_BYTES, link_of_chunk

__all__ = ["AL_VALID", "DEFAULT_BASE", "ObjectLayout", "PAGE", "lay_out", "link_of", "row_stride"]

AL_VALID = AlEntry.const({"valid": 1}).as_bits()
"""Valid bit of an AL table entry; the rest is the layout index."""
MAX_ADDRESS = 1 << 48
PAGE = 4096
DEFAULT_BASE = 1 << 44
"""Multimem address of an object when none is given."""


@dataclass(frozen=True)
class ObjectLayout:
    """One GPU's entry of an object, and its source-side lists.

    The algebraic index ``AIdx = GPU rank * ntoken + token`` is the same everywhere; the layout
    index ``LIdx`` counts the rows of one local expert as this GPU packs them.

    Parameters
    ----------
    gpu : rank of the GPU in the object
    base, stride : multimem address of AIdx 0, and log2 of the bytes between two AIdx
    ntoken, devices : most tokens of any GPU, and GPUs
    bsize : bytes of a token's block, by stage (0 Dispatch, 1 Combine)
    vbase : address of the packed rows, by stage
    al_base : address of the AL table
    capacity : rows of each local expert
    split : bit at which a target id is split into GPU and slot
    list_base, list_stride : address of the target lists of this GPU's own tokens, bytes between two
    """

    gpu: int
    base: int
    stride: int
    ntoken: int
    devices: int
    bsize: tuple[int, int]
    vbase: tuple[int, int]
    al_base: int
    capacity: tuple[int, ...]
    split: int
    list_base: int
    list_stride: int

    @property
    def rows(self) -> int:
        """Algebraic indices, used or not: ntoken * devices."""
        return self.ntoken * self.devices

    @property
    def size(self) -> int:
        """Bytes of multimem address space."""
        return self.rows << self.stride

    @property
    def slots(self) -> int:
        """Local experts."""
        return len(self.capacity)

    @property
    def row0(self) -> tuple[int, ...]:
        """First packed row of each local expert."""
        return tuple(int(v) for v in np.cumsum([0, *self.capacity[:-1]]))

    @property
    def memory_rows(self) -> int:
        """Packed rows of all local experts."""
        return sum(self.capacity)

    @property
    def end(self) -> int:
        """First address after everything."""
        return self.vbase[1] + self.memory_rows * self.bsize[1]

    def maddr(self, aidx: int, offset: int = 0) -> int:
        """Multimem address of a byte of a token."""
        return self.base + (aidx << self.stride) + offset

    def address(self, stage: int, slot: int, lidx: int, offset: int = 0) -> int:
        """``vbase[stage] + (row0[slot] + LIdx) * bsize[stage] + offset``."""
        return self.vbase[stage] + (self.row0[slot] + lidx) * self.bsize[stage] + offset

    def al_address(self, slot: int, aidx: int) -> int:
        """Address of an AL table entry: ``al_base + 4 * (slot * rows + AIdx)``."""
        return self.al_base + AL_ENTRY_BYTES * (slot * self.rows + aidx)

    def list_address(self, token: int) -> int:
        """Address of the target list of this GPU's ``token``."""
        return self.list_base + token * self.list_stride


def lay_out(
    *,
    ntoken: int,
    gpus: int,
    split: int,
    capacity: NDArray[np.integer] | Sequence[Sequence[int]],
    top_k: int,
    bsize: int | tuple[int, int],
    chunk_bytes: int = 128,
    base: int = DEFAULT_BASE,
    memory_base: int = 0x10000,
    list_align: int = 2,
) -> tuple[ObjectLayout, ...]:
    """Lay an object out in the memories of all its GPUs: lists, AL table, Dispatch, Combine rows.

    Each part starts on a page, so that no 16-byte word belongs to two of them.

    Parameters
    ----------
    ntoken, gpus, split : as in :class:`ObjectLayout`
    capacity : [gpus, slots] rows of each expert
    top_k : 16-bit ids of a list
    bsize : bytes of a token's block, one for both stages or one each; multiples of 16
    chunk_bytes : bytes of a chunk, the least stride
    base : multimem address, a multiple of the stride
    memory_base : first address used in each GPU's memory
    list_align : bytes to whose multiples each token's list is aligned

    Raises
    ------
    UserError
        If a block is no multiple of 16 bytes or an address does not fit 48 bits.
    """
    sizes = (bsize, bsize) if isinstance(bsize, int) else bsize
    for value in sizes:
        if value < FLIT_BYTES or value % FLIT_BYTES:
            raise UserError(f"Token block must be a multiple of {FLIT_BYTES} bytes, not {value}")
    stride = row_stride(max(sizes), chunk_bytes)
    if base % (1 << stride):
        raise UserError(f"Object base must be a multiple of {1 << stride:#x}, not {base:#x}")
    if base + (ntoken * gpus << stride) > MAX_ADDRESS:
        raise UserError(
            f"Object must end below 2**48, not at {base + (ntoken * gpus << stride):#x}"
        )
    list_stride = -(-2 * top_k // list_align) * list_align
    layouts = []
    for gpu, rows in enumerate(np.asarray(capacity).tolist()):
        al_base = _page(memory_base + ntoken * list_stride)
        vbase0 = _page(al_base + AL_ENTRY_BYTES * len(rows) * ntoken * gpus)
        vbase1 = _page(vbase0 + sum(rows) * sizes[0])
        layouts.append(
            ObjectLayout(
                gpu=gpu,
                base=base,
                stride=stride,
                ntoken=ntoken,
                devices=gpus,
                bsize=sizes,
                vbase=(vbase0, vbase1),
                al_base=al_base,
                capacity=tuple(rows),
                split=split,
                list_base=memory_base,
                list_stride=list_stride,
            )
        )
    return tuple(layouts)


def row_stride(block_bytes: int, chunk_bytes: int) -> int:
    """log2 of the bytes from row to row of multimem addresses: a block, rounded up; one chunk."""
    return max((block_bytes - 1).bit_length(), chunk_bytes.bit_length() - 1)


def _page(address: int) -> int:
    return -(-address // PAGE) * PAGE


def link_of(address: int, *, links: int, chunk_bytes: int) -> int:
    """Link of a GPU on which everything about the chunk at a software address travels."""
    link = link_of_chunk(address, links=links, chunk_bytes=chunk_bytes)
    assert isinstance(link, int)
    return link
