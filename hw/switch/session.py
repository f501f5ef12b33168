"""What ingress and reduction unit of one port tell each other when a session is reserved."""

from amaranth.lib import data, stream

from dysharp.hw.packet import Attr, Cmd

__all__ = [
    "MAX_SESSIONS",
    "SESSION_COUNT_BITS",
    "TICKS",
    "SessionId",
    "session_request",
    "session_stream",
]

MAX_SESSIONS = 256
"""A replica's tag has eight bits for the session."""
SESSION_COUNT_BITS = 8
"""Entries of a list, or GPUs of a preset group."""

TICKS = 32
"""Parts of the time that a session may take; it times out with the first one that is over."""


class SessionId(data.Struct):
    """Which session, and which of its uses; both travel in the tag of every replica."""

    session: 8
    generation: 4


def session_request(ports: int) -> data.StructLayout:
    """What a session must know before the first replica leaves.

    Parameters
    ----------
    ports : ports of the switch plane

    Members
    -------
    local : the source's own part of its tag
    cmd : the request's command
    ports : a bit for each port that gets a replica, and so owes one answer
    count : entries that the answers' counts must add up to; GPUs of the group if the list is empty
    attr : type, operation and accumulation, the object's default already filled in
    flits : DATA flits of a result; 0 for a session that only counts acknowledgements
    maddr, stage : the request's, copied verbatim into the answer
    """
    return data.StructLayout(
        {
            "local": 12,
            "cmd": Cmd,
            "ports": ports,
            "count": SESSION_COUNT_BITS,
            "attr": Attr,
            "flits": 5,
            "maddr": 48,
            "stage": 1,
        }
    )


def session_stream(ports: int) -> stream.Signature:
    """Stream of :func:`session_request`; its ``ready`` says that the session shown is taken."""
    return stream.Signature(session_request(ports))
