"""All that stands between one port's receive side and the crossbar."""

from typing import Any

from amaranth import Const, Module, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.alu.reductions import dtypes_name
from dysharp.hw.config import Config
from dysharp.hw.link.fifo import Skid
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import AGE_BITS, Dtype
from dysharp.hw.parameters import LIMIT_BITS
from dysharp.hw.share import place
from dysharp.hw.switch.crosspoint import Broadcast
from dysharp.hw.switch.error_answer import ErrorAnswer, Fault, error_header
from dysharp.hw.switch.forward import Forward
from dysharp.hw.switch.object_table import ObjectEntry
from dysharp.hw.switch.parser import Parser, ParserEvents
from dysharp.hw.switch.replicate import Replicate, ReplicateEvents
from dysharp.hw.switch.route import Route
from dysharp.hw.switch.session import SessionId, session_stream

__all__ = ["FAULTS", "Ingress", "IngressEvents", "ingress_block"]

FAULTS = ("req_parser", "route", "replicate", "rsp_parser", "forward")
"""Who can find a packet in error; the order of ``faults``."""


class IngressEvents(data.Struct):
    """Events of the parts."""

    requests: ParserEvents
    responses: ParserEvents
    replicate: ReplicateEvents


class Ingress(Component):
    """Parser, route and replication of a port's requests; parser and way of its responses.

    Requests and responses share nothing, so neither holds the other. Requests that are refused are
    answered by ERR packets of one flit on ``error``.

    Latency: rx to ``req``: two cycles for unicast, static, or after the last TX flit; rx to
    ``rsp``: one; rx to ``error``: two or, from route, three. Throughput: one flit a cycle on each.

    Parameters
    ----------
    gpus, links : GPUs, and ports of each
    objects : entries of the object table
    chunk_bytes : 128 or 256
    gpu_address_bit : lowest of the seven bits of a plain address that name its GPU
    request_depth, response_depth : flits of the queues that ``req`` and ``rsp`` write
    dtypes : types that can be reduced
    """

    rx_req: stream.Interface
    """In(FlitStream)."""
    rx_rsp: stream.Interface
    """In(FlitStream)."""
    port: Signal
    """In, of this port; constant."""
    gpu: Signal
    """In, of this port; constant."""
    now: Signal
    """In, the time, for the age of requests."""
    objects: Any
    """In(array of ObjectEntry)."""
    req: Any
    """Out(Broadcast)."""
    rsp: Any
    """Out(Broadcast)."""
    reserve: stream.Interface
    """Out(stream of session_request)."""
    session: Any
    """In(SessionId), valid with ``reserve.ready``."""
    exhausted: Signal
    """In, all sessions are retired."""
    failed: Signal
    """In, a bit a port: no request goes there."""
    stall_limit: Signal
    """In, of both parsers."""
    error: stream.Interface
    """Out(FlitStream), ERR packets for this port's link."""
    faults: Any
    """Out(array of Fault), one for each of :data:`FAULTS`."""
    events: Any
    """Out(IngressEvents)."""

    def __init__(
        self,
        *,
        gpus: int,
        links: int,
        objects: int,
        chunk_bytes: int,
        gpu_address_bit: int,
        request_depth: int,
        response_depth: int,
        dtypes: tuple[Dtype, ...],
    ):
        self.gpus, self.links, self.ports = gpus, links, gpus * links
        self.object_count = objects
        self.chunk_bytes, self.gpu_address_bit = chunk_bytes, gpu_address_bit
        self.request_depth, self.response_depth = request_depth, response_depth
        self.dtypes = dtypes
        super().__init__(
            {
                "rx_req": In(FlitStream),
                "rx_rsp": In(FlitStream),
                "port": In(7),
                "gpu": In(7),
                "now": In(AGE_BITS),
                "objects": In(data.ArrayLayout(ObjectEntry(gpus=gpus), objects)),
                "req": Out(Broadcast(self.ports)),
                "rsp": Out(Broadcast(self.ports)),
                "reserve": Out(session_stream(self.ports)),
                "session": In(SessionId),
                "exhausted": In(1),
                "failed": In(self.ports),
                "stall_limit": In(LIMIT_BITS),
                "error": Out(FlitStream),
                "faults": Out(data.ArrayLayout(Fault, len(FAULTS))),
                "events": Out(IngressEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``ingress_<gpus>x<links>_o<objects>_c<chunk bytes>_a<address bit>_q<depths>_<types>``."""
        return (
            f"ingress_{self.gpus}x{self.links}_o{self.object_count}_c{self.chunk_bytes}"
            f"_a{self.gpu_address_bit}_q{self.request_depth}x{self.response_depth}"
            f"_{dtypes_name(self.dtypes)}"
        )

    def elaborate(self, platform):
        """Requests from left to right, responses below, errors to the side."""
        m = Module()
        parser = Parser(responses=False, chunk_bytes=self.chunk_bytes, registered=False)
        route = Route(
            gpus=self.gpus,
            links=self.links,
            objects=self.object_count,
            chunk_bytes=self.chunk_bytes,
            gpu_address_bit=self.gpu_address_bit,
            dtypes=self.dtypes,
        )
        replicate = Replicate(ports=self.ports, queue_depth=self.request_depth)
        rsp_parser = Parser(responses=True, chunk_bytes=self.chunk_bytes)
        forward = Forward(ports=self.ports, queue_depth=self.response_depth)
        m.submodules.req_parser = place(parser)
        m.submodules.route = place(route)
        m.submodules.replicate = place(replicate)
        m.submodules.rsp_parser = place(rsp_parser)
        m.submodules.forward = place(forward)

        connect(m, flipped(self.rx_req), parser.i)
        connect(m, parser.o, route.i)
        connect(m, route.o, replicate.i)
        connect(m, replicate.reserve, flipped(self.reserve))
        connect(m, replicate.push, flipped(self.req))
        m.d.comb += [
            route.gpu.eq(self.gpu),
            route.objects.eq(self.objects),
            replicate.port.eq(self.port),
            replicate.now.eq(self.now),
            replicate.session.eq(self.session),
            replicate.exhausted.eq(self.exhausted),
            route.failed.eq(self.failed),
            parser.stall_limit.eq(self.stall_limit),
            rsp_parser.stall_limit.eq(self.stall_limit),
        ]

        connect(m, flipped(self.rx_rsp), rsp_parser.i)
        connect(m, rsp_parser.o, forward.i)
        connect(m, forward.push, flipped(self.rsp))

        # Of those refused at once the packet that came first goes first.
        m.submodules.errors = place(errors := Skid(shape=Flit))
        answer: Any = Signal(ErrorAnswer, name="answer")
        sources = (replicate.error, route.error, parser.error)
        for source in reversed(sources):
            with m.If(source.valid):
                m.d.comb += [answer.eq(source.payload), errors.i.valid.eq(1)]
        earlier = Const(0, 1)
        for source in sources:
            m.d.comb += source.ready.eq(errors.i.ready & ~earlier)
            earlier |= source.valid
        m.d.comb += [
            errors.i.payload.data.eq(error_header(m, answer, port=self.port)),
            errors.i.payload.last.eq(1),
            rsp_parser.error.ready.eq(1),
        ]
        connect(m, errors.o, flipped(self.error))
        parts = (parser, route, replicate, rsp_parser, forward)
        m.d.comb += [self.faults[k].eq(part.fault) for k, part in enumerate(parts)]
        m.d.comb += [
            self.events.requests.eq(parser.events),
            self.events.responses.eq(rsp_parser.events),
            self.events.replicate.eq(replicate.events),
        ]
        return m


def ingress_block(config: Config) -> Ingress:
    """One port's ingress, as a block of its own."""
    return Ingress(
        gpus=config.gpus,
        links=config.links,
        objects=config.objects,
        chunk_bytes=config.chunk_bytes,
        gpu_address_bit=config.gpu_address_bit,
        request_depth=config.switch.request_depth,
        response_depth=config.switch.response_depth,
        dtypes=config.arithmetic.dtypes,
    )
