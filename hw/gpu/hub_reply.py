"""The Hub's answers, in the order of the requests."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.gpu.hub_records import LINK_BITS, STATUS_BITS, HubError, Ticket, record
from dysharp.hw.link.fifo import Fifo, Skid
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import FLIT_BITS, Cmd, Header
from dysharp.hw.share import place
from dysharp.hw.switch.error_answer import ErrorAnswer, error_header

__all__ = ["HubReply", "ReplyEvents"]


class ReplyEvents(data.Struct):
    """Pulses, one a packet.

    Members
    -------
    stores : a multimem store is done without an error
    loads : a multimem load-reduce is done without an error
    errors : an ERR leaves, or a posted packet ends in an error
    """

    stores: 1
    loads: 1
    errors: 1


class HubReply(Component):
    """Makes the answer of each ticket, when its status is known, and sends it by its link.

    Posted packets end here without an answer. ERR 1 of packets that were no packets is slipped in
    between two answers, so it may overtake answers to older requests.

    Latency: 2 cycles. Throughput: a flit a cycle over all links, no bubble between answers.

    Parameters
    ----------
    links : links of the GPU
    contexts : packets that wait for their answer
    group : flits in a word of ``result``
    """

    ticket: stream.Interface
    """In(stream of Ticket)."""
    stored: stream.Interface
    """In(stream of a status), of the next packet that stores."""
    loaded: stream.Interface
    """In(stream of a status), of the next packet that loads."""
    result: stream.Interface
    """In(stream of ``group`` flits), data of loads."""
    refused: Any
    """In(array of stream of ErrorAnswer), one a link."""
    tx: Any
    """Out(array of FlitStream), one a link."""
    error: Any
    """Out(HubError), for the error log; refused packets are not in it."""
    events: Any
    """Out(ReplyEvents)."""

    def __init__(self, *, links: int, contexts: int, group: int):
        if contexts < 1:
            raise ValueError(f"Contexts must be at least 1, not {contexts!r}")
        self.links, self.contexts, self.group = links, contexts, group
        super().__init__(
            {
                "ticket": In(stream.Signature(Ticket)),
                "stored": In(stream.Signature(STATUS_BITS)),
                "loaded": In(stream.Signature(STATUS_BITS)),
                "result": In(stream.Signature(group * FLIT_BITS)),
                "refused": In(stream.Signature(ErrorAnswer)).array(links),
                "tx": Out(FlitStream).array(links),
                "error": Out(HubError),
                "events": Out(ReplyEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_reply_<links>_c<contexts>_g<group>``."""
        return f"hub_reply_{self.links}_c{self.contexts}_g{self.group}"

    def elaborate(self, platform):
        """Headers when the status is there, then data; a register stage a link."""
        m = Module()
        m.submodules.tickets = place(tickets := Fifo(shape=Ticket, depth=max(2, self.contexts)))
        connect(m, flipped(self.ticket), tickets.i)
        out, valid, link, ready = self._links(m)
        ticket = tickets.o.payload
        status = Signal(STATUS_BITS)
        posted, loads, known, sends_data, end = (
            Signal(name=name) for name in ("posted", "loads", "known", "sends_data", "end")
        )
        m.d.comb += [
            posted.eq((ticket.cmd == Cmd.MM_STP) | (ticket.cmd == Cmd.WRP)),
            loads.eq((ticket.cmd == Cmd.RD) | (ticket.cmd == Cmd.MM_LDR)),
            status.eq(Mux(loads, self.loaded.payload, self.stored.payload)),
            known.eq(tickets.o.valid & Mux(loads, self.loaded.valid, self.stored.valid)),
            sends_data.eq(loads & (status == 0)),
            tickets.o.ready.eq(end),
            self.loaded.ready.eq(end & loads),
            self.stored.ready.eq(end & ~loads),
        ]
        self._report(m, end, ticket, status)

        group_bits = ceil_log2(self.group)
        index = Signal(4)
        refused, refused_link, take_refused = self._refused(m)
        header = self._header(m, ticket, status, loads, sends_data)
        with m.FSM():
            with m.State("HEADER"):
                with m.If(refused.valid):
                    m.d.comb += [
                        valid.eq(1),
                        link.eq(refused_link),
                        out.data.eq(error_header(m, refused.answer)),
                        out.last.eq(1),
                        take_refused.eq(ready),
                    ]
                with m.Elif(known):
                    m.d.comb += [
                        valid.eq(~posted),
                        link.eq(ticket.link),
                        out.data.eq(header),
                        out.last.eq(~sends_data),
                        end.eq((ready | posted) & ~sends_data),
                    ]
                    with m.If(ready & sends_data):
                        m.next = "DATA"
            with m.State("DATA"):
                m.d.comb += [
                    valid.eq(self.result.valid),
                    link.eq(ticket.link),
                    out.data.eq(
                        self.result.payload.word_select(index[:group_bits], FLIT_BITS)
                        if group_bits
                        else self.result.payload
                    ),
                    out.last.eq(index == ticket.addr[:4]),
                    end.eq(valid & ready & out.last),
                    self.result.ready.eq(
                        valid & ready & (out.last | (index[:group_bits] == self.group - 1))
                    ),
                ]
                with m.If(valid & ready):
                    m.d.sync += index.eq(Mux(out.last, 0, index + 1))
                    with m.If(out.last):
                        m.next = "HEADER"
        return m

    def _links(self, m: Module):
        """A flit, whether there is one, the link it goes to, and whether that link takes it."""
        out, valid = record(Flit), Signal()
        link, ready = Signal(LINK_BITS), Signal()
        for k, port in enumerate(self.tx):
            m.submodules[f"out{k}"] = place(held := Skid(shape=Flit))
            here = link == k
            m.d.comb += [
                held.i.valid.eq(valid & here),
                held.i.payload.eq(out),
            ]
            connect(m, held.o, flipped(port))
            with m.If(here):
                m.d.comb += ready.eq(held.i.ready)
        return out, valid, link, ready

    def _refused(self, m: Module):
        """The lowest link's ErrorAnswer, its link, and what takes it."""
        chosen = record(data.StructLayout({"answer": ErrorAnswer, "valid": 1}))
        link, take = Signal(LINK_BITS), Signal()
        for k in reversed(range(self.links)):
            with m.If(self.refused[k].valid):
                m.d.comb += [
                    chosen.valid.eq(1),
                    chosen.answer.eq(self.refused[k].payload),
                    link.eq(k),
                ]
            m.d.comb += self.refused[k].ready.eq(take & (link == k))
        return chosen, link, take

    def _header(self, m: Module, ticket, status, loads, sends_data):
        """First flit of the answer to a ticket."""
        header, asked = record(Header), record(Header)
        count = Signal(7)
        m.d.comb += [
            asked.addr.eq(ticket.addr),
            # A static access stands for one entry.
            count.eq(Mux(asked.multimem.count == 0, 1, asked.multimem.count)),
            header.len.eq(Mux(sends_data, ticket.addr[:4] + 1, 0)),
            header.tx.eq(ticket.tx),
            header.tag.eq(ticket.tag),
            header.addr.eq(ticket.addr),
        ]
        with m.If(status != 0):
            m.d.comb += header.cmd.eq(Cmd.ERR)
        with m.Elif(ticket.tx):
            m.d.comb += header.cmd.eq(Mux(loads, Cmd.MM_RSP, Cmd.MM_ACK))
        with m.Else():
            m.d.comb += header.cmd.eq(Mux(loads, Cmd.RD_RSP, Cmd.WR_ACK))
        with m.If(ticket.tx):
            m.d.comb += [
                header.multimem.count.eq(count),
                Value.cast(header.multimem.attr).eq(status),
            ]
        with m.Elif(status != 0):
            m.d.comb += header.addr.eq(status)
        return Value.cast(header)

    def _report(self, m: Module, end, ticket, status) -> None:
        m.d.comb += [
            self.error.valid.eq(end & (status != 0)),
            self.error.status.eq(status),
            self.error.port.eq(ticket.tag.port),
            self.error.cmd.eq(ticket.cmd),
            self.error.addr.eq(ticket.addr),
            self.events.errors.eq(self.error.valid),
            self.events.loads.eq(end & (status == 0) & (ticket.cmd == Cmd.MM_LDR)),
            self.events.stores.eq(
                end & (status == 0) & ((ticket.cmd == Cmd.MM_ST) | (ticket.cmd == Cmd.MM_STP))
            ),
        ]
