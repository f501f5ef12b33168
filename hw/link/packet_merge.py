"""Several flit streams on one, packet by packet."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.link.fifo import Skid
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.share import place

__all__ = ["PacketMerge"]


class PacketMerge(Component):
    """Passes whole packets of several streams in turn.

    A packet that has begun keeps ``o`` until its last flit. Latency: one cycle. Throughput: one
    flit a cycle, no bubble between packets; a packet whose flits come late holds up the others.

    Parameters
    ----------
    count : streams, at least 1
    """

    i: Any
    """In(array of FlitStream)."""
    o: Any
    """Out(FlitStream)."""

    def __init__(self, *, count: int):
        if count < 1:
            raise ValueError(f"Count must be at least 1, not {count!r}")
        self.count = count
        super().__init__({"i": In(FlitStream).array(count), "o": Out(FlitStream)})

    @property
    def module_name(self) -> str:
        """``packet_merge_<count>``."""
        return f"packet_merge_{self.count}"

    def elaborate(self, platform):
        """Arbitrate at a packet's first flit, then stay with it."""
        m = Module()
        m.submodules.arbiter = place(arbiter := RoundRobin(count=self.count))
        m.submodules.out = place(out := Skid(shape=Flit))
        inside = Signal()
        held, grant = Signal(self.count), Signal(self.count)
        taken = Signal()
        m.d.comb += [
            grant.eq(Mux(inside, held, arbiter.grant)),
            arbiter.advance.eq(taken & ~inside),
            taken.eq(out.i.valid & out.i.ready),
        ]
        connect(m, out.o, flipped(self.o))
        for k in range(self.count):
            source = self.i[k]
            m.d.comb += [
                arbiter.request[k].eq(source.valid),
                source.ready.eq(grant[k] & out.i.ready),
            ]
            with m.If(grant[k]):
                m.d.comb += [
                    out.i.valid.eq(source.valid),
                    out.i.payload.eq(source.payload),
                ]
        with m.If(taken):
            m.d.sync += [inside.eq(~out.i.p.last), held.eq(grant)]
        return m
