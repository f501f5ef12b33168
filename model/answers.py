"""Packets between switch and GPUs: the replicas of a request and every answer to it."""

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.model.combine import Combined
from dysharp.model.experts import expert_output
from dysharp.model.instructions import Instruction, data_flits
from dysharp.model.numerics_array import reduce_bf16_array
from dysharp.model.protocol import Protocol
from dysharp.model.slots import SlotTable

__all__ = ["Answers", "replicas"]


def replicas(packet: Packet, split: int) -> dict[int, Packet]:
    """The copies of a source's packet by destination GPU, with pruned lists; tags are left 0."""
    found: dict[int, list[int]] = {}
    for target in packet.targets:
        found.setdefault(target >> split, []).append(target)
    return {
        gpu: Packet.multimem(
            packet.cmd,
            maddr=packet.maddr,
            stage=packet.stage,
            targets=found[gpu],
            attr=packet.attr,
            data=packet.data,
        )
        for gpu in sorted(found)
    }


class Answers:
    """Expected answers, packet by packet.

    ``maddr`` and stage are the request's, the wanted flits in its low bits too. An ERR carries its
    status in ``attr`` and counts all entries of the packet that it answers.

    Parameters
    ----------
    protocol : the batch
    slots : which entries were refused
    combined : of :meth:`Protocol.combine`
    """

    def __init__(self, protocol: Protocol, slots: SlotTable, combined: Combined):
        self._protocol, self._slots, self._combined = protocol, slots, combined

    def source(self, instruction: Instruction, *, port: int = 0, local: int = 0) -> Packet | None:
        """What the source gets; None if it sent nothing."""
        row, count = instruction.row, len(instruction.targets)
        if not count:
            return None
        values = self._combined.values[row] if instruction.stage else None
        refused = bool(self._slots.refused[row].any())
        return self._answer(instruction, refused, count, values, port=port, local=local)

    def gpu(self, instruction: Instruction, gpu: int) -> Packet | None:
        """What one GPU answers to its replica, tag left 0; None if it gets none."""
        protocol, row = self._protocol, instruction.row
        lists = protocol.lists[row]
        mine = np.flatnonzero((lists >= 0) & (lists >> protocol.placement.split == gpu))
        if not len(mine):
            return None
        values = None
        if instruction.stage:
            values = reduce_bf16_array([self._output(row, int(k)) for k in mine])
        refused = bool(self._slots.refused[row, mine].any())
        return self._answer(instruction, refused, len(mine), values)

    def _output(self, row: int, k: int) -> NDArray[np.uint16]:
        protocol = self._protocol
        return expert_output(protocol.payload[row : row + 1], protocol.factor[row, k : k + 1])[0]

    def _answer(
        self,
        instruction: Instruction,
        refused: bool,
        count: int,
        values: NDArray[np.uint16] | None,
        *,
        port: int = 0,
        local: int = 0,
    ) -> Packet:
        maddr = instruction.maddr
        cmd, attr = Cmd.MM_ACK, 0
        data: tuple[int, ...] = ()
        if values is not None:
            cmd, maddr = Cmd.MM_RSP, maddr | instruction.flits - 1
            data = data_flits(values, instruction.chunk, self._protocol.chunk_bytes)
        if refused:
            status = Status.UNMAPPED_INDEX if instruction.stage else Status.QUOTA_EXCEEDED
            cmd, attr, data = Cmd.ERR, status.value, ()
        return Packet.multimem(
            cmd,
            maddr=maddr,
            stage=instruction.stage,
            count=count,
            attr=attr,
            data=data,
            port=port,
            local=local,
        )
