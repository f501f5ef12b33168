"""How long each session of a port has waited, and which one has waited too long."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.memory import Ram
from dysharp.hw.share import place
from dysharp.hw.switch.session import MAX_SESSIONS, TICKS, SessionId

__all__ = ["SessionTimer"]


class _Start(data.Struct):
    """When a session began, in ticks, and which of its uses it is."""

    time: range(2 * TICKS)
    generation: 4


class SessionTimer(Component):
    """Looks at one session after the other, and offers one that is too old.

    A session is too old when the clock has ticked more than :data:`TICKS` times since it began.
    The next one is looked for when the one at ``o`` is taken, or has had its answers.

    Latency: with all sessions too old, one is found every three cycles; a single one is found at
    most ``sessions + 3`` cycles after it is too old. Time is kept modulo twice :data:`TICKS`: a
    session that is not taken within ``TICKS - 1`` ticks looks young again and is found that much
    later.

    Parameters
    ----------
    sessions : sessions, at most 256
    """

    tick: Signal
    """In, a pulse."""
    begins: Signal
    """In, session ``begun`` begins."""
    begun: Any
    """In(SessionId)."""
    live: Signal
    """In, a bit a session: it waits for answers. Low for a cycle between two uses."""
    looked_at: Any
    """Out(SessionId), the session that is looked at in this cycle, each in turn."""
    o: stream.Interface
    """Out(stream of SessionId), a session that is too old; it may be taken in vain, in the cycle
    after its last answer."""

    def __init__(self, *, sessions: int):
        if not 1 <= sessions <= MAX_SESSIONS:
            raise ValueError(f"Sessions must be 1 to {MAX_SESSIONS}, not {sessions!r}")
        self.sessions = sessions
        super().__init__(
            {
                "tick": In(1),
                "begins": In(1),
                "begun": In(SessionId),
                "live": In(sessions),
                "looked_at": Out(SessionId),
                "o": Out(stream.Signature(SessionId)),
            }
        )

    @property
    def module_name(self) -> str:
        """``session_timer_<sessions>``."""
        return f"session_timer_{self.sessions}"

    def elaborate(self, platform):
        """Read the next session's start; compare what was read with the time."""
        m = Module()
        starts = Ram(width=_Start.as_shape().size, depth=self.sessions, transparent=True)
        m.submodules.starts = place(starts)
        time = Signal(range(2 * TICKS))
        m.d.sync += time.eq(time + self.tick)
        begun: Any = Signal(_Start)
        m.d.comb += [
            begun.time.eq(time),
            begun.generation.eq(self.begun.generation),
            starts.write_en.eq(self.begins),
            starts.write_addr.eq(self.begun.session[: ceil_log2(self.sessions)]),
            starts.write_data.eq(begun),
        ]

        following, here = (
            Signal(range(max(2, self.sessions)), name=name) for name in ("following", "here")
        )
        start: Any = data.View(_Start, starts.read_data)
        age = Signal.like(time)
        is_read, is_live = Signal(), Signal()
        m.d.comb += [
            starts.read_en.eq(1),
            starts.read_addr.eq(following),
            age.eq(time - start.time),
            is_live.eq(self.live.bit_select(here, 1)),
            self.looked_at.session.eq(here),
            self.looked_at.generation.eq(start.generation),
        ]
        m.d.sync += [
            following.eq(Mux(following == self.sessions - 1, 0, following + 1)),
            here.eq(following),
            is_read.eq(1),
        ]

        found = self.o.payload
        still_lives = self.live.bit_select(found.session[: len(here)], 1)
        with m.If(self.o.valid):
            m.d.sync += self.o.valid.eq(still_lives & ~self.o.ready)
        with m.Elif(is_read & is_live & (age > TICKS)):
            m.d.sync += [self.o.valid.eq(1), found.eq(self.looked_at)]
        return m
