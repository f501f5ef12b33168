"""Proofs about order rank: every flit is read once, in order, when its sum is ready for it."""

from typing import Any

import pytest
from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Assert, Assume, Elaboratable

from dysharp.hw.packet import Status
from dysharp.hw.switch.intake import Operand
from dysharp.hw.switch.rank import store_place
from dysharp.hw.switch.rank_sequencer import RankSequencer
from dysharp.sim_tb.formal import ProofFailed, prove

DEPTH = 12
"""Cycles: three ports with two flits each, and what another session does behind them."""


class SequencerHarness(Elaboratable):
    """Sessions of any ports and lengths, in error or not, and any waiting at the outputs.

    Half of what is asked at a time: about the steps, or about what leaves.
    """

    def __init__(self, dut: RankSequencer, *, steps: bool):
        self.dut, self.asks_steps = dut, steps
        self.mark = Signal()
        self.ports = [
            *(dut.i.valid, Value.cast(dut.i.payload)),
            *(dut.o.ready, dut.taken, self.mark),
        ]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = self.dut
        session = self._sessions(m)
        self._results(m)
        if self.asks_steps:
            self._steps(m, session)
        else:
            self._completions(m)
        return m

    def _sessions(self, m: Module):
        """What may come, and the session that steps now belong to."""
        dut = self.dut
        here = dut.i.payload
        before: Any = Signal.like(here)
        waited = Signal()
        m.d.sync += [before.eq(here), waited.eq(dut.i.valid & ~dut.i.ready)]
        m.d.comb += [
            Assume(~waited | dut.i.valid & (Value.cast(here) == Value.cast(before))),
            Assume(here.ports.any()),
            Assume(here.flits <= dut.chunk_flits),
            # What is only carried along needs no more than two values.
            Assume(Value.cast(here.completion.status) <= 1),
            Assume(Value.cast(here.completion.id) <= 1),
            Assume(Value.cast(here.attr) == 0),
        ]
        self.entered: Any = Signal.like(here)
        self.is_inside = Signal()  # it has left the input, and has steps to make
        now: Any = Signal.like(here)
        m.d.comb += now.eq(Mux(self.is_inside, Value.cast(self.entered), Value.cast(here)))
        return now

    def _steps(self, m: Module, session) -> None:
        """The next flit of the lowest port that is left, and of no other."""
        dut, step = self.dut, self.dut.step
        done = Signal(dut.ports)
        word = Signal(5)
        left, lowest, others = (Signal(dut.ports) for _ in range(3))
        ends_port, ends_session, enters = Signal(), Signal(), Signal()
        here = dut.i.payload
        sums = (here.completion.status == Status.OK) & here.flits.any()
        m.d.comb += [
            left.eq(session.ports & ~done),
            others.eq(left & (left - 1)),
            lowest.eq(left & ~others),
            ends_port.eq(step.valid & (word + 1 == session.flits)),
            ends_session.eq(ends_port & (others == 0)),
            enters.eq(dut.i.valid & dut.i.ready),
            Assert(~step.valid | self.is_inside | dut.i.valid),
            Assert(~step.valid | (session.completion.status == Status.OK)),
            Assert(~step.valid | (1 << step.source == lowest)),
            Assert(~step.valid | (step.word == word)),
            Assert(~step.valid | (step.session == session.completion.id.session)),
            Assert(~step.valid | (step.first == (done == 0))),
            Assert(~step.valid | (step.final == (others == 0))),
            Assert(~enters | ~self.is_inside | ends_session),
        ]
        with m.If(step.valid):
            m.d.sync += word.eq(Mux(ends_port, 0, word + 1))
        with m.If(ends_session):
            m.d.sync += [self.is_inside.eq(0), done.eq(0)]
        with m.Elif(ends_port):
            m.d.sync += done.eq(done | lowest)
        with m.If(enters & sums):
            m.d.sync += [self.is_inside.eq(1), self.entered.eq(here)]

        # A sum is written latency + 1 cycles after its step, and read from the cycle after that.
        needed = dut.latency + 2
        for number in range(dut.chunk_flits):
            age = Signal(range(needed + 1), init=needed, name=f"age{number}")
            hit = step.valid & (step.word == number)
            m.d.comb += Assert(~hit | step.first | (age == needed))
            m.d.sync += age.eq(Mux(hit, 1, Mux(age == needed, age, age + 1)))

    def _results(self, m: Module) -> None:
        """A result is taken only when there is one, and none is made without room for it."""
        dut = self.dut
        arrives = dut.step.valid & dut.step.final
        held = Signal(range(dut.results + 2))
        there = Signal(range(dut.results + 2))
        m.d.sync += held.eq(held + arrives - dut.taken)
        for stage in range(dut.latency + 1):
            later = Signal(name=f"arrived{stage}")
            m.d.sync += later.eq(arrives)
            arrives = later
        m.d.sync += there.eq(there + arrives - dut.taken)
        m.d.comb += [Assume(~dut.taken | (there != 0)), Assert(held <= dut.results)]

    def _completions(self, m: Module) -> None:
        """Each session leaves once, in order."""
        dut = self.dut
        enters, leaves = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        inside, ahead = Signal(5), Signal(5)
        marked, gone = Signal(), Signal()
        completion: Any = Signal.like(dut.i.payload.completion)
        m.d.comb += Assert(~leaves | (inside != 0))
        m.d.sync += inside.eq(inside + enters - leaves)
        with m.If(enters & self.mark & ~marked):
            m.d.sync += [
                marked.eq(1),
                completion.eq(dut.i.payload.completion),
                ahead.eq(inside - leaves),
            ]
        with m.Elif(marked & leaves & ~gone):
            same = Value.cast(dut.o.payload) == Value.cast(completion)
            m.d.comb += Assert((ahead != 0) | same)
            m.d.sync += [ahead.eq(ahead - 1), gone.eq(ahead == 0)]


class PlaceHarness(Elaboratable):
    """Two different flits of the store have two different places."""

    def __init__(self, **shape: int):
        self.shape = shape
        self.flits = [Signal(Operand, name=name) for name in ("one", "other")]
        self.ports = [Value.cast(flit) for flit in self.flits]

    def elaborate(self, platform):
        m = Module()
        one, other = self.flits
        for flit in self.flits:
            m.d.comb += [
                Assume(flit.session < self.shape["sessions"]),
                Assume(flit.source < self.shape["ports"]),
                Assume(flit.word < self.shape["chunk_flits"]),
            ]
        names = ("session", "source", "word")
        same = [getattr(one, name) == getattr(other, name) for name in names]
        places = [store_place(flit, **self.shape) for flit in self.flits]
        m.d.comb += Assert(same[0] & same[1] & same[2] | (places[0] != places[1]))
        return m


def harness(kind: type[RankSequencer] = RankSequencer, *, steps: bool) -> SequencerHarness:
    dut = kind(ports=3 if steps else 2, chunk_flits=2, latency=1, results=2)
    return SequencerHarness(dut, steps=steps)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [True, False], ids=["steps", "completions"])
def test_every_flit_once_and_in_order(steps):
    proof = harness(steps=steps)
    name, depth = ("rank_steps", DEPTH) if steps else ("rank_completions", 8)
    prove(proof, proof.ports, name=name, depth=depth)


class Hasty(RankSequencer):
    """Reads a sum a cycle before it stands in its memory."""

    @property
    def spacing(self) -> int:
        return self.latency + 1


def test_a_hasty_sequencer_is_caught():
    proof = harness(Hasty, steps=True)
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(proof, proof.ports, name="rank_sequencer_hasty", depth=DEPTH)


def test_every_flit_has_its_place():
    proof = PlaceHarness(ports=5, sessions=6, chunk_flits=4)
    prove(proof, proof.ports, name="rank_store", depth=1)
