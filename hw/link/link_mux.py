"""Two classes of packets share the cycles of one link."""

from amaranth import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.link.fifo import Skid
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.share import place

__all__ = ["LinkMux"]


class LinkMux(Component):
    """Loads at most one flit a cycle, of either class, towards a link.

    Latency: one cycle. Throughput: one flit a cycle for both classes together, flit by flit; a
    class that is held back, or has nothing, leaves its cycles to the other. When both could go
    they take turns, so neither waits for more than one flit of the other. ``ready`` of one class
    never depends on ``ready`` of the other's output.

    Members
    -------
    i_req, i_rsp : In(stream), requests and responses
    o_req, o_rsp : Out(stream), the same; registered

    Source
    ------
    The contract's link: two streams which together carry one flit a cycle; the link layer,
    later, puts both on one lane with credits for each class.
    """

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
        """A register stage for each class; ``load_*`` is whose turn it is."""
        m = Module()
        req, rsp = Skid(shape=Flit), Skid(shape=Flit)
        m.submodules.req = place(req)
        m.submodules.rsp = place(rsp)

        req_first = Signal(init=1)
        load_req, load_rsp = Signal(), Signal()
        can_req, can_rsp = Signal(), Signal()
        m.d.comb += [
            can_req.eq(self.i_req.valid & req.i.ready),
            can_rsp.eq(self.i_rsp.valid & rsp.i.ready),
            load_req.eq(can_req & (req_first | ~can_rsp)),
            load_rsp.eq(can_rsp & ~(can_req & req_first)),
            req.i.valid.eq(load_req),
            rsp.i.valid.eq(load_rsp),
            req.i.payload.eq(self.i_req.payload),
            rsp.i.payload.eq(self.i_rsp.payload),
            self.i_req.ready.eq(load_req),
            self.i_rsp.ready.eq(load_rsp),
        ]
        with m.If(load_req | load_rsp):
            m.d.sync += req_first.eq(load_rsp)

        for skid, output in ((req, self.o_req), (rsp, self.o_rsp)):
            m.d.comb += [
                output.valid.eq(skid.o.valid),
                output.payload.eq(skid.o.payload),
                skid.o.ready.eq(output.ready),
            ]
        return m
