"""All that stands between the crossbar and one port's transmit side."""

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.alu.reductions import Arithmetic
from dysharp.hw.config import Config
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.link.link_mux import LinkMux
from dysharp.hw.packet import AGE_BITS
from dysharp.hw.parameters import LIMIT_BITS
from dysharp.hw.share import place
from dysharp.hw.switch.crosspoint import Column, Lanes
from dysharp.hw.switch.drain import Drain
from dysharp.hw.switch.error_answer import Fault
from dysharp.hw.switch.prune import Prune
from dysharp.hw.switch.queue_reader import QueueReader
from dysharp.hw.switch.reduction import reduction_unit
from dysharp.hw.switch.reduction_ports import LogEntry, ReductionEvents
from dysharp.hw.switch.session import SessionId, session_stream

__all__ = ["Egress", "egress_block"]


class Egress(Component):
    """Queues, pruning, reduction and link of one output.

    Requests are pruned to the list of the GPU here and go to the link. Unicast responses, answers
    of the reduction unit and error answers of this port share the link's response class, whole
    packets in turn. Contributions go to the reduction unit and never use the link.

    Latency: from a queue to ``tx``: one cycle for a response, two for a request (``Prune`` says
    when more). Throughput: one flit a cycle on the link for both classes together, and one
    contribution flit besides.

    Parameters
    ----------
    ports : ports of the switch plane
    request_depth, response_depth : flits of each queue
    sessions : sessions of the reduction unit
    chunk_flits : DATA flits of a chunk
    arithmetic : types that the reduction unit adds up, and how
    order : the order in which it does; see :func:`reduction_unit`
    """

    inputs: Any
    """In(array of :data:`Lanes`), what each ingress writes."""
    error: stream.Interface
    """In(FlitStream), ERR packets of this port's ingress."""
    failed: Signal
    """In, this port counts as failed."""
    drop_limit: Signal
    """In, of both classes; see :class:`Drain`."""
    fails: Signal
    """Out, a pulse: the GPU has not taken a flit for ``drop_limit`` cycles."""
    drained: Signal
    """Out, flits that are dropped in this cycle, of both classes."""
    reserve: stream.Interface
    """In(stream of session_request), from this port's ingress."""
    session: Any
    """Out(SessionId), what is reserved when ``reserve`` is taken."""
    exhausted: Signal
    """Out, all sessions are retired."""
    now: Signal
    """In, the time, for the age of requests."""
    tick: Signal
    """In, of the session clock."""
    free_retired: Signal
    """In, a pulse."""
    port: Signal
    """In, of this port; constant."""
    gpu: Signal
    """In, of this port; constant."""
    tx_req: stream.Interface
    """Out(FlitStream)."""
    tx_rsp: stream.Interface
    """Out(FlitStream)."""
    log: Any
    """Out(LogEntry)."""
    fault: Any
    """Out(Fault), of the reduction unit."""
    timeout_fault: Any
    """Out(Fault), a pulse for each session that timed out."""
    missing: Signal
    """Out, a bit a port, a pulse: it owes an answer to a session that timed out."""
    occupied: Signal
    """Out, sessions in use."""
    retired: Signal
    """Out, sessions that are retired."""
    events: Any
    """Out(ReductionEvents)."""

    def __init__(
        self,
        *,
        ports: int,
        request_depth: int,
        response_depth: int,
        sessions: int,
        chunk_flits: int,
        arithmetic: Arithmetic,
        order: str,
    ):
        self.ports = ports
        self.request_depth, self.response_depth = request_depth, response_depth
        self.sessions, self.chunk_flits = sessions, chunk_flits
        self.arithmetic, self.order = arithmetic, order
        super().__init__(
            {
                "inputs": In(Lanes).array(ports),
                "error": In(FlitStream),
                "failed": In(1),
                "drop_limit": In(LIMIT_BITS),
                "fails": Out(1),
                "drained": Out(range(3)),
                "reserve": In(session_stream(ports)),
                "session": Out(SessionId),
                "exhausted": Out(1),
                "now": In(AGE_BITS),
                "tick": In(1),
                "free_retired": In(1),
                "port": In(7),
                "gpu": In(7),
                "tx_req": Out(FlitStream),
                "tx_rsp": Out(FlitStream),
                "log": Out(LogEntry),
                "fault": Out(Fault),
                "timeout_fault": Out(Fault),
                "missing": Out(ports),
                "occupied": Out(range(sessions + 1)),
                "retired": Out(range(sessions + 1)),
                "events": Out(ReductionEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``egress_<ports>_q<depths>_s<sessions>x<chunk flits>_<of the arithmetic>_<order>``."""
        return (
            f"egress_{self.ports}_q{self.request_depth}x{self.response_depth}"
            f"_s{self.sessions}x{self.chunk_flits}_{self.arithmetic.name}_{self.order}"
        )

    def elaborate(self, platform):
        """From the queues through pruning and reduction to the link."""
        m = Module()
        column = Column(
            ports=self.ports,
            request_depth=self.request_depth,
            response_depth=self.response_depth,
        )
        prune = Prune()
        reduction = reduction_unit(
            ports=self.ports,
            sessions=self.sessions,
            chunk_flits=self.chunk_flits,
            arithmetic=self.arithmetic,
            order=self.order,
        )
        m.submodules.column = place(column)
        m.submodules.prune = place(prune)
        m.submodules.reduction = place(reduction)
        for outer, inner in zip(self.inputs, column.inputs, strict=True):
            connect(m, flipped(outer), inner)

        connect(m, column.request, prune.i)
        connect(m, column.contribution, reduction.i)
        connect(m, flipped(self.reserve), reduction.reserve)
        m.d.comb += [
            column.now.eq(self.now),
            prune.gpu.eq(self.gpu),
            reduction.port.eq(self.port),
            reduction.tick.eq(self.tick),
            reduction.free_retired.eq(self.free_retired),
            self.session.eq(reduction.session),
            self.exhausted.eq(reduction.exhausted),
            self.log.eq(reduction.log),
            self.fault.eq(reduction.fault),
            self.timeout_fault.eq(reduction.timeout_fault),
            self.missing.eq(reduction.missing),
            self.retired.eq(reduction.retired),
            self.occupied.eq(reduction.occupied),
            self.events.eq(reduction.events),
        ]

        answers = (column.response, reduction.o, self.error)
        turn = QueueReader(count=len(answers))
        m.submodules.turn = place(turn)
        for k, answer in enumerate(answers):
            m.d.comb += [
                turn.valid[k].eq(answer.valid),
                turn.starts[k].eq(answer.valid),
                turn.whole[k].eq(1),
                turn.flits[k].eq(answer.payload),
                answer.ready.eq(turn.take[k]),
            ]

        link = LinkMux()
        m.submodules.link = place(link)
        drains = []
        for name, source in (("req", prune.o), ("rsp", turn.o)):
            drain = Drain()
            m.submodules[f"drain_{name}"] = place(drain)
            drains.append(drain)
            shown, tx = getattr(link, f"o_{name}"), getattr(self, f"tx_{name}")
            connect(m, source, drain.i)
            connect(m, drain.o, getattr(link, f"i_{name}"))
            connect(m, shown, flipped(tx))
            m.d.comb += [
                drain.waits.eq(shown.valid & ~tx.ready),
                drain.limit.eq(self.drop_limit),
                drain.failed.eq(self.failed),
            ]
        m.d.comb += [
            self.fails.eq(drains[0].fails | drains[1].fails),
            self.drained.eq(drains[0].drained + drains[1].drained),
        ]
        return m


def egress_block(config: Config) -> Egress:
    """One port's egress, as a block of its own."""
    return Egress(
        ports=config.ports,
        request_depth=config.switch.request_depth,
        response_depth=config.switch.response_depth,
        sessions=config.switch.sessions,
        chunk_flits=config.chunk_flits,
        arithmetic=config.arithmetic,
        order=config.switch.order,
    )
