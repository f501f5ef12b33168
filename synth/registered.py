"""Registers round a component, so that its timing is that between registers."""

from typing import Any

from amaranth import Module, Signal, Value
from amaranth.lib import wiring

__all__ = ["Registered"]


class Registered(wiring.Component):
    """A component with a register at each input and each output.

    What was combinational becomes a path between registers, and what was registered gets no path
    that a neighbour would not have. The registers have no reset.

    Latency: two cycles more than the component's.

    Parameters
    ----------
    inner : the component; its ports are plain signals
    """

    def __init__(self, inner: Any):
        self.inner = inner
        if not all(member.is_port for member in inner.signature.members.values()):
            raise ValueError(f"Ports must be plain signals, not those of {inner.signature!r}")
        super().__init__(inner.signature)

    def elaborate(self, platform):
        """A register a port."""
        m = Module()
        m.submodules.inner = self.inner
        for name, member in self.signature.members.items():
            outside, inside = (Value.cast(getattr(side, name)) for side in (self, self.inner))
            held = Signal(len(outside), name=f"held_{name}", reset_less=True)
            if member.flow == wiring.In:
                m.d.sync += held.eq(outside)
                m.d.comb += inside.eq(held)
            else:
                m.d.sync += held.eq(inside)
                m.d.comb += outside.eq(held)
        return m
