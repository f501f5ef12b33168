"""The way of responses into the crossbar: each goes to the one port that its tag names."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.packet import Header, Status
from dysharp.hw.share import place
from dysharp.hw.switch.credits import Credits
from dysharp.hw.switch.crosspoint import Broadcast
from dysharp.hw.switch.error_answer import Fault
from dysharp.hw.switch.parser import ParsedFlit

__all__ = ["Forward"]


class Forward(Component):
    """Writes each response into the queue of the port that its tag names.

    A response is begun once that queue has credits for all of it and is then written at the rate at
    which it comes. One for a port that does not exist is dropped and shows in ``fault`` (status 7).
    Whether the port waits for it is for the reduction unit there to find out.

    Latency: none. Throughput: one flit a cycle, without a bubble while there is room.
    ``i.ready`` depends on ``i.payload`` and on the credits.

    Parameters
    ----------
    ports : outputs
    queue_depth : flits of each queue that is written
    """

    i: stream.Interface
    """In(stream of ParsedFlit), well-formed responses."""
    push: Any
    """Out(Broadcast)."""
    fault: Any
    """Out(Fault), a pulse a dropped response."""

    def __init__(self, *, ports: int, queue_depth: int):
        self.ports, self.queue_depth = ports, queue_depth
        super().__init__(
            {
                "i": In(stream.Signature(ParsedFlit)),
                "push": Out(Broadcast(ports)),
                "fault": Out(Fault),
            }
        )

    @property
    def module_name(self) -> str:
        """``forward_<ports>_q<queue depth>``."""
        return f"forward_{self.ports}_q{self.queue_depth}"

    def elaborate(self, platform):
        """Choose at the header; keep the choice until the last flit."""
        m = Module()
        m.submodules.credits = place(
            credits_left := Credits(queues=self.ports, depth=self.queue_depth)
        )
        flit = self.i.payload
        header: Any = Signal(Header)
        chosen, active = Signal(self.ports), Signal(self.ports)
        within, accept, begins = Signal(), Signal(), Signal()
        m.d.comb += [
            header.eq(flit.data),
            credits_left.flits.eq(header.len + 1),
            credits_left.credit.eq(self.push.credit),
            credits_left.take.eq(Mux(begins, chosen, 0)),
            self.push.flit.data.eq(flit.data),
            self.push.flit.last.eq(flit.last),
            self.push.flit.poison.eq(flit.poison),
            self.i.ready.eq(within | (chosen & credits_left.fits).any() | ~chosen.any()),
            accept.eq(self.i.valid & self.i.ready),
            begins.eq(accept & ~within),
            self.push.push.eq(Mux(accept, Mux(within, active, chosen), 0)),
            self.fault.valid.eq(begins & ~chosen.any()),
            self.fault.status.eq(Status.UNKNOWN_TARGET),
            self.fault.cmd.eq(Value.cast(header.cmd)),
            self.fault.addr.eq(header.addr),
        ]
        for port in range(self.ports):
            m.d.comb += chosen[port].eq(header.tag.port == port)
        with m.If(accept):
            m.d.sync += within.eq(~flit.last)
            with m.If(~within):
                m.d.sync += active.eq(chosen)
        return m
