"""What the sources are told to do: target lists, instructions, DATA flits; memory regions."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import FLIT_BYTES, NO_TARGET, Cmd
from dysharp.model.layout import ObjectLayout
from dysharp.model.placement import Placement
from dysharp.model.policies import DuplicateId, Policies
from dysharp.model.routing import Routing
from dysharp.model.slots import first_places

__all__ = ["Instruction", "Region", "pack_lists", "target_lists", "data_flits"]


@dataclass(frozen=True)
class Instruction:
    """What an SM gives to its MultimemQ for one chunk of one token.

    Parameters
    ----------
    cmd : MM_ST in Dispatch, MM_LDR in Combine
    gpu, token, row, chunk : source GPU, token at it, row of the batch, chunk of the block
    maddr, stage : multimem address of the chunk, 0 Dispatch or 1 Combine
    count, list_address : 16-bit entries at the list's address, 0xFFFF ones included
    targets : the entries that are left when 0xFFFF ones are dropped; none: nothing is sent
    flits : DATA flits given or wanted
    """

    cmd: Cmd
    gpu: int
    token: int
    row: int
    chunk: int
    maddr: int
    stage: int
    count: int
    list_address: int
    targets: tuple[int, ...]
    flits: int


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

    @classmethod
    def of(cls, name: str, address: int, array: NDArray) -> "Region":
        """The bytes of an array as they stand in memory, little-endian."""
        little = array.astype(array.dtype.newbyteorder("<"))
        return cls(name, address, np.frombuffer(little.tobytes(), np.uint8))


def pack_lists(lists: NDArray[np.int32], layout: ObjectLayout) -> NDArray[np.uint8]:
    """Bytes at ``list_base``: the lists of one GPU's tokens, 0xFFFF for no target and padding."""
    packed = np.full((len(lists), layout.list_stride // 2), NO_TARGET, "<u2")
    packed[:, : lists.shape[1]] = np.where(lists < 0, NO_TARGET, lists)
    return packed.view(np.uint8).ravel()


def target_lists(routing: Routing, placement: Placement, policies: Policies) -> NDArray[np.int32]:
    """The lists that the sources write: physical ids [T, K] in the gate's order, -1 for none.

    Raises
    ------
    UserError
        If the policy on duplicate ids is ``error`` and there is one.
    """
    lists = placement.physical(routing.topk_idx)
    repeated = (first_places(lists) != np.arange(lists.shape[1])) & (lists >= 0)
    if policies.duplicate is DuplicateId.ERROR and repeated.any():
        row, k = (int(v) for v in np.argwhere(repeated)[0])
        raise UserError(
            f"Experts of row {row} must be distinct, not expert "
            f"{routing.topk_idx[row, k]} again at {k}; or use duplicate = count_twice"
        )
    if policies.duplicate is DuplicateId.COUNT_ONCE:
        lists = np.where(repeated, -1, lists)
    return lists


def data_flits(block: NDArray[np.uint16], chunk: int, chunk_bytes: int) -> tuple[int, ...]:
    """One chunk of a token's block, uint16 [hidden], as DATA flits."""
    raw = block.astype("<u2").tobytes()[chunk * chunk_bytes : (chunk + 1) * chunk_bytes]
    return tuple(
        int.from_bytes(raw[k : k + FLIT_BYTES], "little") for k in range(0, len(raw), FLIT_BYTES)
    )
