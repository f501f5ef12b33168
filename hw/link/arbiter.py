"""Round-robin choice among requesters."""

from amaranth import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

__all__ = ["RoundRobin"]


class RoundRobin(Component):
    """Fair choice of one of ``count`` requests, combinational, with a registered priority.

    Latency: none; ``grant`` follows ``request`` in the same cycle. After a cycle with ``advance``
    the requester behind the granted one has the highest priority, so none waits for more than
    ``count - 1`` grants.

    Parameters
    ----------
    count : requesters, at least 1

    Attributes
    ----------
    behind : who stands behind the last one that was granted, for proofs
    """

    request: Signal
    """In, a bit a requester."""
    advance: Signal
    """In, the grant of this cycle was used."""
    grant: Signal
    """Out, one-hot; zero if nobody asks."""

    def __init__(self, *, count: int):
        if count < 1:
            raise ValueError(f"Count must be at least 1, not {count!r}")
        self.count = count
        self.behind = Signal(count)
        super().__init__({"request": In(count), "advance": In(1), "grant": Out(count)})

    @property
    def module_name(self) -> str:
        """``round_robin_<count>``."""
        return f"round_robin_{self.count}"

    def elaborate(self, platform):
        """Lowest request among those at or above the priority, else the lowest of all."""
        m = Module()
        favoured = Signal(self.count)
        m.d.comb += [
            favoured.eq(self.request & self.behind),
            self.grant.eq(_lowest(Mux(favoured.any(), favoured, self.request))),
        ]
        with m.If(self.advance & self.grant.any()):
            up_to_granted = (self.grant - 1) | self.grant
            m.d.sync += self.behind.eq(~up_to_granted)
        return m


def _lowest(bits):
    return (bits & -bits)[: len(bits)]
