"""The parser: takes flits, hands on well-formed packets, answers for the others."""

from typing import Any

from amaranth import Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.config import Config
from dysharp.hw.link.fifo import Skid
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.packet import (
    CHUNK_BYTES,
    CMD_RULES,
    FLIT_BITS,
    FLIT_BYTES,
    MAX_BE_DATA_FLITS,
    Cmd,
    Header,
    Status,
    tx_flits,
)
from dysharp.hw.parameters import LIMIT_BITS
from dysharp.hw.share import place
from dysharp.hw.switch.error_answer import ErrorAnswer, Fault

__all__ = [
    "FlitKind",
    "ParsedFlit",
    "Parser",
    "ParserEvents",
    "parser_block",
    "response_parser_block",
]


class FlitKind(enum.Enum, shape=3):
    """What a flit of a packet is."""

    HDR = 0
    AE = 1
    TX = 2
    BE = 3
    DATA = 4


class ParsedFlit(data.Struct):
    """A flit of a packet that is known to be well formed.

    Members
    -------
    data : 128 bits
    kind : what it is
    last : the packet's last flit
    poison : with ``last``: the packet's content is not to be trusted
    """

    data: FLIT_BITS
    kind: FlitKind
    last: 1
    poison: 1


class ParserEvents(data.Struct):
    """Pulses, one a packet.

    Members
    -------
    packets : a packet begins to be handed on
    wrong_stream : a request came among responses or the other way round, and is dropped
    misframed : a packet is cut or padded to its length, or its source has stopped
    """

    packets: 1
    wrong_stream: 1
    misframed: 1


class _Rule(data.Struct):
    """:class:`~dysharp.hw.packet.CmdRule` in bits; all zero for a reserved command."""

    known: 1
    right_stream: 1
    answered: 1
    plain: 1
    multimem: 1
    targets: 1
    min_data: 5
    max_data: 5
    byte_enable: 1
    wants_data: 1
    stores: 1


class Parser(Component):
    """Checks packets against their first flit and gives every flit its kind.

    A packet whose HDR is wrong is dropped whole: a reserved command, a command of the other stream,
    ``len`` that does not agree with ae, be, tx, count and command, ae with tx, be where there is
    none, an address that is not aligned or crosses a chunk. If it is a request that expects an
    answer (a reserved command is one), ``error`` says so; others are counted. NOP vanishes.

    If ``tlast`` disagrees with ``len``, the packet is cut or padded (with ones, so that a list that
    was cut off names no target) to ``len``, and its last flit is poison. Poison that comes in
    counts on a packet's last flit only. ``crc`` and ``ack``, the link layer's, leave as zero.

    A source that stops inside of a packet for ``stall_limit`` cycles has it padded as if it had
    ended there, so it holds no queue for longer; what it sends later is dropped up to ``tlast``.

    Latency: one cycle, or none for one that is not ``registered``. Throughput: one flit a cycle,
    without a bubble between packets; a packet that is padded holds ``i`` for as many cycles as
    flits are missing. ``error`` comes from registers; ``o`` and ``i.ready`` too if ``registered``,
    else ``o`` follows ``i`` and ``i.ready`` follows ``o.ready``. Stalls while ``o`` or ``error`` is
    full.

    Parameters
    ----------
    responses : parse a stream of responses; else one of requests
    chunk_bytes : 128 or 256
    registered : ``o`` is a queue of two entries; without it whoever reads ``o`` has the register

    Source
    ------
    Wire format v1 (``docs/packet.md``): malformed packets, framing, poison.
    """

    i: stream.Interface
    """In(FlitStream)."""
    stall_limit: Signal
    """In, cycles without a flit inside of a packet; 0, as if left open, for any number."""
    o: stream.Interface
    """Out(stream of ParsedFlit)."""
    error: stream.Interface
    """Out(stream of ErrorAnswer), status 1; never from a response stream."""
    fault: Any
    """Out(Fault), a pulse a packet that is dropped, but for NOP."""
    events: Any
    """Out(ParserEvents)."""

    def __init__(self, *, responses: bool, chunk_bytes: int, registered: bool = True):
        if chunk_bytes not in CHUNK_BYTES:
            raise ValueError(f"Chunk bytes must be 128 or 256, not {chunk_bytes!r}")
        self.responses, self.chunk_bytes = bool(responses), chunk_bytes
        self.registered = bool(registered)
        super().__init__(
            {
                "i": In(FlitStream),
                "stall_limit": In(LIMIT_BITS),
                "o": Out(stream.Signature(ParsedFlit)),
                "error": Out(stream.Signature(ErrorAnswer)),
                "fault": Out(Fault),
                "events": Out(ParserEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``parser_<req|rsp>_<chunk bytes>[_comb]``."""
        kind = "rsp" if self.responses else "req"
        return f"parser_{kind}_{self.chunk_bytes}" + ("" if self.registered else "_comb")

    def elaborate(self, platform):
        """Check the header, follow the packet, then the register stages."""
        m = Module()
        m.submodules.errors = place(errors := Skid(shape=ErrorAnswer))
        o: Any = self.o
        if self.registered:
            m.submodules.out = place(out := Skid(shape=ParsedFlit))
            connect(m, out.o, flipped(self.o))
            o = out.i
        flit = self.i.payload
        header: Any = Signal(Header)
        m.d.comb += header.eq(flit.data)
        rule = self._rule(m, header.cmd)
        well_formed = self._check(m, header, rule)
        is_nop = header.cmd == Cmd.NOP

        left = Signal(5)
        lists_left = Signal(5)
        has_ae, has_be = Signal(), Signal()
        dropping, padding = Signal(), Signal()
        room, accept, at_header, begin, refuse = (
            Signal(name=name) for name in ("room", "accept", "at_header", "begin", "refuse")
        )
        m.d.comb += [
            room.eq(o.ready & errors.i.ready),
            self.i.ready.eq(room & ~padding),
            accept.eq(self.i.valid & self.i.ready),
            at_header.eq(~dropping & (left == 0)),
            begin.eq(accept & at_header & well_formed),
            refuse.eq(accept & at_header & ~well_formed),
        ]

        word: Any = Signal(ParsedFlit)
        still_left = Signal(5)
        is_last, offer, emit, misframed = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            still_left.eq(Mux(at_header, header.len, left - 1)),
            is_last.eq(still_left == 0),
            misframed.eq(~padding & (flit.last != is_last)),
            word.data.eq(Mux(padding, ~0, flit.data)),
            word.last.eq(is_last),
            word.poison.eq(is_last & (padding | misframed | flit.poison)),
        ]
        with m.If(at_header):
            m.d.comb += [
                word.kind.eq(FlitKind.HDR),
                word.data.eq(_without_link_fields(m, header)),
            ]
        with m.Elif(has_ae):
            m.d.comb += word.kind.eq(FlitKind.AE)
        with m.Elif(lists_left != 0):
            m.d.comb += word.kind.eq(FlitKind.TX)
        with m.Elif(has_be):
            m.d.comb += word.kind.eq(FlitKind.BE)
        with m.Else():
            m.d.comb += word.kind.eq(FlitKind.DATA)

        with m.If(emit):
            m.d.sync += left.eq(still_left)
            with m.If(at_header):
                m.d.sync += [
                    has_ae.eq(header.ae),
                    has_be.eq(header.be),
                    lists_left.eq(Mux(rule.targets, tx_flits(header.multimem.count), 0)),
                ]
            with m.Elif(has_ae):
                m.d.sync += has_ae.eq(0)
            with m.Elif(lists_left != 0):
                m.d.sync += lists_left.eq(lists_left - 1)
            with m.Else():
                m.d.sync += has_be.eq(0)
            with m.If(padding):
                m.d.sync += padding.eq(~is_last)
            with m.Elif(misframed):
                m.d.sync += [dropping.eq(is_last), padding.eq(~is_last)]
        gives_up = self._watch(m, (left != 0) & ~padding & ~self.i.valid)
        abandoned = Signal()
        with m.If(gives_up):
            m.d.sync += [padding.eq(1), abandoned.eq(1)]
        with m.If(padding & emit & is_last):
            m.d.sync += [dropping.eq(abandoned), abandoned.eq(0)]
        with m.If(refuse):
            m.d.sync += dropping.eq(~flit.last)
        with m.If(dropping & accept):
            m.d.sync += dropping.eq(~flit.last)

        m.d.comb += [
            offer.eq(padding | self.i.valid & Mux(at_header, well_formed, ~dropping)),
            emit.eq(offer & room),
            o.valid.eq(offer & errors.i.ready),
            Value.cast(o.payload).eq(Value.cast(word)),
        ]
        answer = errors.i.payload
        m.d.comb += [
            answer.tag.eq(header.tag),
            answer.tx.eq(header.tx),
            answer.status.eq(Status.MALFORMED),
            answer.maddr.eq(header.multimem.maddr),
            answer.stage.eq(header.multimem.stage),
            answer.count.eq(header.multimem.count),
        ]
        connect(m, errors.o, flipped(self.error))
        is_answered = 0 if self.responses else rule.answered | ~rule.known
        m.d.comb += [
            self.fault.valid.eq(refuse & ~is_nop),
            self.fault.status.eq(Status.MALFORMED),
            self.fault.answered.eq(is_answered),
            self.fault.cmd.eq(Value.cast(header.cmd)),
            self.fault.addr.eq(header.addr),
            errors.i.valid.eq(self.fault.valid & is_answered),
            self.events.packets.eq(begin),
            self.events.wrong_stream.eq(self.fault.valid & rule.known & ~rule.right_stream),
            self.events.misframed.eq(emit & misframed | gives_up),
        ]
        return m

    def _watch(self, m: Module, waits) -> Signal:
        """Whether the source has stopped for too long."""
        waited = Signal(len(self.stall_limit))
        gives_up = Signal()
        m.d.comb += gives_up.eq(waits & (self.stall_limit != 0) & (waited >= self.stall_limit))
        m.d.sync += waited.eq(Mux(waits & ~gives_up, waited + 1, 0))
        return gives_up

    def _rule(self, m: Module, cmd) -> Any:
        """The command's rule, looked up."""
        rule: Any = Signal(_Rule)
        with m.Switch(Value.cast(cmd)):
            for key, entry in CMD_RULES.items():
                with m.Case(key):
                    right = entry.response == self.responses and key is not Cmd.NOP
                    fields = {
                        "known": 1,
                        "right_stream": right,
                        "answered": entry.answered,
                        "plain": not entry.multimem,
                        "multimem": entry.multimem is not False,
                        "targets": entry.targets,
                        "min_data": entry.min_data,
                        "max_data": entry.max_data,
                        "byte_enable": entry.byte_enable,
                        "wants_data": entry.wants_data,
                        # An atomic's address is aligned to its element, which only its AE tells.
                        "stores": entry.min_data > 0 and not entry.response and key is not Cmd.ATOM,
                    }
                    m.d.comb += rule.eq(_Rule.const(fields))
        return rule

    def _check(self, m: Module, header, rule) -> Signal:
        """Whether the header is one of a well-formed packet of this stream."""
        chunk_flits = self.chunk_bytes // FLIT_BYTES
        lists, touched = Signal(5), Signal(5)
        data_flits = Signal(signed(7))
        low = header.addr[:4]
        first = header.addr[4 : 4 + (chunk_flits - 1).bit_length()]
        length_fits, kinds_fit, is_aligned, in_chunk, well_formed = (
            Signal(name=name)
            for name in ("length_fits", "kinds_fit", "is_aligned", "in_chunk", "well_formed")
        )
        m.d.comb += [
            lists.eq(Mux(rule.targets, tx_flits(header.multimem.count), 0)),
            data_flits.eq(header.len - header.ae - header.be - lists),
            length_fits.eq(
                (data_flits >= rule.min_data)
                & (data_flits <= rule.max_data)
                & ~(header.be & (data_flits > MAX_BE_DATA_FLITS))
            ),
            kinds_fit.eq(
                Mux(header.tx, rule.multimem & ~header.ae, rule.plain)
                & (rule.byte_enable | ~header.be)
            ),
            touched.eq(Mux(rule.wants_data, low + 1, data_flits[:5])),
            is_aligned.eq(~rule.stores | (low == 0)),
            in_chunk.eq(~(rule.stores | rule.wants_data) | (first + touched <= chunk_flits)),
            well_formed.eq(rule.right_stream & length_fits & kinds_fit & is_aligned & in_chunk),
        ]
        return well_formed


def _without_link_fields(m: Module, header) -> Value:
    """The header with the link layer's fields zero."""
    inside: Any = Signal(Header)
    m.d.comb += [inside.eq(header), inside.crc.eq(0), inside.ack.eq(0)]
    return Value.cast(inside)


def parser_block(config: Config) -> Parser:
    """The parser of a switch port's requests, as a block of its own."""
    return Parser(responses=False, chunk_bytes=config.chunk_bytes, registered=False)


def response_parser_block(config: Config) -> Parser:
    """The parser of a switch port's responses, as a block of its own."""
    return Parser(responses=True, chunk_bytes=config.chunk_bytes)
