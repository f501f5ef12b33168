"""Random packets, right and wrong ones, for the benches of the ingress."""

from __future__ import annotations

import random
from collections.abc import Sequence

from dysharp.hw.packet import Cmd, Packet

__all__ = ["RESPONSES", "UNICAST", "damage", "multimem_packet", "response_packet", "unicast_packet"]

RESPONSES = (Cmd.RD_RSP, Cmd.WR_ACK, Cmd.MM_RSP, Cmd.MM_ACK, Cmd.ERR)
UNICAST = (Cmd.RD, Cmd.WR, Cmd.WRP, Cmd.ATOM, Cmd.NOTIFY)


def _flits(values: random.Random, count: int) -> list[int]:
    return [values.getrandbits(128) for _ in range(count)]


def _place(values: random.Random, flits: int, chunk_flits: int) -> int:
    """Offset in bytes at which so many flits do not cross a chunk; often the last that fits."""
    last = chunk_flits - flits
    return 16 * (last if values.random() < 0.3 else values.randint(0, last))


def unicast_packet(
    values: random.Random,
    chunk_bytes: int,
    *,
    cmd: Cmd | None = None,
    chunk: int | None = None,
) -> Packet:
    """A well-formed request with a plain address.

    Parameters
    ----------
    values : random.Random
    chunk_bytes : int
    cmd : Cmd or None
        One of :data:`UNICAST`; any by default.
    chunk : int or None
        Address of its chunk; anywhere in 64 bits by default.
    """
    cmd = cmd or values.choice(UNICAST)
    limit = chunk_bytes // 16
    chunk = values.getrandbits(64) if chunk is None else chunk
    chunk &= -chunk_bytes
    posted = cmd in (Cmd.WRP, Cmd.NOTIFY)
    packet = Packet(
        cmd,
        addr=chunk,
        tag_local=0 if posted else values.getrandbits(12),
        ae=values.getrandbits(128) if cmd is Cmd.ATOM or values.random() < 0.1 else None,
    )
    if cmd is Cmd.RD:
        wanted = values.randint(1, limit)
        packet.addr += _place(values, wanted, limit) + wanted - 1
    elif cmd is Cmd.NOTIFY:
        packet.addr |= values.getrandbits(7)
    elif cmd is Cmd.ATOM:
        packet.data = tuple(_flits(values, values.randint(1, 16)))
        packet.addr |= values.getrandbits(7)
    else:
        packet.data = tuple(_flits(values, values.randint(1, limit)))
        packet.addr += _place(values, len(packet.data), limit)
        if len(packet.data) <= 8 and values.random() < 0.4:
            packet.be = values.getrandbits(128)
    return packet


def multimem_packet(
    values: random.Random,
    chunk_bytes: int,
    *,
    cmd: Cmd | None = None,
    chunk: int | None = None,
    targets: Sequence[int] | None = None,
    attr: int = 0,
) -> Packet:
    """A well-formed multimem request.

    Parameters
    ----------
    values : random.Random
    chunk_bytes : int
    cmd : Cmd or None
        MM_ST, MM_STP, MM_LDR or MM_RED; any by default.
    chunk : int or None
        Multimem address of its chunk; anywhere by default.
    targets : sequence of int or None
        Its list; a random one of a random length by default.
    attr : int
    """
    cmd = cmd or values.choice((Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_LDR, Cmd.MM_RED))
    limit = chunk_bytes // 16
    chunk = values.getrandbits(48) if chunk is None else chunk
    chunk &= -chunk_bytes
    if targets is None:
        length = values.choice((0, 1, 2, 7, 8, 9, 16, 17, values.randint(0, 120)))
        targets = [values.getrandbits(16) for _ in range(length)]
    packet = Packet.multimem(
        cmd,
        maddr=chunk,
        targets=targets,
        stage=values.getrandbits(1),
        attr=attr,
        local=0 if cmd is Cmd.MM_STP else values.getrandbits(12),
    )
    if cmd is Cmd.MM_LDR:
        wanted = values.randint(1, limit)
        packet.maddr += _place(values, wanted, limit) + wanted - 1
        return packet
    room = 32 - packet.flits
    packet.data = tuple(_flits(values, values.randint(1, min(limit, room))))
    packet.maddr += _place(values, len(packet.data), limit)
    if cmd is not Cmd.MM_RED and len(packet.data) <= min(8, room - 1) and values.random() < 0.4:
        packet.be = values.getrandbits(128)
    return packet


def response_packet(values: random.Random, *, cmd: Cmd | None = None) -> Packet:
    """A well-formed response to any port."""
    cmd = cmd or values.choice(RESPONSES)
    packet = Packet(
        cmd,
        tx=int(cmd in (Cmd.MM_RSP, Cmd.MM_ACK) or cmd is Cmd.ERR and values.random() < 0.5),
        tag_port=values.getrandbits(7),
        tag_local=values.getrandbits(12),
        addr=values.getrandbits(64),
        maddr=values.getrandbits(48),
        stage=values.getrandbits(1),
        count=values.getrandbits(7),
        attr=values.randint(1, 10) if cmd is Cmd.ERR else 0,
    )
    if cmd in (Cmd.RD_RSP, Cmd.MM_RSP):
        packet.data = tuple(_flits(values, values.randint(1, 16)))
    return packet


def damage(values: random.Random, flits: list[int]) -> list[int]:
    """The flits with a few bits of the header flipped, mostly where they matter."""
    spans = ((25, 30), (37, 45), (64, 72), (113, 128), (0, 128))
    header = flits[0]
    for _ in range(values.choice((1, 1, 1, 2, 3))):
        low, high = values.choice(spans)
        header ^= 1 << values.randrange(low, high)
    return [header, *flits[1:]]
