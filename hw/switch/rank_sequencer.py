"""The order of accumulation by port: which flit of which contribution is added next."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.link.fifo import Fifo
from dysharp.hw.one_hot import encode
from dysharp.hw.packet import MAX_DATA_FLITS, Attr, Status
from dysharp.hw.share import place
from dysharp.hw.switch.intake import finished_session
from dysharp.hw.switch.session_table import Completion

__all__ = ["RankSequencer", "Step"]


class Step(data.Struct):
    """A flit that is read and added in the next cycle; a pulse.

    Members
    -------
    valid : there is one in this cycle
    session, source, word : whose it is, as in :class:`~dysharp.hw.switch.intake.Operand`
    first, final : its port is the first, or the last, of its session
    attr : type, operation and accumulation
    """

    valid: 1
    session: 8
    source: 7
    word: range(MAX_DATA_FLITS)
    first: 1
    final: 1
    attr: Attr


class RankSequencer(Component):
    """Walks the ports of each finished session in ascending order, and all flits at each.

    Sessions are taken one behind the other. A session without sums (an error or a store) passes
    in one cycle and reads nothing. The flits of a chunk follow each other, so that a flit of one
    port is out of the adder before its successor of the next port is read; a chunk that is too
    short for that waits. A session's last flits wait for room among the results.

    Latency: two cycles from ``i`` to the first step; the last port's first step is
    ``latency + 1`` cycles ahead of its session at ``o``, so that an answer's header does not come
    long before its sums. Throughput: one step a cycle, none lost between ports or sessions; at
    least ``latency + 2`` cycles a port, except the last one of a session.

    Parameters
    ----------
    ports : ports of the switch plane
    chunk_flits : DATA flits of a chunk, a power of two
    latency : of the adder, at least 1
    results : words that the results have room for
    """

    i: stream.Interface
    """In(stream of finished_session)."""
    step: Any
    """Out(Step)."""
    taken: Signal
    """In, a word of the results is free again."""
    o: stream.Interface
    """Out(stream of Completion), in the order of ``i``."""

    def __init__(self, *, ports: int, chunk_flits: int, latency: int, results: int):
        if not 2 <= chunk_flits <= MAX_DATA_FLITS or chunk_flits & chunk_flits - 1:
            raise ValueError(
                f"Chunk flits must be a power of two from 2 to {MAX_DATA_FLITS}, "
                f"not {chunk_flits!r}"
            )
        if latency < 1:
            raise ValueError(f"Latency must be at least 1, not {latency!r}")
        if results < 1:
            raise ValueError(f"Results must be at least 1, not {results!r}")
        self.ports, self.chunk_flits = ports, chunk_flits
        self.latency, self.results = latency, results
        super().__init__(
            {
                "i": In(stream.Signature(finished_session(ports))),
                "step": Out(Step),
                "taken": In(1),
                "o": Out(stream.Signature(Completion)),
            }
        )

    @property
    def module_name(self) -> str:
        """``rank_sequencer_<ports>x<chunk flits>_l<latency>_r<results>``."""
        return f"rank_sequencer_{self.ports}x{self.chunk_flits}_l{self.latency}_r{self.results}"

    @property
    def spacing(self) -> int:
        """Cycles from a step to the one that adds to its sum: read, add, write."""
        return self.latency + 2

    def elaborate(self, platform):
        """Choose the next port, walk the flits of this one, and let the session go."""
        m = Module()
        ahead = Fifo(shape=Completion, depth=self.latency + 3)
        m.submodules.ahead = place(ahead)

        # Choose: the lowest port that is left, while the walk is still at the one before.
        turn: Any = Signal(
            data.StructLayout(
                {
                    "completion": Completion,
                    "sums": 1,
                    "source": 7,
                    "last_word": ceil_log2(self.chunk_flits),
                    "first": 1,
                    "final": 1,
                    "attr": Attr,
                }
            )
        )
        has_turn, next_turn = Signal(), Signal()
        begun = Signal()
        left, waiting, others = (
            Signal(self.ports, name=name) for name in ("left", "waiting", "others")
        )
        sums, is_final = Signal(), Signal()
        session = self.i.payload
        m.d.comb += [
            waiting.eq(Mux(begun, left, session.ports)),
            others.eq(waiting & (waiting - 1)),
            sums.eq((session.completion.status == Status.OK) & session.flits.any()),
            is_final.eq(~sums | (others == 0)),
            self.i.ready.eq(next_turn & is_final),
        ]
        with m.If(next_turn):
            m.d.sync += [
                has_turn.eq(self.i.valid),
                turn.completion.eq(session.completion),
                turn.sums.eq(sums),
                turn.source.eq(encode(waiting & ~others)),
                turn.last_word.eq(session.flits - 1),
                turn.first.eq(~begun),
                turn.final.eq(is_final),
                turn.attr.eq(session.attr),
            ]
            with m.If(self.i.valid):
                m.d.sync += [left.eq(others), begun.eq(~is_final)]

        # Walk: a flit a cycle, unless its sum is still in the adder or its result has no room.
        word = Signal(ceil_log2(self.chunk_flits))
        since = Signal(range(self.spacing + 1))
        claimed = Signal(range(self.results + 1))
        at_start, may_step, takes, passes, leaves = (
            Signal(name=name) for name in ("at_start", "may_step", "takes", "passes", "leaves")
        )
        m.d.comb += [
            at_start.eq(word == 0),
            leaves.eq(turn.final & at_start),
            may_step.eq(
                (turn.first | ~at_start | (since == self.spacing))
                & (~turn.final | (claimed != self.results))
            ),
            ahead.i.valid.eq(has_turn & leaves & (~turn.sums | may_step)),
            ahead.i.payload.eq(turn.completion),
            takes.eq(has_turn & turn.sums & may_step & (~leaves | ahead.i.ready)),
            passes.eq(has_turn & ~turn.sums & ahead.i.ready),
            next_turn.eq(~has_turn | passes | takes & (word == turn.last_word)),
            self.step.valid.eq(takes),
            self.step.session.eq(turn.completion.id.session),
            self.step.source.eq(turn.source),
            self.step.word.eq(word),
            self.step.first.eq(turn.first),
            self.step.final.eq(turn.final),
            self.step.attr.eq(turn.attr),
        ]
        m.d.sync += claimed.eq(claimed + (takes & turn.final) - self.taken)
        with m.If(takes):
            m.d.sync += word.eq(Mux(next_turn, 0, word + 1))
        with m.If(takes & at_start):
            m.d.sync += since.eq(1)
        with m.Elif(since != self.spacing):
            m.d.sync += since.eq(since + 1)

        # Let go: as early as the sums will be there in time, one answer flit a cycle.
        due = Signal(range(ahead.depth + 1))
        arrives = ahead.i.valid & ahead.i.ready
        for stage in range(1, self.latency):
            later = Signal(name=f"arrived{stage}")
            m.d.sync += later.eq(arrives)
            arrives = later
        m.d.sync += due.eq(due + arrives - (self.o.valid & self.o.ready))
        m.d.comb += [
            self.o.valid.eq(due != 0),
            self.o.payload.eq(ahead.o.payload),
            ahead.o.ready.eq(self.o.valid & self.o.ready),
        ]
        return m
