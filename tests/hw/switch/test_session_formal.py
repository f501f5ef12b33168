"""Proofs about sessions: freed exactly once, answered exactly once, whatever comes and when."""

import pytest
from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.hdl import Assert, Assume, Elaboratable
from amaranth.lib.wiring import In

from dysharp.hw.memory import memory_style
from dysharp.hw.packet import Status
from dysharp.hw.switch.retirement import Retirement
from dysharp.hw.switch.session_table import SessionTable
from dysharp.sim_tb.formal import ProofFailed, prove

PORTS = 2


class TableHarness(Elaboratable):
    """Any reservations, contributions of any port and use, timeouts, and answers in any order.

    Beside the table stands what is known of each session by its edge alone; the table must agree
    with it.
    """

    def __init__(self, dut: SessionTable):
        self.dut = dut
        self.walk = dut.sessions + 2  # cycles in which what nothing holds is given back
        self.is_timeout, self.source = Signal(), Signal(range(PORTS))
        self.ports = [
            *(dut.reserve.valid, Value.cast(dut.reserve.payload)),
            *(dut.find_en, Value.cast(dut.find), self.is_timeout, self.source),
            *(dut.commit, dut.commit_count, Value.cast(dut.commit_status)),
            *(dut.answers, Value.cast(dut.answered), dut.free_retired),
        ]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        is_new = self._claims(m)
        wanted = dut.reserve.payload
        m.d.comb += [
            Assume(wanted.ports.any()),
            # What decides nothing about a session's life needs no more than one value.
            *(Assume(Value.cast(wanted[name]) == 0) for name in ("local", "cmd", "attr", "flits")),
            *(Assume(Value.cast(wanted[name]) == 0) for name in ("maddr", "stage", "count")),
            Assume(dut.commit_count == 0),
            Assume(Value.cast(dut.commit_status) == 0),
        ]
        sessions = [self._session(m, number, is_new) for number in range(dut.sessions)]
        held = sum(in_use & ~over for in_use, over, _ in sessions)
        m.d.comb += [
            Assert(dut.occupied >= held),
            Assert(~dut.exhausted | (dut.retired == dut.sessions)),
            Assert(dut.retired <= dut.occupied),
            Assume(Cat(may_answer for _, _, may_answer in sessions).any() | ~dut.answers),
            Assume(dut.may_answer | ~dut.answers),
        ]
        quiet = Signal(range(self.walk + 1))
        m.d.sync += quiet.eq(
            Mux((held != 0) | dut.reserve.valid, 0, Mux(quiet == self.walk, quiet, quiet + 1))
        )
        m.d.comb += Assert((quiet != self.walk) | (dut.occupied == 0))
        return m

    def _claims(self, m: Module) -> Signal:
        """Claims as the intake makes them: a verdict, and a commit before the next one."""
        dut = self.dut
        claim = dut.claim
        is_new, is_open = Signal(), Signal()
        m.d.sync += is_new.eq(dut.find_en)
        with m.If(dut.find_en):
            m.d.sync += [
                claim.id.eq(dut.find),
                claim.source.eq(self.source),
                claim.is_timeout.eq(self.is_timeout),
            ]
        accepted = is_new & dut.verdict.accept
        with m.If(dut.commit):
            m.d.sync += is_open.eq(0)
        with m.Elif(is_new):
            m.d.sync += is_open.eq(accepted)
        m.d.comb += [
            dut.dropped.eq(is_new & ~claim.is_timeout & ~dut.verdict.accept),
            Assume(~dut.commit | is_open | accepted),
            Assume(~dut.find_en | dut.commit | ~(is_open | accepted)),
        ]
        # A timeout is claimed for one cycle.
        with m.If(~dut.find_en):
            m.d.sync += claim.is_timeout.eq(0)
        return is_new

    def _session(self, m: Module, number: int, is_new: Signal):
        """One session by what has crossed the edge: in use, over, and waiting for its answer."""
        dut, claim = self.dut, self.dut.claim
        in_use, completed, answered, timed_out = (
            Signal(name=f"{name}{number}")
            for name in ("in_use", "completed", "answered", "timed_out")
        )
        expected, arrived = (
            Signal(PORTS, name=f"{name}{number}") for name in ("expected", "arrived")
        )
        freed = Signal(name=f"freed{number}")
        generation = Signal(4, init=15, name=f"generation{number}")
        source = Signal(PORTS, name=f"source{number}")
        is_this, waits, is_over, fits, may_answer = (
            Signal(name=f"{name}{number}")
            for name in ("is_this", "waits", "is_over", "fits", "may_answer")
        )
        reserved = dut.reserve.valid & dut.reserve.ready & (dut.session.session == number)
        ends = dut.completes & (dut.completion.id.session == number)
        m.d.comb += [
            source.eq(1 << claim.source),
            is_this.eq(in_use & (claim.id.session == number) & (claim.id.generation == generation)),
            waits.eq(in_use & ~completed),
            fits.eq((expected & ~arrived & source).any()),
            may_answer.eq(in_use & completed & ~answered & (dut.answered.session == number)),
            is_over.eq(
                in_use & completed & answered & (~timed_out | freed | (expected == arrived))
            ),
        ]
        m.d.comb += [
            # Given away only when nothing holds it, with the next generation.
            Assert(~reserved | ~in_use | is_over),
            Assert(~reserved | (dut.session.generation == (generation + 1)[:4])),
            # One completion a use: with the last contribution, or when its time is over.
            Assert(~ends | waits & is_this),
        ]
        with m.If(is_this & is_new & ~claim.is_timeout):
            m.d.comb += Assert(dut.verdict.accept == (waits & fits))
        with m.If(is_this & waits & is_new & claim.is_timeout):
            m.d.comb += [
                Assert(ends & dut.timeout.valid & dut.completion.timed_out),
                Assert(dut.missing == expected & ~arrived),
                Assert(dut.completion.status == Status.TIMEOUT),
            ]
            m.d.sync += [completed.eq(1), timed_out.eq(1)]
        with m.If(is_this & dut.commit):
            m.d.comb += Assert(ends == ((arrived | source) == expected))
            m.d.sync += [arrived.eq(arrived | source), completed.eq(ends)]
        with m.If(is_this & dut.dropped & timed_out & fits):
            m.d.sync += arrived.eq(arrived | source)
        with m.If(dut.free_retired & timed_out):
            m.d.sync += freed.eq(1)
        with m.If(dut.answers & may_answer):
            m.d.comb += Assume(dut.answered.generation == generation)
            m.d.sync += answered.eq(1)
        with m.If(reserved):
            m.d.sync += [
                in_use.eq(1),
                *(bit.eq(0) for bit in (completed, answered, timed_out, freed)),
                arrived.eq(0),
                expected.eq(dut.reserve.payload.ports),
                generation.eq(generation + 1),
            ]
        return in_use, is_over, may_answer


def proof_of(name: str, *, sessions: int, depth: int) -> None:
    harness = TableHarness(SessionTable(ports=PORTS, sessions=sessions))
    with memory_style("flipflops"):  # which the solver finds easier than arrays
        prove(harness, harness.ports, name=name, depth=depth)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sessions, depth", [(1, 10), pytest.param(1, 12, marks=pytest.mark.nightly)]
)
def test_freed_once_and_answered_once(sessions, depth):
    """Long enough for one session to retire, settle, be given back, and be reserved once more."""
    proof_of(f"session_table_{depth}", sessions=sessions, depth=depth)


class Hasty(Retirement):
    """Gives a retired session back when it is answered, whatever is missing."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = Retirement(sessions=self.sessions)
        for path, member, port in self.signature.flatten(self):
            (name,) = path
            other = getattr(inner, name)
            if name == "free":
                m.d.comb += inner.free.eq(1)
            elif member.flow == In:
                m.d.comb += other.eq(port)
            else:
                m.d.comb += port.eq(other)
        return m


@pytest.mark.slow
def test_a_session_given_back_too_early_is_caught(monkeypatch):
    monkeypatch.setattr("dysharp.hw.switch.session_table.Retirement", Hasty)
    with pytest.raises(ProofFailed, match="Assert failed"):
        proof_of("session_table_hasty", sessions=1, depth=10)
