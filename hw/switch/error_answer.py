"""Statuses, and the answer to a request that is refused: what is kept of it, and the packet."""

from typing import Any

from amaranth import Mux, Signal, Value
from amaranth.lib import data

from dysharp.hw.packet import Cmd, Header, Status, Tag

__all__ = ["ErrorAnswer", "Fault", "error_header", "smaller_status"]


class Fault(data.Struct):
    """One packet found in error, for the error log; a pulse.

    Members
    -------
    valid : a packet is dropped or refused in this cycle
    status : what is wrong
    answered : the source hears of it; else it is only counted here
    cmd : bits of the packet's command, which may be reserved
    addr : its addr field
    """

    valid: 1
    status: Status
    answered: 1
    cmd: 5
    addr: 64


class ErrorAnswer(data.Struct):
    """What an ERR packet says.

    Members
    -------
    tag : tag of the request as read; a switch puts its port in
    tx : the request had a multimem address
    status : why it is refused
    maddr, stage, count : of the request, if ``tx``
    """

    tag: Tag
    tx: 1
    status: Status
    maddr: 48
    stage: 1
    count: 7


def smaller_status(one, other) -> Value:
    """The smaller of two statuses, where 0 is none."""
    one, other = Value.cast(one), Value.cast(other)
    return Mux((one == 0) | (other != 0) & (other < one), other, one)


def error_header(m, answer, *, port=None) -> Value:
    """The one flit of an ERR packet.

    Parameters
    ----------
    m : module that the flit is built in
    answer : the :class:`ErrorAnswer`
    port : what the tag's port becomes; as read by default
    """
    header: Any = Signal(Header, name="error_header")
    address = header.multimem
    m.d.comb += [
        header.cmd.eq(Cmd.ERR),
        header.tx.eq(answer.tx),
        header.tag.eq(answer.tag),
    ]
    if port is not None:
        m.d.comb += header.tag.port.eq(port)
    with m.If(answer.tx):
        m.d.comb += [
            address.maddr.eq(answer.maddr),
            address.stage.eq(answer.stage),
            address.count.eq(answer.count),
            Value.cast(address.attr).eq(Value.cast(answer.status)),
        ]
    with m.Else():
        m.d.comb += header.addr.eq(Value.cast(answer.status))
    return Value.cast(header)
