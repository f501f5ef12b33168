"""From pieces of target lists to TX flits, with the entries dropped that name nobody."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.hdl import Const, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.packet import FLIT_BITS, NO_TARGET, TARGET_BITS, TARGETS_PER_FLIT

__all__ = ["ListHead", "ListPacker", "ListSegment"]


class ListSegment(data.Struct):
    """Up to eight consecutive entries of a list.

    Members
    -------
    ids : eight 16-bit entries, in list order
    mask : which of them belong to the list
    last : the list ends here
    fault : memory answered with an error
    """

    ids: FLIT_BITS
    mask: TARGETS_PER_FLIT
    last: 1
    fault: 1


class ListHead(data.Struct):
    """What is known of a list once it has been read.

    Members
    -------
    count : entries left, 0xFFFF dropped; ceil(count / 8) TX flits hold them
    fault : memory answered with an error, the TX flits mean nothing
    """

    count: 7
    fault: 1


class ListPacker(Component):
    """Drops entries 0xFFFF (a -1 in the routing) and packs the others into TX flits.

    Latency: two cycles. Throughput: a segment a cycle; one cycle more for a list whose last
    segment fills more than one flit. So a list never takes longer than its packet does.
    """

    i: stream.Interface
    """In(stream of ListSegment), list after list."""
    o: stream.Interface
    """Out(stream of ListHead), once a list, not before its last TX flit."""
    tx: stream.Interface
    """Out(stream of 128 bits), TX flits, unused slots 0xFFFF."""

    def __init__(self):
        super().__init__(
            {
                "i": In(stream.Signature(ListSegment)),
                "o": Out(stream.Signature(ListHead)),
                "tx": Out(stream.Signature(FLIT_BITS)),
            }
        )

    @property
    def module_name(self) -> str:
        """``list_packer``."""
        return "list_packer"

    def elaborate(self, platform):
        """Compact a segment into ``packed``, then append it to ``held``.

        Both hold inverted ids: an empty slot is 0 here and 0xFFFF on the wire.
        """
        m = Module()
        packed = Signal(FLIT_BITS)
        kept = Signal(range(TARGETS_PER_FLIT + 1))
        packed_valid, packed_last, packed_fault = Signal(), Signal(), Signal()
        packed_taken = Signal()

        m.d.comb += self.i.ready.eq(~packed_valid | packed_taken)
        ids, wanted = _compact(m, self.i.p.ids, self.i.p.mask)
        with m.If(self.i.ready):
            m.d.sync += [
                packed_valid.eq(self.i.valid),
                packed.eq(ids),
                kept.eq(wanted),
                packed_last.eq(self.i.p.last),
                packed_fault.eq(self.i.p.fault),
            ]

        held = Signal((TARGETS_PER_FLIT - 1) * TARGET_BITS)
        fill = Signal(range(TARGETS_PER_FLIT))
        count = Signal(7)
        fault, flush = Signal(), Signal()
        window = Signal(2 * FLIT_BITS)
        total = Signal(range(2 * TARGETS_PER_FLIT))
        is_end, emit, step = Signal(), Signal(), Signal()
        added = Mux(flush, 0, kept)
        m.d.comb += [
            window.eq(held | Mux(flush, 0, packed << (fill * TARGET_BITS))),
            total.eq(fill + added),
            is_end.eq(flush | packed_last & (total <= TARGETS_PER_FLIT)),
            emit.eq((total >= TARGETS_PER_FLIT) | is_end & (total != 0)),
            step.eq((flush | packed_valid) & (~emit | self.tx.ready) & (~is_end | self.o.ready)),
            packed_taken.eq(step & ~flush),
            self.tx.valid.eq(step & emit),
            self.tx.payload.eq(~window[:FLIT_BITS]),
            self.o.valid.eq(step & is_end),
            self.o.p.count.eq(count + added),
            self.o.p.fault.eq(fault | ~flush & packed_fault),
        ]
        with m.If(step):
            m.d.sync += [
                held.eq(Mux(emit, window[FLIT_BITS:], window)),
                fill.eq(Mux(emit, total - TARGETS_PER_FLIT, total)),
                count.eq(self.o.p.count),
                fault.eq(self.o.p.fault),
                flush.eq(packed_last & ~is_end),
            ]
            with m.If(is_end):
                m.d.sync += [held.eq(0), fill.eq(0), count.eq(0), fault.eq(0), flush.eq(0)]
        return m


def _compact(m: Module, ids: Value, mask: Value) -> tuple[Value, Value]:
    """Inverted ids that are wanted, moved down over those that are not; and their number.

    Each wanted id moves down by the number of unwanted ones before it, bit 0 of that number
    first; in this order two ids never meet.
    """
    lanes = [ids.word_select(k, TARGET_BITS) for k in range(TARGETS_PER_FLIT)]
    wanted = [mask[k] & (lanes[k] != NO_TARGET) for k in range(TARGETS_PER_FLIT)]
    gap, moves = Const(0, 3), []
    for keep in wanted:
        moves.append(gap)
        gap = (gap + ~keep)[:3]
    stage = [
        Cat(keep, Mux(keep, ~lane, 0), Mux(keep, move, 0))
        for keep, lane, move in zip(wanted, lanes, moves, strict=True)
    ]
    for bit in range(TARGETS_PER_FLIT.bit_length() - 1):
        moved = []
        for k in range(TARGETS_PER_FLIT):
            lane = Signal(len(stage[k]), name=f"compact{bit}_{k}")
            stays = Mux(stage[k][1 + TARGET_BITS + bit], 0, stage[k])
            comes = Const(0)
            if (above := k + (1 << bit)) < TARGETS_PER_FLIT:
                comes = Mux(stage[above][1 + TARGET_BITS + bit], stage[above], 0)
            m.d.comb += lane.eq(stays | comes)
            moved.append(lane)
        stage = moved
    packed = Cat(lane[1 : 1 + TARGET_BITS] for lane in stage)
    return packed, sum(wanted, Value.cast(0))
