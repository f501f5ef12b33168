"""Which sessions of a port are free, and with which generation each is used next."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.link.fifo import Fifo
from dysharp.hw.share import place
from dysharp.hw.switch.session import MAX_SESSIONS, SessionId

__all__ = ["FreeSessions"]


class FreeSessions(Component):
    """Gives sessions away and takes them back.

    Sessions that were never used come first, then those given back, in turn. Each use has the
    next generation, so an answer to an earlier use is told apart (for 16 uses).

    Latency: a session given back can be taken two cycles later. Throughput: one taken and one
    given back every cycle.

    Parameters
    ----------
    sessions : sessions, at most 256
    """

    available: Signal
    """Out, ``session`` can be taken."""
    session: Any
    """Out(SessionId)."""
    take: Signal
    """In, ``session`` is in use from now on; only while ``available``."""
    give: Signal
    """In, ``given`` is free again."""
    given: Any
    """In(SessionId), in its present use."""
    occupied: Signal
    """Out, sessions in use."""

    def __init__(self, *, sessions: int):
        if not 1 <= sessions <= MAX_SESSIONS:
            raise ValueError(f"Sessions must be 1 to {MAX_SESSIONS}, not {sessions!r}")
        self.sessions = sessions
        super().__init__(
            {
                "available": Out(1),
                "session": Out(SessionId),
                "take": In(1),
                "give": In(1),
                "given": In(SessionId),
                "occupied": Out(range(sessions + 1)),
            }
        )

    @property
    def module_name(self) -> str:
        """``free_sessions_<sessions>``."""
        return f"free_sessions_{self.sessions}"

    def elaborate(self, platform):
        """A count of those never used, and a queue of those given back."""
        m = Module()
        queue = Fifo(shape=SessionId, depth=max(2, self.sessions))
        m.submodules.queue = place(queue)
        unused = Signal(range(self.sessions + 1))
        all_used = Signal()
        m.d.comb += [
            all_used.eq(unused == self.sessions),
            self.available.eq(~all_used | queue.o.valid),
            queue.o.ready.eq(self.take & all_used),
            queue.i.valid.eq(self.give),
            queue.i.payload.session.eq(self.given.session),
            queue.i.payload.generation.eq(self.given.generation + 1),
        ]
        with m.If(all_used):
            m.d.comb += self.session.eq(queue.o.payload)
        with m.Else():
            m.d.comb += self.session.session.eq(unused)
            with m.If(self.take):
                m.d.sync += unused.eq(unused + 1)
        m.d.sync += self.occupied.eq(self.occupied + self.take - self.give)
        return m
