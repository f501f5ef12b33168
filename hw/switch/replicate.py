"""Replication: the packet at the head goes to every queue of its set, as soon as each has room."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import Flit
from dysharp.hw.memory import Ram
from dysharp.hw.packet import MAX_FLITS, Header, PruneInfo
from dysharp.hw.share import place
from dysharp.hw.switch.crosspoint import Broadcast
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
    again : a packet is begun once more, for outputs that had no room before
    session_wait : a packet waits for a session
    queue_wait : a packet waits because none of its queues has room
    """

    replicas: 7
    again: 1
    session_wait: 1
    queue_wait: 1


class Replicate(Component):
    """Writes each packet into the queues of all outputs in its set.

    The packet at the head is begun in all those queues at once that have room for the whole of it,
    and then written at the rate at which it comes in (cut-through). Outputs that had no room get it
    in a later pass from the ring; so none is held up by another. A packet that needs a session is
    not begun before it has one. The next packet's session is reserved meanwhile.

    Replicas carry the tag {port, generation, session} and, in ``crc``, what the egress must know
    to prune the list. Unicast requests carry {port, local}, posted ones tag 0. Of a refused packet
    nothing leaves.

    Latency: two cycles from the flit that decides to HDR on the bus. Throughput: one flit a cycle;
    no bubble between packets if the queues have room and sessions are free. ``i.ready`` depends
    on registers only. Stalls when the ring is full.

    Parameters
    ----------
    ports : outputs
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
    push: Any
    """Out(Broadcast)."""
    reserve: stream.Interface
    """Out(stream of session_request)."""
    session: Any
    """In(SessionId), the session that is reserved when ``reserve`` is taken."""
    events: Any
    """Out(ReplicateEvents)."""

    def __init__(self, *, ports: int, ring_depth: int = 2 * MAX_FLITS):
        if ring_depth < 2 * MAX_FLITS or ring_depth & ring_depth - 1:
            raise ValueError(
                f"Ring depth must be a power of two from {2 * MAX_FLITS} on, not {ring_depth!r}"
            )
        self.ports, self.ring_depth = ports, ring_depth
        super().__init__(
            {
                "i": In(stream.Signature(RoutedFlit(ports=ports))),
                "port": In(7),
                "push": Out(Broadcast(ports)),
                "reserve": Out(session_stream(ports)),
                "session": In(SessionId),
                "events": Out(ReplicateEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``replicate_<ports>_<ring depth>``."""
        return f"replicate_{self.ports}_{self.ring_depth}"

    def elaborate(self, platform):
        """Fill the ring, prepare the next packet, choose its queues, and write it to them."""
        m = Module()
        m.submodules.ring = place(
            ring := Ram(width=Flit.as_shape().size, depth=self.ring_depth, transparent=True)
        )
        m.submodules.records = place(
            records := Fifo(shape=RouteRecord(ports=self.ports), depth=_RECORDS)
        )
        # One bit more than an address tells a full ring from an empty one.
        pointer = range(2 * self.ring_depth)
        start, head, tail = (Signal(pointer, name=name) for name in ("start", "head", "tail"))
        self._fill(m, ring, records.i, start, tail)

        record = records.o.payload
        session_held: Any = Signal(SessionId)
        has_session = Signal()
        needs_session, is_prepared = Signal(), Signal()
        m.d.comb += [
            needs_session.eq(records.o.valid & record.needs_session & ~has_session),
            is_prepared.eq(records.o.valid & (~needs_session | self.reserve.ready)),
            self.reserve.valid.eq(needs_session),
            self.reserve.payload.eq(record.session),
        ]
        with m.If(needs_session & self.reserve.ready):
            m.d.sync += [session_held.eq(self.session), has_session.eq(1)]

        current: Any = Signal(RouteRecord(ports=self.ports), name="current")
        session: Any = Signal(SessionId)
        active, pending = Signal(self.ports), Signal(self.ports)
        busy, at_header = Signal(), Signal()
        flit: Any = Signal(Flit)
        available, ends, free, begin, again = (
            Signal(name=name) for name in ("available", "ends", "free", "begin", "again")
        )
        wanted, chosen = Signal(self.ports), Signal(self.ports)
        m.d.comb += [
            flit.eq(ring.read_data),
            available.eq(busy & (head != tail)),
            ends.eq(available & flit.last),
            free.eq(ends | ~busy),
            again.eq(pending.any()),
            wanted.eq(Mux(again, pending, Mux(is_prepared, record.session.ports, 0))),
            self.push.want.eq(Mux(again, current.len, record.len) + 1),
            chosen.eq(wanted & self.push.fits),
            begin.eq(free & chosen.any()),
            records.o.ready.eq(begin & ~again),
        ]
        with m.If(free):
            m.d.sync += busy.eq(begin)
        with m.If(begin):
            m.d.sync += [
                active.eq(chosen),
                pending.eq(wanted & ~chosen),
                at_header.eq(1),
            ]
            with m.If(~again):
                m.d.sync += [
                    current.eq(record),
                    session.eq(Mux(has_session, session_held, self.session)),
                    has_session.eq(0),
                ]
        with m.Elif(available):
            m.d.sync += at_header.eq(0)

        next_head = Signal(pointer)
        with m.If(~available):
            m.d.comb += next_head.eq(head)
        with m.Elif(ends & again):
            m.d.comb += next_head.eq(start)
        with m.Else():
            m.d.comb += next_head.eq(head + 1)
        m.d.sync += head.eq(next_head)
        with m.If(ends & ~again):
            m.d.sync += start.eq(head + 1)
        m.d.comb += [
            ring.read_en.eq(1),
            ring.read_addr.eq(next_head),
            self.push.flit.eq(flit),
            self.push.push.eq(Mux(available, active, 0)),
        ]
        with m.If(at_header):
            m.d.comb += self.push.flit.data.eq(self._header(m, flit.data, current, session))

        m.d.comb += [
            self.events.replicas.eq(Mux(begin, sum(chosen), 0)),
            self.events.again.eq(begin & again),
            self.events.session_wait.eq(needs_session & ~self.reserve.ready),
            self.events.queue_wait.eq(free & wanted.any() & ~begin),
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
        ]
        with m.If(accept):
            m.d.sync += tail.eq(tail + 1)
            with m.If(refuse):
                m.d.sync += tail.eq(first)
            with m.Elif(flit.last):
                m.d.sync += first.eq(tail + 1)

    def _header(self, m: Module, flit, record, session) -> Value:
        """The header with its tag inside of the switch, and what pruning needs."""
        header: Any = Signal(Header, name="header")
        prune: Any = Signal(PruneInfo)
        m.d.comb += [
            prune.split.eq(record.split),
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
