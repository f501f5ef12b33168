"""Which physical slot holds which logical expert, and the 16-bit ids that packets carry."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import NO_TARGET, TARGET_BITS
from dysharp.model.policies import PlacementKind

__all__ = ["Placement"]


@dataclass(frozen=True, eq=False)
class Placement:
    """A table from physical slots to logical experts.

    A packet names a target by ``id = GPU << split | slot``. Logical ids stay in the model and the
    runtime; they become physical ones when a token's list is written.

    Parameters
    ----------
    table : int array [gpus, slots], the logical expert in each slot, -1 for an empty slot. An
        expert may stand in several slots (replicas); row ``r`` of a batch goes to the
        ``r mod replicas``-th of them, in ascending order of physical id
    experts : logical experts, each of which needs a slot
    kind : how the table came about

    Raises
    ------
    UserError
        If an expert has no slot, a slot holds no known expert, or an id does not fit its 16 bits.
    """

    table: NDArray[np.int32]
    experts: int
    kind: PlacementKind = PlacementKind.PHY2LOG

    def __post_init__(self):
        table = np.asarray(self.table)
        if table.ndim != 2 or not table.size or not np.issubdtype(table.dtype, np.integer):
            raise UserError(
                f"Placement must be an integer table [GPUs, slots], "
                f"not {table.dtype} {list(table.shape)}"
            )
        table = table.astype(np.int32)
        wrong = np.argwhere((table < -1) | (table >= self.experts))
        if len(wrong):
            gpu, slot = (int(v) for v in wrong[0])
            raise UserError(
                f"Placement of GPU {gpu} slot {slot} must be an expert 0 to "
                f"{self.experts - 1} or -1, not {table[gpu, slot]}"
            )
        missing = np.setdiff1d(np.arange(self.experts), table)
        if len(missing):
            raise UserError(
                f"Placement must hold every expert; {len(missing)} have no slot, "
                f"the first is {missing[0]}"
            )
        object.__setattr__(self, "table", table)
        if self.gpus << self.split > NO_TARGET:
            raise UserError(
                f"Placement must fit ids of {TARGET_BITS} bits, not {self.gpus} GPUs "
                f"of {self.slots} slots"
            )

    @classmethod
    def contiguous(cls, *, experts: int, gpus: int) -> "Placement":
        """Experts 0 .. n-1 on GPU 0, n .. 2n-1 on GPU 1 and so on.

        Raises
        ------
        UserError
            If the experts are not divisible by the GPUs.
        """
        if experts % gpus:
            raise UserError(
                f"Experts must be divisible by GPUs for contiguous placement, not "
                f"{experts} experts on {gpus} GPUs; give a placement map instead"
            )
        table = np.arange(experts, dtype=np.int32).reshape(gpus, -1)
        return cls(table, experts, PlacementKind.CONTIGUOUS)

    @classmethod
    def from_phy2log(cls, phy2log, *, experts: int, gpus: int) -> "Placement":
        """From a flat list of the logical expert in each physical slot, GPU by GPU (EPLB's)."""
        flat = np.asarray(phy2log)
        if flat.ndim == 1 and len(flat) % gpus == 0:
            flat = flat.reshape(gpus, -1)
        if flat.ndim != 2 or len(flat) != gpus:
            raise UserError(
                f"phy2log must hold the same number of slots for each of {gpus} GPUs, "
                f"not shape {list(np.shape(phy2log))}"
            )
        return cls(flat, experts)

    @property
    def gpus(self) -> int:
        """GPUs."""
        return len(self.table)

    @property
    def slots(self) -> int:
        """Slots a GPU."""
        return self.table.shape[1]

    @property
    def split(self) -> int:
        """The bit at which an id is split: log2 of the slots a GPU, rounded up."""
        return (self.slots - 1).bit_length()

    @property
    def ids(self) -> NDArray[np.int32]:
        """Physical id of each slot, [gpus, slots]."""
        gpu = np.arange(self.gpus, dtype=np.int32)[:, None] << self.split
        return gpu | np.arange(self.slots, dtype=np.int32)

    def logical(self, ids: NDArray[np.integer]) -> NDArray[np.int32]:
        """Logical experts of physical ids; -1 stays -1."""
        ids = np.asarray(ids)
        slot = ids & (1 << self.split) - 1
        known = np.where(ids < 0, 0, ids)
        found = self.table[known >> self.split, np.where(ids < 0, 0, slot)]
        return np.where(ids < 0, -1, found).astype(np.int32)

    def physical(self, topk_idx: NDArray[np.integer]) -> NDArray[np.int32]:
        """Physical ids [T, K] of a batch's logical experts [T, K]; -1 stays -1."""
        topk_idx = np.asarray(topk_idx)
        flat_ids, flat_experts = self.ids.ravel(), self.table.ravel()
        order = np.argsort(flat_experts, kind="stable")
        order = order[flat_experts[order] >= 0]
        first = np.searchsorted(flat_experts[order], np.arange(self.experts))
        replicas = np.bincount(flat_experts[order], minlength=self.experts)
        expert = np.where(topk_idx < 0, 0, topk_idx)
        row = np.arange(len(topk_idx))[:, None]
        pick = order[first[expert] + row % replicas[expert]]
        return np.where(topk_idx < 0, -1, flat_ids[pick]).astype(np.int32)
