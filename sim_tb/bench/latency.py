"""Latencies of a switch that carries nothing else, and service among inputs that all want one
output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dysharp.hw.config import Config
from dysharp.hw.packet import TARGETS_PER_FLIT, Cmd
from dysharp.model.layout import DEFAULT_BASE, link_of
from dysharp.model.traffic import Direction
from dysharp.sim_tb.bench.runs import Run
from dysharp.sim_tb.build import SimulationFailed
from dysharp.sim_tb.player.play import play
from dysharp.sim_tb.player.requests import Played, Requests
from dysharp.sim_tb.route.model import ObjectSpec

__all__ = ["fairness", "unloaded"]

_UP, _DOWN = Direction.UP.value, Direction.DOWN.value


def unloaded(config: Config, *, player: Callable[..., Played] = play) -> dict[str, int]:
    """Cycles through an idle switch, each measured with one request of a whole chunk from GPU 0.

    Returns
    -------
    dict
        ``static``: a store to the preset group, header in to header out. ``dynamic``: the same with
        a list of up to eight. ``reduce``: a load from one other GPU, last flit of its contribution
        in to the answer's header out; several would wait for each other at the reduction unit.
    """
    link = link_of(DEFAULT_BASE, links=config.links, chunk_bytes=config.chunk_bytes)
    others = range(1, min(config.gpus, TARGETS_PER_FLIT + 1))
    far = [gpu * config.links + link for gpu in others]

    def one(cmd: Cmd, targets: Sequence[int]) -> Played:
        gpus = set(range(config.gpus))
        played = player(
            config,
            Requests(
                port=np.array([link], np.uint16),
                stream=np.zeros(1, np.uint32),
                cmd=np.array([cmd.value], np.uint8),
                addr=np.array([DEFAULT_BASE], np.uint64),
                flits=np.array([config.chunk_flits], np.uint8),
                pool=np.zeros((config.chunk_flits, 2), np.uint64),
                target_offsets=np.array([0, len(targets)]),
                targets=np.array(targets, np.uint16),
            ),
            objects=(ObjectSpec(DEFAULT_BASE, config.chunk_bytes, gpus, gpus),),
        )
        if not played.passed:
            raise SimulationFailed(f"{cmd.name} through {config.name}: {played.mismatches[0]}")
        return played

    static, dynamic = (one(Cmd.MM_ST, targets) for targets in ((), tuple(others)))
    load = one(Cmd.MM_LDR, (others[0],))
    first = {
        name: int(played.first[far, _DOWN].min() - played.first[link, _UP])
        for name, played in (("static", static), ("dynamic", dynamic))
    }
    return first | {"reduce": int(load.first[link, _DOWN] - load.last[far, _UP].max())}


def fairness(run: Run) -> float:
    """Most over least flits that an input could send while all of them were backlogged.

    Parameters
    ----------
    run : of :func:`~dysharp.model.workloads.incast`

    Raises
    ------
    SimulationFailed
        If the run was too short to have such a time.
    """
    played = run.played
    sources = np.unique(run.load.port)
    # The first and last bins are of starting and draining.
    last = int(played.last[sources, _UP].min()) // played.bin_cycles
    served = played.bins[1:last, sources, _UP].sum(axis=0)
    if not served.size or not served.min():
        raise SimulationFailed(f"{run.load.name} of {played.cycles} cycles must be longer")
    return float(served.max() / served.min())
