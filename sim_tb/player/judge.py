"""What the switch makes of requests: the twin, on arrays, of the scalar model of its route.

:class:`dysharp.sim_tb.route.model.Fabric` is the specification; this is tested equal to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import Cmd, Status
from dysharp.model.numerics import supports
from dysharp.sim_tb.player.requests import Requests
from dysharp.sim_tb.player.wire import links_of
from dysharp.sim_tb.route.model import Fabric, ObjectSpec

__all__ = ["Verdict", "judge"]

_NONE = np.uint8(0xFF)
"""No status yet; every status is below."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What becomes of each request.

    Parameters
    ----------
    status : uint8 [n], 0 or the status of its refusal
    attr : uint8 [n], the reduction of a multimem load: its own, or the object's
    count : int64 [n], entries that a multimem answer stands for
    replica_at : int64 [n + 1], where the replicas of each row begin
    row, port, entries : int64 [r], of each replica: its row, where it goes, and the entries of its
        list, 0 without a list; by row, then by port
    order : int64 [t], the entries of all lists, sorted by replica, in the order of their list
    place : int64 [t], replica of each of those; entries of refused rows are in neither
    """

    status: NDArray[np.uint8]
    attr: NDArray[np.uint8]
    count: NDArray[np.int64]
    replica_at: NDArray[np.int64]
    row: NDArray[np.int64]
    port: NDArray[np.int64]
    entries: NDArray[np.int64]
    order: NDArray[np.int64]
    place: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Table:
    """The object table as arrays; a last entry stands for no object."""

    attr: NDArray[np.uint8]
    split: NDArray[np.int64]
    slots: NDArray[np.int64]
    members: NDArray[np.bool_]
    group: NDArray[np.bool_]

    @classmethod
    def of(cls, objects: list[ObjectSpec | None]) -> _Table:
        entries = [entry or ObjectSpec(0, 0) for entry in (*objects, None)]
        sets = np.zeros((2, len(entries), 1 << 16), bool)
        for k, entry in enumerate(entries):
            sets[0, k, sorted(entry.members)] = True
            sets[1, k, sorted(entry.group)] = True
        return cls(
            np.array([entry.attr for entry in entries], np.uint8),
            np.array([entry.split for entry in entries]),
            np.array([entry.slots for entry in entries]),
            sets[0],
            sets[1],
        )


def _find(fabric: Fabric, requests: Requests, moved: NDArray[np.int64]) -> NDArray[np.int64]:
    """The object that holds all of each row's bytes; the number of objects for none."""
    found = np.full(len(requests), len(fabric.objects))
    first = requests.addr.astype(np.int64)
    for k, entry in reversed(list(enumerate(fabric.objects))):
        if entry and entry.valid:
            last = entry.base + entry.size
            inside = requests.multimem & (first >= entry.base) & (first + 16 * moved <= last)
            found[inside] = k
    return found


def judge(
    fabric: Fabric, requests: Requests, *, strange: NDArray[np.bool_] | None = None
) -> Verdict:
    """Route well-formed requests.

    Parameters
    ----------
    fabric : the switch, with its objects
    requests : what is sent
    strange : rows whose lists have ids in unused slots; none by default
    """
    rows, ports = len(requests), fabric.gpus * fabric.links
    table = _Table.of(fabric.objects)
    where = _find(fabric, requests, requests.flits.astype(np.int64))
    counts, source = requests.counts, requests.port.astype(np.int64) // fabric.links
    status = np.full(rows, _NONE, np.uint8)

    def refuse(bad: NDArray[np.bool_], why: Status) -> None:
        np.minimum(status, np.where(bad, np.uint8(why.value), _NONE), out=status)

    if strange is not None:
        refuse(strange, Status.MALFORMED)

    # Plain addresses.
    bit = np.where(requests.cmd == Cmd.NOTIFY.value, 40, fabric.gpu_address_bit)
    plain_gpu = (requests.addr >> bit.astype(np.uint64)).astype(np.int64) & 0x7F
    refuse(~requests.multimem & (plain_gpu >= fabric.gpus), Status.UNKNOWN_TARGET)
    refuse(requests.cmd == Cmd.ATOM.value, Status.UNSUPPORTED)

    # Multimem addresses; without an object nothing else is known.
    known = requests.multimem & (where < len(fabric.objects))
    attr = np.where(requests.attr > 0, requests.attr, table.attr[where])
    reducible = np.array([supports(k, fabric.dtypes) for k in range(256)])
    unsupported = (requests.attr > 0) & (requests.attr % 16 == 0)
    reduces = requests.wants_data | (requests.cmd == Cmd.MM_RED.value)
    unsupported |= reduces & ~reducible[attr]
    refuse(known & unsupported, Status.UNSUPPORTED)
    refuse(known & ~table.members[where, source], Status.NOT_A_MEMBER)
    static, group_size = known & (counts == 0), table.group.sum(axis=1)
    refuse(static & (group_size == 0)[where], Status.UNKNOWN_TARGET)
    alien = (table.group & ~table.members).sum(axis=1) > 0
    refuse(static & alien[where], Status.NOT_A_MEMBER)

    # Lists, entry by entry.
    owner = np.repeat(np.arange(rows), counts)
    target, entry = requests.targets.astype(np.int64), where[owner]
    gpu = target >> table.split[entry]
    slot = target & (1 << table.split[entry]) - 1
    listed = known[owner]
    unknown = (target == 0xFFFF) | (gpu >= fabric.gpus) | (slot >= table.slots[entry])
    stranger = ~table.members[entry, gpu]
    for bad, why in ((unknown, Status.UNKNOWN_TARGET), (stranger, Status.NOT_A_MEMBER)):
        refused = np.zeros(rows, bool)
        refused[owner[listed & bad]] = True
        refuse(refused, why)
    refuse(requests.multimem & ~known, Status.UNKNOWN_OBJECT)

    status[status == _NONE] = 0
    return _replicate(
        fabric, requests, table, where, status, attr.astype(np.uint8), plain_gpu, owner, gpu, ports
    )


def _replicate(
    fabric: Fabric,
    requests: Requests,
    table: _Table,
    where: NDArray[np.int64],
    status: NDArray[np.uint8],
    attr: NDArray[np.uint8],
    plain_gpu: NDArray[np.int64],
    owner: NDArray[np.int64],
    gpu: NDArray[np.int64],
    ports: int,
) -> Verdict:
    """Replicas of the rows that pass, by row and port."""
    passes, counts = status == 0, requests.counts
    link = links_of(requests.addr, links=fabric.links, chunk_bytes=fabric.chunk_bytes)
    entries = np.flatnonzero(passes[owner])
    keys = owner[entries] * ports + gpu[entries] * fabric.links + link[owner[entries]]
    sort = np.argsort(keys, kind="stable")
    entries, keys = entries[sort], keys[sort]
    first = np.ones(len(keys), bool)
    first[1:] = keys[1:] != keys[:-1]
    listed = keys[first]
    length = np.diff(np.append(np.flatnonzero(first), len(keys)))

    plain = np.flatnonzero(passes & ~requests.multimem)
    static = np.flatnonzero(passes & requests.multimem & (counts == 0))
    member = table.group[where[static], : fabric.gpus]
    group_row, group_gpu = np.nonzero(member)
    group_row = static[group_row]
    others = np.concatenate(
        [
            plain * ports + plain_gpu[plain] * fabric.links + link[plain],
            group_row * ports + group_gpu * fabric.links + link[group_row],
        ]
    )
    every = np.concatenate([listed, others])
    rank = np.argsort(every, kind="stable")
    position = np.empty_like(rank)
    position[rank] = np.arange(len(rank))
    keys = every[rank]
    row = keys // ports
    return Verdict(
        status=status,
        attr=attr,
        count=np.where(counts > 0, counts, table.group.sum(axis=1)[where]),
        replica_at=np.searchsorted(row, np.arange(len(requests) + 1)),
        row=row,
        port=keys % ports,
        entries=np.concatenate([length, np.zeros(len(others), np.int64)])[rank],
        order=entries,
        place=np.repeat(position[: len(listed)], length),
    )
