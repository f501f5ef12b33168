"""Random requests of every kind, right and wrong ones, for long runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.packet import CMD_RULES, MAX_FLITS, Cmd, Header, MultimemAddress
from dysharp.model.numerics import REDUCTIONS, attr_bits
from dysharp.sim_tb.player.play import Change
from dysharp.sim_tb.player.requests import Requests, ragged
from dysharp.sim_tb.player.wire import list_flits, place_of
from dysharp.sim_tb.route.model import ObjectSpec

__all__ = ["Soak", "make_soak"]

_MULTIMEM = (Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_LDR, Cmd.MM_RED)
_UNICAST = (Cmd.RD, Cmd.WR, Cmd.WRP, Cmd.ATOM, Cmd.NOTIFY)
_SPANS = ((25, 30), (37, 45), (64, 72), (113, 128), (0, 128))
"""Bits of a header that are flipped: mostly where it matters."""
_SIZE = 1 << 28
"""Bytes of an object for each GPU: enough chunks that no two requests share one."""


@dataclass(frozen=True, eq=False)
class Soak:
    """Random traffic, and the object tables that it needs.

    Parameters
    ----------
    requests : what is sent
    objects : one of all GPUs, one of all but the last with a preset group of two, one whose preset
        group is empty, one that changes
    changes : of the last object, each between two groups of requests
    """

    requests: Requests
    objects: tuple[ObjectSpec, ...]
    changes: tuple[Change, ...]


def _objects(config: Config) -> tuple[ObjectSpec, ...]:
    gpus = config.gpus
    every, most = set(range(gpus)), set(range(max(1, gpus - 1)))

    def entry(index: int, members: set[int], group: set[int], slots: int) -> ObjectSpec:
        size = _SIZE * len(members)
        split = (slots - 1).bit_length()
        return ObjectSpec((index + 1) << 40, size, members, group, split, slots)

    return (
        entry(0, every, every, 4),
        entry(1, most, {0, max(most)}, 3),
        entry(2, every, set(), 1),
        entry(3, every, {0}, 2),
    )


def _changed(config: Config, entry: ObjectSpec, number: int) -> ObjectSpec:
    """The object that changes, after so many changes: other slots, another group."""
    slots = 2 << number % 3
    group = {gpu for gpu in range(config.gpus) if (gpu + number) % 3} or {0}
    return ObjectSpec(entry.base, entry.size, entry.members, group, (slots - 1).bit_length(), slots)


def make_soak(
    config: Config,
    packets: int,
    *,
    seed: int = 1,
    malformed: float = 0.2,
    changes: int = 2,
) -> Soak:
    """Make so many random requests.

    Parameters
    ----------
    config : the switch
    packets : requests
    seed : decides all of them
    malformed : chance that a request is damaged on its way, or names what there is not
    changes : of an object, while the others' traffic goes on

    Raises
    ------
    UserError
        If there are not as many requests as groups of them.
    """
    if packets <= changes:
        raise UserError(f"Packets must be more than the {changes} changes, not {packets}")
    rng = np.random.default_rng([seed, 3])
    objects = _objects(config)
    tables = [objects]
    for number in range(changes):
        tables.append((*objects[:-1], _changed(config, objects[-1], number + 1)))
    requests = _draw(config, packets, rng, tables, malformed)
    steps = tuple(
        Change(after=number, objects=tables[number], group=number + 1)
        for number in range(1, changes + 1)
    )
    return Soak(requests, objects, steps)


def _draw(
    config: Config,
    rows: int,
    rng: np.random.Generator,
    tables: list[tuple[ObjectSpec, ...]],
    malformed: float,
) -> Requests:
    limit = config.chunk_flits
    port = rng.integers(0, config.ports, rows)
    wrong = rng.random(rows) < malformed
    multimem = rng.random(rows) < 0.7
    cmd = np.where(
        multimem,
        rng.choice([c.value for c in _MULTIMEM], rows, p=[0.4, 0.15, 0.4, 0.05]),
        rng.choice([c.value for c in _UNICAST], rows, p=[0.35, 0.35, 0.15, 0.05, 0.1]),
    )
    stores, loads = (_having(cmd, name) for name in ("data", "wants_data"))
    flits = np.where(stores | loads, rng.integers(1, limit + 1, rows), 0)
    offset = (rng.random(rows) * (limit - flits + 1)).astype(np.int64)

    # Objects, and which chunk: its number is the row's, so that no two requests share one.
    table = rng.integers(0, len(tables[0]), rows)
    phase = np.where(multimem & (table == len(tables[0]) - 1), _phase(rows, len(tables)), 0)
    at = np.minimum(phase - 1, len(tables) - 1).clip(0)
    entries = [[t[k] for k in range(len(t))] for t in tables]
    base = np.array([[e.base for e in t] for t in entries])[at, table]
    slots = np.array([[e.slots for e in t] for t in entries])[at, table]
    split = np.array([[e.split for e in t] for t in entries])[at, table]
    members = np.array([[len(e.members) for e in t] for t in entries])[at, table]
    size = np.array([[e.size for e in t] for t in entries])[at, table]
    chunk = np.arange(rows) % (size // config.chunk_bytes) * config.chunk_bytes
    gpu = rng.integers(0, config.gpus, rows)
    plain = gpu.astype(np.uint64) << np.uint64(config.gpu_address_bit)
    plain |= (rng.permutation(rows) * config.chunk_bytes).astype(np.uint64)
    addr = np.where(multimem, (base + chunk).astype(np.uint64), plain)
    addr += (16 * offset).astype(np.uint64)

    # Lists: often one entry, or up to a flit of them, or many.
    longest = (MAX_FLITS - 2 - np.where(stores, flits, 0)) * 8
    kind = rng.integers(0, 5, rows)
    count = np.choose(kind, [np.zeros(rows), np.ones(rows), np.full(rows, 8), *_some(rng, rows)])
    count = np.where(multimem, np.minimum(count, longest), 0).astype(np.int64).clip(0, 120)
    owner = np.repeat(np.arange(rows), count)
    target_gpu = (rng.random(len(owner)) * members[owner]).astype(np.int64)
    target = target_gpu << split[owner] | (rng.random(len(owner)) * slots[owner]).astype(np.int64)
    bad = wrong[owner] & (rng.random(len(owner)) < 0.1)
    target = np.where(bad, rng.integers(0, 1 << 16, len(owner)), target)

    room = MAX_FLITS - 1 - list_flits(count) - np.where(stores, flits, 0)
    enabled = stores & (flits <= 8) & (room > 0) & _having(cmd, "byte_enable")
    enabled &= rng.random(rows) < 0.2
    pool = rng.integers(0, 1 << 64, (4096, 2), np.uint64)
    attr = _attrs(rng, rows, config)
    return Requests(
        port=port,
        stream=rng.integers(0, 4, rows) + 4 * phase,
        cmd=cmd,
        addr=addr,
        flits=flits,
        pool=pool,
        target_offsets=ragged(count),
        targets=target,
        stage=np.where(multimem, rng.integers(0, 2, rows), 0),
        attr=np.where(multimem, attr, 0),
        payload=rng.integers(0, len(pool) - limit, rows),
        byte_enable=np.where(enabled, rng.integers(0, len(pool), rows), -1),
        group=phase,
        poison=rng.random(rows) < 0.03,
        **_damage(rng, wrong, stores, _having(cmd, "answered")),
    )


def _having(cmd: NDArray[Any], name: str) -> NDArray[np.bool_]:
    return np.isin(cmd, [c.value for c, rule in CMD_RULES.items() if getattr(rule, name)])


def _phase(rows: int, phases: int) -> NDArray[np.int64]:
    """Groups 1, 2, ... of the object that changes, one after the other."""
    return 1 + np.arange(rows) * phases // max(rows, 1)


def _some(rng: np.random.Generator, rows: int) -> list[NDArray[np.int64]]:
    return [rng.integers(1, 9, rows), rng.integers(1, 121, rows)]


def _attrs(rng: np.random.Generator, rows: int, config: Config) -> NDArray[np.int64]:
    """Mostly the object's own, else a reduction of the build, now and then any bits."""
    built = [attr_bits(*row) for row in REDUCTIONS if row[0] in config.arithmetic.dtypes]
    kind = rng.random(rows)
    return np.where(
        kind < 0.6, 0, np.where(kind < 0.95, rng.choice(built, rows), rng.integers(0, 256, rows))
    )


def _damage(
    rng: np.random.Generator,
    wrong: NDArray[np.bool_],
    stores: NDArray[np.bool_],
    answered: NDArray[np.bool_],
) -> dict[str, NDArray[Any]]:
    """Of the wrong ones a bit of the header, or the length.

    Addresses of posted ones stay as they are: the player knows those packets by them.
    """
    rows = len(wrong)
    kind = rng.random(rows)
    spans = np.array(_SPANS)[rng.integers(0, len(_SPANS), rows)]
    bit = rng.integers(spans[:, 0], spans[:, 1])
    place, width = place_of(Header, "tag")
    flips = wrong & (kind < 0.6) & ~((bit >= place) & (bit < place + width))
    flips &= answered | (bit < 64) | (bit >= 64 + place_of(MultimemAddress, "maddr")[1])
    one = np.uint64(1) << (bit % 64).astype(np.uint64)
    flip = np.stack([np.where(flips & (bit // 64 == word), one, 0) for word in (0, 1)], axis=1)
    cuts = wrong & (kind >= 0.6) & (kind < 0.8)
    cut = np.where(cuts & stores & (rng.random(rows) < 0.5), 1, np.where(cuts, -2, 0))
    return {"flip": flip.astype(np.uint64), "cut": cut}
