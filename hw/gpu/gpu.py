"""The network side of one GPU: source, destination and tracker round one memory port."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.hdl import Value
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from dysharp.hw.axi import ReadId, WriteId, axi4, axi4_lite
from dysharp.hw.config import Config
from dysharp.hw.csr import CsrBank
from dysharp.hw.gpu.axi_mux import AxiMux
from dysharp.hw.gpu.hub import hub_block
from dysharp.hw.gpu.instruction import Instruction, Result
from dysharp.hw.gpu.multimemq import multimemq_block
from dysharp.hw.gpu.token_tracker import token_tracker_block
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.link.link_mux import LinkMux
from dysharp.hw.link.packet_merge import PacketMerge
from dysharp.hw.packet import Header, Status, link_of_chunk
from dysharp.hw.registers import maps_of
from dysharp.hw.share import place

__all__ = ["GPU_LINK", "Gpu", "gpu_block"]

GPU_LINK = Signature(
    {
        "rx_req": In(FlitStream),
        "rx_rsp": In(FlitStream),
        "tx_req": Out(FlitStream),
        "tx_rsp": Out(FlitStream),
    }
)
"""Edge of one link, as the GPU sees it: a request and a response stream each way."""


class Gpu(Component):
    """MultimemQ, Hub, token tracker and registers of one GPU.

    Requests leave on the link of their chunk's address (:func:`link_of_chunk`), answers on the
    link on which their request came. Responses of all links are merged packet by packet before the
    MultimemQ, so several links together bring one response flit a cycle.

    Latency: that of the parts, two cycles more for requests, and one for responses. Throughput:
    see the parts; each link carries at most one flit a cycle of both classes together.

    Parameters
    ----------
    config : the configuration

    Source
    ------
    The DySHARP paper (the GPU's side: MultimemQ, Hub with AL manager, token tracker).
    """

    p: Any
    """Out(array of :data:`GPU_LINK`), one a link."""
    inst: stream.Interface
    """In(stream of Instruction), see :class:`MultimemQ`."""
    inst_data: stream.Interface
    """In(FlitStream), see :class:`MultimemQ`."""
    result: stream.Interface
    """Out(stream of Result), see :class:`MultimemQ`."""
    m_axi: Any
    """Out(axi4), memory; ids as in :mod:`dysharp.hw.axi`."""
    s_axil: Any
    """In(axi4_lite), registers."""

    def __init__(self, config: Config):
        self.config = config
        self.registers = maps_of(config)[1]
        super().__init__(
            {
                "p": Out(GPU_LINK).array(config.links),
                "inst": In(stream.Signature(Instruction)),
                "inst_data": In(FlitStream),
                "result": Out(stream.Signature(Result)),
                "m_axi": Out(axi4(data_width=config.gpu.memory_width)),
                "s_axil": In(axi4_lite(addr_width=self.registers.addr_width)),
            }
        )

    @property
    def module_name(self) -> str:
        """``<of the registers>_c<chunk>_a<GPU address bit>_h<Hub contexts>``."""
        config = self.config
        return (
            f"{self.registers.name}_c{config.chunk_bytes}_a{config.gpu_address_bit}"
            f"_h{config.gpu.hub_contexts}"
        )

    def elaborate(self, platform):
        """Source and destination side by side, then what they share: links, memory, registers."""
        m = Module()
        config = self.config
        queue = multimemq_block(config)
        hub = hub_block(config)
        tracker = token_tracker_block(config)
        bank: Any = CsrBank(registers=self.registers)
        m.submodules.multimemq = place(queue)
        m.submodules.hub = place(hub)
        m.submodules.tracker = place(tracker)
        m.submodules.registers = place(bank)

        connect(m, flipped(self.inst), queue.inst)
        connect(m, flipped(self.inst_data), queue.inst_data)
        connect(m, queue.result, flipped(self.result))
        for name in ("touch", "written", "notify"):
            connect(m, getattr(hub, name), getattr(tracker, name))
        self._links(m, queue, hub, tracker)
        self._memory(m, queue, hub)
        connect(m, flipped(self.s_axil), bank.bus)
        connect(m, bank.objects, hub.objects)
        connect(m, bank.experts, hub.experts)
        for name in ("tokens", "tiles", "notices", "shares"):
            connect(m, getattr(bank, name), getattr(tracker, name))
        m.d.comb += [
            hub.flush.object.eq(bank.tlb_flush.object),
            hub.flush.by_object.eq(bank.tlb_flush.by_object),
            hub.flush.whole.eq(bank.tlb_flush.whole),
            Value.cast(bank.tracker).eq(tracker.clearing),
        ]
        self._observe(m, queue, hub, bank)
        return m

    def _links(self, m: Module, queue, hub, tracker) -> None:
        """Requests to the link of their chunk, answers straight, responses on one stream."""
        links = self.config.links
        requests, responses = PacketMerge(count=2), PacketMerge(count=links)
        m.submodules.requests = place(requests)
        m.submodules.responses = place(responses)
        connect(m, queue.tx, requests.i[0])
        connect(m, tracker.tx, requests.i[1])
        connect(m, responses.o, queue.rx)

        header: Any = Signal(Header)
        inside = Signal()
        link, kept, chosen = (Signal(range(links), name=name) for name in ("link", "kept", "to"))
        m.d.comb += [
            header.eq(requests.o.p.data),
            link.eq(
                link_of_chunk(header.addr[:48], links=links, chunk_bytes=self.config.chunk_bytes)
            ),
            chosen.eq(Mux(inside, kept, link)),
        ]
        with m.If(requests.o.valid & requests.o.ready):
            m.d.sync += [inside.eq(~requests.o.p.last), kept.eq(chosen)]
        for k in range(links):
            edge = self.p[k]
            mux: Any = LinkMux()
            m.submodules[f"link{k}"] = place(mux)
            connect(m, flipped(edge.rx_req), hub.rx[k])
            connect(m, flipped(edge.rx_rsp), responses.i[k])
            connect(m, hub.tx[k], mux.i_rsp)
            connect(m, mux.o_req, flipped(edge.tx_req))
            connect(m, mux.o_rsp, flipped(edge.tx_rsp))
            m.d.comb += mux.i_req.payload.eq(requests.o.payload)
            with m.If(chosen == k):
                m.d.comb += [
                    mux.i_req.valid.eq(requests.o.valid),
                    requests.o.ready.eq(mux.i_req.ready),
                ]

    def _memory(self, m: Module, queue, hub) -> None:
        """One memory port; each read finds its way back by its id."""
        mux = AxiMux(
            data_width=self.config.gpu.memory_width,
            read_ids=(
                (ReadId.HUB_DATA.value, ReadId.AL_WALK.value),
                (ReadId.LIST_FETCH.value,),
            ),
            write_ids=((WriteId.HUB_DATA.value, WriteId.AL_TABLE.value), ()),
        )
        m.submodules.memory = place(mux)
        connect(m, hub.m_axi, mux.masters[0])
        for name, member in queue.m_axi.signature.members.items():
            ours, theirs = getattr(queue.m_axi, name), getattr(mux.masters[1], name)
            m.d.comb += theirs.eq(ours) if member.flow == Out else ours.eq(theirs)
        connect(m, mux.m_axi, flipped(self.m_axi))

    def _observe(self, m: Module, queue, hub, bank) -> None:
        """Counters and the error log, a cycle late, so that they bound no path."""
        counts, error = bank.events, hub.error
        edges = list(self.p)
        for name in ("rx_req", "rx_rsp", "tx_req", "tx_rsp"):
            moved = [getattr(edge, name).valid & getattr(edge, name).ready for edge in edges]
            m.d.sync += counts[f"{name}_flits"].eq(sum(moved))
        for way in ("rx", "tx"):
            both = [getattr(edge, f"{way}_{kind}") for edge in edges for kind in ("req", "rsp")]
            m.d.sync += counts[f"{way}_stalls"].eq(sum(one.valid & ~one.ready for one in both))
        done = self.result.valid & self.result.ready & self.result.p.last
        m.d.sync += [
            counts.dropped.eq(
                queue.events.unknown + queue.events.malformed + hub.events.lost_notice
            ),
            counts.tlb_hits.eq(hub.events.tlb_hits),
            counts.tlb_misses.eq(hub.events.tlb_misses),
            counts.tlb_walks.eq(hub.events.tlb_walks),
            counts.first_touches.eq(hub.events.first_touches),
            counts.stores.eq(hub.events.stores),
            counts.load_reduces.eq(hub.events.loads),
            counts.memory_reads.eq(hub.events.memory_reads),
            counts.memory_writes.eq(hub.events.memory_writes),
            counts.queue_full.eq(self.inst.valid & ~self.inst.ready),
            counts.instructions.eq(self.inst.valid & self.inst.ready),
            counts.results.eq(done),
            counts.faults.eq(done & (self.result.p.fault != Status.OK)),
            bank.first_error.valid.eq(error.valid),
            bank.first_error.status.eq(error.status),
            bank.first_error.port.eq(error.port),
            bank.first_error.cmd.eq(Value.cast(error.cmd)),
            bank.first_error.addr.eq(error.addr),
        ]
        for field, _ in bank.errors.shape():
            found = error.valid & (error.status == Status[field.upper()].value)
            if field == "malformed":  # what the parsers dropped is in no record
                found = found + hub.events.malformed
            m.d.sync += [bank.errors[field].eq(found != 0), counts[f"error_{field}"].eq(found)]


def gpu_block(config: Config) -> Gpu:
    """The network side of a GPU."""
    return Gpu(config)
