"""What keeps a port whose GPU takes nothing from holding up all others."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.link.flit import FlitStream
from dysharp.hw.packet import FLIT_BITS, Header
from dysharp.hw.parameters import LIMIT_BITS

__all__ = ["Drain"]


class Drain(Component):
    """Passes packets on, or lets them vanish while the link behind it takes nothing.

    When the link has shown a flit for ``limit`` cycles, the port has failed: all that comes is
    swallowed and counted until software takes back ``failed``. What the link shows stays, and a
    packet that was cut is filled up to its length, with flits of ones and poison on the last, so a
    GPU that comes back finds every packet's end. It then gets whole packets again from the first
    that begins after ``failed`` was taken back.

    Latency: none. Throughput: one flit a cycle. ``i.ready`` follows ``o.ready``. When the port
    fails, a flit that is offered at ``o`` is withdrawn.

    Source
    ------
    Contract of the switch: an output that takes nothing fails, its queues drain into a counter,
    and the rest goes on.
    """

    i: stream.Interface
    """In(FlitStream)."""
    o: stream.Interface
    """Out(FlitStream)."""
    waits: Signal
    """In, the link shows a flit that is not taken in this cycle."""
    limit: Signal
    """In, cycles after which the port fails; 0 for never."""
    failed: Signal
    """In, the port counts as failed."""
    fails: Signal
    """Out, it fails now; a pulse, after which ``failed`` rises."""
    drained: Signal
    """Out, a flit is swallowed; a pulse."""

    def __init__(self):
        super().__init__(
            {
                "i": In(FlitStream),
                "o": Out(FlitStream),
                "waits": In(1),
                "limit": In(LIMIT_BITS),
                "failed": In(1),
                "fails": Out(1),
                "drained": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """``drain``."""
        return "drain"

    def elaborate(self, platform):
        """Count the wait, follow the packets on both sides, and fill up what was cut."""
        m = Module()
        waited = Signal(LIMIT_BITS)
        draining, told = Signal(), Signal()
        m.d.comb += self.fails.eq(
            self.waits & ~draining & (self.limit != 0) & (waited >= self.limit)
        )
        with m.If(self.waits & ~draining & ~self.fails):
            m.d.sync += waited.eq(waited + 1)
        with m.Else():
            m.d.sync += waited.eq(0)
        with m.If(self.fails):
            m.d.sync += draining.eq(1)
        with m.Elif(told & ~self.failed):
            m.d.sync += [draining.eq(0), told.eq(0)]
        with m.Elif(draining & self.failed):
            m.d.sync += told.eq(1)

        header: Any = Signal(Header)
        left, left_after = Signal(5), Signal(5)
        fills, skips, swallows = Signal(), Signal(), Signal()
        m.d.comb += [
            header.eq(self.i.payload.data),
            swallows.eq(draining | skips),
            self.o.valid.eq(fills | self.i.valid & ~swallows),
            self.i.ready.eq(swallows | self.o.ready & ~fills),
            self.o.payload.eq(self.i.payload),
            self.drained.eq(self.i.valid & swallows),
            left_after.eq(left),
        ]
        with m.If(fills):
            is_last = left == 1
            m.d.comb += [
                self.o.payload.data.eq((1 << FLIT_BITS) - 1),
                self.o.payload.last.eq(is_last),
                self.o.payload.poison.eq(is_last),
            ]
        with m.If(self.o.valid & self.o.ready):
            m.d.comb += left_after.eq(Mux(left == 0, header.len, left - 1))
        m.d.sync += left.eq(left_after)
        with m.If(left_after == 0):
            m.d.sync += fills.eq(0)
        with m.If(self.drained):
            m.d.sync += skips.eq(~self.i.payload.last)
        # What has begun at ``o`` and not ended is cut here; while an earlier cut is filled up,
        # ``i`` stands between packets or is being skipped already.
        with m.If(self.fails & ~fills):
            m.d.sync += [fills.eq(left_after != 0), skips.eq(left_after != 0)]
        return m
