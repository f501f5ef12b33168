"""Which ports a request goes to, or why it may not, written from the contract of the switch."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from typing import Any

from dysharp.hw.alu.reductions import parse_dtypes
from dysharp.hw.packet import Cmd, Dtype, Op, Packet, Status
from dysharp.model.numerics import DEFAULT_DTYPES, attr_bits, supports
from dysharp.sim_tb.elements import attrs

__all__ = ["Decision", "Fabric", "ObjectSpec", "random_object", "random_target"]

BF16_SUM = attr_bits(Dtype.BF16, Op.ADD, 1)
POSTED = (Cmd.WRP, Cmd.MM_STP, Cmd.NOTIFY)
NO_TARGET = 0xFFFF


@dataclass
class ObjectSpec:
    """One object of the table; sets hold GPU numbers.

    Attributes
    ----------
    base, size, members, group, split, slots, attr, valid
        As in the hardware's entry.
    """

    base: int
    size: int
    members: set[int] = field(default_factory=set)
    group: set[int] = field(default_factory=set)
    split: int = 0
    slots: int = 1
    attr: int = BF16_SUM
    valid: bool = True

    def fields(self) -> dict[str, int]:
        """Entry of the hardware's table."""
        return {
            "valid": int(self.valid),
            "base": self.base,
            "size": self.size,
            "members": sum(1 << gpu for gpu in self.members),
            "group": sum(1 << gpu for gpu in self.group),
            "group_size": len(self.group),
            "split": self.split,
            "slots": self.slots,
            "attr": self.attr,
        }


@dataclass
class Decision:
    """What route says of a packet.

    Attributes
    ----------
    status : Status
        OK, or why it is refused.
    ports : set of int
        Where it goes.
    session : dict
        What a session must know; empty if there is none.
    split : int
        For pruning; 0 without a list.
    """

    status: Status = Status.OK
    ports: set[int] = field(default_factory=set)
    session: dict[str, int] = field(default_factory=dict)
    split: int = 0


@dataclass
class Fabric:
    """The switch as far as routing knows it.

    Attributes
    ----------
    gpus, links, chunk_bytes, gpu_address_bit
    objects : list of ObjectSpec or None
    dtypes : collection of Dtype
        The types that the build reduces.
    failed : set of int
        Ports that have failed.
    """

    gpus: int
    links: int = 1
    chunk_bytes: int = 128
    gpu_address_bit: int = 40
    objects: list[ObjectSpec | None] = field(default_factory=list)
    dtypes: Collection[Dtype] = DEFAULT_DTYPES
    failed: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Fabric:
        """The fabric of a manifest's configuration, without objects."""
        return cls(
            gpus=config["gpus"],
            links=config["links"],
            chunk_bytes=config["chunk_bytes"],
            gpu_address_bit=config["gpu_address_bit"],
            objects=[None] * config["objects"],
            dtypes=parse_dtypes(config["dtypes"]),
        )

    def link(self, address: int) -> int:
        """The link of a GPU that a chunk travels on: its number folded by xor."""
        bits = self.links.bit_length() - 1
        chunk = (address & (1 << 48) - 1) // self.chunk_bytes
        parts = (chunk >> low & self.links - 1 for low in range(0, 48, bits)) if bits else ()
        return reduce(xor, parts, 0)

    def gpu_bit(self, cmd: Cmd) -> int:
        """Lowest bit of the GPU in a plain address; a NOTIFY's is 40 in any build."""
        return 40 if cmd is Cmd.NOTIFY else self.gpu_address_bit

    def find(self, first: int, length: int) -> ObjectSpec | None:
        """The object that holds all of the bytes."""
        for entry in self.objects:
            if entry and entry.valid and entry.base <= first:
                if first + length <= entry.base + entry.size:
                    return entry
        return None

    def decide(self, packet: Packet, gpu: int, flits: Sequence[int] | None = None) -> Decision:
        """What becomes of a well-formed request that comes from ``gpu``.

        Parameters
        ----------
        packet : Packet
        gpu : int
            Source.
        flits : sequence of int or None
            The flits as sent, if they differ from what the packet encodes.
        """
        decision = self._decide(packet, gpu, flits)
        return Decision(Status.TIMEOUT) if decision.ports & self.failed else decision

    def _decide(self, packet: Packet, gpu: int, flits: Sequence[int] | None) -> Decision:
        if packet.tx:
            return self._multimem(packet, gpu, flits or packet.encode())
        target = packet.addr >> self.gpu_bit(packet.cmd) & 0x7F
        if packet.cmd is Cmd.ATOM:
            return Decision(Status.UNSUPPORTED)
        if target >= self.gpus:
            return Decision(Status.UNKNOWN_TARGET)
        return Decision(ports={target * self.links + self.link(packet.addr)})

    def _multimem(self, packet: Packet, gpu: int, flits: Sequence[int]) -> Decision:
        is_load = packet.cmd is Cmd.MM_LDR
        moved = (packet.maddr % 16 + 1) if is_load else len(packet.data)
        entry = self.find(packet.maddr // 16 * 16, 16 * moved)
        lists = -(-packet.count // 8)
        ids = [flit >> 16 * k & 0xFFFF for flit in flits[1 : 1 + lists] for k in range(8)]
        used, unused = ids[: packet.count], ids[packet.count :]
        found = set()
        if any(one != NO_TARGET for one in unused):
            found.add(Status.MALFORMED)
        if entry is None:
            found.add(Status.UNKNOWN_OBJECT)
            return Decision(min(found, key=lambda status: status.value))
        attr = packet.attr or entry.attr
        if packet.attr and packet.attr & 15 == 0:
            found.add(Status.UNSUPPORTED)
        if packet.cmd in (Cmd.MM_LDR, Cmd.MM_RED) and not supports(attr, self.dtypes):
            found.add(Status.UNSUPPORTED)
        if gpu not in entry.members:
            found.add(Status.NOT_A_MEMBER)
        if packet.count == 0:
            gpus = set(entry.group)
            if not gpus:
                found.add(Status.UNKNOWN_TARGET)
        else:
            gpus = {one >> entry.split for one in used}
            slots = [one & (1 << entry.split) - 1 for one in used]
            if NO_TARGET in used or max(gpus) >= self.gpus or max(slots) >= entry.slots:
                found.add(Status.UNKNOWN_TARGET)
        if gpus - entry.members:
            found.add(Status.NOT_A_MEMBER)
        if found:
            return Decision(min(found, key=lambda status: status.value))
        ports = {gpu * self.links + self.link(packet.maddr) for gpu in gpus}
        session = {
            "local": packet.tag_local,
            "cmd": packet.cmd.value,
            "ports": sum(1 << port for port in ports),
            "count": packet.count or len(gpus),
            "attr": attr,
            "flits": moved if is_load else 0,
            "maddr": packet.maddr,
            "stage": packet.stage,
        }
        return Decision(
            ports=ports,
            session={} if packet.cmd is Cmd.MM_STP else session,
            split=entry.split if packet.count else 0,
        )


def random_object(values: random.Random, fabric: Fabric, index: int) -> ObjectSpec:
    """An object; objects of different indices do not overlap."""
    split = values.randint(0, 6)
    members = {gpu for gpu in range(fabric.gpus) if values.random() < 0.85}
    return ObjectSpec(
        base=(index + 1 << 32) + 16 * values.randrange(64),
        size=16 * values.randint(64, 4096),
        members=members,
        group={gpu for gpu in members if values.random() < 0.7},
        split=split,
        slots=values.randint(1, 1 << split),
        attr=values.choice((BF16_SUM, values.choice(attrs(fabric.dtypes)), values.getrandbits(8))),
        valid=values.random() < 0.9,
    )


def random_target(values: random.Random, entry: ObjectSpec) -> int:
    """A target that exists."""
    gpu = values.choice(sorted(entry.members) or [0])
    return gpu << entry.split | values.randrange(entry.slots)
