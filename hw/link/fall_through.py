"""A queue that a word can pass in the cycle in which it comes."""

from amaranth import Module, Mux
from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.link.fifo import Fifo
from dysharp.hw.share import place

__all__ = ["FallThrough"]


class FallThrough(Component):
    """Queue of ``depth`` words that is no delay while it is empty.

    Latency: none; a word that cannot leave at once waits in a :class:`Fifo`. Throughput: one word
    a cycle at any fill. ``i.ready`` comes from a register; ``o`` depends on ``i`` in the same
    cycle, so a path crosses the block from left to right, but none back.

    Parameters
    ----------
    shape : shape of a word
    depth : words, at least 2
    """

    i: stream.Interface
    """In, stream."""
    o: stream.Interface
    """Out, stream."""

    def __init__(self, *, shape: ShapeLike, depth: int):
        self.shape, self.depth = shape, depth
        self.queue = Fifo(shape=shape, depth=depth)
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    @property
    def module_name(self) -> str:
        """``fall_through_<depth>x<width>``."""
        return f"fall_through_{self.depth}x{Shape.cast(self.shape).width}"

    def elaborate(self, platform):
        """Past the queue if nothing is in it."""
        m = Module()
        queue = self.queue
        m.submodules.queue = place(queue)
        waits = queue.o.valid
        m.d.comb += [
            self.i.ready.eq(queue.i.ready),
            self.o.valid.eq(waits | self.i.valid),
            self.o.payload.eq(Mux(waits, queue.o.payload, self.i.payload)),
            queue.i.valid.eq(self.i.valid & (waits | ~self.o.ready)),
            queue.i.payload.eq(self.i.payload),
            queue.o.ready.eq(self.o.ready),
        ]
        return m
