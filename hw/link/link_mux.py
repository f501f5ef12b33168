"""Two classes of packets share the cycles of one link."""

from amaranth import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.config import Config
from dysharp.hw.link.fifo import Bypass
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.share import place

__all__ = ["LinkMux", "link_mux_block"]


class LinkMux(Component):
    """Loads at most one flit a cycle, of either class, towards a link.

    Latency: one cycle. Throughput: one flit a cycle for both classes together, flit by flit; a
    class that is held back, or has nothing, leaves its cycles to the other. When both could go
    they take turns, so neither waits for more than one flit of the other. No path leads from
    ``ready`` of an output to ``ready`` of an input.

    Source
    ------
    As on NVLink, requests and responses share one lane and have credits of their own; the link
    layer that does so comes later, this block keeps to its rate.
    """

    i_req: stream.Interface
    """In(FlitStream), requests."""
    i_rsp: stream.Interface
    """In(FlitStream), responses."""
    o_req: stream.Interface
    """Out(FlitStream), requests; registered."""
    o_rsp: stream.Interface
    """Out(FlitStream), responses; registered."""

    def __init__(self):
        super().__init__(
            {
                "i_req": In(FlitStream),
                "i_rsp": In(FlitStream),
                "o_req": Out(FlitStream),
                "o_rsp": Out(FlitStream),
            }
        )

    @property
    def module_name(self) -> str:
        """``link_mux``."""
        return "link_mux"

    def elaborate(self, platform):
        """What cuts ready, then a register for each class; ``loads`` is whose turn it is."""
        m = Module()
        inputs = [Bypass(shape=Flit) for _ in range(2)]
        loads = Signal(2)
        wants = Signal(2)
        first = Signal()
        m.d.comb += [
            loads[0].eq(wants[0] & ~(wants[1] & first)),
            loads[1].eq(wants[1] & ~(wants[0] & ~first)),
        ]
        with m.If(loads.any()):
            m.d.sync += first.eq(loads[0])

        streams = ((self.i_req, self.o_req), (self.i_rsp, self.o_rsp))
        for k, (source, sink) in enumerate(streams):
            waiting = inputs[k]
            m.submodules[f"input{k}"] = place(waiting)
            connect(m, flipped(source), waiting.i)
            is_free = sink.ready | ~sink.valid
            m.d.comb += [wants[k].eq(waiting.o.valid & is_free), waiting.o.ready.eq(loads[k])]
            with m.If(is_free):
                m.d.sync += sink.valid.eq(loads[k])
            with m.If(loads[k]):
                m.d.sync += sink.payload.eq(waiting.o.payload)
        return m


def link_mux_block(config: Config) -> LinkMux:
    """The mux of one link, as a block of its own."""
    return LinkMux()
