"""The reduction unit of one port that adds by ascending port, whatever comes first."""

from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import Component, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.alu.alu import ReductionAlu
from dysharp.hw.alu.reductions import Arithmetic
from dysharp.hw.alu.result_rounder import ResultRounder
from dysharp.hw.delay import delayed
from dysharp.hw.errors import ConfigError
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.memory import Ram
from dysharp.hw.packet import FLIT_BITS
from dysharp.hw.share import place
from dysharp.hw.switch.answer import AnswerEngine
from dysharp.hw.switch.intake import Intake, finished_session
from dysharp.hw.switch.rank_sequencer import RankSequencer
from dysharp.hw.switch.reduction_ports import reduction_signature, tie

__all__ = ["MAX_STORE_BITS", "RankUnit", "store_bits", "store_place"]

MAX_STORE_BITS = 1 << 25
"""The most that one port's store may hold: 4 MB."""


def store_bits(*, ports: int, sessions: int, chunk_flits: int) -> int:
    """Bits of the store of one port: a place for every flit that can be on its way to it."""
    return sessions * ports * chunk_flits * FLIT_BITS


def store_place(flit, *, ports: int, sessions: int, chunk_flits: int) -> Value:
    """Address of a flit in the store, which no other flit has.

    Parameters
    ----------
    flit : has ``session``, ``source`` and ``word``
    ports, sessions, chunk_flits : shape of the store; the last one is a power of two
    """
    session = flit.session[: ceil_log2(sessions)]
    contribution = session * ports + flit.source
    return Cat(flit.word[: ceil_log2(chunk_flits)], contribution[: ceil_log2(sessions * ports)])


class RankUnit(Component):
    """Collects the answers to the replicas of a port's requests and answers each request once.

    What counts, what is dropped and what is answered is as in
    :class:`~dysharp.hw.switch.reduction.ReductionUnit`; the difference is the order of the sum.
    Each DATA flit goes at once into a store, which has a place of its own for every flit of every
    port's contribution to every session. When a session has all its answers, they are read in the
    order of their ports: the first is loaded, the others are added. So a sum has the same bits
    whatever the order of arrival, and no contribution waits for another port.

    Latency: from the last flit of the last contribution to the header of the answer: six cycles,
    those of the adder, and for each port but the last as many as the contribution has flits, at
    least the adder's latency + 2; more if other sessions are ahead. Throughput: one flit of
    contributions each cycle, ``i.ready`` is low only while a session times out; one flit of sums
    and one of answers each cycle.

    Parameters
    ----------
    ports : ports of the switch plane
    sessions : sessions, at most 256
    chunk_flits : DATA flits of a chunk
    arithmetic : types, and depth of the adders

    Raises
    ------
    ConfigError
        If the store would be larger than :data:`MAX_STORE_BITS`.
    """

    reserve: stream.Interface
    """In(stream of session_request)."""
    session: Any
    """Out(SessionId), what is reserved when ``reserve`` is taken."""
    exhausted: Signal
    """Out, every session is retired, so none can be reserved."""
    i: stream.Interface
    """In(stream of Contribution)."""
    port: Signal
    """In, this port; constant."""
    tick: Signal
    """In, a pulse, :data:`~dysharp.hw.switch.session.TICKS` times in a session's time."""
    free_retired: Signal
    """In, a pulse: retired sessions are free again once they are answered."""
    o: stream.Interface
    """Out(FlitStream), answers to this port's GPU."""
    log: Any
    """Out(LogEntry), in the order of arrival."""
    fault: Any
    """Out(Fault), a pulse for each dropped or poisoned contribution and each wrong sum."""
    timeout: Any
    """Out(Timeout), a pulse for each session that times out."""
    missing: Signal
    """Out, with ``timeout``: a bit for each port that owes the session an answer."""
    timeout_fault: Any
    """Out(Fault), a pulse for each session that timed out, when its answer is made."""
    occupied: Signal
    """Out, sessions in use."""
    retired: Signal
    """Out, those of them that are retired."""
    events: Any
    """Out(ReductionEvents)."""

    def __init__(self, *, ports: int, sessions: int, chunk_flits: int, arithmetic: Arithmetic):
        self.ports, self.sessions, self.chunk_flits = ports, sessions, chunk_flits
        self.arithmetic = arithmetic
        if self.store_bits > MAX_STORE_BITS:
            most = MAX_STORE_BITS // (ports * chunk_flits * FLIT_BITS)
            raise ConfigError(
                "switch.sessions",
                sessions,
                f"Sessions must be at most {most} in order rank with {ports} ports and "
                f"{chunk_flits} flits a chunk, not {sessions!r} (a store of {self.store_bits} bits "
                f"at each port)",
            )
        super().__init__(reduction_signature(ports=ports, sessions=sessions))

    @property
    def store_bits(self) -> int:
        """Bits of the store, the price of this order."""
        return store_bits(ports=self.ports, sessions=self.sessions, chunk_flits=self.chunk_flits)

    @property
    def module_name(self) -> str:
        """``reduction_rank_<ports>x<sessions>x<chunk flits>_<of the arithmetic>``."""
        shape = f"{self.ports}x{self.sessions}x{self.chunk_flits}"
        return f"reduction_rank_{shape}_{self.arithmetic.name}"

    def elaborate(self, platform):
        """Keep what counts; when a session has all, add it up in order, and answer."""
        m = Module()
        intake = Intake(ports=self.ports, sessions=self.sessions, chunk_flits=self.chunk_flits)
        finished = Fifo(shape=finished_session(self.ports), depth=max(2, self.sessions))
        alu = ReductionAlu(**self.arithmetic.options)
        rounder = ResultRounder(dtypes=self.arithmetic.dtypes)
        answers = AnswerEngine(chunk_flits=self.chunk_flits, rounder=rounder)
        sequencer = RankSequencer(
            ports=self.ports,
            chunk_flits=self.chunk_flits,
            latency=alu.latency,
            results=2 * self.chunk_flits,
        )
        m.submodules.intake = place(intake)
        m.submodules.finished = place(finished)
        m.submodules.sequencer = place(sequencer)
        m.submodules.alu = place(alu)
        m.submodules.answers = place(answers)

        m.d.comb += [
            finished.i.valid.eq(intake.finishes),
            finished.i.payload.eq(intake.finished),
        ]
        connect(m, finished.o, sequencer.i)

        operand = self._store(m, intake.o, sequencer.step)
        word, taken = self._add(m, alu, operand, sequencer.step, answers)
        m.d.comb += sequencer.taken.eq(taken)

        connect(m, sequencer.o, answers.i)
        m.d.comb += [
            answers.port.eq(self.port),
            intake.record_en.eq(answers.record_en),
            intake.record_session.eq(sequencer.o.payload.id.session),
            answers.record.eq(intake.record),
            answers.accumulator.eq(word),
        ]
        tie(m, self, intake, answers)
        connect(m, answers.o, flipped(self.o))
        return m

    def _store(self, m: Module, arrived, step):
        """A place for each flit; what a step names appears a cycle later."""
        shape = {"ports": self.ports, "sessions": self.sessions, "chunk_flits": self.chunk_flits}
        store = Ram(width=FLIT_BITS, depth=store_bits(**shape) // FLIT_BITS)
        m.submodules.store = place(store)
        m.d.comb += [
            store.write_en.eq(arrived.valid),
            store.write_addr.eq(store_place(arrived, **shape)),
            store.write_data.eq(arrived.data),
            store.read_en.eq(step.valid),
            store.read_addr.eq(store_place(step, **shape)),
        ]
        return store.read_data

    def _add(self, m: Module, alu, operand, step, answers):
        """Sums of one session, then its results, which wait in a ring for their answer."""
        sums = Ram(width=alu.accumulator_bits, depth=self.chunk_flits)
        results = Ram(width=alu.accumulator_bits, depth=2 * self.chunk_flits)
        m.submodules.sums = place(sums)
        m.submodules.results = place(results)
        now = delayed(m, step, "now")
        m.d.comb += [
            sums.read_en.eq(step.valid & ~step.first),
            sums.read_addr.eq(step.word),
            alu.attr.eq(now.attr),
            alu.load.eq(now.first),
            alu.operand.eq(operand),
            alu.accumulator.eq(sums.read_data),
        ]
        added, result, word = now.valid & ~now.final, now.valid & now.final, now.word
        for stage in range(1, alu.latency + 1):
            added = delayed(m, added, f"added{stage}")
            result = delayed(m, result, f"result{stage}")
            word = delayed(m, word, f"word{stage}")

        head, tail = (Signal(range(results.depth), name=name) for name in ("head", "tail"))
        ready = Signal(range(results.depth + 1))
        taken = answers.word_granted
        m.d.comb += [
            sums.write_en.eq(added),
            sums.write_addr.eq(word),
            sums.write_data.eq(alu.result),
            results.write_en.eq(result),
            results.write_addr.eq(tail),
            results.write_data.eq(alu.result),
            taken.eq(answers.word_wanted & (ready != 0)),
            results.read_en.eq(taken),
            results.read_addr.eq(head),
        ]
        m.d.sync += [
            tail.eq(tail + result),
            head.eq(head + taken),
            ready.eq(ready + result - taken),
        ]
        return results.read_data, taken
