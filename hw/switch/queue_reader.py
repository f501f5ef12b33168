"""Whole packets from the heads of several queues, in turn or the oldest first."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.link.oldest import OldestFirst
from dysharp.hw.one_hot import encode, select
from dysharp.hw.share import place

__all__ = ["QueueReader"]


class QueueReader(Component):
    """Takes whole packets from the heads of ``count`` queues, in turn or the oldest first.

    A packet that has not come whole is begun only if no whole one waits, so that an output seldom
    pauses for its input.

    Latency: none; an idle reader chooses in the cycle in which a head appears. Throughput: one flit
    a cycle and no bubble between packets, neither from different queues nor from one queue.
    Fairness: round robin by packet among the whole ones, and among all; a queue that has just been
    served comes last. With ``age_bits`` the whole ones go by age instead, with the bound of
    :class:`~dysharp.hw.link.oldest.OldestFirst`. ``o.valid`` and ``take`` follow the heads in the
    same cycle.

    Parameters
    ----------
    count : queues
    age_bits : bits of a time, if whole packets go by age; else 0
    """

    valid: Signal
    """In, a bit a queue: its head is a flit."""
    starts: Signal
    """In, a bit a queue: its head is the header of a packet that this reader takes."""
    whole: Signal
    """In, a bit a queue: a packet that starts there has come whole."""
    flits: Any
    """In, the heads."""
    born: Any
    """In(array), times that the headers at the heads carry; only with ``age_bits``."""
    now: Signal
    """In, the time; only with ``age_bits``."""
    take: Signal
    """Out, a bit a queue: its head is taken in this cycle."""
    o: stream.Interface
    """Out(FlitStream), the packets."""
    index: Signal
    """Out, the queue that ``o`` comes from."""

    def __init__(self, *, count: int, age_bits: int = 0):
        if count < 1:
            raise ValueError(f"Count must be at least 1, not {count!r}")
        if age_bits < 0:
            raise ValueError(f"Age bits must not be negative, not {age_bits!r}")
        self.count, self.age_bits = count, age_bits
        ages: dict[str, Any] = {
            "born": In(data.ArrayLayout(age_bits, count)),
            "now": In(age_bits),
        }
        super().__init__(
            {
                "valid": In(count),
                "starts": In(count),
                "whole": In(count),
                "flits": In(data.ArrayLayout(Flit, count)),
                "take": Out(count),
                "o": Out(FlitStream),
                "index": Out(range(count)),
                **(ages if age_bits else {}),
            }
        )

    @property
    def module_name(self) -> str:
        """``queue_reader_<count>[_a<age bits>]``."""
        return f"queue_reader_{self.count}" + (f"_a{self.age_bits}" if self.age_bits else "")

    def elaborate(self, platform):
        """Choose among the starts, keep the choice until the last flit, select the head by it."""
        m = Module()
        fixed, chosen, kept = Signal(), Signal(self.count), Signal(self.count)
        # Behind the head of the queue that is being read is no header to judge yet.
        others = ~Mux(fixed, kept, 0)
        turns = {
            "whole": (self._turn(), self.starts & self.whole & others),
            "any": (RoundRobin(count=self.count), self.starts),
        }
        grants = {}
        for name, (turn, request) in turns.items():
            m.submodules[f"turn_{name}"] = place(turn)
            if isinstance(turn, OldestFirst):
                m.d.comb += [turn.born.eq(self.born), turn.now.eq(self.now)]
            grants[name] = Signal(self.count, name=f"grant_{name}")
            m.d.comb += [turn.request.eq(request), grants[name].eq(turn.grant)]
            m.d.comb += turn.advance.eq(~fixed & ((chosen & turn.grant) != 0))
        anything_whole = grants["whole"].any()
        m.d.comb += [
            chosen.eq(Mux(fixed, kept, Mux(anything_whole, grants["whole"], grants["any"]))),
            self.o.valid.eq(Mux(fixed, (self.valid & kept).any(), self.starts.any())),
            Value.cast(self.o.payload).eq(
                select(chosen, [self.flits[k] for k in range(self.count)])
            ),
            self.index.eq(encode(chosen)),
            self.take.eq(Mux(self.o.valid & self.o.ready, chosen, 0)),
        ]
        with m.If(self.o.valid):
            m.d.sync += [kept.eq(chosen), fixed.eq(~(self.o.ready & self.o.payload.last))]
        return m

    def _turn(self) -> RoundRobin | OldestFirst:
        """Who of the whole packets is next."""
        if self.age_bits:
            return OldestFirst(count=self.count, age_bits=self.age_bits)
        return RoundRobin(count=self.count)
