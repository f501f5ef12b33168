"""Choice of the requester that has waited longest, with a bound for all others."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.share import place

__all__ = ["OldestFirst"]


class OldestFirst(Component):
    """Grants the request that was born first, and every so often the next one in turn.

    Who waits longest is found a cycle ahead, so the tournament bounds no path through ``request``;
    a request that has just come, or that is alone, is granted in turn in the meantime. Births are
    compared as the time since them, modulo ``2 ** age_bits``: after so long a wait a request
    looks young again, and every ``turns``-th grant, which goes round robin, keeps it from waiting
    for ever.

    Latency: none from ``request`` to ``grant``; a request takes part in the tournament a cycle
    after it came. Fairness: a request waits for at most ``turns * count - 1`` grants.

    Parameters
    ----------
    count : requesters, at least 1
    age_bits : bits of a time
    turns : one grant in so many goes round robin, at least 2

    Source
    ------
    Age-based arbitration, as in network simulators: sources whose packets meet a busy output are
    not left behind by the others.
    """

    request: Signal
    """In, a bit a requester."""
    born: Any
    """In(array), when each request came to be."""
    now: Signal
    """In, the time."""
    advance: Signal
    """In, the grant of this cycle was used."""
    grant: Signal
    """Out, one-hot; zero if nobody asks."""

    def __init__(self, *, count: int, age_bits: int, turns: int = 8):
        if count < 1:
            raise ValueError(f"Count must be at least 1, not {count!r}")
        if age_bits < 1:
            raise ValueError(f"Age bits must be at least 1, not {age_bits!r}")
        if turns < 2:
            raise ValueError(f"Turns must be at least 2, not {turns!r}")
        self.count, self.age_bits, self.turns = count, age_bits, turns
        super().__init__(
            {
                "request": In(count),
                "born": In(data.ArrayLayout(age_bits, count)),
                "now": In(age_bits),
                "advance": In(1),
                "grant": Out(count),
            }
        )

    @property
    def module_name(self) -> str:
        """``oldest_first_<count>x<age bits>_t<turns>``."""
        return f"oldest_first_{self.count}x{self.age_bits}_t{self.turns}"

    def elaborate(self, platform):
        """The winner of the last cycle if it still asks; else, or in its turn, round robin."""
        m = Module()
        turn = RoundRobin(count=self.count)
        m.submodules.turn = place(turn)
        oldest, favoured = Signal(self.count), Signal(self.count)
        granted = Signal(range(self.turns))
        is_turn, in_turn = Signal(), Signal()
        m.d.sync += oldest.eq(self._tournament(m))
        m.d.comb += [
            favoured.eq(self.request & oldest),
            is_turn.eq(granted == self.turns - 1),
            in_turn.eq(is_turn | ~favoured.any()),
            turn.request.eq(self.request),
            turn.advance.eq(self.advance & in_turn),
            self.grant.eq(Mux(in_turn, turn.grant, favoured)),
        ]
        with m.If(self.advance & self.grant.any()):
            m.d.sync += granted.eq(Mux(in_turn, 0, granted + 1))
        return m

    def _tournament(self, m: Module) -> Signal:
        """One-hot: who has waited longest; of equals the lower one; nobody if nobody asks."""
        players = []
        for k in range(self.count):
            waited, asks = Signal(self.age_bits, name=f"waited{k}"), Signal(name=f"asks{k}")
            m.d.comb += [waited.eq(self.now - self.born[k]), asks.eq(self.request[k])]
            players.append((asks, waited, Mux(asks, 1 << k, 0)))
        level = 0
        while len(players) > 1:
            winners = []
            for k in range(0, len(players) - 1, 2):
                name = f"{level}_{k // 2}"
                winners.append(_winner(m, players[k], players[k + 1], self.count, name))
            players = winners + players[len(players) & ~1 :]
            level += 1
        best = Signal(self.count, name="best")
        m.d.comb += best.eq(players[0][2])
        return best


def _winner(m: Module, low, high, count: int, name: str):
    """The one of two players that asks and has waited longer."""
    asks = Signal(name=f"asks_{name}")
    waited = Signal.like(low[1], name=f"waited_{name}")
    who = Signal(count, name=f"who_{name}")
    takes_high = Signal(name=f"takes_high_{name}")
    m.d.comb += [
        takes_high.eq(high[0] & (~low[0] | (high[1] > low[1]))),
        asks.eq(low[0] | high[0]),
        waited.eq(Mux(takes_high, high[1], low[1])),
        who.eq(Mux(takes_high, high[2], low[2])),
    ]
    return asks, waited, who
