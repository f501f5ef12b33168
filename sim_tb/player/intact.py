"""What must come of well-formed requests, worked out for all of them at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import TARGETS_PER_FLIT, Cmd, Status
from dysharp.sim_tb.player.judge import Verdict, judge
from dysharp.sim_tb.player.part import Is, Part
from dysharp.sim_tb.player.requests import Requests, ragged
from dysharp.sim_tb.player.wire import headers, list_flits, multimem_address
from dysharp.sim_tb.route.model import Fabric

__all__ = ["FAULTS", "expect_intact", "request_heads"]

FAULTS = (
    Status.MALFORMED.value,
    Status.UNMAPPED_INDEX.value,
    Status.POISONED.value,
    Status.QUOTA_EXCEEDED.value,
)
"""What a GPU may find wrong."""


def _heads(
    header: NDArray[np.uint64],
    lists: NDArray[np.int64],
    extension: NDArray[np.int64],
    byte_enable: NDArray[np.int64],
    pool: NDArray[np.uint64],
    targets: NDArray[np.uint16],
    owner: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """All flits but the DATA flits of each packet: HDR, AE, the list, BE.

    Parameters
    ----------
    header, lists : of each packet: HDR, TX flits
    extension, byte_enable : places of its AE and BE flits in the pool, or -1
    pool : where those are
    targets, owner : the entries of all lists, and the packet of each, ascending
    """
    with_ae, with_be = extension >= 0, byte_enable >= 0
    at = ragged(1 + with_ae + lists + with_be)
    flits = np.empty((at[-1], 2), np.uint64)
    slots = flits.view(np.uint16).reshape(-1, TARGETS_PER_FLIT)
    slots[:] = 0xFFFF
    flits[at[:-1]] = header
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    slots[at[owner] + 1 + place // TARGETS_PER_FLIT, place % TARGETS_PER_FLIT] = targets
    flits[at[:-1][with_ae] + 1] = pool[extension[with_ae]]
    flits[at[1:][with_be] - 1] = pool[byte_enable[with_be]]
    return at, flits


def request_heads(requests: Requests) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The flits of each request up to its DATA flits, undamaged."""
    lists = list_flits(requests.counts)
    with_ae, with_be = requests.extension >= 0, requests.byte_enable >= 0
    stored = np.where(requests.sends_data, requests.flits, 0)
    header = headers(
        flits=1 + with_ae + lists + with_be + stored,
        cmd=requests.cmd,
        tx=requests.multimem,
        ae=with_ae,
        be=with_be,
        addr=_addresses(requests, requests.counts),
    )
    owner = np.repeat(np.arange(len(requests)), requests.counts)
    return _heads(
        header,
        lists,
        requests.extension,
        requests.byte_enable,
        requests.pool,
        requests.targets,
        owner,
    )


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
    lists = list_flits(entries)
    extension, byte_enable = requests.extension[row], requests.byte_enable[row]
    stored = np.where(requests.sends_data, requests.flits, 0)[row]
    addr = _low_address(requests)[row]
    multimem = multimem_address(addr, requests.stage[row], entries, requests.attr[row])
    header = headers(
        flits=1 + (extension >= 0) + lists + (byte_enable >= 0) + stored,
        cmd=requests.cmd[row],
        tx=requests.multimem[row],
        ae=extension >= 0,
        be=byte_enable >= 0,
        addr=np.where(requests.multimem[row], multimem, addr),
    )
    targets = requests.targets[verdict.order]
    return _heads(header, lists, extension, byte_enable, requests.pool, targets, verdict.place)


@dataclass(frozen=True, eq=False)
class _Replies:
    """What GPUs answer to replicas: place of the DATA flits, their number, status, poison."""

    at: NDArray[np.int64]
    flits: NDArray[np.uint8]
    status: NDArray[np.uint8]
    poison: NDArray[np.uint8]


def _replies(
    requests: Requests, verdict: Verdict, rng: np.random.Generator, faults: float
) -> _Replies:
    row = verdict.row
    wants = requests.wants_data[row]
    if requests.answers is None:
        free = len(requests.pool) - requests.flits[row].astype(np.int64)
        if (free[wants] < 0).any():
            raise UserError("Pool must hold the DATA flits of the largest load")
        at = np.where(wants, rng.integers(0, np.maximum(free, 0) + 1), -1)
        faulty = rng.random(len(row)) < faults
        status = np.where(faulty, rng.choice(FAULTS, len(row)), 0).astype(np.uint8)
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
    status = np.where(requests.poison[row] > 0, np.uint8(Status.POISONED.value), status)
    poison = (rng.random(len(row)) < faults).astype(np.uint8)
    good = wants & (status == 0)
    if (at[good] < 0).any():
        bad = int(row[np.flatnonzero(good)[np.argmax(at[good] < 0)]])
        raise UserError(f"Row {bad}: answers must be DATA, since it is a load")
    flits = np.where(good, requests.flits[row], 0).astype(np.uint8)
    return _Replies(np.where(good, at, 0), flits, status, poison)


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
    # A session makes of poison a status; a unicast answer keeps it.
    found = np.where(replies.status > 0, replies.status, 0xFF)
    poisoned = requests.multimem[verdict.row] & (replies.poison > 0)
    found = np.where(poisoned, np.minimum(found, Status.POISONED.value), found).astype(np.uint8)
    worst = np.full(rows, 0xFF, np.uint8)
    np.minimum.at(worst, verdict.row, found)
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


def expect_intact(
    fabric: Fabric,
    requests: Requests,
    rows: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    faults: float,
    strange: NDArray[np.bool_] | None = None,
) -> Part:
    """What must come of well-formed requests.

    Parameters
    ----------
    fabric : the switch, with its objects
    requests : only those rows
    rows : which ones they are of all
    rng : of the answers that requests leave to the player
    faults : chance that such an answer is an ERR, and that one is poisoned
    strange : rows whose lists have ids in unused slots; none by default
    """
    verdict = judge(fabric, requests, strange=strange)
    head_at, heads = request_heads(requests)
    replica_head_at, replica_heads = _replica_heads(requests, verdict)
    replies = _replies(requests, verdict, rng, faults)
    answer, answer_flits = _answers(requests, verdict, replies)
    passes, multimem, answered = verdict.status == 0, requests.multimem, requests.answered
    plain = ~multimem[verdict.row]
    # A unicast answer is what its GPU sent.
    answer_at = np.where(requests.result >= 0, requests.result, -1)
    answer_at[verdict.row[plain]] = replies.at[plain]
    answer_poison = np.zeros(len(requests), bool)
    answer_poison[verdict.row[plain]] = replies.poison[plain] > 0
    poison = requests.poison > 0
    flags = {
        Is.ANSWERED: answered,
        Is.LOAD: requests.wants_data,
        Is.SESSION: passes & multimem & answered,
        Is.ORDERED: passes & ~multimem & answered,
        Is.POISONED: poison,
        Is.PASSES_POISON: poison,
        Is.ANSWER_POISONED: answer_poison,
    }
    sends = requests.sends_data
    return Part(
        rows=rows,
        status=verdict.status,
        attr=verdict.attr,
        answer_flits=answer_flits,
        of_row={
            "is": Is.of(flags),
            "key": _low_address(requests) << np.uint64(1) | requests.stage.astype(np.uint64),
            "data_at": np.where(sends, requests.payload, 0),
            "data_flits": np.where(sends, requests.flits, 0).astype(np.uint8),
            "sent_flits": np.where(sends, requests.flits, 0).astype(np.uint8),
            "answer": answer,
            "answer_at": answer_at,
        },
        head_at=head_at,
        heads=heads,
        replica_at=verdict.replica_at.astype(np.int64),
        of_replica={
            "replica_port": verdict.port.astype(np.uint16),
            "reply": _reply_headers(requests, verdict, replies),
            "reply_at": replies.at,
            "reply_flits": replies.flits,
            "reply_poison": replies.poison,
        },
        replica_head_at=replica_head_at,
        replica_heads=replica_heads,
    )
