"""What must come of requests that are damaged on their way in.

A damaged frame is parsed first; what the parser hands on is a well-formed request again, if mostly
another one. :func:`dysharp.sim_tb.parser.env.parse` is the specification of that, for one frame;
this is its twin on arrays and tested equal to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import (
    CMD_RULES,
    FLIT_BYTES,
    MAX_BE_DATA_FLITS,
    NO_TARGET,
    TARGETS_PER_FLIT,
    Cmd,
    Header,
    MultimemAddress,
    Status,
)
from dysharp.sim_tb.player.intact import expect_intact, request_heads
from dysharp.sim_tb.player.part import Is, Part, join
from dysharp.sim_tb.player.requests import Requests, ragged
from dysharp.sim_tb.player.wire import field_of, headers, list_flits, multimem_address
from dysharp.sim_tb.route.model import Fabric

__all__ = ["Frames", "Parsed", "expect_damaged", "frames_of", "parse_frames"]

_ONES = np.uint64(2**64 - 1)


@dataclass(frozen=True, eq=False)
class Frames:
    """Frames as they are sent; behind the end of one there are only ones.

    Parameters
    ----------
    flits : uint64 [n, flits, 2]
    length : int64 [n], flits of each
    marked : bool [n], the last one carries the poison mark
    """

    flits: NDArray[np.uint64]
    length: NDArray[np.int64]
    marked: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Parsed:
    """What a parser of requests makes of frames.

    Parameters
    ----------
    passes : bool [n], it is handed on
    error : bool [n], it is dropped and its source gets ERR 1
    dropped : bool [n], it is dropped, with an answer or without
    fields : int64 or uint64 [n], those of the header, of ``addr`` read as a multimem address, and
        ``lists``, ``stored``: TX and DATA flits
    poison : bool [n], what is handed on is poisoned
    """

    passes: NDArray[np.bool_]
    error: NDArray[np.bool_]
    dropped: NDArray[np.bool_]
    fields: dict[str, NDArray[Any]]
    poison: NDArray[np.bool_]


def frames_of(requests: Requests) -> Frames:
    """Requests as they are sent, damage and all; what is too much is zeros."""
    head_at, heads = request_heads(requests)
    first = np.diff(head_at)
    whole = first + np.where(requests.sends_data, requests.flits, 0)
    length = np.asarray(whole - requests.cut, np.int64)
    width = int(max(length.max(initial=0), whole.max(initial=0), 33))
    place = np.arange(width)
    flits = np.zeros((len(requests), width, 2), np.uint64)
    is_head = place < first[:, None]
    flits[is_head] = heads
    data = ~is_head & (place < whole[:, None])
    source = requests.payload[:, None] + place - first[:, None]
    flits[data] = requests.pool[source[data]]
    flits[place >= length[:, None]] = _ONES
    flits[:, 0] ^= requests.flip
    return Frames(flits, length, requests.poison > 0)


def _table(name: str, default: Any = 0) -> NDArray[Any]:
    """A property of every command number; of reserved ones the default."""
    values = {cmd.value: getattr(rule, name) for cmd, rule in CMD_RULES.items()}
    return np.array([values.get(number, default) for number in range(32)])


def parse_frames(frames: Frames, *, chunk_bytes: int) -> Parsed:
    """Parse frames of a stream of requests."""
    low, high = frames.flits[:, 0, 0], frames.flits[:, 0, 1]
    fields: dict[str, NDArray[Any]] = {
        name: field_of(Header, name, low) for name in ("len", "cmd", "ae", "be", "tx")
    }
    fields |= {
        name: field_of(MultimemAddress, name, high) for name in ("maddr", "stage", "count", "attr")
    }
    fields["addr"] = high
    cmd = fields["cmd"]
    known = np.isin(cmd, [c.value for c in CMD_RULES])
    response = _table("response")[cmd].astype(bool)
    fixed = np.array([-1 if v is None else int(v) for v in _table("multimem")])[cmd]
    fields["lists"] = np.where(_table("targets")[cmd], list_flits(fields["count"]), 0)
    ae, be, tx = (fields[name] > 0 for name in ("ae", "be", "tx"))
    stored = fields["stored"] = fields["len"] - fields["lists"] - ae - be
    most = np.where(be, MAX_BE_DATA_FLITS, _table("max_data")[cmd])
    good = known & ~response & (tx == fixed) & ~(ae & tx)
    good &= ~be | _table("byte_enable")[cmd].astype(bool)
    good &= (stored >= _table("min_data")[cmd]) & (stored <= most)
    offset = (high % np.uint64(chunk_bytes)).astype(np.int64)
    stores = _table("data")[cmd].astype(bool) & (cmd != Cmd.ATOM.value)
    good &= ~stores | (offset % FLIT_BYTES == 0) & (offset + FLIT_BYTES * stored <= chunk_bytes)
    wanted = offset % FLIT_BYTES
    ends = offset - wanted + FLIT_BYTES * (wanted + 1)
    good &= ~_table("wants_data")[cmd].astype(bool) | (ends <= chunk_bytes)
    nop = cmd == Cmd.NOP.value
    dropped = ~good & ~nop
    misframed = fields["len"] + 1 != frames.length
    return Parsed(
        passes=good & ~nop,
        error=dropped & ~response & (_table("answered", True)[cmd] > 0),
        dropped=dropped,
        fields=fields,
        poison=misframed | frames.marked,
    )


def _effective(
    requests: Requests, frames: Frames, parsed: Parsed, rows: NDArray[np.int64]
) -> tuple[Requests, NDArray[np.bool_]]:
    """The requests that some frames are once they are parsed, and which have ids in unused slots.

    The flits of all frames are in the pool, behind the others.
    """
    fields = {name: values[rows] for name, values in parsed.fields.items()}
    first = len(requests.pool) + rows * frames.flits.shape[1]
    ae, be, cmd = fields["ae"], fields["be"], fields["cmd"]
    targets_from = 1 + ae
    be_at = targets_from + fields["lists"]
    loads = _table("wants_data")[cmd].astype(bool)
    wanted = (fields["addr"] % np.uint64(FLIT_BYTES)).astype(np.int64) + 1
    moves = loads | (_table("data")[cmd] > 0)
    tx = fields["tx"] > 0
    addr = np.where(tx, fields["maddr"].astype(np.uint64), fields["addr"])
    addr = np.where(moves, addr & ~np.uint64(FLIT_BYTES - 1), addr)
    count = np.where(fields["lists"] > 0, fields["count"], 0)
    slots = TARGETS_PER_FLIT * frames.flits.shape[1]
    ids = frames.flits[rows].view(np.uint16).reshape(len(rows), slots)
    slot = np.arange(slots) - TARGETS_PER_FLIT * targets_from[:, None]
    used = (slot >= 0) & (slot < count[:, None])
    listed = (slot >= 0) & (slot < TARGETS_PER_FLIT * fields["lists"][:, None])
    return Requests(
        port=requests.port[rows],
        stream=requests.stream[rows],
        cmd=cmd,
        addr=addr,
        flits=np.where(loads, wanted, fields["stored"]),
        pool=np.concatenate([requests.pool, frames.flits.reshape(-1, 2)]),
        target_offsets=ragged(count),
        targets=ids[used],
        stage=np.where(tx, fields["stage"], 0),
        attr=np.where(tx, fields["attr"], 0),
        payload=first + be_at + be,
        byte_enable=np.where(be > 0, first + be_at, -1),
        extension=np.where(ae > 0, first + 1, -1),
        poison=parsed.poison[rows],
    ), (listed & ~used & (ids != NO_TARGET)).any(axis=1)


def expect_damaged(
    fabric: Fabric,
    requests: Requests,
    rows: NDArray[np.int64],
    *,
    rng: np.random.Generator,
    faults: float,
) -> Part:
    """What must come of damaged requests; parameters as of :func:`.intact.expect_intact`.

    The frames' flits are in :attr:`Part.pool`, and places in it count from the end of ``requests``'
    pool on.
    """
    frames = frames_of(requests)
    parsed = parse_frames(frames, chunk_bytes=fabric.chunk_bytes)
    passed = np.flatnonzero(parsed.passes)
    effective, strange = _effective(requests, frames, parsed, passed)
    intact = expect_intact(fabric, effective, passed, rng=rng, faults=faults, strange=strange)
    part = join([intact, _refused(parsed, np.flatnonzero(~parsed.passes))])
    flags = part.of_row["is"] & ~np.uint8(Is.POISONED)
    flags |= np.where(frames.marked, Is.POISONED.value, 0).astype(np.uint8)
    inside = np.arange(frames.flits.shape[1]) < frames.length[:, None]
    return replace(
        part,
        rows=rows,
        of_row=part.of_row | {"is": flags, "sent_flits": np.zeros(len(rows), np.uint8)},
        head_at=ragged(frames.length),
        heads=frames.flits[inside],
        pool=frames.flits.reshape(-1, 2),
    )


def _refused(parsed: Parsed, rows: NDArray[np.int64]) -> Part:
    """Frames that the parser drops."""
    fields = {name: values[rows] for name, values in parsed.fields.items()}
    error, number, tx = parsed.error[rows], len(rows), fields["tx"]
    status = np.where(parsed.dropped[rows], Status.MALFORMED.value, 0).astype(np.uint8)
    address = multimem_address(
        fields["maddr"], fields["stage"], fields["count"], np.full(number, Status.MALFORMED.value)
    )
    addr = np.where(tx > 0, address, np.uint64(Status.MALFORMED.value))
    none = np.zeros(number, np.int64)
    return Part(
        rows=rows,
        status=status,
        attr=np.zeros(number, np.uint8),
        answer_flits=none,
        of_row={
            "is": np.where(error, Is.ANSWERED.value, 0).astype(np.uint8),
            "key": none.astype(np.uint64),
            "data_at": none,
            "data_flits": none.astype(np.uint8),
            "sent_flits": none.astype(np.uint8),
            "answer": headers(flits=none + 1, cmd=none + Cmd.ERR.value, tx=tx, addr=addr),
            "answer_at": none - 1,
        },
        head_at=ragged(none),
        heads=np.zeros((0, 2), np.uint64),
        replica_at=ragged(none),
        of_replica={
            "replica_port": np.zeros(0, np.uint16),
            "reply": np.zeros((0, 2), np.uint64),
            "reply_at": np.zeros(0, np.int64),
            "reply_flits": np.zeros(0, np.uint8),
            "reply_poison": np.zeros(0, np.uint8),
        },
        replica_head_at=np.zeros(1, np.int64),
        replica_heads=np.zeros((0, 2), np.uint64),
    )
