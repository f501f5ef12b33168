"""What the parts of the Hub hand to each other."""

from typing import Any

from amaranth import Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import data

from dysharp.hw.axi import ADDR_BITS
from dysharp.hw.packet import Attr, Cmd, Tag

__all__ = [
    "AIDX_BITS",
    "BSIZE_BITS",
    "LIDX_BITS",
    "LINK_BITS",
    "OBJECT_BITS",
    "ROW_BITS",
    "SLOT_BITS",
    "STATUS_BITS",
    "Access",
    "HubError",
    "HubRequest",
    "HubWork",
    "Notice",
    "ReadItem",
    "Ticket",
    "Written",
    "record",
]

OBJECT_BITS = 4
SLOT_BITS = 10
"""A GPU has at most 1024 local experts."""
AIDX_BITS = 24
LIDX_BITS = 24
"""The AL table has room for 31 bits; the Hub refuses what does not fit 24."""
ROW_BITS = 28
"""Rows of all local experts of an object."""
BSIZE_BITS = 20
LINK_BITS = 5
STATUS_BITS = 4
"""A :class:`~dysharp.hw.packet.Status` inside the Hub; 0 is success."""


class HubRequest(data.Struct):
    """A whole packet as it was received.

    Members
    -------
    cmd, tx, tag, addr : of its header
    link : link it came on
    data_flits : DATA flits that wait in the payload buffer
    poison : its content is not to be trusted
    """

    cmd: Cmd
    tx: 1
    tag: Tag
    addr: 64
    link: LINK_BITS
    data_flits: 5
    poison: 1


class Ticket(data.Struct):
    """What the answer to a packet will need; tickets are kept in the order of requests.

    Members
    -------
    cmd, tx, tag, addr : of the request's header
    link : link that the answer leaves by
    """

    cmd: Cmd
    tx: 1
    tag: Tag
    addr: 64
    link: LINK_BITS


class HubWork(data.Struct):
    """A packet whose object has been looked up.

    Members
    -------
    load, reduce : read memory; and reduce what was read (MM_LDR), not hand it on raw (RD)
    listed : TX flits wait in the list queue
    count, lists : entries and TX flits of the list
    status : the packet is refused whole
    flits : DATA flits stored or wanted
    place : address of the data, but for the row
    object, aidx, bsize, rows, al_base, slots, split : for the lookup of each entry; ``bsize`` in
        units of 16 bytes
    attr : type, operation and accumulation of the reduction
    first_touch : an unmapped entry takes the expert's next LIdx
    counted : the token tracker wants to know
    """

    load: 1
    reduce: 1
    listed: 1
    count: 7
    lists: 5
    status: STATUS_BITS
    flits: 5
    place: ADDR_BITS
    object: OBJECT_BITS
    aidx: AIDX_BITS
    bsize: BSIZE_BITS - 4
    rows: AIDX_BITS
    al_base: ADDR_BITS
    slots: SLOT_BITS + 1
    split: 4
    attr: Attr
    first_touch: 1
    counted: 1


class Access(data.Struct):
    """One chunk to be read or written: one entry of a packet, in list order.

    Members
    -------
    load, reduce, attr : as in :class:`HubWork`
    vaddr : address, a multiple of 16
    flits : 16-byte units
    status : not 0: nothing is read or written for this entry
    last : the packet's last entry
    counted, object, slot, lidx : for :class:`Written`
    """

    load: 1
    reduce: 1
    attr: Attr
    vaddr: ADDR_BITS
    flits: 5
    status: STATUS_BITS
    last: 1
    counted: 1
    object: OBJECT_BITS
    slot: SLOT_BITS
    lidx: LIDX_BITS


class ReadItem(data.Struct):
    """One entry of a load, when its data is there.

    Members
    -------
    reduce, attr, flits, status, last : as in :class:`Access`; memory's errors are in ``status``
    """

    reduce: 1
    attr: Attr
    flits: 5
    status: STATUS_BITS
    last: 1


class Written(data.Struct):
    """Memory has answered a stage 0 store for one distinct expert of a packet.

    Members
    -------
    object, slot, lidx : whose row it is
    flits : DATA flits that were written
    """

    object: OBJECT_BITS
    slot: SLOT_BITS
    lidx: LIDX_BITS
    flits: 5


class Notice(data.Struct):
    """A NOTIFY that came in.

    Members
    -------
    object : of the token
    token : its number at this GPU, its source
    """

    object: OBJECT_BITS
    token: 32


class HubError(data.Struct):
    """A packet that ended in an error, for the error log.

    Members
    -------
    valid : in this cycle
    status, cmd, addr : what was answered, and the request's fields
    port : port in the request's tag
    """

    valid: 1
    status: 8
    port: 7
    cmd: Cmd
    addr: 64


def record(shape: ShapeLike, *, name: str | None = None) -> Any:
    """A signal with fields, of a type that a checker lets be read by field."""
    return Signal(shape, name=name, src_loc_at=1)
