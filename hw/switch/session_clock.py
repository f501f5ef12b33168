"""The clock by which all reduction units measure how long their sessions take."""

from amaranth import Module, Signal
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.parameters import LIMIT_BITS
from dysharp.hw.switch.session import TICKS

__all__ = ["SessionClock"]


class SessionClock(Component):
    """Ticks :data:`TICKS` times in ``timeout`` cycles.

    Every ``timeout // TICKS`` cycles ``tick`` is high for one; never, if that is 0. A new
    ``timeout`` counts at once.

    Parameters
    ----------
    bits : width of ``timeout``
    """

    timeout: Signal
    """In, cycles; 0 for never."""
    tick: Signal
    """Out."""

    def __init__(self, *, bits: int = LIMIT_BITS):
        if bits <= ceil_log2(TICKS):
            raise ValueError(f"Bits must be more than {ceil_log2(TICKS)}, not {bits!r}")
        self.bits = bits
        super().__init__({"timeout": In(bits), "tick": Out(1)})

    @property
    def module_name(self) -> str:
        """``session_clock_<bits>``."""
        return f"session_clock_{self.bits}"

    def elaborate(self, platform):
        """A counter that starts anew at every tick."""
        m = Module()
        period, count = (
            Signal(self.bits - ceil_log2(TICKS), name=name) for name in ("period", "count")
        )
        is_over = Signal()
        m.d.comb += [period.eq(self.timeout >> ceil_log2(TICKS)), is_over.eq(count + 1 >= period)]
        with m.If(period == 0):
            m.d.sync += [count.eq(0), self.tick.eq(0)]
        with m.Else():
            m.d.sync += [count.eq(count + 1), self.tick.eq(is_over)]
            with m.If(is_over):
                m.d.sync += count.eq(0)
        return m
