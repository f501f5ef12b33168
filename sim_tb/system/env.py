"""The agents round the whole system, and a batch's way through it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from dysharp.hw.config import Config
from dysharp.model.experts import expert_output
from dysharp.model.protocol import Protocol
from dysharp.model.slots import SlotTable
from dysharp.sim_tb.agents import AxiLiteManager, AxiMemory, Bench, Latency
from dysharp.sim_tb.system.check import Check
from dysharp.sim_tb.system.control import Control
from dysharp.sim_tb.system.links import LinkCounter
from dysharp.sim_tb.system.sm import SmAgent, StageResult

__all__ = ["ArrivalLog", "System"]

NO_PROGRESS = 50_000
"""Cycles without a completed instruction after which a run has failed."""


class ArrivalLog:
    """Reads ``p<p>_log_*``: the order in which each reduction unit took contributions.

    Parameters
    ----------
    bench : Bench
    ports : int
    """

    def __init__(self, bench: Bench, ports: int):
        self.entries: list[tuple[int, int, int]] = []
        self._ports = [
            (
                bench.wire(f"p{port}_log_valid").read,
                [bench.wire(f"p{port}_log_{name}").read for name in ("maddr", "stage", "source")],
            )
            for port in range(ports)
        ]
        bench.add(self)

    def problems(self) -> tuple[str, ...]:
        return ()

    def reset(self) -> None:
        self.entries.clear()

    def step(self) -> None:
        for valid, fields in self._ports:
            if valid():
                maddr, stage, source = (read() for read in fields)
                if stage:
                    self.entries.append((maddr, stage, source))

    def array(self) -> np.ndarray:
        """``[n, 3]`` of maddr, stage, port."""
        return np.array(self.entries, np.int64).reshape(-1, 3)


class System:
    """All agents of the system and the steps of a batch.

    Parameters
    ----------
    dut
        cocotb's handle of block ``system``.
    config : Config
    protocol : Protocol
        The batch, with its golden model.

    Attributes
    ----------
    check : Check
        What was compared so far.
    """

    def __init__(self, dut: Any, config: Config, protocol: Protocol):
        self.bench = bench = Bench(dut)
        self.config = config
        self.protocol = protocol
        self.check = Check()
        params = bench.params
        low, high = params.get("latency", [1, 1])
        gpus = range(config.gpus)
        self.memories = [
            AxiMemory(
                bench,
                f"gpu{gpu}_m_axi",
                latency=Latency(low, high),
                reorder=bool(params.get("reorder", low != high)),
            )
            for gpu in gpus
        ]
        self.sms = [SmAgent(bench, gpu, protocol) for gpu in gpus]
        self.gpu_registers = [AxiLiteManager(bench, f"gpu{gpu}_s_axil") for gpu in gpus]
        self.switch_registers = AxiLiteManager(bench, "switch_s_axil")
        self.links = LinkCounter(bench, config.ports)
        self.log = ArrivalLog(bench, config.ports)
        self.fill = int.from_bytes(self.memories[0].fill, "little")
        self._progress = _Progress(sum(len(protocol.instructions(g, 0)) for g in gpus) * 2)

    async def start(self) -> Control:
        """Reset, set the object up through the runtime, and lay lists and tables in memory."""
        await self.bench.start()
        control = Control(self.config, self.protocol, self.switch_registers, self.gpu_registers)
        await control.trackers_ready()
        await control.set_up(self.memories)
        for gpu, memory in enumerate(self.memories):
            region = self.protocol.list_region(gpu)
            memory.write_bytes(region.address, region.data.tobytes())
            layout = self.protocol.layouts[gpu]
            memory.write_bytes(layout.al_base, bytes(4 * layout.slots * layout.rows))
        return control

    async def stage(self, stage: int) -> list[StageResult]:
        """Issue all instructions of a stage on all GPUs and wait until each is complete."""
        self.links.clear()
        results = [sm.start(stage) for sm in self.sms]
        complete, since = -1, self.bench.cycle
        while not all(sm.done for sm in self.sms):
            await self.bench.cycles(64)
            now = sum(result.complete for result in results)
            if now != complete:
                complete, since = now, self.bench.cycle
                self._progress.update(stage, now)
            elif self.bench.cycle - since > NO_PROGRESS:
                self.bench.fail(self._stuck(stage, results))
        return results

    def _stuck(self, stage: int, results: list[StageResult]) -> str:
        lines = [f"stage {stage} stands still: no instruction complete in {NO_PROGRESS} cycles"]
        for gpu, result in enumerate(results):
            waiting = np.flatnonzero(result.faults < 0)
            if len(waiting):
                first = result.instructions[int(waiting[0])]
                lines.append(
                    f"  GPU {gpu}: {len(waiting)} of {len(result.faults)} open, the first is chunk "
                    f"{first.chunk} of {self.protocol.describe(first.row)}"
                )
        return "\n".join(lines[:12])

    def cycles(self) -> int:
        """From the first instruction of the last stage to its last result."""
        used = [sm for sm in self.sms if sm.last_cycle >= 0]
        if not used:
            return 0
        return max(sm.last_cycle for sm in used) - min(sm.first_cycle for sm in used) + 1

    def check_dispatch(self, results: list[StageResult]) -> SlotTable | None:
        """Acks, AL tables and every memory word; what the hardware chose, if it can be right."""
        slots = self.check.slots(self.protocol, list(self.memories))
        if slots is None:
            return None
        status = self.protocol.store_status(slots)
        for result in results:
            self.check.answers(self.protocol, result, status)
        for gpu, memory in enumerate(self.memories):
            regions = self.protocol.regions(slots, gpu, fill=self.fill)
            regions = [region for region in regions if region.name != "combine"]
            self.check.memory(gpu, memory, regions, when="after Dispatch")
        return slots

    def run_experts(self, slots: SlotTable) -> None:
        """The experts' work on what lies in memory, row by row as the SMs would do it."""
        for gpu, memory in enumerate(self.memories):
            layout = self.protocol.layouts[gpu]
            row, _ = self.protocol.row_of(slots, gpu)
            factor = self.protocol.row_factor(slots, gpu)
            for place in np.flatnonzero(row >= 0):
                offset = int(place) * layout.bsize[0]
                tokens = memory.read_array(layout.vbase[0] + offset, self.protocol.hidden)
                output = expert_output(tokens[None], factor[place : place + 1])
                address = layout.vbase[1] + int(place) * layout.bsize[1]
                memory.write_array(address, output[0].astype("<u2"))

    def check_combine(self, results: list[StageResult], slots: SlotTable) -> None:
        """Every result bit under the order in which the switch added, and memory once more."""
        try:
            golden = self.protocol.combine(slots, log=self.log.array())
        except AssertionError as error:
            self.check.note(str(error))
            return
        for result in results:
            self.check.answers(self.protocol, result, golden.status)
            self.check.results(self.protocol, result, golden)
        for gpu, memory in enumerate(self.memories):
            regions = self.protocol.regions(slots, gpu, fill=self.fill)
            self.check.memory(gpu, memory, regions, when="after Combine")

    def check_protocol(self) -> None:
        """What the agents saw, and that every burst came to its end."""
        for memory in self.memories:
            if not memory.idle:
                self.check.note(f"{memory.prefix}: a burst is still under way at the end")
        self.bench.check()


class _Progress:
    """Tells the process that waits for the simulation how far it is."""

    def __init__(self, total: int):
        self.total = total
        path = os.environ.get("DYSHARP_PROGRESS")
        self._path = Path(path) if path else None
        self._last = 0.0

    def update(self, stage: int, complete: int) -> None:
        now = time.monotonic()
        if self._path and now - self._last > 0.3:
            self._last = now
            self._path.write_text(f"{stage * self.total // 2 + complete} {self.total}")
