"""The reduction unit of one port: contributions in, one answer a session out."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import Component, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.alu.alu import ReductionAlu
from dysharp.hw.alu.exact import ExactAlu
from dysharp.hw.alu.exact_rounder import ExactRounder
from dysharp.hw.alu.reductions import Arithmetic
from dysharp.hw.alu.result_rounder import ResultRounder
from dysharp.hw.config import Config
from dysharp.hw.delay import delayed
from dysharp.hw.link.fall_through import FallThrough
from dysharp.hw.memory import Ram
from dysharp.hw.parameters import ORDERS
from dysharp.hw.share import place
from dysharp.hw.switch.answer import AnswerEngine
from dysharp.hw.switch.intake import Intake
from dysharp.hw.switch.rank import RankUnit
from dysharp.hw.switch.reduction_ports import reduction_signature, tie
from dysharp.hw.switch.session_table import Completion

__all__ = ["ReductionUnit", "reduction_block", "reduction_unit"]


class ReductionUnit(Component):
    """Collects the answers to the replicas of a port's requests and answers each request once.

    A session is reserved before the first replica leaves. It then expects one answer from every
    port that got a replica: MM_RSP, whose first is loaded and whose others are added as they
    arrive; MM_ACK, which is only counted; or ERR. When the last one has come, the source gets
    MM_RSP with the sums rounded once, or MM_ACK; or ERR with the smallest status, if a GPU
    answered ERR, a contribution was poisoned (6), or the counts do not add up (1).

    A contribution from a port that is not expected, of a wrong length, late, or one too many is
    dropped and changes nothing. Contributions never wait for answers or requests: every session
    keeps its result in its own accumulators, and answers read them in cycles left free.

    In order ``arrival`` sums are rounded at each step, so their last bits depend on who comes
    first. In order ``exact`` they are not rounded before the answer, so they do not.

    Latency: from the last flit of the last contribution to the header of the answer: three cycles
    and the rounder's, or two and those of the ALU and the rounder less the flits of a contribution
    but one, whichever is more; an acknowledgement or an error three cycles and the rounder's.
    Throughput: one flit of contributions and one of answers
    each cycle. A flit waits while its accumulators are still in the ALU, at most for its latency,
    which takes two short contributions to one session, one behind the other.

    Parameters
    ----------
    ports : ports of the switch plane
    sessions : sessions, at most 256
    chunk_flits : DATA flits of a chunk
    arithmetic : types, and depth of the adders, which order ``exact`` has not
    exact : order ``exact``, not ``arrival``

    Source
    ------
    The DySHARP paper's reduction units: one a port, 64 KB of accumulators. What it leaves open is
    decided in ``docs/reduction.md``.
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
    """Out(LogEntry)."""
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

    def __init__(
        self,
        *,
        ports: int,
        sessions: int,
        chunk_flits: int,
        arithmetic: Arithmetic,
        exact: bool = False,
    ):
        self.ports, self.sessions, self.chunk_flits = ports, sessions, chunk_flits
        self.arithmetic, self.exact = arithmetic, exact
        super().__init__(reduction_signature(ports=ports, sessions=sessions))

    @property
    def module_name(self) -> str:
        """``reduction[_exact]_<ports>x<sessions>x<chunk flits>_<of the arithmetic>``."""
        shape = f"{self.ports}x{self.sessions}x{self.chunk_flits}"
        return f"reduction{'_exact' if self.exact else ''}_{shape}_{self.arithmetic.name}"

    def elaborate(self, platform):
        """Take in what counts; add, write back; then answer."""
        m = Module()
        intake = Intake(ports=self.ports, sessions=self.sessions, chunk_flits=self.chunk_flits)
        alu, rounder = self._datapath()
        words = Ram(
            width=alu.accumulator_bits, depth=self.sessions * self.chunk_flits, transparent=True
        )
        finished = FallThrough(shape=Completion, depth=max(2, self.sessions))
        answers = AnswerEngine(chunk_flits=self.chunk_flits, rounder=rounder)
        m.submodules.intake = place(intake)
        m.submodules.alu = place(alu)
        m.submodules.accumulators = place(words)
        m.submodules.finished = place(finished)
        m.submodules.answers = place(answers)
        self._accumulate(m, intake, alu, words, answers)
        connect(m, finished.o, answers.i)
        m.d.comb += [
            finished.i.valid.eq(intake.finishes),
            finished.i.payload.eq(intake.finished.completion),
            answers.port.eq(self.port),
            intake.record_en.eq(answers.record_en),
            intake.record_session.eq(finished.o.payload.id.session),
            answers.record.eq(intake.record),
            answers.accumulator.eq(words.read_data),
        ]
        tie(m, self, intake, answers)
        connect(m, answers.o, flipped(self.o))
        return m

    @property
    def _lag(self) -> int:
        """Cycles by which the ALU takes accumulators later than operands."""
        return ExactAlu.accumulator_lag if self.exact else 0

    def _datapath(self) -> tuple[Any, Any]:
        """ALU and rounder of the order."""
        if self.exact:
            # A session has a contribution from each port at the most.
            options: dict[str, Any] = {
                "dtypes": self.arithmetic.dtypes,
                "ftz": self.arithmetic.ftz,
                "contributions": self.ports,
            }
            return ExactAlu(**options), ExactRounder(**options)
        alu = ReductionAlu(**self.arithmetic.options)
        return alu, ResultRounder(dtypes=self.arithmetic.dtypes)

    def _accumulate(self, m: Module, intake, alu, words, answers) -> None:
        upcoming, operand = intake.upcoming, intake.o
        address = self._address(upcoming)
        wanted = Cat(answers.word, answers.word_session)
        m.d.comb += [
            alu.attr.eq(operand.attr),
            alu.load.eq(operand.fresh),
            alu.operand.eq(operand.data),
            alu.accumulator.eq(words.read_data),
        ]

        # The result is written when it comes out. Flits behind each other are of one contribution,
        # or a header is between them: they never meet. An answer begins while its last sums are
        # still in the ALU, so it waits for them too.
        writing, write_address = operand.valid, self._address(operand)
        conflicts, unfinished = [], []
        for stage in range(1, alu.latency + 1):
            writing = delayed(m, writing, f"writing{stage}")
            write_address = delayed(m, write_address, f"address{stage}")
            if stage < alu.latency - self._lag:
                conflicts.append(writing & (write_address == address))
            if stage < alu.latency:
                unfinished.append(writing & (write_address == wanted))
        m.d.comb += [
            intake.hold.eq(Cat(conflicts).any()),
            words.write_en.eq(writing),
            words.write_addr.eq(write_address),
            words.write_data.eq(alu.result),
        ]

        # A flit that is only loaded leaves the read port to the answers.
        taken, read_address = upcoming.taken & ~upcoming.fresh, address
        for stage in range(1, self._lag + 1):
            taken = delayed(m, taken, f"taken{stage}")
            read_address = delayed(m, read_address, f"read_address{stage}")
        reads = Signal()
        m.d.comb += [
            reads.eq(taken),
            answers.word_granted.eq(answers.word_wanted & ~reads & ~Cat(unfinished).any()),
            words.read_en.eq(reads | answers.word_granted),
            words.read_addr.eq(Mux(reads, read_address, wanted)),
        ]

    def _address(self, flit):
        """Accumulators of a flit."""
        session_bits, word_bits = ceil_log2(self.sessions), ceil_log2(self.chunk_flits)
        return Cat(flit.word[:word_bits], flit.session[:session_bits])


def reduction_unit(
    *, ports: int, sessions: int, chunk_flits: int, arithmetic: Arithmetic, order: str
) -> ReductionUnit | RankUnit:
    """The reduction unit for an order of accumulation.

    Parameters
    ----------
    ports, sessions, chunk_flits, arithmetic : as in :class:`ReductionUnit`
    order : one of :data:`~dysharp.hw.parameters.ORDERS`

    Raises
    ------
    ConfigError
        For a store of order ``rank`` that is too large.
    ValueError
        For an order that there is not.
    """
    if order not in ORDERS:
        raise ValueError(f"Order must be one of {', '.join(ORDERS)}, not {order!r}")
    shape: dict[str, Any] = {"ports": ports, "sessions": sessions, "chunk_flits": chunk_flits}
    if order == "rank":
        return RankUnit(**shape, arithmetic=arithmetic)
    return ReductionUnit(**shape, arithmetic=arithmetic, exact=order == "exact")


def reduction_block(config: Config) -> ReductionUnit | RankUnit:
    """One port's reduction unit, as a block of its own."""
    return reduction_unit(
        ports=config.ports,
        sessions=config.switch.sessions,
        chunk_flits=config.chunk_flits,
        arithmetic=config.arithmetic,
        order=config.switch.order,
    )
