"""Counting what crosses each link, and when."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dysharp.sim_tb.agents.bench import Bench

__all__ = ["LinkCounter"]

STREAMS = ("up_req", "up_rsp", "down_req", "down_rsp")
"""Bits of a port in ``link_flits``: GPU to switch, switch to GPU, requests and responses."""


class LinkCounter:
    """Watches the system's ``link_flits``: a bit for each port and stream, 1 as a flit crosses.

    Parameters
    ----------
    bench : Bench
    ports : int
    """

    def __init__(self, bench: Bench, ports: int):
        self.bench = bench
        self.ports = ports
        self._wire = bench.wire("link_flits")
        if self._wire.width != ports * len(STREAMS):
            raise ValueError(
                f"Port link_flits must have {ports * len(STREAMS)} bits, not {self._wire.width}"
            )
        self._read = self._wire.read
        self._seen: list[tuple[int, int]] = []
        bench.add(self)

    def problems(self) -> Iterable[str]:
        """More than one flit a cycle on a link, averaged over the run so far."""
        for name, (flits, first, last) in self.measure().items():
            # Each of the two streams has a register: one flit may catch up.
            if flits > last - first + 2:
                yield f"link {name}: {flits} flits in {last - first + 1} cycles"

    def reset(self) -> None:
        self._seen.clear()

    def step(self) -> None:
        bits = self._read()
        if bits:
            self._seen.append((self.bench.cycle, bits))

    def clear(self) -> None:
        """Start a new measurement."""
        self._seen.clear()

    def measure(self) -> dict[str, tuple[int, int, int]]:
        """Flits, first and last cycle of each link and direction that was used."""
        if not self._seen:
            return {}
        cycles = np.array([cycle for cycle, _ in self._seen])
        width = -(-self.ports * len(STREAMS) // 8)
        raw = b"".join(bits.to_bytes(width, "little") for _, bits in self._seen)
        table = np.unpackbits(
            np.frombuffer(raw, np.uint8).reshape(len(cycles), width), axis=1, bitorder="little"
        )[:, : self.ports * len(STREAMS)].reshape(len(cycles), self.ports, len(STREAMS))
        found = {}
        for direction, first in (("up", 0), ("down", 2)):
            flits = table[:, :, first] + table[:, :, first + 1]
            for port in np.flatnonzero(flits.any(axis=0)):
                when = cycles[flits[:, port] > 0]
                total = int(flits[:, port].sum())
                found[f"p{port}_{direction}"] = (total, int(when[0]), int(when[-1]))
        return found

    def utilisation(self) -> dict[str, float | int | str]:
        """Use of the limiting link: the one, in one direction, that the most flits crossed."""
        links = self.measure()
        if not links:
            return {"link": "", "flits": 0, "cycles": 0, "utilisation": 0.0}
        name = max(links, key=lambda name: links[name][0])
        flits, first, last = links[name]
        cycles = last - first + 1
        return {"link": name, "flits": flits, "cycles": cycles, "utilisation": flits / cycles}
