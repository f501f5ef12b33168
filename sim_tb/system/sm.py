"""A GPU's streaming multiprocessors, as far as the network sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import FLIT_BYTES, Cmd
from dysharp.model.instructions import Instruction
from dysharp.model.protocol import Protocol
from dysharp.sim_tb.agents.bench import Bench
from dysharp.sim_tb.agents.flit import FlitSource
from dysharp.sim_tb.agents.stream import StreamSink, StreamSource

__all__ = ["SmAgent", "StageResult"]

ID_BITS = 16
FLIT_ELEMENTS = FLIT_BYTES // 2


@dataclass
class StageResult:
    """What came back for the instructions of one stage on one GPU.

    Attributes
    ----------
    instructions : sequence of Instruction
    faults : int [instructions], fault of each; -1 while it is not complete
    values : uint16 [instructions, elements of a chunk], what loads returned
    beats : int [instructions], data beats that came
    """

    instructions: Sequence[Instruction]
    faults: NDArray[np.int64]
    values: NDArray[np.uint16]
    beats: NDArray[np.int64]
    complete: int = 0
    problems: list[str] = field(default_factory=list)


class SmAgent:
    """Issues a stage's instructions as fast as the MultimemQ takes them and collects the results.

    Parameters
    ----------
    bench : Bench
    gpu : int
    protocol : Protocol
        The batch.
    """

    def __init__(self, bench: Bench, gpu: int, protocol: Protocol):
        self.bench = bench
        self.gpu = gpu
        self._protocol = protocol
        self._issue = StreamSource(bench, f"gpu{gpu}_inst")
        self._data = FlitSource(bench, f"gpu{gpu}_inst_data")
        StreamSink(bench, f"gpu{gpu}_result", on_record=self._on_result)
        self._stage: StageResult | None = None
        self._index_of: dict[int, int] = {}
        self.first_cycle = self.last_cycle = -1

    @property
    def done(self) -> bool:
        """Every instruction of the stage is complete."""
        return self._stage is None or self._stage.complete == len(self._stage.instructions)

    def start(self, stage: int) -> StageResult:
        """Begin with the instructions of a stage; the last stage must be done."""
        instructions = self._protocol.instructions(self.gpu, stage)
        elements = self._protocol.chunk_bytes // 2
        shape = (len(instructions), elements)
        self._stage = StageResult(
            instructions,
            np.full(len(instructions), -1, np.int64),
            np.zeros(shape, np.uint16),
            np.zeros(len(instructions), np.int64),
        )
        self.first_cycle = self.last_cycle = -1
        self._index_of.clear()
        stores = (one for one in instructions if one.cmd is Cmd.MM_ST)
        self._data.feed(self._flits(one) for one in stores)
        self._issue.feed(self._record(index, one) for index, one in enumerate(instructions))
        return self._stage

    def _record(self, index: int, instruction: Instruction) -> dict[str, int]:
        if self.first_cycle < 0:
            self.first_cycle = self.bench.cycle
        self._index_of[index & (1 << ID_BITS) - 1] = index
        return {
            "op": instruction.cmd.value,
            "maddr": instruction.maddr,
            "stage": instruction.stage,
            "count": instruction.count,
            "list_addr": instruction.list_address,
            "flits": instruction.flits,
            "id": index & (1 << ID_BITS) - 1,
        }

    def _flits(self, instruction: Instruction) -> list[int]:
        raw = self._protocol.chunk(self._protocol.payload, instruction).astype("<u2").tobytes()
        return [
            int.from_bytes(raw[first : first + FLIT_BYTES], "little")
            for first in range(0, len(raw), FLIT_BYTES)
        ]

    def _on_result(self, record: dict[str, int]) -> None:
        stage = self._stage
        index = self._index_of.get(record["id"]) if stage else None
        if stage is None or index is None or stage.faults[index] >= 0:
            self.bench.fail(f"gpu{self.gpu}: a result of id {record['id']} that none waits for")
            return
        if record["has_data"]:
            beat = int(stage.beats[index])
            if beat >= stage.instructions[index].flits:
                stage.problems.append(f"gpu{self.gpu} instruction {index}: a beat too many")
            else:
                raw = record["data"].to_bytes(FLIT_BYTES, "little")
                first = beat * FLIT_ELEMENTS
                stage.values[index, first : first + FLIT_ELEMENTS] = np.frombuffer(raw, "<u2")
            stage.beats[index] += 1
        if record["last"]:
            stage.faults[index] = record["fault"]
            stage.complete += 1
            self.last_cycle = self.bench.cycle
            del self._index_of[record["id"]]
