"""The switch at line rate: utilisation, speedup, latency and fairness, all from RTL simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import Any

from dysharp.hw.config import Config
from dysharp.hw.errors import ConfigError
from dysharp.model.trace import Trace, make_trace
from dysharp.model.traffic import Comparison, Direction
from dysharp.model.workloads import (
    Workload,
    all_gather,
    batch,
    deepep,
    incast,
    permutation,
    reduce_scatter,
    uniform_unicast,
)
from dysharp.sim_tb.bench.latency import fairness, unloaded
from dysharp.sim_tb.bench.peers import PEERS, TARGETS
from dysharp.sim_tb.bench.runs import MIN_FLITS, Run, Sources, run
from dysharp.sim_tb.player.play import play
from dysharp.sim_tb.player.requests import Played

__all__ = ["KEYS", "MODEL", "ROUTINGS", "SOURCES", "Bench", "bench_switch"]

KEYS = (
    "preset",
    "chunk",
    "dispatch",
    "combine",
    "fused_up",
    "fused_down",
    "allgather",
    "reduce_scatter",
    "unicast_uniform",
    "permutation",
    "speedup",
    "ideal",
    "ideal_rows",
    "latency",
    "fairness",
    "flits_per_second",
)
"""The keys that a result begins with."""
MODEL = "deepseek-v3"
ROUTINGS = ("gate", "uniform")
"""The model's own gate, whose figures stand in front, and every expert alike."""
CHUNKS = (128, 256)
SOURCES: Mapping[str, Sources] = {
    "dispatch": Sources(streams=16),
    "combine": Sources(streams=16, window=4),
    # More would let the sources whose tokens meet the busiest GPU fall behind the others.
    "fused": Sources(streams=16, window=1),
    "deepep": Sources(streams=1, window=2),
    "allgather": Sources(streams=1),
    "reduce_scatter": Sources(streams=1, loads=48),
    "unicast_uniform": Sources(streams=1),
    "permutation": Sources(streams=1),
    "incast": Sources(streams=1),
}
"""How the GPUs send each workload; unicast of a batch has a stream for each destination."""


@dataclass
class Bench:
    """The measurements and what they share.

    Parameters
    ----------
    config, seed : what is measured
    tokens : tokens of a GPU; by default as many as put :data:`MIN_FLITS` flits on the limiting link
        of Dispatch and of Combine
    player : what plays
    progress : told the name of each run before it begins
    """

    config: Config
    seed: int = 1
    tokens: int | None = None
    player: Callable[..., Played] = play
    progress: Callable[[str], None] = lambda name: None
    flits: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)

    def trace(self, routing: str) -> Trace:
        """The batch of a routing, the same for all chunk sizes."""
        make = partial(make_trace, self.config, MODEL, seed=self.seed, routing=routing)
        tokens = self.tokens or 1
        while True:
            trace = make(tokens)
            least = min(self.batch(trace, (stage,)).limit for stage in (0, 1))
            if self.tokens or least >= MIN_FLITS:
                return trace
            # Longer batches are more even, so a step may fall short, never go far beyond.
            tokens = max(tokens + 1, ceil(tokens * MIN_FLITS / least))

    def batch(self, trace: Trace, stages: Sequence[int], name: str = "dispatch") -> Workload:
        """Stages of a batch as multimem."""
        return batch(
            trace.config,
            trace.routing,
            trace.placement,
            block_bytes=trace.block_bytes,
            streams=SOURCES[name].streams,
            stages=stages,
            policies=trace.policies,
        )

    def deepep(self, trace: Trace) -> Workload:
        """Both stages of a batch as unicast."""
        return deepep(
            trace.config,
            trace.routing,
            trace.placement,
            block_bytes=trace.block_bytes,
            streams=SOURCES["deepep"].streams,
            policies=trace.policies,
        )

    def run(
        self, name: str, load: Workload, trace: Trace | None = None, note: str = "", **options
    ) -> Run:
        """Play a workload as its kind's sources do."""
        config = self.config if trace is None else trace.config
        self.progress(f"{name}{note}")
        if trace is not None:
            options |= {"split": trace.placement.split, "slots": trace.placement.slots}
        done = run(config, load, SOURCES[name], seed=self.seed, player=self.player, **options)
        self.flits += int(done.played.flits.sum())
        self.seconds += done.played.seconds
        return done

    def stages(self, routing: str) -> tuple[Trace, dict[str, Run]]:
        """Dispatch, Combine, both at once, and both by unicast."""
        trace = self.trace(routing)
        note = f", {routing}"
        runs = {
            name: self.run(name, self.batch(trace, stages, name), trace, note)
            for name, stages in (("dispatch", (0,)), ("combine", (1,)), ("fused", (0, 1)))
        }
        runs["deepep"] = self.run("deepep", self.deepep(trace), trace, note)
        return trace, runs

    def others(self) -> dict[str, Run]:
        """Static groups and unicast."""
        config, seed = self.config, self.seed
        data, gpus = config.chunk_flits, config.gpus
        # One chunk costs the limiting link so much: see the limits of these workloads.
        spread, single, hot = (data + 1) * gpus + 1, (data + 2) * (gpus - 1), data + 2
        loads = {
            "allgather": lambda streams: all_gather(
                config, chunks=ceil(MIN_FLITS / spread), streams=streams
            ),
            "reduce_scatter": lambda streams: reduce_scatter(
                config, chunks=ceil(MIN_FLITS / spread), streams=streams
            ),
            "unicast_uniform": lambda streams: uniform_unicast(
                config, chunks=ceil(MIN_FLITS / single), streams=streams, seed=seed
            ),
            "permutation": lambda streams: permutation(
                config, chunks=ceil(MIN_FLITS / hot), streams=streams, seed=seed
            ),
            "incast": lambda streams: incast(
                config, chunks=ceil(MIN_FLITS / (data + 1) / (gpus - 1)), streams=streams
            ),
        }
        return {name: self.run(name, make(SOURCES[name].streams)) for name, make in loads.items()}

    def other_chunk(self, trace: Trace) -> tuple[Trace, dict[str, Run]]:
        """The batch fused and as unicast on a switch of the other chunk size."""
        (chunk,) = set(CHUNKS) - {self.config.chunk_bytes}
        trace = replace(trace, config=replace(trace.config, chunk_bytes=chunk))
        note = f", {trace.source}, chunks of {chunk} bytes"
        return trace, {
            "fused": self.run("fused", self.batch(trace, (0, 1), "fused"), trace, note),
            "deepep": self.run("deepep", self.deepep(trace), trace, note),
        }

    def rank(self, trace: Trace) -> dict[str, Any]:
        """Combine in order rank."""
        try:
            config = replace(self.config, switch=replace(self.config.switch, order="rank"))
            trace = trace.under(config)
            return self.run(
                "combine", self.batch(trace, (1,), "combine"), trace, ", rank"
            ).summary()
        except ConfigError as error:
            return {"refused": str(error)}


def bench_switch(
    config: Config,
    *,
    seed: int = 1,
    tokens: int | None = None,
    player: Callable[..., Played] = play,
    progress: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:
    """Measure a switch by contract: flits that must cross the limiting link over its cycles.

    Parameters
    ----------
    config : what is built and measured
    seed : of routing, payload and random orders
    tokens : see :class:`Bench`
    player : what plays the workloads
    progress : told the name of each run before it begins

    Returns
    -------
    dict
        :data:`KEYS`, then what explains them: ``routings``, ``chunks``, ``orders``, ``runs``,
        ``timeline``, ``targets``, ``peers``, ``config``, ``seed``.

    Raises
    ------
    SimulationFailed
        If a run was wrong in any flit.
    """
    bench = Bench(config, seed, tokens, player, progress)
    runs: dict[str, dict[str, Any]] = {}
    routings: dict[str, dict[str, Any]] = {}
    chunks: dict[str, dict[str, Any]] = {}
    timeline: dict[str, Any] = {}
    orders: dict[str, Any] = {}
    for routing in ROUTINGS:
        trace, stages = bench.stages(routing)
        routings[routing] = _stage_figures(stages) | _speedup(trace.traffic(), stages)
        routings[routing]["tokens"] = trace.tokens
        other, wider = bench.other_chunk(trace)
        for part, done in ((trace, stages), (other, wider)):
            size = str(part.config.chunk_bytes)
            chunks.setdefault(size, {})[routing] = _speedup(part.traffic(), done)
        runs[routing] = {name: done.summary() for name, done in stages.items()}
        if routing == ROUTINGS[0]:
            timeline = {name: stages[name].timeline() for name in ("dispatch", "combine", "fused")}
            orders = {config.switch.order: stages["combine"].summary(), "rank": bench.rank(trace)}
    others = bench.others()
    runs["others"] = {name: done.summary() for name, done in others.items()}
    front = routings[ROUTINGS[0]]
    figures = {
        "preset": config.name,
        "chunk": config.chunk_bytes,
        **{name: front[name] for name in ("dispatch", "combine", "fused_up", "fused_down")},
        **{name: round(others[name].utilisation(), 4) for name in KEYS[6:10]},
        **{name: front[name] for name in ("speedup", "ideal", "ideal_rows")},
        "latency": unloaded(config, player=player),
        "fairness": round(fairness(others["incast"]), 4),
        "flits_per_second": round(bench.flits / bench.seconds),
    }
    assert tuple(figures) == KEYS
    return figures | {
        "model": MODEL,
        "routings": routings,
        "chunks": chunks,
        "orders": orders,
        "runs": runs,
        "timeline": timeline,
        "targets": dict(TARGETS),
        "peers": [dict(peer) for peer in PEERS],
        "config": config.to_dict(),
        "seed": seed,
    }


def _stage_figures(runs: Mapping[str, Run]) -> dict[str, float]:
    fused = runs["fused"]
    limits = fused.load.traffic.flits.sum(axis=0)
    most = {way.name.lower(): int(limits[way.value].max()) for way in Direction}
    return {
        "dispatch": round(runs["dispatch"].utilisation(), 4),
        "combine": round(runs["combine"].utilisation(), 4),
        "fused": round(fused.utilisation(), 4),
        **{f"fused_{way.name.lower()}": round(fused.utilisation(way), 4) for way in Direction},
        # What the busiest link of each direction could reach if the limiting one were never idle.
        **{f"fused_{way}_ideal": round(most[way] / max(most.values()), 4) for way in most},
    }


def _speedup(traffic: Comparison, runs: Mapping[str, Run]) -> dict[str, float]:
    """Fused multimem against unicast, both stages of both at once."""
    return {
        "speedup": round(runs["deepep"].cycles / runs["fused"].cycles, 4),
        "ideal": round(traffic.ideal_speedup, 4),
        "ideal_rows": round(traffic.ideal_rows, 4),
        "of_ideal": round(runs["deepep"].cycles / runs["fused"].cycles / traffic.ideal_speedup, 4),
        "deepep_cycles": runs["deepep"].cycles,
        "fused_cycles": runs["fused"].cycles,
    }
