"""An AXI4-Lite manager."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from cocotb.triggers import Event

from dysharp.sim_tb.agents.bench import Bench, StallPattern

__all__ = ["AxiLiteError", "AxiLiteManager"]

OKAY = 0


class AxiLiteError(RuntimeError):
    """A register access was answered with an error response."""


@dataclass
class _Access:
    address: int
    data: int | None
    strobe: int
    done: Event = field(default_factory=Event)
    result: int = 0
    response: int = OKAY


class AxiLiteManager:
    """Reads and writes registers on ``<prefix>_awvalid ... <prefix>_rready``, one at a time.

    Parameters
    ----------
    bench : Bench
    prefix : str
    stall : StallPattern or None
        For BREADY and RREADY, and for the start of an access.

    Errors
    ------
    :meth:`read` and :meth:`write` raise :class:`AxiLiteError` on any response but OKAY.
    """

    def __init__(self, bench: Bench, prefix: str = "s_axil", *, stall: StallPattern | None = None):
        self.bench = bench
        self.prefix = prefix
        names = ("awvalid", "awready", "awaddr", "wvalid", "wready", "wdata", "wstrb")
        names += ("bvalid", "bready", "bresp", "arvalid", "arready", "araddr")
        names += ("rvalid", "rready", "rdata", "rresp")
        self._wires = {name: bench.wire(f"{prefix}_{name}") for name in names}
        self._stall = stall or bench.stalls(prefix)
        self._queue: deque[_Access] = deque()
        self._current: _Access | None = None
        bench.add(self)

    async def write(self, address: int, data: int, *, strobe: int = 0xF) -> None:
        """Write a 32-bit register and wait for the response."""
        await self._access(_Access(address, data, strobe))

    async def read(self, address: int) -> int:
        """Read a 32-bit register."""
        return await self._access(_Access(address, None, 0))

    async def _access(self, access: _Access) -> int:
        self._queue.append(access)
        await access.done.wait()
        if access.response != OKAY:
            kind = "read" if access.data is None else "write"
            raise AxiLiteError(
                f"{self.prefix}: {kind} of {access.address:#x} answered {access.response}"
            )
        return access.result

    def problems(self) -> Iterable[str]:
        return ()

    def reset(self) -> None:
        for name in ("awvalid", "wvalid", "bready", "arvalid", "rready"):
            self._wires[name].write(0)
        self._queue.clear()
        self._current = None

    def step(self) -> None:
        access = self._current
        wires = self._wires
        if access is not None:
            requests = ("ar",) if access.data is None else ("aw", "w")
            answer = "r" if access.data is None else "b"
            for channel in requests:
                valid = wires[f"{channel}valid"]
                if valid.value and wires[f"{channel}ready"].read():
                    valid.write(0)
            ready = wires[f"{answer}ready"]
            if ready.value and wires[f"{answer}valid"].read():
                ready.write(0)
                access.response = wires[f"{answer}resp"].read()
                if access.data is None:
                    access.result = wires["rdata"].read()
                self._current = None
                access.done.set()
            elif not ready.value or self._stall.probability:
                ready.write(int(not self._stall()))
            return
        if not self._queue or self._stall():
            return
        access = self._current = self._queue.popleft()
        if access.data is None:
            wires["araddr"].write(access.address)
            wires["arvalid"].write(1)
            return
        wires["awaddr"].write(access.address)
        wires["awvalid"].write(1)
        wires["wdata"].write(access.data)
        wires["wstrb"].write(access.strobe)
        wires["wvalid"].write(1)
