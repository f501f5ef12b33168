"""The Hub: serves the requests of other GPUs on this GPU's memory."""

from typing import Any

from amaranth import Module
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.alu.reductions import DEFAULT_ARITHMETIC, Arithmetic
from dysharp.hw.axi import ReadId, WriteId, axi4
from dysharp.hw.config import Config
from dysharp.hw.gpu.al_manager import AlManager, AlTouch
from dysharp.hw.gpu.al_tlb import AlFlush, check_tlb_shape
from dysharp.hw.gpu.axi_mux import AxiMux
from dysharp.hw.gpu.hub_entries import HubEntries
from dysharp.hw.gpu.hub_lookup import HubLookup
from dysharp.hw.gpu.hub_payload import HubPayload
from dysharp.hw.gpu.hub_reader import HubReader
from dysharp.hw.gpu.hub_receive import HubReceive
from dysharp.hw.gpu.hub_records import LINK_BITS, HubError, Notice, Written
from dysharp.hw.gpu.hub_reduce import HubReduce
from dysharp.hw.gpu.hub_reply import HubReply
from dysharp.hw.gpu.hub_table import HubTable
from dysharp.hw.gpu.hub_writer import HubWriter
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.packet import CHUNK_BYTES, FLIT_BITS
from dysharp.hw.registers import gpu_experts, gpu_objects
from dysharp.hw.share import place
from dysharp.hw.switch.parser import Parser

__all__ = ["Hub", "HubEvents", "hub_block"]

REDUCE_FLITS = 2
"""Flits that the reduction takes a cycle, if a beat has as many."""


class HubEvents(data.Struct):
    """Pulses for the performance counters.

    Members
    -------
    tlb_hits, tlb_misses, tlb_walks, first_touches : of the AL manager
    full : a first touch finds its expert full; one for each entry of each packet
    stores, loads : a multimem store or load-reduce is done without an error
    errors : an ERR leaves, or a posted packet ends in an error; ERR 1 of the parser not included
    malformed : the parsers dropped this many packets
    lost_notice : a poisoned NOTIFY is dropped
    memory_reads, memory_writes : a beat comes from, or goes to, memory
    memory_errors : memory refused an access to the AL table
    """

    tlb_hits: 1
    tlb_misses: 1
    tlb_walks: 1
    first_touches: 1
    full: 1
    stores: 1
    loads: 1
    errors: 1
    malformed: 6
    lost_notice: 1
    memory_reads: 1
    memory_writes: 1
    memory_errors: 1


class Hub(Component):
    """Stores, loads and reduces for the experts that packets list; answers each packet once.

    Every packet is buffered whole, its object looked up, its list walked; each entry becomes one
    access at ``vbase[stage] + (row0[slot] + LIdx) * bsize[stage] + offset``. MM_ST and MM_STP store
    the payload for each entry. MM_LDR reads all entries, reduces them in list order and rounds
    once. An empty list is one access at ``vbase[stage] + maddr - base``. RD, WR and WRP go to the
    low bits of their address. Answers keep the order of requests.

    Latency: about 20 cycles and memory's. Throughput: a flit a cycle in and out, over all links
    together; a beat a cycle of memory; :data:`REDUCE_FLITS` flits a cycle of reduction.

    Errors: an answer is a result if all entries succeed, else ERR with the smallest status and the
    count of all entries; the other entries of a store are stored. For the whole packet, the
    smallest first: ``MALFORMED`` (row, offset, static range), ``UNKNOWN_OBJECT``, ``UNSUPPORTED``
    (ATOM, MM_RED, reductions that are not built), ``POISONED``. For an entry: ``UNMAPPED_INDEX``,
    ``POISONED`` (memory refused a read or a write), ``UNKNOWN_TARGET`` (slot not in use),
    ``QUOTA_EXCEEDED``.

    Forward progress: ``rready`` and ``bready`` are always high; a read leaves only when its data
    has a place. ``tx`` that stands still stops ``rx`` in the end, nothing else.

    Parameters
    ----------
    links : links of the GPU
    chunk_bytes : 128 or 256
    objects, slots : entries of the object table; local experts that an object can have
    gpu_address_bit : plain addresses have their memory address below this bit
    memory_width : bits of a memory beat, 128 to 1024
    tlb_entries, tlb_ways : of the AL-TLB
    contexts : packets in flight, at least 2
    arithmetic : types that MM_LDR reduces, and how

    ``notify``, ``touch`` and ``written`` must be taken within a bounded time that depends on
    nothing the Hub does.

    Source
    ------
    The DySHARP paper's Hub: AL manager, AL-TLB, address formula.
    """

    rx: Any
    """In(array of FlitStream), requests, one a link."""
    tx: Any
    """Out(array of FlitStream), answers, one a link."""
    m_axi: Any
    """Out(axi4), read and write ids ``HUB_DATA``, ``AL_WALK`` and ``AL_TABLE``."""
    objects: Any
    """In(window_port), object table."""
    experts: Any
    """In(window_port), rows of the local experts."""
    flush: Any
    """In(AlFlush), to the AL-TLB."""
    notify: stream.Interface
    """Out(stream of Notice), every NOTIFY that came in; requests behind it wait."""
    touch: stream.Interface
    """Out(stream of AlTouch), layout indices given at first touch."""
    written: stream.Interface
    """Out(stream of Written), rows whose write memory has answered, once a packet for each distinct
    expert.
    """
    error: Any
    """Out(HubError), for the error log."""
    events: Any
    """Out(HubEvents)."""

    def __init__(
        self,
        *,
        links: int = 1,
        chunk_bytes: int = 128,
        objects: int = 16,
        slots: int = 64,
        gpu_address_bit: int = 40,
        memory_width: int = 512,
        tlb_entries: int = 512,
        tlb_ways: int = 4,
        contexts: int = 16,
        arithmetic: Arithmetic = DEFAULT_ARITHMETIC,
    ):
        check_tlb_shape(entries=tlb_entries, ways=tlb_ways, objects=objects, slots=slots)
        for noun, value, low, high in (
            ("Links", links, 1, 1 << LINK_BITS),
            ("GPU address bit", gpu_address_bit, 16, 41),
            ("Contexts", contexts, 2, 256),
        ):
            if not low <= value <= high:
                raise ValueError(f"{noun} must be in {low}..{high}, not {value!r}")
        if chunk_bytes not in CHUNK_BYTES:
            raise ValueError(f"Chunk bytes must be 128 or 256, not {chunk_bytes!r}")
        if memory_width not in (128, 256, 512, 1024):
            raise ValueError(f"Memory width must be 128, 256, 512 or 1024, not {memory_width!r}")
        self.links, self.chunk_bytes = links, chunk_bytes
        self.object_entries, self.slots = objects, slots
        self.gpu_address_bit, self.memory_width = gpu_address_bit, memory_width
        self.tlb_entries, self.tlb_ways, self.contexts = tlb_entries, tlb_ways, contexts
        self.arithmetic = arithmetic
        super().__init__(
            {
                "rx": In(FlitStream).array(links),
                "tx": Out(FlitStream).array(links),
                "m_axi": Out(axi4(data_width=memory_width)),
                "objects": In(gpu_objects(objects=objects).port),
                "experts": In(gpu_experts(objects=objects, slots=slots).port),
                "flush": In(AlFlush),
                "notify": Out(stream.Signature(Notice)),
                "touch": Out(stream.Signature(AlTouch)),
                "written": Out(stream.Signature(Written)),
                "error": Out(HubError),
                "events": Out(HubEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_l<links>_c<chunk>_o<objects>x<slots>_a<bit>_w<width>_t<entries>x<ways>_n<contexts>``,
        and the arithmetic's name.
        """
        return (
            f"hub_l{self.links}_c{self.chunk_bytes}_o{self.object_entries}x{self.slots}"
            f"_a{self.gpu_address_bit}_w{self.memory_width}"
            f"_t{self.tlb_entries}x{self.tlb_ways}_n{self.contexts}_{self.arithmetic.name}"
        )

    def elaborate(self, platform):
        """Receive, look up, walk the list; then store or load; then reply."""
        m = Module()
        width, chunk = self.memory_width, self.chunk_bytes
        group = min(REDUCE_FLITS, width // FLIT_BITS)
        m.submodules.receive = place(receive := HubReceive(links=self.links))
        m.submodules.table = place(table := HubTable(objects=self.object_entries, slots=self.slots))
        m.submodules.lookup = place(
            lookup := HubLookup(
                objects=self.object_entries,
                gpu_address_bit=self.gpu_address_bit,
                dtypes=self.arithmetic.dtypes,
            )
        )
        m.submodules.entries = place(
            entries := HubEntries(objects=self.object_entries, slots=self.slots)
        )
        m.submodules.al_manager = place(
            al := AlManager(
                data_width=width,
                entries=self.tlb_entries,
                ways=self.tlb_ways,
                objects=self.object_entries,
                slots=self.slots,
            )
        )
        m.submodules.payload = place(
            payload := HubPayload(data_width=width, chunk_bytes=chunk, packets=self.contexts)
        )
        m.submodules.writer = place(
            writer := HubWriter(data_width=width, bursts=max(16, 4 * self.contexts))
        )
        m.submodules.reader = place(
            reader := HubReader(data_width=width, chunk_bytes=chunk, places=2 * self.contexts)
        )
        m.submodules.reduce = place(
            reduce := HubReduce(
                data_width=width, chunk_bytes=chunk, group=group, arithmetic=self.arithmetic
            )
        )
        m.submodules.reply = place(
            reply := HubReply(links=self.links, contexts=self.contexts, group=group)
        )
        m.submodules.memory = place(
            memory := AxiMux(
                data_width=width,
                read_ids=((ReadId.HUB_DATA.value,), (ReadId.AL_WALK.value,)),
                write_ids=((WriteId.HUB_DATA.value,), (WriteId.AL_TABLE.value,)),
            )
        )

        malformed = []
        for k in range(self.links):
            parser = Parser(responses=False, chunk_bytes=chunk)
            m.submodules[f"parser{k}"] = place(parser)
            connect(m, flipped(self.rx[k]), parser.i)
            connect(m, parser.o, receive.i[k])
            connect(m, parser.error, reply.refused[k])
            connect(m, reply.tx[k], flipped(self.tx[k]))
            malformed.append(parser.fault.valid)
        connect(m, receive.notify, flipped(self.notify))
        connect(m, receive.payload, payload.i)
        connect(m, receive.o, lookup.i)
        connect(m, lookup.ticket, reply.ticket)
        connect(m, lookup.o, entries.i)
        connect(m, receive.lists, entries.lists)
        connect(m, entries.ask, al.i)
        connect(m, al.o, entries.answer)
        connect(m, al.touch, flipped(self.touch))
        connect(m, writer.written, flipped(self.written))
        connect(m, writer.run, payload.run)
        connect(m, reader.o, reduce.i)
        connect(m, writer.o, reply.stored)
        connect(m, reduce.o, reply.loaded)
        connect(m, reduce.result, reply.result)
        self._tables(m, table, lookup, entries, al)
        self._choose(m, entries.o, writer.i, reader.i)
        self._memory(m, memory, writer, payload, reader, reduce)
        connect(m, al.m_axi, memory.masters[1])
        connect(m, memory.m_axi, flipped(self.m_axi))

        axi = self.m_axi
        m.d.comb += [
            al.flush.eq(self.flush),
            self.error.eq(reply.error),
            self.events.tlb_hits.eq(al.events.hit),
            self.events.tlb_misses.eq(al.events.miss),
            self.events.tlb_walks.eq(al.events.walk),
            self.events.first_touches.eq(al.events.first_touch),
            self.events.full.eq(al.events.full),
            self.events.stores.eq(reply.events.stores),
            self.events.loads.eq(reply.events.loads),
            self.events.errors.eq(reply.events.errors),
            self.events.malformed.eq(sum(malformed)),
            self.events.lost_notice.eq(receive.lost_notice),
            self.events.memory_reads.eq(axi.rvalid & axi.rready),
            self.events.memory_writes.eq(axi.wvalid & axi.wready),
            self.events.memory_errors.eq(al.events.memory_error),
        ]
        return m

    def _tables(self, m: Module, table, lookup, entries, al) -> None:
        """The table beside those who look into it."""
        connect(m, flipped(self.objects), table.csr_objects)
        connect(m, flipped(self.experts), table.csr_experts)
        m.d.comb += [
            table.maddr.eq(lookup.maddr),
            lookup.hit.eq(table.hit),
            lookup.object.eq(table.object),
            lookup.delta.eq(table.delta),
            lookup.size.eq(table.size),
            table.entry_en.eq(lookup.entry_en),
            table.entry_object.eq(lookup.entry_object),
            lookup.entry.eq(table.entry),
            table.row0_en.eq(entries.row0_en),
            table.row0_index.eq(entries.row0_index),
            entries.row0.eq(table.row0),
            table.quota_en.eq(al.quota_en),
            table.quota_index.eq(al.quota_index),
            al.quota.eq(table.quota),
            table.used_en.eq(al.used_en),
            table.used_index.eq(al.used_index),
            table.used.eq(al.used),
            al.used_ready.eq(table.used_ready),
        ]

    def _choose(self, m: Module, access, writer, reader) -> None:
        """Loads to the reader, all else to the writer: it knows what has a payload."""
        load = access.p.load
        for sink, mine in ((writer, ~load), (reader, load)):
            m.d.comb += [
                sink.valid.eq(access.valid & mine),
                sink.payload.eq(access.payload),
            ]
            with m.If(mine):
                m.d.comb += access.ready.eq(sink.ready)

    def _memory(self, m: Module, memory, writer, payload, reader, reduce) -> None:
        """Reader and writer as one master."""
        bus = memory.masters[0]
        size = ceil_log2(self.memory_width // 8)
        for channel, source, number in (
            ("aw", writer.aw, WriteId.HUB_DATA),
            ("ar", reader.ar, ReadId.HUB_DATA),
        ):
            m.d.comb += [
                getattr(bus, f"{channel}valid").eq(source.valid),
                source.ready.eq(getattr(bus, f"{channel}ready")),
                getattr(bus, f"{channel}id").eq(number),
                getattr(bus, f"{channel}addr").eq(source.p.addr),
                getattr(bus, f"{channel}len").eq(source.p.len),
                getattr(bus, f"{channel}size").eq(size),
                getattr(bus, f"{channel}burst").eq(1),
            ]
        m.d.comb += [
            bus.wvalid.eq(payload.o.valid),
            bus.wdata.eq(payload.o.p.data),
            bus.wstrb.eq(payload.o.p.strb),
            bus.wlast.eq(payload.o.p.last),
            payload.o.ready.eq(bus.wready),
            bus.bready.eq(1),
            writer.b_valid.eq(bus.bvalid),
            writer.b_error.eq(bus.bresp[1]),
            bus.rready.eq(1),
            reader.r_valid.eq(bus.rvalid),
            reader.r_data.eq(bus.rdata),
            reader.r_error.eq(bus.rresp[1]),
            reader.word_en.eq(reduce.word_en),
            reader.word.eq(reduce.word),
            reduce.word_data.eq(reader.word_data),
        ]


def hub_block(config: Config) -> Hub:
    """The Hub of a GPU."""
    return Hub(
        links=config.links,
        chunk_bytes=config.chunk_bytes,
        objects=config.objects,
        slots=config.gpu.slots,
        gpu_address_bit=config.gpu_address_bit,
        memory_width=config.gpu.memory_width,
        tlb_entries=config.gpu.tlb_entries,
        tlb_ways=config.gpu.tlb_ways,
        contexts=max(2, config.gpu.hub_contexts),
        arithmetic=config.arithmetic,
    )
