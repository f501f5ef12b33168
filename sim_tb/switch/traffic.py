"""Random requests round a switch, right ones and wrong ones."""

from __future__ import annotations

import random
from dataclasses import replace

from dysharp.hw.packet import Cmd, Packet
from dysharp.sim_tb.route.model import ObjectSpec
from dysharp.sim_tb.switch.env import SwitchEnv

__all__ = ["Traffic"]


class Traffic:
    """Random requests of every kind, right and wrong.

    Parameters
    ----------
    tb : SwitchEnv
    wrong : float
        Chance that a request is one that must be refused.
    """

    def __init__(self, tb: SwitchEnv, *, wrong: float = 0.0):
        self.tb, self.wrong = tb, wrong
        self.random: random.Random = tb.random
        self._chunks: set[int] = set()

    def send(self, port: int) -> None:
        """Send one request from a port."""
        rng = self.random
        if rng.random() < self.wrong:
            return self._send_wrong(port)
        if rng.random() < 0.3:
            self.tb.send(port, self.unicast())
        else:
            self.tb.send(
                port, self.multimem(rng.choice(self._usable(port)), static=rng.random() < 0.2)
            )

    def _usable(self, port: int) -> list[ObjectSpec]:
        gpu = port // self.tb.config.links
        return [entry for entry in self.tb.objects if gpu in entry.members]

    def unicast(self, *, cmd: Cmd | None = None, gpu: int | None = None) -> Packet:
        """A packet with a plain address."""
        rng = self.random
        cmd = cmd or rng.choice((Cmd.RD, Cmd.WR, Cmd.WRP, Cmd.NOTIFY))
        gpu = rng.randrange(self.tb.config.gpus) if gpu is None else gpu
        base = gpu << self.tb.fabric.gpu_address_bit
        if cmd is Cmd.NOTIFY:
            return Packet.unicast(cmd, addr=base | rng.getrandbits(40))
        offset, flits = self._place()
        address = base | rng.randrange(1 << 20) * self.tb.fabric.chunk_bytes | 16 * offset
        if cmd is Cmd.RD:
            return Packet.unicast(cmd, addr=address | flits - 1)
        return Packet.unicast(cmd, addr=address, data=[rng.getrandbits(128) for _ in range(flits)])

    def multimem(
        self,
        entry: ObjectSpec,
        *,
        cmd: Cmd | None = None,
        static: bool = False,
        targets: tuple[int, ...] | None = None,
        flits: int | None = None,
    ) -> Packet:
        """A packet with a multimem address, which is of a chunk that no other one names."""
        rng = self.random
        cmd = cmd or rng.choice((Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_LDR, Cmd.MM_RED))
        if static and not entry.group:
            static = False
        if targets is None:
            number = rng.choice((1, 8, rng.randint(1, 8), rng.randint(1, 60)))
            gpus = sorted(entry.members)
            listed = (
                rng.choice(gpus) << entry.split | rng.randrange(entry.slots) for _ in range(number)
            )
            targets = () if static else tuple(listed)
        offset, length = self._place() if flits is None else (0, flits)
        chunk_bytes = self.tb.fabric.chunk_bytes
        while (chunk := rng.randrange(entry.size // chunk_bytes) + entry.base // chunk_bytes) in (
            self._chunks
        ):
            pass
        self._chunks.add(chunk)
        maddr = chunk * chunk_bytes + 16 * offset
        stage = rng.getrandbits(1)
        if cmd is Cmd.MM_LDR:
            return Packet.multimem(cmd, maddr=maddr | length - 1, targets=targets, stage=stage)
        data = [rng.getrandbits(128) for _ in range(length)]
        may_have_be = cmd is not Cmd.MM_RED and length <= 8
        be = rng.getrandbits(128) if may_have_be and rng.random() < 0.2 else None
        packet = Packet.multimem(cmd, maddr=maddr, targets=targets, stage=stage, data=data, be=be)
        return replace(packet, poison=rng.random() < self.tb.errors)

    def _place(self) -> tuple[int, int]:
        """Offset and length in flits, inside of a chunk."""
        flits = self.tb.fabric.chunk_bytes // 16
        offset = self.random.randrange(flits)
        return offset, self.random.randint(1, flits - offset)

    def _send_wrong(self, port: int) -> None:
        rng, tb = self.random, self.tb
        wide, part, empty = tb.objects
        kind = rng.randrange(9)
        packet = self.multimem(wide)
        if kind == 0:
            packet = replace(packet, maddr=packet.maddr + (1 << 46))  # no such object
        elif kind == 1:
            packet = self.multimem(wide, targets=(0, tb.config.gpus << wide.split))
        elif kind == 2:
            packet = self.multimem(wide, targets=(0xFFFF, 1))
        elif kind == 3:
            packet = self.multimem(part, targets=(1, tb.config.gpus - 1 << part.split))
        elif kind == 4:
            packet = replace(self.multimem(empty, targets=()), targets=(), count=0)
        elif kind == 5:
            packet = replace(self.multimem(wide, cmd=Cmd.MM_RED), attr=0x19)  # the smallest f32
        elif kind == 6:
            packet = replace(self.multimem(wide, cmd=Cmd.MM_LDR), attr=0x19)
        elif kind == 7:
            packet = self.unicast(gpu=tb.config.gpus + rng.randrange(8))
        else:
            return tb.send_malformed(port, self.multimem(wide, cmd=Cmd.MM_LDR))
        tb.send(port, packet)
