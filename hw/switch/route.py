"""Route: which ports a request goes to, or why it may not."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.alu.reductions import check_dtypes, dtypes_name, is_supported
from dysharp.hw.config import Config
from dysharp.hw.link.fifo import Skid
from dysharp.hw.packet import (
    CHUNK_BYTES,
    CMD_RULES,
    NO_TARGET,
    TARGET_BITS,
    TARGETS_PER_FLIT,
    Attr,
    Cmd,
    Dtype,
    Header,
    NotifyAddress,
    Status,
    Tag,
    link_of_chunk,
    tx_flits,
)
from dysharp.hw.share import place
from dysharp.hw.switch.error_answer import ErrorAnswer, Fault
from dysharp.hw.switch.object_table import ObjectEntry, entry_of, hits
from dysharp.hw.switch.parser import FlitKind, ParsedFlit
from dysharp.hw.switch.route_record import RoutedFlit, RouteRecord

__all__ = ["Route", "route_block"]

_PLACES = range(TARGETS_PER_FLIT)


class _Facts(data.StructLayout):
    """What is known from the header on; kept for the list."""

    def __init__(self, *, gpus: int, links: int):
        super().__init__(
            {
                "known": 1,
                "unsupported": 1,
                "stranger": 1,
                "members": gpus,
                "link": max(1, links.bit_length() - 1),
                "record": RouteRecord(ports=gpus * links),
                "tag": Tag,
                "tx": 1,
                "addr": 64,
            }
        )


class _ReadFlit(data.StructLayout):
    """A parsed flit with what the first stage read in it."""

    def __init__(self, *, gpus: int, objects: int):
        super().__init__(
            {
                "flit": ParsedFlit,
                "hit": objects,
                "targets": gpus,
                "unknown": 1,
                "unused_set": 1,
                "list_ends": 1,
            }
        )


class Route(Component):
    """Looks a request up, checks every target, and says which ports it goes to.

    A multimem request belongs to the object that holds all of its addresses. Its ports are those
    of the GPUs that its list names (the object's preset group if the list is empty), on the link
    that the chunk's address selects. A unicast request goes to the GPU that its address names.

    Refusals; if several apply the smallest status wins: an unused TX slot that is not 0xFFFF (1),
    no object (2), what cannot be done (5: ATOM, a reduction that the build does not compute, attr
    without a type), a GPU or slot that does not exist, 0xFFFF in a used slot or an empty group (7),
    a source or a target that is no member (9). What nothing is wrong with, but would go to a
    ``failed`` port, is refused as well (3). A refused request that expects an answer gets one
    through ``error``; a posted one shows in ``fault`` alone.

    Latency: one cycle, and the record comes together with the flit that decides it: HDR, or the
    last TX flit. So a list costs nothing but its own flits. Throughput: one flit a cycle, without
    a bubble, refused or not. ``i.ready`` comes from a register. Stalls while ``o`` or ``error`` is
    full.

    Parameters
    ----------
    gpus, links : GPUs, and ports of each; port = GPU * links + link
    objects : entries of the object table
    chunk_bytes : 128 or 256
    gpu_address_bit : lowest of the seven bits of a plain address that name its GPU
    dtypes : types that can be reduced

    Source
    ------
    The DySHARP paper: a target's GPU is its number over the experts of a GPU, and finding it takes
    at most one cycle more than static routing does.
    """

    i: stream.Interface
    """In(stream of ParsedFlit), well-formed requests."""
    gpu: Signal
    """In, the GPU at this port; constant."""
    objects: Any
    """In(array of ObjectEntry)."""
    failed: Signal
    """In, a bit a port: no request goes there."""
    o: stream.Interface
    """Out(stream of RoutedFlit)."""
    error: stream.Interface
    """Out(stream of ErrorAnswer)."""
    fault: Any
    """Out(Fault), a pulse a refused packet."""

    def __init__(
        self,
        *,
        gpus: int,
        links: int,
        objects: int,
        chunk_bytes: int,
        gpu_address_bit: int,
        dtypes: tuple[Dtype, ...],
    ):
        if links < 1 or links & links - 1:
            raise ValueError(f"Links must be a power of two, not {links!r}")
        if chunk_bytes not in CHUNK_BYTES:
            raise ValueError(f"Chunk bytes must be 128 or 256, not {chunk_bytes!r}")
        if not 16 <= gpu_address_bit <= 41:
            raise ValueError(f"GPU address bit must be from 16 to 41, not {gpu_address_bit!r}")
        check_dtypes(dtypes)
        self.gpus, self.links, self.ports = gpus, links, gpus * links
        self.object_count = objects
        self.chunk_bytes, self.gpu_address_bit = chunk_bytes, gpu_address_bit
        self.dtypes = dtypes
        super().__init__(
            {
                "i": In(stream.Signature(ParsedFlit)),
                "gpu": In(7),
                "objects": In(data.ArrayLayout(ObjectEntry(gpus=gpus), objects)),
                "failed": In(self.ports),
                "o": Out(stream.Signature(RoutedFlit(ports=self.ports))),
                "error": Out(stream.Signature(ErrorAnswer)),
                "fault": Out(Fault),
            }
        )

    @property
    def module_name(self) -> str:
        """``route_<gpus>x<links>_o<objects>_c<chunk bytes>_a<address bit>_<types>``."""
        return (
            f"route_{self.gpus}x{self.links}_o{self.object_count}_c{self.chunk_bytes}"
            f"_a{self.gpu_address_bit}_{dtypes_name(self.dtypes)}"
        )

    def elaborate(self, platform):
        """Read each flit on its own, one register stage, then judge the packet."""
        m = Module()
        read_shape = _ReadFlit(gpus=self.gpus, objects=self.object_count)
        m.submodules.stage = place(stage := Skid(shape=read_shape))
        m.submodules.errors = place(errors := Skid(shape=ErrorAnswer))
        self._read(m, stage.i)
        self._judge(m, stage.o, errors.i)
        connect(m, errors.o, flipped(self.error))
        return m

    def _read(self, m: Module, o) -> None:
        """Find the objects that a header hits, and the GPUs that a TX flit names."""
        flit, read = self.i.payload, o.payload
        header: Any = Signal(Header, name="arriving")
        m.d.comb += header.eq(flit.data)
        accept = Signal()
        m.d.comb += [
            o.valid.eq(self.i.valid),
            self.i.ready.eq(o.ready),
            accept.eq(self.i.valid & o.ready),
            read.flit.eq(flit),
        ]

        hit = Signal(self.object_count)
        places_left = Signal(7)
        m.d.comb += read.hit.eq(
            Cat(hits(self.objects, header.multimem.maddr, _touched_flits(header)))
        )
        with m.If(accept):
            with m.If(flit.kind == FlitKind.HDR):
                m.d.sync += [hit.eq(read.hit), places_left.eq(header.multimem.count)]
            with m.Elif(flit.kind == FlitKind.TX):
                m.d.sync += places_left.eq(places_left - TARGETS_PER_FLIT)

        split, slots = Signal(4), Signal(11)
        for k in reversed(range(self.object_count)):
            with m.If(hit[k]):
                m.d.comb += [split.eq(self.objects[k].split), slots.eq(self.objects[k].slots)]
        unknown, unused_set = Signal(TARGETS_PER_FLIT), Signal(TARGETS_PER_FLIT)
        named = []
        for k in _PLACES:
            target = Signal(TARGET_BITS, name=f"target{k}")
            gpu = Signal(TARGET_BITS, name=f"gpu{k}")
            used = places_left > k
            is_none = target == NO_TARGET
            slot = target & ((1 << split) - 1)
            m.d.comb += [
                target.eq(flit.data.word_select(k, TARGET_BITS)),
                gpu.eq(target >> split),
                unknown[k].eq(used & (is_none | (gpu >= self.gpus) | (slot >= slots))),
                unused_set[k].eq(~used & ~is_none),
            ]
            named.append(Mux(used, Cat(gpu == g for g in range(self.gpus)), 0))
        targets = named[0]
        for bits in named[1:]:
            targets |= bits
        m.d.comb += [
            read.targets.eq(targets),
            read.unknown.eq(unknown.any()),
            read.unused_set.eq(unused_set.any()),
            read.list_ends.eq(places_left <= TARGETS_PER_FLIT),
        ]

    def _judge(self, m: Module, i, errors) -> None:
        """Gather what the flits of a packet say; with the last of them decide."""
        read = i.payload
        is_header, is_list = Signal(), Signal()
        m.d.comb += [
            is_header.eq(read.flit.kind == FlitKind.HDR),
            is_list.eq(read.flit.kind == FlitKind.TX),
        ]
        facts, has_list, group = self._header_facts(m, read)
        kept: Any = Signal.like(facts, name="kept")
        now: Any = Signal.like(facts, name="now")
        m.d.comb += now.eq(Mux(is_header, facts, kept))

        named, unknown, unused_set = Signal(self.gpus), Signal(), Signal()
        all_named = Signal(self.gpus)
        all_unknown, any_unused_set, outsiders = Signal(), Signal(), Signal()
        with m.If(is_header):
            m.d.comb += [all_named.eq(group), all_unknown.eq(now.tx & ~group.any())]
        with m.Else():
            m.d.comb += [
                all_named.eq(named | read.targets),
                all_unknown.eq(unknown | read.unknown),
                any_unused_set.eq(unused_set | read.unused_set),
            ]
        m.d.comb += outsiders.eq(now.tx & (all_named & ~now.members).any())

        plain_gpu = self._plain_gpu(m, now)
        wanted, failed = Signal(self.gpus), Signal(self.gpus)
        for gpu in range(self.gpus):
            links = self.failed[gpu * self.links : (gpu + 1) * self.links]
            m.d.comb += [
                wanted[gpu].eq(Mux(now.tx, all_named[gpu], plain_gpu == gpu)),
                failed[gpu].eq(links.bit_select(now.link, 1)),
            ]

        status, refused, decided = Signal(Status), Signal(), Signal()
        with m.If(any_unused_set):
            m.d.comb += status.eq(Status.MALFORMED)
        with m.Elif(~now.known):
            m.d.comb += status.eq(Status.UNKNOWN_OBJECT)
        with m.Elif(now.unsupported):
            m.d.comb += status.eq(Status.UNSUPPORTED)
        with m.Elif(Mux(now.tx, all_unknown, plain_gpu >= self.gpus)):
            m.d.comb += status.eq(Status.UNKNOWN_TARGET)
        with m.Elif(outsiders | now.stranger):
            m.d.comb += status.eq(Status.NOT_A_MEMBER)
        with m.Elif((wanted & failed).any()):
            m.d.comb += status.eq(Status.TIMEOUT)
        m.d.comb += [
            refused.eq(Value.cast(status) != 0),
            decided.eq(Mux(is_header, ~has_list, is_list & read.list_ends)),
        ]

        dropping = Signal()
        transfer = Signal()
        out = self.o.payload
        m.d.comb += [
            self.o.valid.eq(i.valid & ~dropping & errors.ready),
            i.ready.eq(dropping | (self.o.ready & errors.ready)),
            transfer.eq(self.o.valid & self.o.ready),
            out.flit.data.eq(read.flit.data),
            out.flit.last.eq(read.flit.last),
            out.flit.poison.eq(read.flit.poison),
            out.decided.eq(decided),
            out.record.eq(now.record),
            out.record.refused.eq(refused),
        ]
        for gpu in range(self.gpus):
            for link in range(self.links):
                m.d.comb += out.record.session.ports[gpu * self.links + link].eq(
                    wanted[gpu] & (now.link == link)
                )

        with m.If(transfer):
            with m.If(is_header):
                m.d.sync += [kept.eq(facts), named.eq(0), unknown.eq(0), unused_set.eq(0)]
            with m.Elif(is_list):
                m.d.sync += [
                    named.eq(all_named),
                    unknown.eq(all_unknown),
                    unused_set.eq(any_unused_set),
                ]
            with m.If(decided & refused):
                m.d.sync += dropping.eq(~read.flit.last)
        with m.If(dropping & i.valid):
            m.d.sync += dropping.eq(~read.flit.last)
        self._report(m, now, status, transfer & decided & refused, errors)

    def _header_facts(self, m: Module, read):
        """Facts of a header, whether TX flits follow, and the GPUs if none do."""
        header: Any = Signal(Header)
        facts: Any = Signal(_Facts(gpus=self.gpus, links=self.links))
        entry = entry_of(m, self.objects, read.hit)
        address = header.multimem
        attr: Any = Signal(Attr)
        is_static = address.count == 0
        is_load = header.cmd == Cmd.MM_LDR
        reduces = is_load | (header.cmd == Cmd.MM_RED)
        stated = Value.cast(address.attr)
        m.d.comb += [
            header.eq(read.flit.data),
            attr.eq(Mux(stated == 0, entry.attr, address.attr)),
        ]
        untyped = (stated != 0) & (address.attr.dtype == Dtype.NONE)

        record, session = facts.record, facts.record.session
        m.d.comb += [
            facts.known.eq(~header.tx | read.hit.any()),
            facts.unsupported.eq(
                (header.cmd == Cmd.ATOM)
                | header.tx & untyped
                | reduces & ~is_supported(attr, self.dtypes)
            ),
            facts.members.eq(entry.members),
            facts.stranger.eq(
                header.tx & ~entry.members.bit_select(self.gpu[: (self.gpus - 1).bit_length()], 1)
            ),
            facts.link.eq(
                link_of_chunk(header.addr[:48], links=self.links, chunk_bytes=self.chunk_bytes)
            ),
            facts.tag.eq(header.tag),
            facts.tx.eq(header.tx),
            facts.addr.eq(header.addr),
            record.posted.eq(_is_posted(header.cmd)),
            record.needs_session.eq((header.cmd == Cmd.MM_ST) | reduces),
            record.len.eq(header.len),
            record.split.eq(Mux(header.tx & ~is_static, entry.split, 0)),
            session.local.eq(header.tag.local),
            session.cmd.eq(header.cmd),
            session.count.eq(Mux(is_static, entry.group_size, address.count)),
            session.attr.eq(attr),
            session.flits.eq(Mux(is_load, address.maddr[:4] + 1, 0)),
            session.maddr.eq(address.maddr),
            session.stage.eq(address.stage),
        ]
        return facts, header.tx & ~is_static, entry.group

    def _plain_gpu(self, m: Module, now) -> Signal:
        """The GPU that a plain address names; NOTIFY has its own address, the same in any build."""
        notice: Any = data.View(NotifyAddress, now.addr)
        gpu = Signal(7, name="plain_gpu")
        m.d.comb += gpu.eq(
            Mux(
                now.record.session.cmd == Cmd.NOTIFY,
                notice.gpu,
                now.addr[self.gpu_address_bit : self.gpu_address_bit + 7],
            )
        )
        return gpu

    def _report(self, m: Module, now, status, refuse, errors) -> None:
        """Answer for a refused packet, or only tell of it."""
        address: Any = Signal(Header, name="address")
        answer = errors.payload
        m.d.comb += [
            address.addr.eq(now.addr),
            answer.tag.eq(now.tag),
            answer.tx.eq(now.tx),
            answer.status.eq(status),
            answer.maddr.eq(address.multimem.maddr),
            answer.stage.eq(address.multimem.stage),
            answer.count.eq(address.multimem.count),
            errors.valid.eq(refuse & ~now.record.posted),
            self.fault.valid.eq(refuse),
            self.fault.status.eq(status),
            self.fault.answered.eq(~now.record.posted),
            self.fault.cmd.eq(Value.cast(now.record.session.cmd)),
            self.fault.addr.eq(now.addr),
        ]


def _touched_flits(header) -> Value:
    """Flits of the object that a multimem request touches."""
    stored = header.len - header.be - tx_flits(header.multimem.count)
    return Mux(header.cmd == Cmd.MM_LDR, header.addr[:4] + 1, stored[:5])


def _is_posted(cmd) -> Value:
    posted = [key for key, rule in CMD_RULES.items() if not rule.answered and not rule.response]
    return Cat(cmd == key for key in posted).any()


def route_block(config: Config) -> Route:
    """The route of one port, as a block of its own."""
    return Route(
        gpus=config.gpus,
        links=config.links,
        objects=config.objects,
        chunk_bytes=config.chunk_bytes,
        gpu_address_bit=config.gpu_address_bit,
        dtypes=config.arithmetic.dtypes,
    )
