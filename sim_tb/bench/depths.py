"""How deep the crossbar's queues must be: utilisation over their depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any

from dysharp.hw.config import Config
from dysharp.model.workloads import uniform_unicast
from dysharp.sim_tb.bench.runs import MIN_FLITS
from dysharp.sim_tb.bench.switch import ROUTINGS, SOURCES, Bench
from dysharp.sim_tb.player.play import play
from dysharp.sim_tb.player.requests import Played

__all__ = ["CURVES", "depth_curve"]

CURVES = ("dispatch", "combine", "fused", "unicast_uniform")
STAGES = {"dispatch": (0,), "combine": (1,), "fused": (0, 1)}


def depth_curve(
    config: Config,
    depths: Sequence[int],
    *,
    seed: int = 1,
    tokens: int | None = None,
    player: Callable[..., Played] = play,
    progress: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """Measure a switch with queues of each depth, every one built anew.

    Parameters
    ----------
    config : all but the depth
    depths : flits of a queue
    seed, tokens, player, progress : as of :func:`~dysharp.sim_tb.bench.switch.bench_switch`

    Returns
    -------
    list of dict
        ``depth``, and the utilisation of each of :data:`CURVES`.
    """
    rows = []
    for depth in depths:
        queues = replace(config.switch, request_depth=depth, response_depth=depth)
        deep = replace(config, switch=queues)
        bench = Bench(deep, seed, tokens, player, progress)
        trace = bench.trace(ROUTINGS[0])
        note = f", queues of {depth} flits"
        runs = {
            name: bench.run(name, bench.batch(trace, stages, name), trace, note)
            for name, stages in STAGES.items()
        }
        unicast = uniform_unicast(
            deep,
            chunks=ceil(MIN_FLITS / ((deep.chunk_flits + 2) * (deep.gpus - 1))),
            streams=SOURCES["unicast_uniform"].streams,
            seed=seed,
        )
        runs["unicast_uniform"] = bench.run("unicast_uniform", unicast, None, note)
        rows.append(
            {"depth": depth} | {name: round(runs[name].utilisation(), 4) for name in CURVES}
        )
    return rows
