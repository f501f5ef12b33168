"""Credits: how many flits each of a row of queues can still take, known where they are written."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.packet import MAX_FLITS

__all__ = ["Credits"]


class Credits(Component):
    """One counter for each queue of a row.

    A packet takes the credits for all of its flits when it is begun, so it is never held up by a
    queue once it is under way; a queue gives one back for each flit that leaves it.

    Latency: ``fits`` follows ``flits`` in the same cycle and depends on registers else. ``take``
    and ``credit`` count from the next cycle on.

    Parameters
    ----------
    queues : queues of the row
    depth : flits of each; the longest packet must fit

    Attributes
    ----------
    left : the counters, for proofs
    """

    flits: Signal
    """In, flits of the packet that is to go next, 1 to 32."""
    fits: Signal
    """Out, a bit a queue: it has room for ``flits``, and keeps it until the next ``take``."""
    take: Signal
    """In, a bit a queue: the packet is begun there; only where it fits."""
    credit: Any
    """In, a bit a queue: a flit has left it."""

    def __init__(self, *, queues: int, depth: int):
        if depth < MAX_FLITS:
            raise ValueError(f"Depth must be at least {MAX_FLITS}, not {depth!r}")
        self.queues, self.depth = queues, depth
        self.left = [Signal(range(depth + 1), init=depth, name=f"left{k}") for k in range(queues)]
        super().__init__(
            {
                "flits": In(range(MAX_FLITS + 1)),
                "fits": Out(queues),
                "take": In(queues),
                "credit": In(queues),
            }
        )

    @property
    def module_name(self) -> str:
        """``credits_<queues>x<depth>``."""
        return f"credits_{self.queues}x{self.depth}"

    def elaborate(self, platform):
        """Compare, subtract, add."""
        m = Module()
        for k, left in enumerate(self.left):
            taken = Mux(self.take[k], self.flits, 0)
            m.d.comb += self.fits[k].eq(left >= self.flits)
            m.d.sync += left.eq(left - taken + self.credit[k])
        return m
