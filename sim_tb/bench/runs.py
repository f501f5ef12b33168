"""One workload on the switch: what is sent how, and what is read off the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.packet import FLIT_BITS
from dysharp.model.layout import DEFAULT_BASE
from dysharp.model.numerics_array import f32_to_bf16_array
from dysharp.model.traffic import Direction
from dysharp.model.workloads import Workload
from dysharp.sim_tb.build import SimulationFailed
from dysharp.sim_tb.player.play import play
from dysharp.sim_tb.player.requests import Played, Requests
from dysharp.sim_tb.route.model import ObjectSpec

__all__ = ["BIN_CYCLES", "MIN_FLITS", "Run", "Sources", "make_object", "make_requests", "run"]

BIN_CYCLES = 1000
MIN_FLITS = 50_000
"""Flits on the limiting link from which on its utilisation is a figure."""
POOL_FLITS = 4096
SHOWN = 5


@dataclass(frozen=True)
class Sources:
    """How the GPUs send and answer.

    Parameters
    ----------
    streams : streams of a GPU, of each stage where there are two
    window : most unanswered requests of a stream
    loads, stores : most unanswered loads, and other requests, of a port
    latency : cycles from a replica's last flit to its answer's first

    0 in ``window``, ``loads`` and ``stores`` is no bound.
    """

    streams: int
    window: int = 0
    loads: int = 0
    stores: int = 0
    latency: int = 0

    def __post_init__(self) -> None:
        for name in ("window", "loads", "stores", "latency"):
            if getattr(self, name) < 0:
                raise UserError(f"Sources' {name} must be 0 or more, not {getattr(self, name)!r}")
        if self.streams < 1:
            raise UserError(f"Streams must be at least 1, not {self.streams!r}")


@dataclass(frozen=True, eq=False)
class Run:
    """A workload that ran without a mismatch.

    Parameters
    ----------
    load, sources, played : what ran, how, and what came of it
    """

    load: Workload
    sources: Sources
    played: Played

    @property
    def cycles(self) -> int:
        """From the first request to the last flit."""
        return self.played.cycles

    def busiest(self, direction: Direction | None = None) -> tuple[Direction, int]:
        """Direction and port of the limiting link, of one direction or of both."""
        table = self._limits.copy()
        if direction is not None:
            table[1 - direction.value] = -1
        way, port = np.unravel_index(int(table.argmax()), table.shape)
        return Direction(int(way)), int(port)

    @property
    def _limits(self) -> np.ndarray:
        """Flits that must cross each link, [direction, port]."""
        return self.load.traffic.flits.sum(axis=0).reshape(2, -1)

    def utilisation(self, direction: Direction | None = None) -> float:
        """Flits of the limiting link over the cycles from its first one to its last."""
        way, port = self.busiest(direction)
        span = self.played.last[port, way.value] - self.played.first[port, way.value] + 1
        return float(self._limits[way.value, port] / span)

    def timeline(self) -> dict[str, Any]:
        """Use of the limiting link, and of the mean link up and down, bin by bin."""
        way, port = self.busiest()
        share = self.played.bins / self.played.bin_cycles
        mean = share.mean(axis=1)
        return {
            "bin_cycles": self.played.bin_cycles,
            "limiting": share[:, port, way.value].round(3).tolist(),
            "up": mean[:, Direction.UP.value].round(3).tolist(),
            "down": mean[:, Direction.DOWN.value].round(3).tolist(),
        }

    def summary(self) -> dict[str, Any]:
        """The run in figures."""
        way, port = self.busiest()
        return {
            "utilisation": round(self.utilisation(), 4),
            "up": round(self.utilisation(Direction.UP), 4),
            "down": round(self.utilisation(Direction.DOWN), 4),
            "limit": self.load.limit,
            "cycles": self.cycles,
            "limiting_link": {"port": port, "direction": way.name.lower()},
            "requests": len(self.load),
            "flits": int(self.played.flits.sum()),
            "checked": self.played.checked,
            "seconds": round(self.played.seconds, 1),
            "sources": vars(self.sources),
        }


def make_object(config: Config, load: Workload, *, split: int, slots: int) -> ObjectSpec:
    """The one object of a workload: all GPUs are members and its preset group; sums in bf16."""
    gpus = set(range(config.gpus))
    end = int(load.addr[load.multimem].max(initial=DEFAULT_BASE)) + config.chunk_bytes
    size = 1 << (end - DEFAULT_BASE - 1).bit_length()
    return ObjectSpec(DEFAULT_BASE, size, gpus, gpus, split, slots)


def make_requests(load: Workload, *, seed: int) -> Requests:
    """The workload for the player, with bf16 numbers as data; it answers replicas itself."""
    rng = np.random.default_rng([seed, 2])
    values = f32_to_bf16_array(rng.standard_normal(POOL_FLITS * FLIT_BITS // 16, np.float32))
    pool = values.astype("<u2").view("<u8").reshape(POOL_FLITS, 2)
    most = int(load.flits.max(initial=1))
    return Requests(
        port=load.port.astype(np.uint16),
        stream=load.stream.astype(np.uint32),
        cmd=load.cmd.astype(np.uint8),
        addr=load.addr.astype(np.uint64),
        flits=load.flits.astype(np.uint8),
        pool=pool,
        target_offsets=load.first,
        targets=load.targets.astype(np.uint16),
        stage=load.stage.astype(np.uint8),
        payload=rng.integers(0, POOL_FLITS - most + 1, len(load)),
    )


def run(
    config: Config,
    load: Workload,
    sources: Sources,
    *,
    split: int = 0,
    slots: int = 1,
    seed: int = 1,
    bin_cycles: int = BIN_CYCLES,
    player: Callable[..., Played] = play,
) -> Run:
    """Play a workload and check it.

    Parameters
    ----------
    config, load, sources : what runs on what, and how
    split, slots : of the object
    seed : of the payload
    bin_cycles : cycles of a bin of the timeline
    player : what plays

    Raises
    ------
    SimulationFailed
        For whatever the player found to be wrong, and if another number of flits crossed a link
        than must.
    """
    played = player(
        config,
        make_requests(load, seed=seed),
        objects=(make_object(config, load, split=split, slots=slots),),
        window=sources.window,
        loads=sources.loads,
        stores=sources.stores,
        latency=sources.latency,
        seed=seed,
        bin_cycles=bin_cycles,
    )
    if not played.passed:
        shown = "\n".join(played.mismatches[:SHOWN])
        raise SimulationFailed(f"{load.name} on {config.name}, seed {seed}:\n{shown}")
    done = Run(load, sources, played)
    wrong = np.argwhere(played.flits.T != done._limits)
    if len(wrong):
        way, port = (int(v) for v in wrong[0])
        raise SimulationFailed(
            f"{load.name} on {config.name}: flits {Direction(way).name.lower()} on port {port} "
            f"must be {done._limits[way, port]}, not {played.flits[port, way]}"
        )
    return done
