"""One output of the buffered crossbar: a queue for every input and class, and their readers."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import AGE_BITS, MAX_FLITS, Header, PruneInfo
from dysharp.hw.share import place
from dysharp.hw.switch.packet_queue import Lane, PacketQueue
from dysharp.hw.switch.queue_reader import QueueReader

__all__ = ["Broadcast", "Column", "Contribution", "Lanes"]


def Broadcast(ports: int) -> Signature:
    """How an ingress writes one class of packets into the crossbar: one flit bus, a bit an output.

    Parameters
    ----------
    ports : outputs

    Members
    -------
    flit : Out, one flit a cycle, the same for every output
    push : Out, a bit an output: this flit enters its queue in this cycle
    credit : In, a bit an output: a flit has left its queue; registered. Who writes counts them
        (:class:`~dysharp.hw.switch.credits.Credits`) and pushes only what has room.
    """
    return Signature(
        {
            "flit": Out(Flit),
            "push": Out(ports),
            "credit": In(ports),
        }
    )


Lanes = Signature({"req": Out(Lane), "rsp": Out(Lane)})
"""Both classes of one input."""


class Contribution(data.Struct):
    """A flit for the reduction unit, and the port it came in at.

    Members
    -------
    flit : flit of an MM_RSP, MM_ACK or ERR packet with ``tx = 1``
    source : input of the crossbar, the same for all flits of a packet
    """

    flit: Flit
    source: 7


class Column(Component):
    """The queues of one output, and the two readers that empty them in parallel.

    Every input has a queue for requests and one for responses. Requests go to the link. Responses
    go to the link (``tx = 0``) or to the reduction unit (``tx = 1``), so that contributions never
    use the link's cycle; one response queue feeds at most one of the two at a time.

    Latency: a flit pushed at t can be taken at t + 1; its credit is at the ingress at t + 2.
    Throughput: each of the three outputs one flit a cycle, whole packets.

    If no whole packet waits, one may leave before all of it has come (the ingress writes a packet
    that it has begun without waiting for any other queue); an output can then pause for as long as
    that input does.

    Parameters
    ----------
    ports : inputs
    request_depth, response_depth : flits of a queue; the longest packet must fit
    """

    inputs: Any
    """In(array of :data:`Lanes`)."""
    now: Signal
    """In, the time, for the age of requests."""
    request: stream.Interface
    """Out(FlitStream), packets for the link's request class."""
    response: stream.Interface
    """Out(FlitStream), unicast responses for the link's response class."""
    contribution: stream.Interface
    """Out(stream of :class:`Contribution`), for the reduction unit."""

    def __init__(self, *, ports: int, request_depth: int, response_depth: int):
        if not 2 <= ports <= 72:
            raise ValueError(f"Ports must be 2 to 72, not {ports!r}")
        for name, depth in (("Request", request_depth), ("Response", response_depth)):
            if depth < MAX_FLITS:
                raise ValueError(f"{name} depth must be at least {MAX_FLITS}, not {depth!r}")
        self.ports = ports
        self.request_depth, self.response_depth = request_depth, response_depth
        super().__init__(
            {
                "inputs": In(Lanes).array(ports),
                "now": In(AGE_BITS),
                "request": Out(FlitStream),
                "response": Out(FlitStream),
                "contribution": Out(stream.Signature(Contribution)),
            }
        )

    @property
    def module_name(self) -> str:
        """``column_<ports>_q<request depth>x<response depth>``."""
        return f"column_{self.ports}_q{self.request_depth}x{self.response_depth}"

    def elaborate(self, platform):
        """Queues, then a reader for each of the three ways out."""
        m = Module()
        requests = [
            self._queue(m, f"req{k}", lane.req, self.request_depth)
            for k, lane in enumerate(self.inputs)
        ]
        responses = [
            self._queue(m, f"rsp{k}", lane.rsp, self.response_depth)
            for k, lane in enumerate(self.inputs)
        ]
        request = QueueReader(count=self.ports, age_bits=AGE_BITS)
        response, contribution = (QueueReader(count=self.ports) for _ in range(2))
        m.submodules.read_request = place(request)
        m.submodules.read_response = place(response)
        m.submodules.read_contribution = place(contribution)

        m.d.comb += request.now.eq(self.now)
        for k, queue in enumerate(requests):
            header: Any = data.View(Header, queue.o.payload.data)
            m.d.comb += [
                request.born[k].eq(data.View(PruneInfo, header.crc).born),
                request.whole[k].eq(queue.whole),
                request.flits[k].eq(queue.o.payload),
                request.valid[k].eq(queue.o.valid),
                request.starts[k].eq(queue.o.valid),
                queue.o.ready.eq(request.take[k]),
            ]

        for k, queue in enumerate(responses):
            within = Signal(name=f"within{k}")
            is_header = queue.o.valid & ~within
            header: Any = data.View(Header, queue.o.payload.data)
            is_contribution = header.tx
            taken = Signal(name=f"taken{k}")
            m.d.comb += [
                taken.eq(response.take[k] | contribution.take[k]),
                queue.o.ready.eq(taken),
                response.starts[k].eq(is_header & ~is_contribution),
                contribution.starts[k].eq(is_header & is_contribution),
            ]
            for reader in (response, contribution):
                m.d.comb += [
                    reader.flits[k].eq(queue.o.payload),
                    reader.valid[k].eq(queue.o.valid),
                    reader.whole[k].eq(queue.whole),
                ]
            with m.If(taken):
                m.d.sync += within.eq(~queue.o.payload.last)

        m.d.comb += [
            self.contribution.valid.eq(contribution.o.valid),
            self.contribution.payload.flit.eq(contribution.o.payload),
            self.contribution.payload.source.eq(contribution.index),
            contribution.o.ready.eq(self.contribution.ready),
        ]
        connect(m, request.o, flipped(self.request))
        connect(m, response.o, flipped(self.response))
        return m

    def _queue(self, m: Module, name: str, lane, depth: int) -> PacketQueue:
        m.submodules[name] = place(queue := PacketQueue(depth=depth))
        connect(m, flipped(lane), queue.lane)
        return queue
