"""From requests to the script of a run: every flit sent, every flit expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import Status
from dysharp.sim_tb.player.damaged import expect_damaged
from dysharp.sim_tb.player.intact import expect_intact
from dysharp.sim_tb.player.part import Is, Part, join
from dysharp.sim_tb.player.requests import Requests, ragged
from dysharp.sim_tb.route.model import Fabric

__all__ = ["Op", "Script", "write_script"]


class Op(IntEnum):
    """Steps of a script's register program, as script.h has them."""

    WRITE = 0
    READ = 1
    RELEASE = 2
    WAIT = 3
    WAIT_ALL = 4
    SLEEP = 5
    END = 6


@dataclass(frozen=True, eq=False)
class Script:
    """A script, and what Python needs of it afterwards.

    Parameters
    ----------
    part : what must come of each request
    arrays : what the player reads
    expected : the switch's counters after the run, by name
    """

    part: Part
    arrays: dict[str, NDArray[Any]]
    expected: dict[str, int]


def _posted_are_distinct(requests: Requests, part: Part) -> None:
    """A posted packet carries no source, so the player knows it by its header."""
    replica_row = np.repeat(part.rows, np.diff(part.replica_at))
    posted = part.of_row["is"][replica_row] & Is.ANSWERED.value == 0
    header = part.replica_heads[part.replica_head_at[:-1][posted]]
    port = requests.port[replica_row[posted]].astype(np.uint64)
    goal = part.of_replica["replica_port"][posted].astype(np.uint64)
    pairs = np.unique(np.column_stack([header, goal, port]), axis=0)
    if len(np.unique(pairs[:, :3], axis=0)) != len(pairs):
        raise UserError("Posted requests of different ports must have different addresses")


def write_script(
    fabrics: Mapping[int, Fabric],
    requests: Requests,
    *,
    steps: Sequence[tuple[int, int, int]],
    resets: Sequence[int] = (),
    seed: int = 1,
    faults: float = 0.0,
) -> Script:
    """Work out what must come of requests.

    Parameters
    ----------
    fabrics : the switch as each group of requests finds it; groups not named find it as 0 does
    requests : what is sent
    steps : (:class:`Op`, a, b) of the register program
    resets : cycles in which the switch is reset, and the script starts again
    seed : of the answers that requests leave to the player
    faults : chance that such an answer is an ERR, and that one is poisoned
    """
    rng = np.random.default_rng([seed, 2])
    known = np.isin(requests.group, list(fabrics))
    group = np.where(known, requests.group, 0)
    parts, pools, size = [], [requests.pool], len(requests.pool)
    for number, fabric in fabrics.items():
        for damaged, expect in ((False, expect_intact), (True, expect_damaged)):
            rows = np.flatnonzero((group == number) & (requests.damaged == damaged))
            if len(rows) or not parts:
                part = expect(fabric, requests.take(rows), rows, rng=rng, faults=faults)
                parts.append(part.moved(size - len(requests.pool), len(requests.pool)))
                pools.append(part.pool)
                size += len(part.pool)
    part = join(parts)
    _posted_are_distinct(requests, part)
    lanes, lane = np.unique(
        requests.port.astype(np.int64) << 32 | requests.stream, return_inverse=True
    )
    ports = fabrics[0].gpus * fabrics[0].links
    arrays = {
        **part.of_row,
        **part.of_replica,
        "port": requests.port,
        "group": requests.group,
        "head_at": part.head_at,
        "heads": part.heads,
        "result_at": ragged(part.answer_flits),
        "replica_at": part.replica_at,
        "replica_row": np.repeat(part.rows, np.diff(part.replica_at)).astype(np.uint32),
        "replica_head_at": part.replica_head_at,
        "replica_heads": part.replica_heads,
        "lane": lane.astype(np.uint32),
        "lane_at": ragged(np.bincount(lane, minlength=len(lanes))),
        "lane_rows": np.argsort(lane, kind="stable").astype(np.uint32),
        "port_lanes": np.searchsorted(lanes >> 32, np.arange(ports + 1)).astype(np.int64),
        "pool": np.concatenate(pools),
        "steps": np.array(steps, np.uint64),
        "resets": np.array(resets, np.int64),
    }
    return Script(part, arrays, _expected(part))


def _expected(part: Part) -> dict[str, int]:
    flags = part.of_row["is"]
    session = flags & Is.SESSION.value > 0
    replicas = np.diff(part.replica_at)
    refused = np.bincount(part.status, minlength=len(Status))
    counters = {f"error_{s.name.lower()}": int(refused[s.value]) for s in Status if s.value}
    poison = np.repeat(session, replicas) & (part.of_replica["reply_poison"] > 0)
    counters["error_poisoned"] += int(poison.sum())
    return counters | {
        "replicas": int(replicas.sum()),
        "contributions": int(replicas[session].sum()),
        "results": int(session.sum()),
        "stray": 0,
        "dropped": int(((flags & Is.ANSWERED.value == 0) & (part.status > 0)).sum()),
    }
