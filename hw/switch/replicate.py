"""Replication: the packet at the head goes to every queue of its set, as soon as each has room."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.link.fifo import Fifo, Skid
from dysharp.hw.link.flit import Flit
from dysharp.hw.memory import Ram
from dysharp.hw.packet import AGE_BITS, MAX_FLITS, Header, PruneInfo, Status
from dysharp.hw.share import place
from dysharp.hw.switch.credits import Credits
from dysharp.hw.switch.crosspoint import Broadcast
from dysharp.hw.switch.error_answer import ErrorAnswer, Fault
from dysharp.hw.switch.route_record import RoutedFlit, RouteRecord
from dysharp.hw.switch.session import SessionId, session_stream

__all__ = ["Replicate", "ReplicateEvents"]

_RECORDS = 4
"""Packets that wait behind the one under way; more wait in front of the block."""


class ReplicateEvents(data.Struct):
    """What happens, for counters.

    Members
    -------
    replicas : replicas that are begun in this cycle
    session_wait : a packet waits for a session
    """

    replicas: 7
    session_wait: 1


class Replicate(Component):
    """Writes each packet into the queues of all outputs in its set.

    The packet at the head is begun in all those queues at once that have credits for the whole of
    it, and then written at the rate at which it comes in (cut-through). Outputs that had no room
    get it in a later pass from the ring; so none is held up by another. A packet that needs a
    session is not begun before it has one. The next packet's session is reserved meanwhile.

    Replicas carry the tag {port, generation, session} and, in ``crc``, what the egress must know
    to prune the list. Unicast requests carry {port, local}, posted ones tag 0. Of a refused packet
    nothing leaves; while no session can ever become free, a packet that needs one is refused here.

    Latency: one cycle from the flit that decides to HDR on the bus. Throughput: one flit a cycle;
    no bubble between packets if the queues have room and sessions are free. ``i.ready`` depends
    on registers only. Stalls when the ring is full.

    Parameters
    ----------
    ports : outputs
    queue_depth : flits of each queue that is written
    ring_depth : flits of the ring, a power of two; two of the longest packets must fit

    Source
    ------
    Contract of the switch: replication must not hold one output while it waits for another, and
    a session is reserved before any replica leaves.
    """

    i: stream.Interface
    """In(stream of RoutedFlit)."""
    port: Signal
    """In, this port's number; constant."""
    now: Signal
    """In, the time; replicas carry when their packet came in."""
    push: Any
    """Out(Broadcast)."""
    reserve: stream.Interface
    """Out(stream of session_request); withdrawn when ``exhausted`` rises."""
    session: Any
    """In(SessionId), the session that is reserved when ``reserve`` is taken."""
    exhausted: Signal
    """In, all sessions are retired, so waiting for one is in vain."""
    error: stream.Interface
    """Out(stream of ErrorAnswer), status 10."""
    fault: Any
    """Out(Fault), a pulse a packet that is refused here."""
    events: Any
    """Out(ReplicateEvents)."""

    def __init__(self, *, ports: int, queue_depth: int, ring_depth: int = 2 * MAX_FLITS):
        if ring_depth < 2 * MAX_FLITS or ring_depth & ring_depth - 1:
            raise ValueError(
                f"Ring depth must be a power of two from {2 * MAX_FLITS} on, not {ring_depth!r}"
            )
        self.ports, self.queue_depth, self.ring_depth = ports, queue_depth, ring_depth
        super().__init__(
            {
                "i": In(stream.Signature(RoutedFlit(ports=ports))),
                "port": In(7),
                "now": In(AGE_BITS),
                "push": Out(Broadcast(ports)),
                "reserve": Out(session_stream(ports)),
                "session": In(SessionId),
                "exhausted": In(1),
                "error": Out(stream.Signature(ErrorAnswer)),
                "fault": Out(Fault),
                "events": Out(ReplicateEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``replicate_<ports>_q<queue depth>_<ring depth>``."""
        return f"replicate_{self.ports}_q{self.queue_depth}_{self.ring_depth}"

    def elaborate(self, platform):
        """Fill the ring, prepare the next packet, choose its queues and write it to them."""
        m = Module()
        m.submodules.ring = place(
            ring := Ram(width=Flit.as_shape().size, depth=self.ring_depth, transparent=True)
        )
        m.submodules.records = place(
            records := Fifo(shape=RouteRecord(ports=self.ports), depth=_RECORDS)
        )
        m.submodules.credits = place(
            credits_left := Credits(queues=self.ports, depth=self.queue_depth)
        )
        # One bit more than an address tells a full ring from an empty one.
        pointer = range(2 * self.ring_depth)
        start, head, tail = (Signal(pointer, name=name) for name in ("start", "head", "tail"))
        self._fill(m, ring, records.i, start, tail)

        record = records.o.payload
        held: Any = Signal(SessionId)
        is_held = Signal()
        needs_session, reserved, is_prepared = Signal(), Signal(), Signal()
        m.d.comb += [
            needs_session.eq(records.o.valid & record.needs_session & ~is_held),
            self.reserve.valid.eq(needs_session & ~self.exhausted),
            reserved.eq(self.reserve.valid & self.reserve.ready),
            is_prepared.eq(records.o.valid & (~needs_session | reserved)),
            self.reserve.payload.eq(record.session),
        ]
        with m.If(reserved):
            m.d.sync += [held.eq(self.session), is_held.eq(1)]

        # A pass writes the packet once, to those of its queues that have room. Its first flit goes
        # out in the cycle in which they are chosen; ``pending`` is left to a later pass.
        within = Signal()
        again = Signal()
        kept: Any = Signal(RouteRecord(ports=self.ports), name="kept")
        kept_session: Any = Signal(SessionId)
        current: Any = Signal.like(kept, name="current")
        session: Any = Signal(SessionId)
        active, pending = Signal(self.ports), Signal(self.ports)
        wanted, chosen, left = (
            Signal(self.ports, name=name) for name in ("wanted", "chosen", "left")
        )
        flit: Any = Signal(Flit)
        begin, moves, ends = (Signal(name=name) for name in ("begin", "moves", "ends"))
        refuse = self._refuse(m, flit, needs_session & ~within & ~again)
        m.d.comb += [
            flit.eq(ring.read_data),
            again.eq(pending.any()),
            current.eq(Mux(again, kept, record)),
            session.eq(Mux(again, kept_session, Mux(is_held, held, self.session))),
            wanted.eq(Mux(again, pending, Mux(is_prepared, record.session.ports, 0))),
            credits_left.flits.eq(current.len + 1),
            credits_left.credit.eq(self.push.credit),
            chosen.eq(Mux(within, 0, wanted & credits_left.fits)),
            credits_left.take.eq(chosen),
            begin.eq(chosen.any() | refuse),
            records.o.ready.eq(begin & ~again),
            moves.eq(begin | within & (head != tail)),
            ends.eq(moves & flit.last),
            left.eq(Mux(within, pending, wanted & ~chosen)),
        ]
        with m.If(begin):
            m.d.sync += [active.eq(chosen), pending.eq(left)]
            with m.If(~again):
                m.d.sync += [kept.eq(record), kept_session.eq(session), is_held.eq(0)]
        with m.If(moves):
            m.d.sync += within.eq(~flit.last)

        next_head = Signal(pointer)
        with m.If(~moves):
            m.d.comb += next_head.eq(head)
        with m.Elif(ends & left.any()):
            m.d.comb += next_head.eq(start)
        with m.Else():
            m.d.comb += next_head.eq(head + 1)
        m.d.sync += head.eq(next_head)
        with m.If(ends & ~left.any()):
            m.d.sync += start.eq(head + 1)
        m.d.comb += [
            ring.read_en.eq(1),
            ring.read_addr.eq(next_head),
            self.push.flit.eq(flit),
            self.push.push.eq(Mux(within, Mux(moves, active, 0), chosen)),
        ]
        with m.If(~within):
            m.d.comb += self.push.flit.data.eq(self._header(m, flit.data, current, session))

        m.d.comb += [
            self.events.replicas.eq(sum(chosen)),
            self.events.session_wait.eq(needs_session & ~reserved),
        ]
        return m

    def _fill(self, m: Module, ring: Ram, records, start, tail) -> None:
        """Write what comes into the ring; take it back if the packet is refused."""
        flit, record = self.i.payload.flit, self.i.payload.record
        first = Signal.like(tail, name="first")
        level = Signal.like(tail, name="level")
        accept, refuse = Signal(), Signal()
        m.d.comb += [
            level.eq(tail - start),
            self.i.ready.eq((level != self.ring_depth) & records.ready),
            accept.eq(self.i.valid & self.i.ready),
            refuse.eq(self.i.payload.decided & record.refused),
            ring.write_en.eq(accept),
            ring.write_addr.eq(tail),
            ring.write_data.eq(flit),
            records.valid.eq(accept & self.i.payload.decided & ~record.refused),
            records.payload.eq(record),
            records.payload.born.eq(self.now),
        ]
        with m.If(accept):
            m.d.sync += tail.eq(tail + 1)
            with m.If(refuse):
                m.d.sync += tail.eq(first)
            with m.Elif(flit.last):
                m.d.sync += first.eq(tail + 1)

    def _refuse(self, m: Module, flit, lacks_session) -> Signal:
        """Whether the packet at the head is refused now: a pass that writes it to no queue."""
        m.submodules.errors = place(errors := Skid(shape=ErrorAnswer))
        header: Any = Signal(Header, name="refused_header")
        refuse = Signal()
        answer = errors.i.payload
        m.d.comb += [
            header.eq(flit.data),
            refuse.eq(lacks_session & self.exhausted & errors.i.ready),
            errors.i.valid.eq(refuse),
            answer.tag.eq(header.tag),
            answer.tx.eq(1),
            answer.status.eq(Status.NEVER_RESERVABLE),
            answer.maddr.eq(header.multimem.maddr),
            answer.stage.eq(header.multimem.stage),
            answer.count.eq(header.multimem.count),
            self.fault.valid.eq(refuse),
            self.fault.status.eq(Status.NEVER_RESERVABLE),
            self.fault.answered.eq(1),
            self.fault.cmd.eq(Value.cast(header.cmd)),
            self.fault.addr.eq(header.addr),
        ]
        connect(m, errors.o, flipped(self.error))
        return refuse

    def _header(self, m: Module, flit, record, session) -> Value:
        """The header with its tag inside of the switch, and what the egress must know."""
        header: Any = Signal(Header, name="header")
        prune: Any = Signal(PruneInfo)
        m.d.comb += [
            prune.split.eq(record.split),
            prune.born.eq(record.born),
            header.eq(flit),
            header.crc.eq(prune),
            header.tag.port.eq(self.port),
        ]
        with m.If(record.needs_session):
            m.d.comb += [
                header.replica_tag.session.eq(session.session),
                header.replica_tag.generation.eq(session.generation),
            ]
        with m.Elif(record.posted):
            m.d.comb += Value.cast(header.tag).eq(0)
        return Value.cast(header)
