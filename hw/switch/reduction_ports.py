"""What every reduction unit shows to the outside, in whatever order it adds."""

from typing import Any

from amaranth import Module
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, connect, flipped

from dysharp.hw.link.flit import FlitStream
from dysharp.hw.switch.crosspoint import Contribution
from dysharp.hw.switch.error_answer import Fault
from dysharp.hw.switch.session import SessionId, session_stream

__all__ = ["LogEntry", "ReductionEvents", "Timeout", "reduction_signature", "tie"]


class LogEntry(data.Struct):
    """A contribution that counts, in the order of arrival; a pulse.

    Members
    -------
    valid : one is accepted in this cycle
    maddr, stage : as in the contribution, which copies them from the request
    source : port that it came in at
    """

    valid: 1
    maddr: 48
    stage: 1
    source: 7


class Timeout(data.Struct):
    """A session that is answered without its missing answers; a pulse.

    Members
    -------
    valid : there is one in this cycle
    id : the session, which is retired
    """

    valid: 1
    id: SessionId


class ReductionEvents(data.Struct):
    """What happens, for counters.

    Members
    -------
    accepted : a contribution counts
    late, unexpected, surplus, wrong_length : one is dropped, and why; see :class:`Stray`
    poisoned : one that counts came poisoned
    answered : a session is answered, by a result or an ERR
    """

    accepted: 1
    late: 1
    unexpected: 1
    surplus: 1
    wrong_length: 1
    poisoned: 1
    answered: 1


def reduction_signature(*, ports: int, sessions: int) -> dict[str, Any]:
    """Members of every reduction unit, in whatever order it adds.

    Parameters
    ----------
    ports : ports of the switch plane
    sessions : sessions of the unit

    Members
    -------
    reserve : In(stream of session_request); the session that is taken shows in ``session``
    exhausted : Out, all sessions are retired, so none can be reserved
    i : In(stream of Contribution)
    port : In, the port that the requests came from; constant
    tick : In, a pulse :data:`~dysharp.hw.switch.session.TICKS` times in a session's time
    free_retired : In, a pulse; the retired sessions are free again once they are answered
    o : Out(FlitStream), answers to the port's GPU
    log : Out(LogEntry), in the order of arrival
    fault : Out(Fault), a pulse for each dropped or poisoned contribution and each wrong sum
    timeout : Out(Timeout)
    missing : Out, with ``timeout.valid``: a bit for each port that owes the session an answer
    timeout_fault : Out(Fault), a pulse for each session that timed out, with its request's
        command and address, when its answer is made
    occupied, retired : Out, sessions in use; those of them that are retired
    events : Out(ReductionEvents)
    """
    return {
        "reserve": In(session_stream(ports)),
        "session": Out(SessionId),
        "exhausted": Out(1),
        "i": In(stream.Signature(Contribution)),
        "port": In(7),
        "tick": In(1),
        "free_retired": In(1),
        "o": Out(FlitStream),
        "log": Out(LogEntry),
        "fault": Out(Fault),
        "timeout": Out(Timeout),
        "missing": Out(ports),
        "timeout_fault": Out(Fault),
        "occupied": Out(range(sessions + 1)),
        "retired": Out(range(sessions + 1)),
        "events": Out(ReductionEvents),
    }


def tie(m: Module, unit, intake, answers) -> None:
    """What every reduction unit passes on between its edge, its sessions and its answers."""
    connect(m, flipped(unit.reserve), intake.reserve)
    connect(m, flipped(unit.i), intake.i)
    for name in ("tick", "free_retired"):
        m.d.comb += getattr(intake, name).eq(getattr(unit, name))
    for name in (
        *("session", "exhausted", "log", "fault", "timeout", "missing"),
        *("occupied", "retired", "events"),
    ):
        m.d.comb += getattr(unit, name).eq(getattr(intake, name))
    m.d.comb += [
        unit.timeout_fault.eq(answers.timeout_fault),
        intake.answers.eq(answers.answers),
        intake.answered.eq(answers.answered),
        answers.may_answer.eq(intake.may_answer),
    ]
