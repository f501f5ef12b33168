"""Objects and random requests for the Hub's tests."""

from __future__ import annotations

import random
from collections.abc import Sequence

from dysharp.hw.packet import Cmd, Dtype, Packet
from dysharp.sim_tb.elements import random_bytes
from dysharp.sim_tb.hub.golden import HubObject

__all__ = ["bf16_bytes", "fill_rows", "load", "make_object", "store"]


def make_object(
    number: int,
    *,
    rows: int = 24,
    slots: int = 4,
    capacity: Sequence[int] | int = 24,
    bsize: tuple[int, int] = (496, 272),
    split: int = 3,
    extra: int = 0,
    **options: int,
) -> HubObject:
    """An object in a part of memory of its own.

    Parameters
    ----------
    number : int
        Chooses the part.
    extra : int
        Bytes of its address range behind the last row.
    """
    capacities = [capacity] * slots if isinstance(capacity, int) else list(capacity)
    stride = max((max(bsize) - 1).bit_length(), 7)
    start = 0x100000 * (number + 1)
    return HubObject(
        base=(1 << 44) + (number << 36),
        size=(rows << stride) + extra,
        stride=stride,
        rows=rows,
        bsize=bsize,
        vbase=(start + 0x10000 + 16 * number, start + 0x80000 + 48),
        al_base=start + 4 * number,
        capacity=capacities,
        split=split,
        **options,  # pyright: ignore[reportArgumentType]
    )


def bf16_bytes(values: random.Random, flits: int) -> bytes:
    """Random bf16, one in four of them special, none that repeats along a row."""
    return random_bytes(values, Dtype.BF16, flits)


def fill_rows(
    tb, values: random.Random, entry: HubObject, stage: int, dtype: Dtype = Dtype.BF16
) -> None:
    """Fill all rows of a stage with random elements."""
    length = sum(entry.capacity) * entry.bsize[stage]
    tb.fill_memory(entry.vbase[stage], random_bytes(values, dtype, length // 16))


def _place(values: random.Random, entry: HubObject, stage: int, limit: int) -> tuple[int, int]:
    """Offset and flits that stay inside of a block and a chunk."""
    flits = entry.bsize[stage] // 16
    first = values.randrange(flits)
    most = min(flits - first, limit - first % limit)
    return 16 * first, values.choice((most, values.randint(1, most)))


def _targets(values: random.Random, entry: HubObject, count: int) -> list[int]:
    """Ids with any GPU above the split, and local experts that may repeat."""
    return [
        values.randrange(64) << entry.split | values.randrange(len(entry.capacity))
        for _ in range(count)
    ]


def store(
    values: random.Random,
    entry: HubObject,
    *,
    stage: int = 0,
    aidx: int | None = None,
    targets: Sequence[int] | None = None,
    cmd: Cmd = Cmd.MM_ST,
    limit: int = 8,
    be: bool | None = None,
) -> Packet:
    """A store of random data, with byte enables in one of three."""
    offset, flits = _place(values, entry, stage, limit)
    aidx = values.randrange(entry.rows) if aidx is None else aidx
    if targets is None:
        targets = _targets(values, entry, values.choice((1, 1, 2, 3, 4, 9)))
    raw = bf16_bytes(values, flits)
    with_be = flits <= 8 and (values.random() < 0.33 if be is None else be)
    return Packet.multimem(
        cmd,
        maddr=entry.maddr(aidx, offset),
        targets=targets,
        stage=stage,
        data=[int.from_bytes(raw[k : k + 16], "little") for k in range(0, len(raw), 16)],
        be=values.getrandbits(128) if with_be else None,
    )


def load(
    values: random.Random,
    entry: HubObject,
    *,
    stage: int = 1,
    aidx: int | None = None,
    targets: Sequence[int] | None = None,
    limit: int = 8,
    attr: int = 0,
) -> Packet:
    """A load-reduce."""
    offset, flits = _place(values, entry, stage, limit)
    aidx = values.randrange(entry.rows) if aidx is None else aidx
    if targets is None:
        targets = _targets(values, entry, values.choice((1, 2, 3, 4, 8)))
    return Packet.multimem(
        Cmd.MM_LDR,
        maddr=entry.maddr(aidx, offset) + flits - 1,
        targets=targets,
        stage=stage,
        attr=attr,
    )
