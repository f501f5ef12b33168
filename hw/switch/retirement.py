"""Sessions that timed out: kept from new use until nothing of their old one can come."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.switch.session import MAX_SESSIONS, SessionId

__all__ = ["Retirement"]


class Retirement(Component):
    """Remembers which sessions are retired, and when each can be given back.

    A retired session is given back when it is answered and either all of its missing answers have
    come or software has freed it, in whatever order. ``looked_at`` walks over the sessions; a
    session is given back when it comes past. A session that is not retired passes from
    ``answered`` to ``give`` in the same cycle.

    Latency: a walk over the sessions at most. Throughput: one session a cycle. While a retired one
    is given back, ``may_answer`` is low for that cycle, so ``give`` takes one at a time.

    Parameters
    ----------
    sessions : sessions, at most 256
    """

    retires: Signal
    """In, session ``session`` has timed out; its answer is on its way."""
    settles: Signal
    """In, the last missing answer of the retired session ``session`` has come."""
    session: Signal
    """In."""
    free: Signal
    """In, a pulse: no more answers will come to any session that is retired now."""
    looked_at: Any
    """In(SessionId)."""
    answers: Signal
    """In, session ``answered`` has been answered; only while ``may_answer``."""
    answered: Any
    """In(SessionId)."""
    may_answer: Signal
    """Out."""
    give: Signal
    """Out, session ``given`` is free again."""
    given: Any
    """Out(SessionId)."""
    retired: Signal
    """Out, a bit a session."""
    count: Signal
    """Out, sessions that are retired."""
    exhausted: Signal
    """Out, all of them are."""

    def __init__(self, *, sessions: int):
        if not 1 <= sessions <= MAX_SESSIONS:
            raise ValueError(f"Sessions must be 1 to {MAX_SESSIONS}, not {sessions!r}")
        self.sessions = sessions
        super().__init__(
            {
                "retires": In(1),
                "settles": In(1),
                "session": In(8),
                "free": In(1),
                "looked_at": In(SessionId),
                "answers": In(1),
                "answered": In(SessionId),
                "may_answer": Out(1),
                "give": Out(1),
                "given": Out(SessionId),
                "retired": Out(sessions),
                "count": Out(range(sessions + 1)),
                "exhausted": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """``retirement_<sessions>``."""
        return f"retirement_{self.sessions}"

    def elaborate(self, platform):
        """Two facts a session: that it waits for its answer, and that nothing is missing."""
        m = Module()
        unanswered, settled = Signal(self.sessions), Signal(self.sessions)
        here, past, now_answered = (
            Signal(self.sessions, name=name) for name in ("here", "past", "now_answered")
        )
        leaves, was_retired = Signal(), Signal()
        m.d.comb += [
            here.eq(1 << self.session),
            past.eq(1 << self.looked_at.session),
            now_answered.eq(1 << self.answered.session),
            leaves.eq((self.retired & settled & ~unanswered & past).any()),
            was_retired.eq((self.retired & now_answered).any()),
            self.may_answer.eq(~leaves),
            self.give.eq(leaves | self.answers & ~was_retired),
            self.given.eq(Mux(leaves, self.looked_at, self.answered)),
            self.exhausted.eq(self.count == self.sessions),
        ]
        retiring = Mux(self.retires, here, 0)
        leaving = Mux(leaves, past, 0)
        settling = Mux(self.settles, here, 0) | Mux(self.free, self.retired, 0)
        answering = Mux(self.answers, now_answered, 0)
        m.d.sync += [
            self.retired.eq(self.retired & ~leaving | retiring),
            settled.eq((settled | settling) & ~leaving),
            unanswered.eq(unanswered & ~answering | retiring),
            self.count.eq(self.count + self.retires - leaves),
        ]
        return m
