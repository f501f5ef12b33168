"""A queue of the crossbar: flits in on a push, packets out, a credit back for each flit."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import MAX_FLITS
from dysharp.hw.share import place

__all__ = ["Lane", "PacketQueue"]

Lane = Signature(
    {
        "flit": Out(Flit),
        "push": Out(1),
        "credit": In(1),
    }
)
"""How one queue is written, as the writer sees it: ``push`` puts ``flit`` in, and only where there
is room; ``credit``, registered, says that a flit has left."""


class PacketQueue(Component):
    """A queue that is written on credit and knows whether its first packet has come whole.

    Latency: a flit pushed at t can be taken at t + 1; if it is, its credit shows at t + 2.
    Throughput: one flit a cycle. There is no ready: who writes keeps count.

    Parameters
    ----------
    depth : flits; the longest packet must fit
    """

    lane: Any
    """In(:data:`Lane`)."""
    o: stream.Interface
    """Out(FlitStream)."""
    whole: Signal
    """Out, the packet at the head, or what is left of it, is all here."""

    def __init__(self, *, depth: int):
        if depth < MAX_FLITS:
            raise ValueError(f"Depth must be at least {MAX_FLITS}, not {depth!r}")
        self.depth = depth
        super().__init__({"lane": In(Lane), "o": Out(FlitStream), "whole": Out(1)})

    @property
    def module_name(self) -> str:
        """``packet_queue_<depth>``."""
        return f"packet_queue_{self.depth}"

    def elaborate(self, platform):
        """The queue, and a count of last flits in it."""
        m = Module()
        m.submodules.queue = place(queue := Fifo(shape=Flit, depth=self.depth))
        connect(m, queue.o, flipped(self.o))
        last_flits = Signal(range(self.depth + 1))
        leaves = Signal()
        m.d.comb += [
            queue.i.valid.eq(self.lane.push),
            queue.i.payload.eq(self.lane.flit),
            leaves.eq(self.o.valid & self.o.ready),
            self.whole.eq(last_flits != 0),
        ]
        m.d.sync += [
            self.lane.credit.eq(leaves),
            last_flits.eq(
                last_flits + (self.lane.push & self.lane.flit.last) - (leaves & self.o.payload.last)
            ),
        ]
        return m
