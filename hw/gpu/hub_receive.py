"""The Hub's receive side: takes packets apart, whole ones only go on."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.gpu.hub_payload import PayloadFlit
from dysharp.hw.gpu.hub_records import LINK_BITS, HubRequest, Notice, record
from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.packet import FLIT_BITS, Cmd, Header
from dysharp.hw.share import place
from dysharp.hw.switch.parser import FlitKind, ParsedFlit

__all__ = ["LIST_FLITS", "HubReceive"]

LIST_FLITS = 32
"""TX flits that wait; one packet has at most 16."""
REQUESTS = 4


class HubReceive(Component):
    """Sorts the flits of well-formed packets into requests, lists and payloads.

    A request is handed on when its last flit is there, with all its TX flits in ``lists`` and its
    DATA flits in the payload buffer. Packets of several links take turns. NOTIFY goes out on
    ``notify``, a poisoned one nowhere. AE flits are left out: nothing that has one is supported.

    Latency: one cycle from the last flit. Throughput: one flit a cycle over all links.

    Parameters
    ----------
    links : links of the GPU
    """

    i: Any
    """In(array of stream of ParsedFlit), one a link."""
    o: stream.Interface
    """Out(stream of HubRequest)."""
    lists: stream.Interface
    """Out(stream of 128 bits), the TX flits of request after request."""
    payload: stream.Interface
    """Out(stream of PayloadFlit), to the payload buffer."""
    notify: stream.Interface
    """Out(stream of Notice); requests behind wait until it is taken."""
    lost_notice: Signal
    """Out, a poisoned NOTIFY is dropped."""

    def __init__(self, *, links: int):
        if not 1 <= links <= 1 << LINK_BITS:
            raise ValueError(f"Links must be in 1..{1 << LINK_BITS}, not {links!r}")
        self.links = links
        super().__init__(
            {
                "i": In(stream.Signature(ParsedFlit)).array(links),
                "o": Out(stream.Signature(HubRequest)),
                "lists": Out(stream.Signature(FLIT_BITS)),
                "payload": Out(stream.Signature(PayloadFlit)),
                "notify": Out(stream.Signature(Notice)),
                "lost_notice": Out(1),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_receive_<links>``."""
        return f"hub_receive_{self.links}"

    def elaborate(self, platform):
        """One link at a time, then each flit to its place by kind."""
        m = Module()
        m.submodules.requests = place(requests := Fifo(shape=HubRequest, depth=REQUESTS))
        m.submodules.list_queue = place(lists := Fifo(shape=FLIT_BITS, depth=LIST_FLITS))
        flit, valid, link, take = self._choose(m)

        kept, kept_flits = record(Header), Signal(5)
        header, data_flits = record(Header), Signal(5)
        is_header, is_data, is_notice = Signal(), Signal(), Signal()
        m.d.comb += [
            is_header.eq(flit.kind == FlitKind.HDR),
            is_data.eq(flit.kind == FlitKind.DATA),
            header.eq(Mux(is_header, flit.data, kept)),
            data_flits.eq(Mux(is_header, 0, kept_flits) + is_data),
            is_notice.eq(header.cmd == Cmd.NOTIFY),
        ]

        to_list, to_payload = Signal(), Signal()
        room = Signal()
        m.d.comb += [
            to_list.eq(flit.kind == FlitKind.TX),
            to_payload.eq(is_data | (flit.kind == FlitKind.BE)),
            room.eq(
                requests.i.ready
                & (~to_list | lists.i.ready)
                & (~to_payload | self.payload.ready)
                & (~is_notice | self.notify.ready)
            ),
            take.eq(valid & room),
            lists.i.valid.eq(take & to_list),
            lists.i.payload.eq(flit.data),
            # ``ready`` of the payload buffer does not depend on ``valid``.
            self.payload.valid.eq(valid & requests.i.ready & to_payload),
            self.payload.p.data.eq(flit.data),
            self.payload.p.index.eq(kept_flits),
            self.payload.p.enables.eq(~is_data),
            self.payload.p.first.eq(is_data & (kept_flits == 0)),
            self.payload.p.last.eq(flit.last),
            # Once a packet, at its last flit, where poison counts: an AE flit may follow HDR.
            self.notify.valid.eq(valid & requests.i.ready & is_notice & flit.last & ~flit.poison),
            self.notify.p.object.eq(header.notify.object),
            self.notify.p.token.eq(header.notify.token),
            self.lost_notice.eq(take & is_notice & flit.poison),
        ]
        with m.If(take):
            m.d.sync += [kept.eq(header), kept_flits.eq(data_flits)]

        request = requests.i.payload
        m.d.comb += [
            requests.i.valid.eq(take & flit.last & ~is_notice),
            request.cmd.eq(header.cmd),
            request.tx.eq(header.tx),
            request.tag.eq(header.tag),
            request.addr.eq(header.addr),
            request.link.eq(link),
            request.data_flits.eq(data_flits),
            request.poison.eq(flit.poison),
        ]
        connect(m, requests.o, flipped(self.o))
        connect(m, lists.o, flipped(self.lists))
        return m

    def _choose(self, m: Module):
        """Packet by packet, in turn: flit, whether there is one, its link, and what takes it."""
        flit, valid = record(ParsedFlit), Signal()
        link, take = Signal(LINK_BITS), Signal()
        if self.links == 1:
            m.d.comb += [
                flit.eq(self.i[0].payload),
                valid.eq(self.i[0].valid),
                self.i[0].ready.eq(take),
            ]
            return flit, valid, link, take
        m.submodules.turns = place(turns := RoundRobin(count=self.links))
        inside = Signal()
        held, chosen = Signal(self.links), Signal(self.links)
        m.d.comb += [
            turns.request.eq(Cat(port.valid for port in self.i)),
            chosen.eq(Mux(inside, held, turns.grant)),
            turns.advance.eq(take & ~inside),
        ]
        for k, port in enumerate(self.i):
            m.d.comb += port.ready.eq(chosen[k] & take)
            with m.If(chosen[k]):
                m.d.comb += [
                    flit.eq(Value.cast(port.payload)),
                    valid.eq(port.valid),
                    link.eq(k),
                ]
        with m.If(take):
            m.d.sync += [inside.eq(~flit.last), held.eq(chosen)]
        return flit, valid, link, take
