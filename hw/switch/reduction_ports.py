"""What every reduction unit shows to the outside, in whatever order it adds."""

from typing import Any

from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out

from dysharp.hw.link.flit import FlitStream
from dysharp.hw.switch.crosspoint import Contribution
from dysharp.hw.switch.error_answer import Fault
from dysharp.hw.switch.session import SessionId, session_stream

__all__ = ["LogEntry", "ReductionEvents", "reduction_signature"]


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
    """
    return {
        "reserve": In(session_stream(ports)),
        "session": Out(SessionId),
        "i": In(stream.Signature(Contribution)),
        "port": In(7),
        "o": Out(FlitStream),
        "log": Out(LogEntry),
        "fault": Out(Fault),
        "occupied": Out(range(sessions + 1)),
        "events": Out(ReductionEvents),
    }
