"""One port of the switch: its ingress, its egress, and what it counts."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from dysharp.hw.alu.reductions import Arithmetic
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.packet import AGE_BITS, FLIT_BYTES, Status
from dysharp.hw.parameters import LIMIT_BITS
from dysharp.hw.share import place
from dysharp.hw.switch.crosspoint import Broadcast, Lanes
from dysharp.hw.switch.egress import Egress
from dysharp.hw.switch.error_answer import Fault
from dysharp.hw.switch.ingress import FAULTS, Ingress
from dysharp.hw.switch.object_table import ObjectEntry
from dysharp.hw.switch.reduction_ports import LogEntry

__all__ = ["LINK_EDGE", "Port", "port_control", "port_events"]

LINK_EDGE = Signature(
    {
        "rx_req": In(FlitStream),
        "rx_rsp": In(FlitStream),
        "tx_req": Out(FlitStream),
        "tx_rsp": Out(FlitStream),
        "log": Out(LogEntry),
    }
)
"""Edge of one port: a request and a response stream each way, and the order of accumulation."""

_STREAMS = ("rx_req", "rx_rsp", "tx_req", "tx_rsp")
_FAULT_SOURCES = len(FAULTS) + 2


def port_control(*, ports: int) -> data.StructLayout:
    """What the switch tells every port: the time, and of failures.

    Parameters
    ----------
    ports : ports of the switch plane

    Members
    -------
    now : the time by which requests have an age
    session_tick : of the session clock
    free_retired : a pulse; this port's retired sessions are free again once they are answered
    failed : a bit for each port that is not to be sent a request
    stall_limit : cycles after which a packet that stops in the middle is cut short; 0 for never
    drop_limit : cycles after which an output whose flit is not taken fails; 0 for never
    """
    return data.StructLayout(
        {
            "now": AGE_BITS,
            "session_tick": 1,
            "free_retired": 1,
            "failed": ports,
            "stall_limit": LIMIT_BITS,
            "drop_limit": LIMIT_BITS,
        }
    )


def port_events(*, ports: int, sessions: int) -> data.StructLayout:
    """What one port adds to each counter of the switch in a cycle, by the counter's name.

    Parameters
    ----------
    ports : ports of the switch plane
    sessions : sessions of a port
    """
    return data.StructLayout(
        {
            **{f"error_{s.name.lower()}": range(_FAULT_SOURCES + 1) for s in Status if s.value},
            "dropped": range(len(FAULTS) + 1),
            "stray": 1,
            **{f"{name}_flits": 1 for name in _STREAMS},
            "rx_stalls": range(3),
            "tx_stalls": range(3),
            "replicas": range(ports + 1),
            "contributions": 1,
            "results": 1,
            "session_waits": 1,
            "session_cycles": range(sessions + 1),
            "timeouts": 1,
            "drained": range(3),
        }
    )


class Port(Component):
    """Ingress and egress of one port.

    A reduction belongs to the port at which its request came in: the ingress reserves a session in
    this port's reduction unit, and its refusals leave on this port's link.

    Latency and throughput: those of :class:`Ingress` and :class:`Egress`; counters and faults are
    a cycle late.

    Parameters
    ----------
    gpus, links : GPUs, and ports of each
    objects : entries of the object table
    chunk_bytes : 128 or 256
    gpu_address_bit : lowest of the seven bits of a plain address that name its GPU
    request_depth, response_depth : flits of each queue of a class
    sessions : sessions of the reduction unit
    arithmetic : types that can be reduced, and how
    order : the order in which the reduction unit adds up
    """

    link: Any
    """Out(:data:`LINK_EDGE`)."""
    port: Signal
    """In, of this port; constant."""
    gpu: Signal
    """In, of this port; constant."""
    objects: Any
    """In(array of ObjectEntry)."""
    control: Any
    """In(:func:`port_control`)."""
    req: Any
    """Out(Broadcast), requests into the crossbar."""
    rsp: Any
    """Out(Broadcast), responses into the crossbar."""
    inputs: Any
    """In(array of :data:`Lanes`), what all ports write into this one's queues."""
    events: Any
    """Out(:func:`port_events`)."""
    fault: Any
    """Out(Fault), one of those found in a cycle."""
    failures: Signal
    """Out, a bit a port, a pulse: it has failed."""
    retired: Signal
    """Out, sessions of this port that are retired."""

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
        sessions: int,
        arithmetic: Arithmetic,
        order: str,
    ):
        self.ports = gpus * links
        self.options: dict[str, int] = {
            "gpus": gpus,
            "links": links,
            "objects": objects,
            "chunk_bytes": chunk_bytes,
            "gpu_address_bit": gpu_address_bit,
        }
        self.depths = {"request_depth": request_depth, "response_depth": response_depth}
        self.sessions = sessions
        self.arithmetic, self.order = arithmetic, order
        super().__init__(
            {
                "link": Out(LINK_EDGE),
                "port": In(7),
                "gpu": In(7),
                "objects": In(data.ArrayLayout(ObjectEntry(gpus=gpus), objects)),
                "control": In(port_control(ports=self.ports)),
                "req": Out(Broadcast(self.ports)),
                "rsp": Out(Broadcast(self.ports)),
                "inputs": In(Lanes).array(self.ports),
                "events": Out(port_events(ports=self.ports, sessions=sessions)),
                "fault": Out(Fault),
                "failures": Out(self.ports),
                "retired": Out(range(sessions + 1)),
            }
        )

    @property
    def module_name(self) -> str:
        """``port_<gpus>x<links>_o<objects>_c<chunk bytes>_a<address bit>_q<depths>_s<sessions>``,
        the arithmetic's name and the order.
        """
        return (
            "port_{gpus}x{links}_o{objects}_c{chunk_bytes}_a{gpu_address_bit}".format(
                **self.options
            )
            + "_q{request_depth}x{response_depth}".format(**self.depths)
            + f"_s{self.sessions}_{self.arithmetic.name}_{self.order}"
        )

    def elaborate(self, platform):
        """Receive, transmit, count."""
        m = Module()
        link = self.link
        ingress = Ingress(**self.options, **self.depths, dtypes=self.arithmetic.dtypes)
        egress = Egress(
            ports=self.ports,
            **self.depths,
            sessions=self.sessions,
            chunk_flits=self.options["chunk_bytes"] // FLIT_BYTES,
            arithmetic=self.arithmetic,
            order=self.order,
        )
        m.submodules.ingress = place(ingress)
        m.submodules.egress = place(egress)
        for stage in (ingress, egress):
            m.d.comb += [
                stage.port.eq(self.port),
                stage.gpu.eq(self.gpu),
                stage.now.eq(self.control.now),
            ]
        m.d.comb += ingress.objects.eq(self.objects)
        connect(m, flipped(link.rx_req), ingress.rx_req)
        connect(m, flipped(link.rx_rsp), ingress.rx_rsp)
        connect(m, ingress.req, flipped(self.req))
        connect(m, ingress.rsp, flipped(self.rsp))
        connect(m, ingress.error, egress.error)
        connect(m, ingress.reserve, egress.reserve)
        own = Signal(self.ports)
        m.d.comb += own.eq(1 << self.port)
        m.d.comb += [
            ingress.session.eq(egress.session),
            ingress.exhausted.eq(egress.exhausted),
            ingress.failed.eq(self.control.failed),
            ingress.stall_limit.eq(self.control.stall_limit),
            egress.failed.eq((self.control.failed & own).any()),
            egress.drop_limit.eq(self.control.drop_limit),
            egress.tick.eq(self.control.session_tick),
            egress.free_retired.eq(self.control.free_retired),
        ]
        for outer, inner in zip(self.inputs, egress.inputs, strict=True):
            connect(m, flipped(outer), inner)
        connect(m, egress.tx_req, flipped(link.tx_req))
        connect(m, egress.tx_rsp, flipped(link.tx_rsp))
        m.d.comb += link.log.eq(egress.log)
        self._count(m, ingress, egress, own)
        return m

    def _count(self, m: Module, ingress, egress, own) -> None:
        """Counts of this cycle, shown in the next, so that they bound no path."""
        link, events = self.link, self.events
        found = [ingress.faults[k] for k in range(len(FAULTS))]
        faults = [*found, egress.fault, egress.timeout_fault]
        streams = {name: getattr(link, name) for name in _STREAMS}
        stalls = {name: s.valid & ~s.ready for name, s in streams.items()}
        reduction = egress.events
        stray = reduction.late | reduction.unexpected | reduction.surplus | reduction.wrong_length
        m.d.sync += [
            events.dropped.eq(sum(fault.valid & ~fault.answered for fault in found)),
            events.stray.eq(stray),
            events.rx_stalls.eq(stalls["rx_req"] + stalls["rx_rsp"]),
            events.tx_stalls.eq(stalls["tx_req"] + stalls["tx_rsp"]),
            events.replicas.eq(ingress.events.replicate.replicas),
            events.contributions.eq(reduction.accepted),
            events.results.eq(reduction.answered),
            events.session_waits.eq(ingress.events.replicate.session_wait),
            events.session_cycles.eq(egress.occupied),
            events.timeouts.eq(egress.missing.any()),
            events.drained.eq(egress.drained),
            self.failures.eq(egress.missing | Mux(egress.fails, own, 0)),
            self.retired.eq(egress.retired),
        ]
        for name, s in streams.items():
            m.d.sync += events[f"{name}_flits"].eq(s.valid & s.ready)
        for status in Status:
            if status.value:
                count = sum(fault.valid & (fault.status == status) for fault in faults)
                m.d.sync += events[f"error_{status.name.lower()}"].eq(count)

        first: Any = Signal(Fault, name="first_fault")
        for fault in reversed(faults):
            with m.If(fault.valid):
                m.d.comb += first.eq(fault)
        m.d.sync += self.fault.eq(first)
