"""Comparing packets and saying what differs, field by field."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from dysharp.hw.packet import Packet, PacketError
from dysharp.sim_tb.agents.bench import Bench
from dysharp.sim_tb.agents.flit import FlitPacket

__all__ = ["Scoreboard", "difference"]


def difference(expected: Packet, got: Packet) -> list[str]:
    """One line for each field that differs: ``field: expected X, got Y``; empty if none does."""
    want, have = expected.describe(), got.describe()
    absent = "(none)"
    return [
        f"{name}: expected {want.get(name, absent)}, got {have.get(name, absent)}"
        for name in dict.fromkeys((*want, *have))
        if want.get(name) != have.get(name)
    ]


class Scoreboard:
    """Packets that a stream must bring, and those it brought.

    Parameters
    ----------
    bench : Bench
    name : str
        The stream, for messages.
    key : callable or None
        Packets with different keys may overtake each other; those of one key come in order. By
        default the whole stream is in order.

    Attributes
    ----------
    matched : int
        Packets that were as expected.

    Errors
    ------
    The first mismatch fails the test at once, with the packet's fields by name, the cycle and the
    seed.
    """

    def __init__(self, bench: Bench, name: str, *, key: Callable[[Packet], Hashable] | None = None):
        self.bench = bench
        self.name = name
        self.matched = 0
        self._key = key or (lambda packet: None)
        self._expected: dict[Hashable, deque[Packet]] = {}

    @property
    def outstanding(self) -> int:
        """Packets that are still to come."""
        return sum(map(len, self._expected.values()))

    def expect(self, packet: Packet) -> None:
        """Add a packet that must come."""
        self._expected.setdefault(self._key(packet), deque()).append(packet)

    def observe(self, received: FlitPacket) -> Packet:
        """Compare a packet that came; fits as ``on_packet`` of a sink or a monitor."""
        try:
            packet = Packet.decode(received.flits, poison=received.poisoned)
        except PacketError as error:
            flits = "\n  ".join(f"{flit:#034x}" for flit in received.flits)
            self.bench.fail(f"{self.name}: not a packet: {error}\n  {flits}\n")
            raise
        queue = self._expected.get(self._key(packet))
        if not queue:
            self.bench.fail(f"{self.name}: unexpected packet {packet}")
        else:
            expected = queue.popleft()
            if lines := difference(expected, packet):
                text = "\n  ".join(lines)
                self.bench.fail(
                    f"{self.name}: packet {self.matched} differs\n  {text}\n  whole: {packet}\n"
                )
            self.matched += 1
        return packet

    def finish(self) -> None:
        """Fail if a packet is missing."""
        for queue in self._expected.values():
            if queue:
                self.bench.fail(
                    f"{self.name}: {self.outstanding} packets missing, the first is {queue[0]}"
                )

    async def finished(self, *, limit: int = 100_000) -> None:
        """Wait until all that was expected has come, then check the bench for violations."""
        await self.bench.until(
            lambda: not self.outstanding,
            limit=limit,
            what=f"{self.name}: {self.outstanding} packets",
        )
        self.bench.check()
