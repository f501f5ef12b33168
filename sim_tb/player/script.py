"""From requests to the script of a run: every flit sent, every flit expected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import TARGETS_PER_FLIT, Cmd, Status
from dysharp.sim_tb.player.judge import Verdict, judge
from dysharp.sim_tb.player.requests import Requests
from dysharp.sim_tb.player.wire import headers, list_flits, multimem_address, ragged
from dysharp.sim_tb.route.model import Fabric

__all__ = ["Is", "Op", "Script", "write_script"]


class Op(IntEnum):
    """Steps of a script's register program, as player.cpp has them."""

    WRITE = 0
    READ = 1
    RELEASE = 2
    WAIT = 3
    WAIT_ALL = 4
    SLEEP = 5
    END = 6


class Is(IntFlag):
    """What a request is to the player, as script.h has it."""

    ANSWERED = 1
    LOAD = 2
    SESSION = 4
    ORDERED = 8
    POISONED = 16
    PASSES_POISON = 32
    ANSWER_POISONED = 64


@dataclass(frozen=True, eq=False)
class Script:
    """A script, and what Python needs of it afterwards.

    Parameters
    ----------
    verdict : what the switch makes of each request
    arrays : what the player reads
    expected : the switch's counters after the run, by name
    """

    verdict: Verdict
    arrays: dict[str, NDArray[Any]]
    expected: dict[str, int]


def _heads(
    header: NDArray[np.uint64],
    lists: NDArray[np.int64],
    byte_enable: NDArray[np.int64],
    pool: NDArray[np.uint64],
    targets: NDArray[np.uint16],
    owner: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """All flits but the DATA flits of each packet: HDR, the list, BE.

    Parameters
    ----------
    header, lists, byte_enable : of each packet: HDR, TX flits, place of the BE flit or -1
    pool : where BE flits are
    targets, owner : the entries of all lists, and the packet of each, ascending
    """
    at = ragged(1 + lists + (byte_enable >= 0))
    flits = np.empty((at[-1], 2), np.uint64)
    slots = flits.view(np.uint16).reshape(-1, TARGETS_PER_FLIT)
    slots[:] = 0xFFFF
    flits[at[:-1]] = header
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    slots[at[owner] + 1 + place // TARGETS_PER_FLIT, place % TARGETS_PER_FLIT] = targets
    with_be = byte_enable >= 0
    flits[at[1:][with_be] - 1] = pool[byte_enable[with_be]]
    return at, flits


def _request_heads(requests: Requests) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    lists, with_be = list_flits(requests.counts), requests.byte_enable >= 0
    stored = np.where(requests.sends_data, requests.flits, 0)
    header = headers(
        flits=1 + lists + with_be + stored,
        cmd=requests.cmd,
        tx=requests.multimem,
        be=with_be,
        addr=_addresses(requests, requests.counts),
    )
    owner = np.repeat(np.arange(len(requests)), requests.counts)
    return _heads(header, lists, requests.byte_enable, requests.pool, requests.targets, owner)


def _addresses(requests: Requests, counts: NDArray[Any]) -> NDArray[np.uint64]:
    """The ``addr`` field of requests with so many entries."""
    addr = _low_address(requests)
    multimem = multimem_address(addr, requests.stage, counts, requests.attr)
    return np.where(requests.multimem, multimem, addr)


def _low_address(requests: Requests) -> NDArray[np.uint64]:
    """Addresses, with the flits wanted in the low bits."""
    wanted = np.where(requests.wants_data, requests.flits.astype(np.int64) - 1, 0)
    return requests.addr | wanted.astype(np.uint64)


def _replica_heads(
    requests: Requests, verdict: Verdict
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    row, entries = verdict.row, verdict.entries
    lists, byte_enable = list_flits(entries), requests.byte_enable[row]
    stored = np.where(requests.sends_data, requests.flits, 0)[row]
    addr = _low_address(requests)[row]
    multimem = multimem_address(addr, requests.stage[row], entries, requests.attr[row])
    header = headers(
        flits=1 + lists + (byte_enable >= 0) + stored,
        cmd=requests.cmd[row],
        tx=requests.multimem[row],
        be=byte_enable >= 0,
        addr=np.where(requests.multimem[row], multimem, addr),
    )
    targets = requests.targets[verdict.order]
    return _heads(header, lists, byte_enable, requests.pool, targets, verdict.place)


@dataclass(frozen=True, eq=False)
class _Replies:
    """What GPUs answer to replicas: place of the DATA flits or -1, their number, and status."""

    at: NDArray[np.int64]
    flits: NDArray[np.uint8]
    status: NDArray[np.uint8]


def _replies(requests: Requests, verdict: Verdict, seed: int) -> _Replies:
    row = verdict.row
    wants = requests.wants_data[row]
    if requests.answers is None:
        rng = np.random.default_rng([seed, 2])
        free = len(requests.pool) - requests.flits[row].astype(np.int64)
        if (free[wants] < 0).any():
            raise UserError("Pool must hold the DATA flits of the largest load")
        at = np.where(wants, rng.integers(0, np.maximum(free, 0) + 1), -1)
        status = np.zeros(len(row), np.uint8)
    else:
        assert requests.answer_offsets is not None and requests.answer_status is not None
        number = np.diff(requests.answer_offsets)
        asked = np.diff(verdict.replica_at)
        passes = verdict.status == 0
        if (number != asked)[passes].any():
            bad = int(np.argmax((number != asked) & passes))
            raise UserError(
                f"Row {bad}: answers must be one for each of {asked[bad]} replicas, not "
                f"{number[bad]} ({requests.describe(bad)})"
            )
        keep = np.repeat(passes, number)
        at, status = requests.answers[keep], requests.answer_status[keep]
    good = wants & (status == 0)
    if (at[good] < 0).any():
        bad = int(row[np.flatnonzero(good)[np.argmax(at[good] < 0)]])
        raise UserError(f"Row {bad}: answers must be DATA, since it is a load")
    return _Replies(
        np.where(good, at, 0), np.where(good, requests.flits[row], 0).astype(np.uint8), status
    )


def _reply_headers(requests: Requests, verdict: Verdict, replies: _Replies) -> NDArray[np.uint64]:
    row = verdict.row
    multimem, wants = requests.multimem[row], requests.wants_data[row]
    cmd = np.where(
        multimem,
        np.where(wants, Cmd.MM_RSP.value, Cmd.MM_ACK.value),
        np.where(wants, Cmd.RD_RSP.value, Cmd.WR_ACK.value),
    )
    cmd = np.where(replies.status > 0, Cmd.ERR.value, cmd)
    address = multimem_address(
        _low_address(requests)[row],
        requests.stage[row],
        np.maximum(verdict.entries, 1),
        replies.status,
    )
    plain = replies.status.astype(np.uint64)
    return headers(
        flits=1 + replies.flits,
        cmd=cmd,
        tx=multimem,
        addr=np.where(multimem, address, plain),
    )


def _answers(
    requests: Requests, verdict: Verdict, replies: _Replies
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Headers of the answers to the sources, and their DATA flits."""
    rows = len(requests)
    worst = np.full(rows, 0xFF, np.uint8)
    faulty = replies.status > 0
    np.minimum.at(worst, verdict.row[faulty], replies.status[faulty])
    worst[worst == 0xFF] = 0
    status = np.where(verdict.status > 0, verdict.status, worst)
    good = status == 0
    flits = np.where(good & requests.wants_data, requests.flits, 0).astype(np.int64)
    cmd = np.where(
        requests.multimem,
        np.where(requests.wants_data, Cmd.MM_RSP.value, Cmd.MM_ACK.value),
        np.where(requests.wants_data, Cmd.RD_RSP.value, Cmd.WR_ACK.value),
    )
    count = np.where(verdict.status > 0, requests.counts, verdict.count)
    address = multimem_address(_low_address(requests), requests.stage, count, status)
    header = headers(
        flits=1 + flits,
        cmd=np.where(good, cmd, Cmd.ERR.value),
        tx=requests.multimem,
        addr=np.where(requests.multimem, address, status.astype(np.uint64)),
    )
    return header, flits


def _posted_are_distinct(requests: Requests) -> None:
    """A posted packet carries no source, so the player knows it by its header."""
    posted = np.flatnonzero(~requests.answered)
    key = _addresses(requests, np.zeros(len(requests), np.int64))[posted]
    pairs = np.unique(np.stack([key, requests.port[posted].astype(np.uint64)], axis=1), axis=0)
    if len(np.unique(pairs[:, 0])) != len(pairs):
        raise UserError("Posted requests of different ports must have different addresses")


def write_script(
    fabric: Fabric,
    requests: Requests,
    *,
    steps: Sequence[tuple[int, int, int]],
    resets: Sequence[int] = (),
    seed: int = 1,
) -> Script:
    """Work out what must come of requests.

    Parameters
    ----------
    fabric : the switch, with its objects
    requests : what is sent
    steps : (:class:`Op`, a, b) of the register program
    resets : cycles in which the switch is reset, and the script starts again
    seed : of the answers that requests leave to the player
    """
    _posted_are_distinct(requests)
    verdict = judge(fabric, requests)
    head_at, heads = _request_heads(requests)
    replica_head_at, replica_heads = _replica_heads(requests, verdict)
    replies = _replies(requests, verdict, seed)
    answer, answer_flits = _answers(requests, verdict, replies)
    passes, multimem = verdict.status == 0, requests.multimem
    session = passes & multimem & requests.answered
    ordered = passes & ~multimem & requests.answered
    # A unicast answer is what its GPU sent.
    answer_at = np.where(requests.result >= 0, requests.result, -1)
    answer_at[verdict.row[~multimem[verdict.row]]] = replies.at[~multimem[verdict.row]]
    kind = np.where(requests.answered, Is.ANSWERED, 0) | np.where(requests.wants_data, Is.LOAD, 0)
    kind |= np.where(session, Is.SESSION, 0) | np.where(ordered, Is.ORDERED, 0)
    lanes, lane = np.unique(
        requests.port.astype(np.int64) << 32 | requests.stream, return_inverse=True
    )
    sends = requests.sends_data
    arrays = {
        "port": requests.port,
        "is": kind.astype(np.uint8),
        "group": requests.group,
        "key": _low_address(requests) << np.uint64(1) | requests.stage.astype(np.uint64),
        "head_at": head_at,
        "heads": heads,
        "data_at": np.where(sends, requests.payload, 0),
        "data_flits": np.where(sends, requests.flits, 0).astype(np.uint8),
        "replica_at": verdict.replica_at.astype(np.int64),
        "answer": answer,
        "answer_at": answer_at,
        "result_at": ragged(answer_flits),
        "lane": lane.astype(np.uint32),
        "lane_at": ragged(np.bincount(lane, minlength=len(lanes))),
        "lane_rows": np.argsort(lane, kind="stable").astype(np.uint32),
        "port_lanes": np.searchsorted(lanes >> 32, np.arange(fabric.gpus * fabric.links + 1)),
        "replica_port": verdict.port.astype(np.uint16),
        "replica_row": verdict.row.astype(np.uint32),
        "replica_head_at": replica_head_at,
        "replica_heads": replica_heads,
        "reply": _reply_headers(requests, verdict, replies),
        "reply_at": replies.at,
        "reply_flits": replies.flits,
        "reply_poison": np.zeros(len(replies.at), np.uint8),
        "pool": requests.pool,
        "steps": np.array(steps, np.uint64),
        "resets": np.array(resets, np.int64),
    }
    return Script(verdict, arrays, _expected(requests, verdict, session))


def _expected(requests: Requests, verdict: Verdict, session: NDArray[np.bool_]) -> dict[str, int]:
    refused = np.bincount(verdict.status, minlength=len(Status))
    counters = {f"error_{s.name.lower()}": int(refused[s.value]) for s in Status if s.value}
    return counters | {
        "replicas": len(verdict.row),
        "contributions": int(session[verdict.row].sum()),
        "results": int(session.sum()),
        "stray": 0,
        "dropped": int((~requests.answered & (verdict.status > 0)).sum()),
    }
