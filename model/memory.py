"""A GPU's whole memory before and after a batch, as regions of bytes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import NO_TARGET
from dysharp.model.layout import ObjectLayout
from dysharp.model.protocol import Protocol
from dysharp.model.slots import SlotTable

__all__ = ["Region", "memory_before", "memory_after", "pack_lists"]


@dataclass(frozen=True, eq=False)
class Region:
    """Expected bytes of one part of a GPU's memory.

    Parameters
    ----------
    name : what stands there
    address : of the first byte
    data : uint8 [n]
    """

    name: str
    address: int
    data: NDArray[np.uint8]


def pack_lists(lists: NDArray[np.int32], layout: ObjectLayout) -> NDArray[np.uint8]:
    """Bytes at ``list_base``: the lists of one GPU's tokens, 0xFFFF for no target and padding."""
    packed = np.full((len(lists), layout.list_stride // 2), NO_TARGET, "<u2")
    packed[:, : lists.shape[1]] = np.where(lists < 0, NO_TARGET, lists)
    return packed.view(np.uint8).ravel()


def memory_before(protocol: Protocol, gpu: int, *, fill: int = 0xFFFF) -> list[Region]:
    """What to load: target lists, an AL table of zeros, and ``fill`` in the rows of both stages.

    The default fill is a NaN in every element, so that a row which is read before it was written
    shows in the result.
    """
    layout = protocol.layouts[gpu]
    rows = np.full((layout.memory_rows, protocol.hidden), fill, np.uint16)
    table = np.zeros((layout.slots, layout.rows), np.uint32)
    return _regions(protocol, layout, table, rows, rows)


def memory_after(
    protocol: Protocol, slots: SlotTable, gpu: int, *, fill: int = 0xFFFF
) -> list[Region]:
    """What must be found after Dispatch and the experts; ``fill`` where nothing was written."""
    return _regions(
        protocol,
        protocol.layouts[gpu],
        protocol.al_table(slots, gpu),
        protocol.dispatched(slots, gpu, fill=fill),
        protocol.expert_rows(slots, gpu, fill=fill),
    )


def _regions(
    protocol: Protocol,
    layout: ObjectLayout,
    table: NDArray[np.uint32],
    dispatch: NDArray[np.uint16],
    combine: NDArray[np.uint16],
) -> list[Region]:
    lists = protocol.lists[protocol.routing.source == layout.gpu]
    return [
        Region("lists", layout.list_base, pack_lists(lists, layout)),
        Region("al_table", layout.al_base, _bytes(table)),
        Region("dispatch", layout.vbase[0], _bytes(dispatch)),
        Region("combine", layout.vbase[1], _bytes(combine)),
    ]


def _bytes(array: NDArray) -> NDArray[np.uint8]:
    little = array.astype(array.dtype.newbyteorder("<"))
    return np.frombuffer(little.tobytes(), np.uint8)
