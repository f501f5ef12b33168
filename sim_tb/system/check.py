"""Comparing memories and results with the golden model, every word of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from dysharp.model.combine import Combined
from dysharp.model.instructions import Region
from dysharp.model.protocol import Protocol
from dysharp.model.slots import SlotTable
from dysharp.sim_tb.agents.memory import PAGE_BYTES, SparseMemory
from dysharp.sim_tb.system.sm import FLIT_ELEMENTS, StageResult

__all__ = ["Check"]

SHOWN = 8


@dataclass
class Check:
    """Counts of what was compared.

    Attributes
    ----------
    values : int
        16-bit words and answers that were compared.
    mismatches : int
        Those that were not equal.
    shown : list of str
        The first ones in words.
    """

    values: int = 0
    mismatches: int = 0
    shown: list[str] = field(default_factory=list)

    def _report(self, count: int, lines: Iterable[str]) -> None:
        self.mismatches += count
        for line in lines:
            if len(self.shown) >= SHOWN:
                return
            self.shown.append(line)

    def note(self, line: str) -> None:
        """Count something that should not have happened at all."""
        self._report(1, [line])

    def memory(self, gpu: int, memory: SparseMemory, regions: list[Region], *, when: str) -> None:
        """Every word of every page that either side has touched, the untouched ones included."""
        expected = SparseMemory(memory.fill)
        for region in regions:
            expected.write_bytes(region.address, region.data.tobytes())
        for page in sorted(memory.pages.keys() | expected.pages.keys()):
            have = np.frombuffer(memory.pages.get(page, memory.fresh), "<u2")
            want = np.frombuffer(expected.pages.get(page, memory.fresh), "<u2")
            self.values += len(have)
            if not np.array_equal(have, want):
                wrong = np.flatnonzero(have != want)
                self._report(
                    len(wrong),
                    (
                        self._word(gpu, when, page * PAGE_BYTES + 2 * int(k), regions, want, have)
                        for k in wrong[:SHOWN]
                    ),
                )

    @staticmethod
    def _word(gpu: int, when: str, address: int, regions: list[Region], want, have) -> str:
        place = "outside of every buffer"
        for region in regions:
            if region.address <= address < region.address + len(region.data):
                place = f"{region.name} + {address - region.address:#x}"
        k = address % PAGE_BYTES // 2
        return (
            f"{when}: GPU {gpu} memory {address:#x} ({place}): "
            f"expected {want[k]:#06x}, got {have[k]:#06x}"
        )

    def answers(self, protocol: Protocol, result: StageResult, status: np.ndarray) -> None:
        """The fault of each instruction against the status of its row."""
        for index, instruction in enumerate(result.instructions):
            expected = int(status[instruction.row])
            self.values += 1
            if result.faults[index] != expected:
                self._report(
                    1,
                    [
                        f"stage {instruction.stage} chunk {instruction.chunk} of "
                        f"{protocol.describe(instruction.row)}: expected fault {expected}, "
                        f"got {result.faults[index]}"
                    ],
                )
        for problem in result.problems:
            self.note(problem)

    def results(self, protocol: Protocol, result: StageResult, golden: Combined) -> None:
        """Every bit that loads returned; a load that faulted must not have returned any."""
        for index, instruction in enumerate(result.instructions):
            expected = protocol.chunk(golden.values, instruction)
            beats = 0 if golden.status[instruction.row] else len(expected) // FLIT_ELEMENTS
            have = result.values[index, : len(expected)]
            self.values += len(expected)
            where = f"Combine, chunk {instruction.chunk} of"
            if result.beats[index] != beats:
                self._report(
                    1,
                    [
                        f"{where} {protocol.describe(instruction.row)}: expected {beats} beats "
                        f"of data, got {result.beats[index]}"
                    ],
                )
            elif beats and not np.array_equal(have, expected):
                wrong = np.flatnonzero(have != expected)
                first = int(wrong[0])
                self._report(
                    len(wrong),
                    [
                        f"{where} {protocol.describe(instruction.row)}: element {first} expected "
                        f"{expected[first]:#06x}, got {have[first]:#06x}; {len(wrong)} differ"
                    ],
                )

    def slots(self, protocol: Protocol, memories: list[SparseMemory]) -> SlotTable | None:
        """The layout indices that the hardware chose, if its AL tables are possible ones."""
        tables = []
        for layout, memory in zip(protocol.layouts, memories, strict=True):
            count = layout.slots * layout.rows
            tables.append(
                memory.read_array(layout.al_base, count, "<u4").reshape(layout.slots, layout.rows)
            )
            self.values += count
        try:
            return protocol.first_touch(tables)
        except AssertionError as error:
            self.note(str(error))
            return None
