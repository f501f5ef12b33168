"""Wire format v1: the one place where a bit position of a packet is written.

A packet is ``HDR, [AE], TX*, [BE], DATA*``, 1 to 32 flits of 128 bits, bit 0 first; payload byte
``k`` of a flit sits at bits ``8k + 7 .. 8k``. The layouts below build hardware
(:class:`amaranth.lib.data.Struct`), the codec (:class:`Packet`) encodes and decodes the same
layouts in software, and ``docs/packet.md`` is rendered from them.

Source: the DySHARP paper (flit 0 with a 48-bit multimem address, a stage bit and a 15-bit target
count, then 16-bit expert ids); everything the paper leaves open is decided in ``docs/packet.md``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor

from amaranth.hdl import Const, Value
from amaranth.lib import data, enum

__all__ = [
    "FLIT_BITS",
    "FLIT_BYTES",
    "MAX_FLITS",
    "MAX_DATA_FLITS",
    "MAX_BE_DATA_FLITS",
    "TARGETS_PER_FLIT",
    "MAX_TARGETS",
    "TARGET_BITS",
    "NO_TARGET",
    "AGE_BITS",
    "CHUNK_BYTES",
    "Cmd",
    "Op",
    "Dtype",
    "Status",
    "Attr",
    "Tag",
    "ReplicaTag",
    "MultimemAddress",
    "NotifyAddress",
    "Header",
    "PruneInfo",
    "CMD_RULES",
    "CmdRule",
    "Packet",
    "PacketError",
    "tx_flits",
    "link_of_chunk",
]

FLIT_BITS = 128
FLIT_BYTES = FLIT_BITS // 8
MAX_FLITS = 32
MAX_DATA_FLITS = 16
MAX_BE_DATA_FLITS = 8
"""One BE flit has a bit a byte: 128 bytes, 8 DATA flits."""
TARGET_BITS = 16
TARGETS_PER_FLIT = FLIT_BITS // TARGET_BITS
MAX_TARGETS = 127
NO_TARGET = 0xFFFF
"""What an unused TX slot holds."""
AGE_BITS = 12
"""Bits of the time at which a packet came in."""
CHUNK_BYTES = (128, 256)
"""The chunk sizes that can be built."""


class Cmd(enum.Enum, shape=5):
    """Packet command. Whatever is not listed is reserved."""

    NOP = 0
    RD = 1
    WR = 2
    WRP = 3
    RD_RSP = 4
    WR_ACK = 5
    ATOM = 6
    MM_ST = 16
    MM_STP = 17
    MM_LDR = 18
    MM_RED = 19
    MM_RSP = 20
    MM_ACK = 21
    NOTIFY = 22
    ERR = 23


class Op(enum.Enum, shape=3):
    """Reduction operation (PTX ``multimem.ld_reduce`` / ``multimem.red`` names)."""

    ADD = 0
    MIN = 1
    MAX = 2
    AND = 3
    OR = 4
    XOR = 5


class Dtype(enum.Enum, shape=4):
    """Element type of a reduction. 0 is no type."""

    NONE = 0
    U32 = 1
    S32 = 2
    U64 = 3
    S64 = 4
    B32 = 5
    B64 = 6
    F16 = 7
    BF16 = 8
    F32 = 9
    F64 = 10
    E4M3 = 11
    E5M2 = 12


class Status(enum.Enum, shape=8):
    """Status of an ERR answer, and the fault of an instruction. 0 is success."""

    OK = 0
    MALFORMED = 1
    UNKNOWN_OBJECT = 2
    TIMEOUT = 3
    UNMAPPED_INDEX = 4
    UNSUPPORTED = 5
    POISONED = 6
    UNKNOWN_TARGET = 7
    QUOTA_EXCEEDED = 8
    NOT_A_MEMBER = 9
    NEVER_RESERVABLE = 10


class Attr(data.Struct):
    """Type, operation and accumulation of a reduction; all zero means the object's default."""

    dtype: Dtype
    op: Op
    acc: 1


class Tag(data.Struct):
    """Tag of a request and of its one answer. The endpoint owns ``local``, the switch ``port``."""

    local: 12
    port: 7


class ReplicaTag(data.Struct):
    """The same 19 bits in a replica between switch and destination GPU."""

    session: 8
    generation: 4
    port: 7


class MultimemAddress(data.Struct):
    """The ``addr`` field of a packet with ``tx = 1``. ``count`` and ``attr`` make up tcnt."""

    maddr: 48
    stage: 1
    count: 7
    attr: Attr


class NotifyAddress(data.Struct):
    """The ``addr`` field of a NOTIFY: a token by its number at its source GPU, and its object.

    The same in any build; a plain address has its GPU in the same bits if ``gpu_address_bit`` is
    40, its default.
    """

    token: 32
    _unused: 4
    object: 4
    gpu: 7
    _rest: 17


class Header(data.Struct):
    """Flit 0 of every packet. ``len`` is the number of flits - 1."""

    crc: 25
    len: 5
    ack: 7
    cmd: Cmd
    ae: 1
    be: 1
    tx: 1
    tag: Tag
    addr: 64

    @property
    def multimem(self) -> data.View:
        """``addr`` read as a multimem address; meaningful if ``tx = 1``."""
        return data.View(MultimemAddress, self.addr)

    @property
    def notify(self) -> data.View:
        """``addr`` read as that of a NOTIFY."""
        return data.View(NotifyAddress, self.addr)

    @property
    def replica_tag(self) -> data.View:
        """``tag`` read as the tag of a replica."""
        return data.View(ReplicaTag, Value.cast(self.tag))


class PruneInfo(data.Struct):
    """What the ingress tells the egress in ``crc`` (the link layer's, zero inside the core).

    Members
    -------
    split : where an id is cut into {GPU, slot}
    born : when the packet came in, for the choice of the oldest
    """

    split: 4
    born: AGE_BITS
    _: 9


@dataclass(frozen=True)
class CmdRule:
    """What a packet of one command may look like.

    Attributes
    ----------
    response : the packet travels on the response stream
    answered : a request that gets exactly one answer
    multimem : ``tx`` must be 1 (True), 0 (False), or either (None)
    targets : TX flits follow for a count above 0
    data : DATA flits follow, 1 to 16; else there are none
    byte_enable : a BE flit is allowed
    wants_data : address bits 3:0 are the DATA flits wanted - 1
    """

    response: bool = False
    answered: bool = False
    multimem: bool | None = False
    targets: bool = False
    data: bool = False
    byte_enable: bool = False
    wants_data: bool = False

    @property
    def min_data(self) -> int:
        """Fewest DATA flits."""
        return int(self.data)

    @property
    def max_data(self) -> int:
        """Most DATA flits."""
        return MAX_DATA_FLITS if self.data else 0


CMD_RULES: dict[Cmd, CmdRule] = {
    Cmd.NOP: CmdRule(),
    Cmd.RD: CmdRule(answered=True, wants_data=True),
    Cmd.WR: CmdRule(answered=True, data=True, byte_enable=True),
    Cmd.WRP: CmdRule(data=True, byte_enable=True),
    Cmd.RD_RSP: CmdRule(response=True, data=True),
    Cmd.WR_ACK: CmdRule(response=True),
    Cmd.ATOM: CmdRule(answered=True, data=True),
    Cmd.MM_ST: CmdRule(answered=True, multimem=True, targets=True, data=True, byte_enable=True),
    Cmd.MM_STP: CmdRule(multimem=True, targets=True, data=True, byte_enable=True),
    Cmd.MM_LDR: CmdRule(answered=True, multimem=True, targets=True, wants_data=True),
    Cmd.MM_RED: CmdRule(answered=True, multimem=True, targets=True, data=True),
    Cmd.MM_RSP: CmdRule(response=True, multimem=True, data=True),
    Cmd.MM_ACK: CmdRule(response=True, multimem=True),
    Cmd.NOTIFY: CmdRule(),
    Cmd.ERR: CmdRule(response=True, multimem=None),
}
"""The shape of every command, read by the parser, the codec and the documentation."""


def tx_flits(count):
    """TX flits that hold ``count`` target ids: ceil(count / 8).

    Works on an :class:`int` and on an Amaranth value alike; of the latter the low five bits count.
    """
    return (count + (TARGETS_PER_FLIT - 1)) >> (TARGETS_PER_FLIT.bit_length() - 1)


def link_of_chunk(address, *, links: int, chunk_bytes: int):
    """Link ``h`` of a GPU on which everything about one chunk travels.

    The chunk number (address bits 47 and below, without the offset in the chunk) folded by xor to
    ``log2(links)`` bits. Works on an :class:`int` and on an Amaranth value alike.

    Parameters
    ----------
    address : 48-bit multimem or plain address
    links : links a GPU, a power of two
    chunk_bytes : 128 or 256
    """
    bits = links.bit_length() - 1
    first = chunk_bytes.bit_length() - 1
    if isinstance(address, int):
        chunk = (address & (1 << 48) - 1) >> first
        return reduce(xor, (chunk >> low & links - 1 for low in range(0, 48, max(bits, 1))))
    chunk = Value.cast(address)[first:48]
    if not bits:
        return Const(0, 0)
    return reduce(xor, (chunk[low : low + bits] for low in range(0, len(chunk), bits)))[:bits]


class PacketError(ValueError):
    """Flits that are no packet of wire format v1; the text names field, value and rule."""


@dataclass
class Packet:
    """A packet in software; :meth:`encode` and :meth:`decode` are each other's inverse.

    Attributes
    ----------
    cmd : command
    tx : 1 if the address is a multimem address
    tag_port, tag_local : tag, 7 and 12 bits
    addr : plain 64-bit address (``tx = 0``)
    maddr, stage, count, attr : multimem address (``tx = 1``); ``attr`` is the 8-bit field
    targets : 16-bit target ids, ``count`` of them (only commands that carry a list)
    ae, be : the AE and BE flit, or None
    data : DATA flits, 128-bit integers
    crc, ack : the link layer's fields
    poison : the last flit carries the poison mark (not a wire bit; travels in ``tuser``)
    """

    cmd: Cmd
    tx: int = 0
    tag_port: int = 0
    tag_local: int = 0
    addr: int = 0
    maddr: int = 0
    stage: int = 0
    count: int = 0
    attr: int = 0
    targets: tuple[int, ...] = ()
    ae: int | None = None
    be: int | None = None
    data: tuple[int, ...] = ()
    crc: int = 0
    ack: int = 0
    poison: bool = field(default=False)

    @classmethod
    def multimem(
        cls,
        cmd: Cmd,
        *,
        maddr: int,
        targets: Sequence[int] = (),
        stage: int = 0,
        attr: int = 0,
        count: int | None = None,
        data: Iterable[int] = (),
        be: int | None = None,
        port: int = 0,
        local: int = 0,
    ) -> "Packet":
        """A multimem packet; ``count`` follows from ``targets`` unless given."""
        return cls(
            cmd,
            tx=1,
            tag_port=port,
            tag_local=local,
            maddr=maddr,
            stage=stage,
            count=len(targets) if count is None else count,
            attr=attr,
            targets=tuple(targets),
            be=be,
            data=tuple(data),
        )

    @classmethod
    def unicast(
        cls,
        cmd: Cmd,
        *,
        addr: int,
        data: Iterable[int] = (),
        be: int | None = None,
        ae: int | None = None,
        port: int = 0,
        local: int = 0,
    ) -> "Packet":
        """A packet with a plain address."""
        return cls(cmd, tag_port=port, tag_local=local, addr=addr, data=tuple(data), be=be, ae=ae)

    @property
    def flits(self) -> int:
        """Flits on the wire."""
        return (
            1
            + (self.ae is not None)
            + tx_flits(len(self.targets))
            + (self.be is not None)
            + len(self.data)
        )

    @property
    def status(self) -> Status:
        """Status of an ERR answer."""
        return Status(self.attr if self.tx else self.addr & 0xFF)

    def encode(self) -> list[int]:
        """Flits of the packet, HDR first, as 128-bit integers.

        Raises
        ------
        PacketError
            If the packet is longer than 32 flits or a field does not fit.
        """
        if self.flits > MAX_FLITS:
            raise PacketError(f"Packet must be at most {MAX_FLITS} flits, not {self.flits}")
        addr = self.addr
        if self.tx:
            addr = MultimemAddress.const(
                {
                    "maddr": self.maddr,
                    "stage": self.stage,
                    "count": self.count,
                    "attr": Attr.from_bits(self.attr),
                }
            ).as_bits()
        header = Header.const(
            {
                "crc": self.crc,
                "len": self.flits - 1,
                "ack": self.ack,
                "cmd": self.cmd,
                "ae": self.ae is not None,
                "be": self.be is not None,
                "tx": self.tx,
                "tag": {"local": self.tag_local, "port": self.tag_port},
                "addr": addr,
            }
        ).as_bits()
        flits = [header]
        if self.ae is not None:
            flits.append(self.ae)
        for first in range(0, len(self.targets), TARGETS_PER_FLIT):
            slots = list(self.targets[first : first + TARGETS_PER_FLIT])
            slots += [NO_TARGET] * (TARGETS_PER_FLIT - len(slots))
            flits.append(sum(slot << (TARGET_BITS * k) for k, slot in enumerate(slots)))
        if self.be is not None:
            flits.append(self.be)
        return flits + list(self.data)

    @classmethod
    def decode(cls, flits: Sequence[int], *, poison: bool = False) -> "Packet":
        """Read a packet from its flits.

        Raises
        ------
        PacketError
            If the command is reserved, or the flits do not agree with the header.
        """
        header = Header.from_bits(flits[0])
        if header.len + 1 != len(flits):
            raise PacketError(f"len must be flits - 1 = {len(flits) - 1}, not {header.len}")
        try:
            cmd = header.cmd
        except ValueError as error:
            raise PacketError(f"cmd must be a command: {error}") from None
        packet = cls(
            cmd,
            tx=header.tx,
            tag_port=header.tag.port,
            tag_local=header.tag.local,
            crc=header.crc,
            ack=header.ack,
            poison=poison,
        )
        if packet.tx:
            view = MultimemAddress.from_bits(header.addr)
            packet.maddr, packet.stage, packet.count = view.maddr, view.stage, view.count
            packet.attr = view.attr.as_bits()
        else:
            packet.addr = header.addr
        body = list(flits[1:])
        lists = tx_flits(packet.count) if packet.tx and CMD_RULES[cmd].targets else 0
        if len(body) < header.ae + lists + header.be:
            raise PacketError(
                f"len must leave room for ae, be and {lists} TX flits, not {header.len}"
            )
        if header.ae:
            packet.ae = body.pop(0)
        slots = [
            (flit >> (TARGET_BITS * k)) & NO_TARGET
            for flit in body[:lists]
            for k in range(TARGETS_PER_FLIT)
        ]
        packet.targets = tuple(slots[: packet.count]) if lists else ()
        del body[:lists]
        if header.be:
            packet.be = body.pop(0)
        packet.data = tuple(body)
        return packet

    def describe(self) -> dict[str, str]:
        """Fields by name, as text, for reports and mismatches; only those that mean something."""
        names = {"cmd": self.cmd.name, "tag": f"{self.tag_port}:{self.tag_local:#05x}"}
        if self.tx:
            names |= {
                "maddr": f"{self.maddr:#014x}",
                "stage": str(self.stage),
                "count": str(self.count),
                "attr": f"{self.attr:#04x}",
            }
        else:
            names["addr"] = f"{self.addr:#018x}"
        if self.cmd is Cmd.ERR:
            names["status"] = self.status.name
        if self.targets:
            names["targets"] = "[" + " ".join(f"{target:#06x}" for target in self.targets) + "]"
        for name in ("ae", "be"):
            if getattr(self, name) is not None:
                names[name] = f"{getattr(self, name):#034x}"
        for k, flit in enumerate(self.data):
            names[f"data[{k}]"] = f"{flit:#034x}"
        if self.poison:
            names["poison"] = "1"
        return names

    def __str__(self) -> str:
        return " ".join(f"{name}={text}" for name, text in self.describe().items())
