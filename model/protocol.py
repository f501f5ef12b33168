"""The exact golden model of Dispatch and Combine: every packet, memory word and result bit."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import FLIT_BYTES, MAX_FLITS, Cmd, Packet, Status, tx_flits
from dysharp.model.combine import Combined, arrival_groups, combine_rows, gpu_groups
from dysharp.model.experts import expert_output, expert_scale
from dysharp.model.instructions import Instruction, Region, data_flits, pack_lists, target_lists
from dysharp.model.layout import DEFAULT_BASE, lay_out
from dysharp.model.placement import Placement
from dysharp.model.policies import (
    Accumulation,
    Overflow,
    OwnGpu,
    Policies,
    WeightAt,
)
from dysharp.model.routing import Routing
from dysharp.model.slots import SlotTable, first_places, first_touch, token_order

__all__ = ["Protocol"]

ELEMENT_BYTES = 2
BATCH_ROWS = 64
"""Rows that Combine works on at a time: bounds the memory of large batches."""


class Protocol:
    """One batch through Dispatch, the experts and Combine.

    Arrays are indexed by row of the batch (``routing``'s order) and element; values are bf16 bit
    patterns. Methods that depend on layout indices take a :class:`SlotTable`, from
    :meth:`token_order` or from what the hardware wrote (:meth:`first_touch`).

    Parameters
    ----------
    routing : who goes where
    payload : uint16 [T, hidden], the activations
    placement : where experts stand
    policies : see :class:`Policies`
    chunk_bytes : 128 or 256
    links : links of a GPU
    capacity : rows of each expert, [gpus, slots], or one number for all; by default just enough
    memory_base, list_align, base : as in :func:`~dysharp.model.layout.lay_out`

    Attributes
    ----------
    lists : int32 [T, K], physical ids, -1 for none
    layouts : one :class:`ObjectLayout` a GPU
    factor : f32 [T, K], what the expert of an entry multiplies by: its scale times the gate weight

    Raises
    ------
    UserError
        If the parts do not fit each other, or a policy cannot be honoured.
    """

    def __init__(
        self,
        routing: Routing,
        payload: NDArray[np.uint16],
        placement: Placement,
        *,
        policies: Policies | None = None,
        chunk_bytes: int = 128,
        links: int = 1,
        capacity: int | NDArray[np.integer] | None = None,
        base: int = DEFAULT_BASE,
        memory_base: int = 0x10000,
        list_align: int = 2,
    ):
        self.routing, self.placement = routing, placement
        self.policies = policies or Policies()
        self.payload = np.ascontiguousarray(payload, np.uint16)
        self.chunk_bytes, self.links = chunk_bytes, links
        if self.policies.own_gpu is not OwnGpu.THROUGH_SWITCH:
            raise UserError(
                "Policy own_gpu must be through_switch where packets are made; "
                "local_bypass is for traffic counts"
            )
        if self.payload.ndim != 2 or len(payload) != len(routing.topk_idx):
            raise UserError(
                f"Payload must be [{len(routing.topk_idx)} rows, hidden], "
                f"not {list(self.payload.shape)}"
            )
        if routing.gpus != placement.gpus or routing.experts != placement.experts:
            raise UserError(
                f"Placement must be for {routing.gpus} GPUs and {routing.experts} "
                f"experts like the routing, not {placement.gpus} and "
                f"{placement.experts}"
            )
        self.lists = target_lists(routing, placement, self.policies)
        self._places = first_places(self.lists)
        longest = (MAX_FLITS - 1 - min(chunk_bytes // FLIT_BYTES, self._block // FLIT_BYTES)) * 8
        if routing.top_k > longest:
            raise UserError(
                f"Top-k must be at most {longest} at {chunk_bytes}-byte chunks, not {routing.top_k}"
            )
        self.layouts = lay_out(
            ntoken=routing.ntoken,
            gpus=routing.gpus,
            split=placement.split,
            capacity=self._capacity(capacity),
            top_k=routing.top_k,
            bsize=self._block,
            chunk_bytes=chunk_bytes,
            base=base,
            memory_base=memory_base,
            list_align=list_align,
        )
        self.factor = self._factors()

    @property
    def hidden(self) -> int:
        """Elements of a token."""
        return self.payload.shape[1]

    @property
    def _block(self) -> int:
        return self.hidden * ELEMENT_BYTES

    @property
    def chunks(self) -> int:
        """Chunks of a token's block; the last may be short."""
        return -(-self._block // self.chunk_bytes)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Entries of each row's list, [T]."""
        return (self.lists >= 0).sum(axis=1)

    @property
    def distinct(self) -> NDArray[np.int64]:
        """Distinct experts of each row, [T]: its threshold in the token tracker's OR table."""
        return self._first.sum(axis=1)

    @property
    def announced(self) -> NDArray[np.int64]:
        """Tokens that go to each expert, [gpus, slots], full or not."""
        ids = self.lists[self._first]
        shape = (self.placement.gpus, 1 << self.placement.split)
        table = np.bincount(ids, minlength=shape[0] * shape[1]).reshape(shape)
        return table[:, : self.placement.slots]

    @property
    def _first(self) -> NDArray[np.bool_]:
        return (self._places == np.arange(self.lists.shape[1])) & (self.lists >= 0)

    def _capacity(self, given: int | NDArray[np.integer] | None) -> NDArray[np.int64]:
        exact = self.announced
        if given is None:
            return exact
        table = np.broadcast_to(np.asarray(given, np.int64), exact.shape)
        if (table < 0).any():
            raise UserError(f"Capacity must be 0 or more, not {table.min()}")
        return table

    def _factors(self) -> NDArray[np.float32]:
        scale = expert_scale(self.routing.experts)[np.maximum(self.routing.topk_idx, 0)]
        if self.policies.weights is WeightAt.EXPERT_EPILOGUE:
            with np.errstate(invalid="ignore", over="ignore"):
                scale = scale * self.routing.topk_weights
        # A repeated id is one row at its expert: the weight of its first entry holds.
        return np.take_along_axis(scale, self._places, axis=1)

    # What the sources send.

    def list_region(self, gpu: int) -> Region:
        """The target lists in the memory of a source GPU."""
        layout = self.layouts[gpu]
        lists = self.lists[self.routing.source == gpu]
        return Region("lists", layout.list_base, pack_lists(lists, layout))

    def instructions(self, gpu: int, stage: int) -> list[Instruction]:
        """A source GPU's instructions of one stage: its tokens in order, each chunk by chunk."""
        layout, found = self.layouts[gpu], []
        rows = np.flatnonzero(self.routing.source == gpu).tolist()
        flits = [
            -(-min(self.chunk_bytes, self._block - first) // FLIT_BYTES)
            for first in range(0, self._block, self.chunk_bytes)
        ]
        for token, row in enumerate(rows):
            targets = tuple(v for v in self.lists[row].tolist() if v >= 0)
            first = layout.maddr(gpu * layout.ntoken + token)
            for chunk, count in enumerate(flits):
                found.append(
                    Instruction(
                        Cmd.MM_LDR if stage else Cmd.MM_ST,
                        gpu,
                        token,
                        row,
                        chunk,
                        first + chunk * self.chunk_bytes,
                        stage,
                        self.lists.shape[1],
                        layout.list_address(token),
                        targets,
                        count,
                    )
                )
        return found

    def chunk(
        self, values: NDArray[np.uint16], instruction: Instruction, *, row: int | None = None
    ) -> NDArray[np.uint16]:
        """The elements of a [T, hidden] array that one instruction moves."""
        size = self.chunk_bytes // ELEMENT_BYTES
        first = instruction.chunk * size
        return values[instruction.row if row is None else row, first : first + size]

    def packet(self, instruction: Instruction, *, local: int = 0) -> Packet | None:
        """The packet that leaves the source for an instruction; None if its list is empty."""
        if not instruction.targets:
            return None
        store = instruction.cmd is Cmd.MM_ST
        wanted = 0 if store else instruction.flits - 1
        data = (
            data_flits(self.payload[instruction.row], instruction.chunk, self.chunk_bytes)
            if store
            else ()
        )
        return Packet.multimem(
            instruction.cmd,
            maddr=instruction.maddr | wanted,
            stage=instruction.stage,
            targets=instruction.targets,
            data=data,
            local=local,
        )

    def packet_flits(self, stage: int) -> int:
        """Flits of all sources' packets of one stage."""
        counts = self.counts[self.counts > 0]
        lists = int(sum(tx_flits(int(count)) for count in counts))
        data = 0 if stage else self._block // FLIT_BYTES
        return (len(counts) + lists) * self.chunks + data * len(counts)

    # Where it goes.

    def token_order(self) -> SlotTable:
        """Layout indices in ascending algebraic index (a preloaded AL table)."""
        return token_order(self.lists, self.layouts, drop=self._drop)

    def first_touch(self, tables: Sequence[NDArray[np.uint32]]) -> SlotTable:
        """Layout indices as the hardware's AL tables say, checked; SlotMismatch if impossible."""
        return first_touch(self.lists, self.routing.aidx, self.layouts, tables, drop=self._drop)

    @property
    def _drop(self) -> bool:
        return self.policies.overflow is Overflow.DROP_AND_COUNT

    def row_of(self, slots: SlotTable, gpu: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which entry ``(row, k)`` of ``lists`` stands in each packed row of a GPU, -1 if none."""
        layout = self.layouts[gpu]
        where = np.full((2, layout.memory_rows), -1, np.int64)
        mine = self._first & (slots.lidx >= 0) & (self.lists >> layout.split == gpu)
        row, k = np.nonzero(mine)
        slot = self.lists[row, k] & (1 << layout.split) - 1
        where[:, np.asarray(layout.row0)[slot] + slots.lidx[row, k]] = row, k
        return where[0], where[1]

    def dispatched(self, slots: SlotTable, gpu: int, *, fill: int = 0xFFFF) -> NDArray[np.uint16]:
        """A GPU's packed rows after Dispatch, [memory rows, hidden]; ``fill`` where none came."""
        row, _ = self.row_of(slots, gpu)
        image = np.full((len(row), self.hidden), fill, np.uint16)
        image[row >= 0] = self.payload[row[row >= 0]]
        return image

    def row_factor(self, slots: SlotTable, gpu: int) -> NDArray[np.float32]:
        """What the SMs multiply each packed row of a GPU by, [memory rows]; 1 where none came."""
        row, k = self.row_of(slots, gpu)
        return np.where(row >= 0, self.factor[row, k], np.float32(1))

    def expert_rows(self, slots: SlotTable, gpu: int, *, fill: int = 0xFFFF) -> NDArray[np.uint16]:
        """A GPU's packed expert outputs, what Combine reads, [memory rows, hidden]."""
        row, k = self.row_of(slots, gpu)
        image = np.full((len(row), self.hidden), fill, np.uint16)
        there = row >= 0
        image[there] = expert_output(self.payload[row[there]], self.factor[row[there], k[there]])
        return image

    def al_table(self, slots: SlotTable, gpu: int) -> NDArray[np.uint32]:
        """A GPU's AL table after Dispatch, uint32 [slots, rows]."""
        return slots.al_table(self.lists, self.routing.aidx, self.layouts[gpu])

    def regions(self, slots: SlotTable | None, gpu: int, *, fill: int = 0xFFFF) -> list[Region]:
        """A GPU's whole memory after Dispatch and the experts; before them if ``slots`` is None.

        ``fill`` is in each element that nothing was written to; the default is a NaN, so that a row
        which is read too early shows in the result.
        """
        layout = self.layouts[gpu]
        if slots is None:
            table = np.zeros((layout.slots, layout.rows), np.uint32)
            dispatch = np.full((layout.memory_rows, self.hidden), fill, np.uint16)
            combine = dispatch
        else:
            table = self.al_table(slots, gpu)
            dispatch = self.dispatched(slots, gpu, fill=fill)
            combine = self.expert_rows(slots, gpu, fill=fill)
        return [
            self.list_region(gpu),
            Region.of("al_table", layout.al_base, table),
            Region.of("dispatch", layout.vbase[0], dispatch),
            Region.of("combine", layout.vbase[1], combine),
        ]

    # What comes back.

    def store_status(self, slots: SlotTable) -> NDArray[np.int64]:
        """Status of each row's stores, [T]: 0, or QUOTA_EXCEEDED if a full expert refused it.

        An answer of status 0 is an MM_ACK with count = :attr:`counts`, else an ERR with that count.
        """
        return np.where(slots.refused.any(axis=1), Status.QUOTA_EXCEEDED.value, 0)

    def refusals(self, slots: SlotTable) -> NDArray[np.int64]:
        """Refusals that each GPU counts, [gpus]: one for each packet and refused entry."""
        gpu = self.lists[slots.refused] >> self.placement.split
        return np.bincount(gpu, minlength=self.placement.gpus) * self.chunks

    def combine(self, slots: SlotTable, *, log: NDArray[np.integer] | None = None) -> Combined:
        """What the sources get from Combine.

        Parameters
        ----------
        slots : decides only which loads fault, not what the others return
        log : int [n, 3], ``(maddr, stage, port)`` of each contribution in the order in which the
            reduction units added them; needed by, and only by, ``gpu_list_then_arrival``

        Raises
        ------
        UserError
            If the policy needs a log and there is none.
        ArrivalMismatch
            If the log does not name each expected contribution once.
        """
        groups = gpu_groups(self.lists, self.placement.split)
        arrival = None
        if self.policies.accumulation is Accumulation.GPU_LIST_THEN_ARRIVAL:
            if log is None:
                raise UserError("Policy accumulation = gpu_list_then_arrival needs the log")
            arrival = arrival_groups(
                np.asarray(log),
                groups,
                self.layouts[0],
                self.routing.aidx,
                chunks=self.chunks,
                chunk_bytes=self.chunk_bytes,
                links=self.links,
            )
        values = np.zeros_like(self.payload)
        for first in range(0, len(values), BATCH_ROWS):
            batch = slice(first, first + BATCH_ROWS)
            outputs = (
                expert_output(self.payload[batch], self.factor[batch, k])
                for k in range(self.lists.shape[1])
            )
            values[batch] = combine_rows(
                outputs,
                groups.rows(batch),
                self.policies.accumulation,
                arrival=None if arrival is None else arrival[batch],
                chunk=self.chunk_bytes // ELEMENT_BYTES,
            )
        status = np.where(slots.refused.any(axis=1), Status.UNMAPPED_INDEX.value, 0)
        return Combined(values, status, self.counts)

    def describe(self, row: int) -> str:
        """One row in words, for a mismatch's report."""
        split = self.placement.split
        targets = " ".join(
            f"{v >> split}.{v & (1 << split) - 1}" if v >= 0 else "-"
            for v in self.lists[row].tolist()
        )
        return (
            f"row {row}: GPU {self.routing.source[row]} AIdx {self.routing.aidx[row]} "
            f"targets (GPU.slot) [{targets}]"
        )
