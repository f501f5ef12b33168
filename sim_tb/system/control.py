"""Setting the hardware up through the runtime, over the registers and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from cocotb.triggers import gather

from dysharp.hw.config import Config
from dysharp.hw.packet import Status
from dysharp.hw.register_map import Access, RegisterMap
from dysharp.model.backend import SWITCH, Recorder
from dysharp.model.cuda import CUDymulticastObjectProp
from dysharp.model.protocol import Protocol
from dysharp.model.runtime import Runtime
from dysharp.model.slots import SlotTable
from dysharp.sim_tb.agents import AxiLiteManager, SparseMemory

__all__ = ["Control"]


class Control:
    """A driver in software: the runtime's register writes over AXI4-Lite, and the counters.

    Parameters
    ----------
    config : Config
    protocol : Protocol
        The batch whose object is set up.
    switch : AxiLiteManager
    gpus : sequence of AxiLiteManager
    """

    def __init__(
        self,
        config: Config,
        protocol: Protocol,
        switch: AxiLiteManager,
        gpus: Sequence[AxiLiteManager],
    ):
        self._protocol = protocol
        self._switch, self._gpus = switch, gpus
        self._recorder = Recorder()
        self.runtime = Runtime(config, self._recorder)
        self.read: dict[str, dict[str, int]] = {}

    async def trackers_ready(self) -> None:
        """Wait until every token tracker has cleared its tables; stores would wait for it."""
        status = self.runtime.registers(0)["tracker"]
        for bus in self._gpus:
            while await bus.read(status.offset):
                pass

    async def set_up(self, memories: Sequence[SparseMemory]) -> None:
        """Create the object, add every GPU, bind the memory of each as the model laid it out."""
        layouts, runtime = self._protocol.layouts, self.runtime
        first = layouts[0]
        handle = runtime.cuDyMulticastCreate(
            CUDymulticastObjectProp(
                numDevices=len(layouts), bsize=first.bsize, slots=first.slots, base=first.base
            )
        )
        for gpu in range(len(layouts)):
            runtime.cuDyMulticastAddDevice(handle, gpu)
        for gpu, layout in enumerate(layouts):
            binding = runtime.cuDyMulticastBindAddr(
                handle,
                gpu,
                layout.al_base,
                ntoken=layout.ntoken,
                nactive=layout.capacity,
                vbase=layout.vbase,
            )
            if binding.row0 != layout.row0 or runtime.address(handle, gpu, 0) != layout.maddr(
                gpu * layout.ntoken
            ):
                raise AssertionError(f"runtime and model lay GPU {gpu} out differently")
        for device, address, count in self._recorder.clears:
            memories[device].write_bytes(address, bytes(count))
        writes = self._recorder.take()
        await gather(*(self._write(writes, gpu) for gpu in range(len(layouts))))
        # The switch lets packets through from here on, so it comes after every GPU.
        await self._write(writes, SWITCH)

    async def _write(self, writes: list, device: int | str) -> None:
        bus = self._switch if device == SWITCH else self._gpus[int(device)]
        for target, address, value in writes:
            if target == device:
                await bus.write(address, value)

    async def counters(self) -> dict[str, dict[str, int]]:
        """Counters and error bits of the switch and of every GPU, by name."""
        names = [SWITCH, *(f"gpu{gpu}" for gpu in range(len(self._gpus)))]
        devices = [SWITCH, *range(len(self._gpus))]
        buses = [self._switch, *self._gpus]
        found = await gather(
            *(
                self._read(bus, self.runtime.registers(device))
                for bus, device in zip(buses, devices, strict=True)
            )
        )
        self.read = dict(zip(names, found, strict=True))
        return self.read

    @staticmethod
    async def _read(bus: AxiLiteManager, registers: RegisterMap) -> dict[str, int]:
        values = {}
        for register in registers.registers:
            if register.access in (Access.COUNTER, Access.STICKY, Access.FIRST):
                words = [await bus.read(register.offset + 4 * k) for k in range(register.words)]
                values[register.name] = sum(word << 32 * k for k, word in enumerate(words))
        return values

    def unexpected_errors(self, slots: SlotTable | None) -> list[str]:
        """Error counters that the batch does not explain; a full expert explains ERR 8 and 4."""
        expected = set()
        if slots is not None and slots.refused.any():
            expected = {Status.QUOTA_EXCEEDED, Status.UNMAPPED_INDEX}
        allowed = {f"error_{status.name.lower()}" for status in expected}
        return [
            f"{device} counted {value} in {name}"
            for device, values in self.read.items()
            for name, value in values.items()
            if (name.startswith("error_") or name in ("dropped", "stray"))
            and value
            and name not in allowed
        ]
