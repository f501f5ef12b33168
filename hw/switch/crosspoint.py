"""One output of the buffered crossbar: a queue for every input and class, and their readers."""

from typing import Any

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import MAX_FLITS, Header
from dysharp.hw.parameters import MIN_QUEUE_DEPTH
from dysharp.hw.share import place

__all__ = ["Broadcast", "Lane", "Lanes", "Contribution", "QueueReader", "Column"]


def Broadcast(ports: int) -> Signature:
    """How an ingress writes one class of packets into the crossbar: one flit bus, a bit an output.

    Parameters
    ----------
    ports : outputs

    Members
    -------
    flit : Out, one flit a cycle, the same for every output
    push : Out, a bit an output: this flit enters its queue in this cycle
    want : Out, flits of the packet that is to go next, 1 to 32
    fits : In, a bit an output: its queue has room for ``want`` flits even if a flit is pushed in
        this very cycle. It depends on ``want`` and registers only, never on ``push``. A queue that
        fits stays so until the next push.
    """
    return Signature(
        {
            "flit": Out(Flit),
            "push": Out(ports),
            "want": Out(range(MAX_FLITS + 1)),
            "fits": In(ports),
        }
    )


Lane = Signature(
    {
        "flit": Out(Flit),
        "push": Out(1),
        "want": Out(range(MAX_FLITS + 1)),
        "fits": In(1),
    }
)
"""One output's share of a :func:`Broadcast`, as the ingress sees it."""

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


class QueueReader(Component):
    """Takes whole packets from the heads of ``count`` queues, in turn.

    Latency: none from a queue's head once it is chosen; one cycle to choose it. Throughput: one
    flit a cycle and no bubble between packets, neither from different queues (the next one is
    chosen while the last flit leaves) nor from one queue (the choice rests where it was).
    Fairness: round robin by packet; a queue that has just been served is passed over once.

    Parameters
    ----------
    count : queues
    """

    valid: Signal
    """In, a bit a queue: its head is a flit."""
    starts: Signal
    """In, a bit a queue: its head is the header of a packet that this reader takes."""
    flits: Any
    """In, the heads."""
    take: Signal
    """Out, a bit a queue: its head is taken in this cycle."""
    o: stream.Interface
    """Out(FlitStream), the packets."""
    index: Signal
    """Out, the queue that ``o`` comes from."""

    def __init__(self, *, count: int):
        if count < 1:
            raise ValueError(f"Count must be at least 1, not {count!r}")
        self.count = count
        super().__init__(
            {
                "valid": In(count),
                "starts": In(count),
                "flits": In(data.ArrayLayout(Flit, count)),
                "take": Out(count),
                "o": Out(FlitStream),
                "index": Out(range(count)),
            }
        )

    @property
    def module_name(self) -> str:
        """``queue_reader_<count>``."""
        return f"queue_reader_{self.count}"

    def elaborate(self, platform):
        """A registered choice selects the head; the next choice is made when it is not needed."""
        m = Module()
        turn = RoundRobin(count=self.count)
        m.submodules.turn = place(turn)
        within = Signal()
        chosen = Signal(self.count)
        starts = Signal()
        transfer = Signal()
        free = Signal()

        head = Array(self.flits[k] for k in range(self.count))[self.index]
        m.d.comb += [
            chosen.eq(1 << self.index),
            starts.eq((self.starts & chosen).any()),
            self.o.valid.eq(Mux(within, (self.valid & chosen).any(), starts)),
            self.o.payload.eq(head),
            transfer.eq(self.o.valid & self.o.ready),
            self.take.eq(Mux(transfer, chosen, 0)),
        ]
        with m.If(transfer):
            m.d.sync += within.eq(~self.o.payload.last)

        m.d.comb += [
            free.eq(Mux(transfer, self.o.payload.last, ~within & ~starts)),
            turn.request.eq(self.starts & ~chosen),
            turn.advance.eq(free),
        ]
        with m.If(free & turn.grant.any()):
            m.d.sync += self.index.eq(_encode(turn.grant))
        return m


class Column(Component):
    """The queues of one output, and the two readers that empty them in parallel.

    Every input has a queue for requests and one for responses. Requests go to the link. Responses
    go to the link (``tx = 0``) or to the reduction unit (``tx = 1``), so that contributions never
    use the link's cycle; one response queue feeds at most one of the two at a time.

    Latency: a flit pushed at t can be taken at t + 1, or at t + 2 if its queue has to be chosen
    first. Throughput: each of the three outputs one flit a cycle, whole packets.

    A packet may leave before all of it has come (the ingress writes a packet that it has begun
    without waiting for any other queue), so an output can pause for as long as its input does.

    Parameters
    ----------
    ports : inputs
    queue_depth : flits a queue, at least 33
    """

    inputs: Any
    """In(array of :data:`Lanes`)."""
    request: stream.Interface
    """Out(FlitStream), packets for the link's request class."""
    response: stream.Interface
    """Out(FlitStream), unicast responses for the link's response class."""
    contribution: stream.Interface
    """Out(stream of :class:`Contribution`), for the reduction unit."""

    def __init__(self, *, ports: int, queue_depth: int):
        if not 2 <= ports <= 72:
            raise ValueError(f"Ports must be 2 to 72, not {ports!r}")
        if queue_depth < MIN_QUEUE_DEPTH:
            raise ValueError(f"Queue depth must be at least {MIN_QUEUE_DEPTH}, not {queue_depth!r}")
        self.ports, self.queue_depth = ports, queue_depth
        super().__init__(
            {
                "inputs": In(Lanes).array(ports),
                "request": Out(FlitStream),
                "response": Out(FlitStream),
                "contribution": Out(stream.Signature(Contribution)),
            }
        )

    @property
    def module_name(self) -> str:
        """``column_<ports>x<depth>``."""
        return f"column_{self.ports}x{self.queue_depth}"

    def elaborate(self, platform):
        """Queues, then a reader for each of the three ways out."""
        m = Module()
        requests = [self._queue(m, f"req{k}", lane.req) for k, lane in enumerate(self.inputs)]
        responses = [self._queue(m, f"rsp{k}", lane.rsp) for k, lane in enumerate(self.inputs)]
        request, response, contribution = (QueueReader(count=self.ports) for _ in range(3))
        m.submodules.read_request = place(request)
        m.submodules.read_response = place(response)
        m.submodules.read_contribution = place(contribution)

        for k, queue in enumerate(requests):
            m.d.comb += [
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

    def _queue(self, m: Module, name: str, lane) -> Fifo:
        queue = Fifo(shape=Flit, depth=self.queue_depth)
        m.submodules[name] = place(queue)
        m.d.comb += [
            queue.i.valid.eq(lane.push),
            queue.i.payload.eq(lane.flit),
            lane.fits.eq(queue.level + lane.want < self.queue_depth),
        ]
        return queue


def _encode(one_hot):
    """Number of the bit that is set."""
    width = len(one_hot)
    bits = range(max(width - 1, 1).bit_length())
    return Cat(Cat(one_hot[k] for k in range(width) if k >> bit & 1).any() for bit in bits)
