"""Leaves in a replica's list the targets of the one GPU that it goes to."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.config import Config
from dysharp.hw.link.fifo import Bypass, Fifo
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import (
    CMD_RULES,
    FLIT_BITS,
    MAX_TARGETS,
    NO_TARGET,
    TARGET_BITS,
    TARGETS_PER_FLIT,
    Header,
    PruneInfo,
    tx_flits,
)
from dysharp.hw.share import place

__all__ = ["Compactor", "Prune", "prune_block"]

_SLOTS = data.ArrayLayout(TARGET_BITS, TARGETS_PER_FLIT)
_REST = data.ArrayLayout(TARGET_BITS, TARGETS_PER_FLIT - 1)
_TOTAL = range(2 * TARGETS_PER_FLIT)


class _Head(data.Struct):
    """A header that is ready to go; ``poison`` is its packet's, if the list was the end of it."""

    header: Header
    poison: 1


class _Body(data.Struct):
    """A flit behind the header."""

    data: FLIT_BITS
    poison: 1


class Compactor(Component):
    """Closes the gaps in one TX flit and appends the result to what is held already.

    Latency: none, combinational.
    """

    ids: Any
    """In(array), target ids of one TX flit."""
    match: Signal
    """In, a bit an id: it stays."""
    held: Signal
    """In, ids held so far, 0 to 7."""
    kept: Any
    """In(array), the held ids, the first ones count."""
    total: Signal
    """Out, ids held and added, 0 to 15."""
    filled: Any
    """Out(array), the first 8 of the held and added ids, in order; 0xFFFF behind the last."""
    rest: Any
    """Out(array), those behind them, in the same way."""

    def __init__(self):
        super().__init__(
            {
                "ids": In(_SLOTS),
                "match": In(TARGETS_PER_FLIT),
                "held": In(range(TARGETS_PER_FLIT)),
                "kept": In(_REST),
                "total": Out(_TOTAL),
                "filled": Out(_SLOTS),
                "rest": Out(_REST),
            }
        )

    @property
    def module_name(self) -> str:
        """``compactor``."""
        return "compactor"

    def elaborate(self, platform):
        """Id ``k`` lands behind the held ids and the ``k`` matches before it."""
        m = Module()
        places = []
        for k in range(TARGETS_PER_FLIT + 1):
            places.append(Signal(_TOTAL, name=f"place{k}"))
            m.d.comb += places[k].eq(self.held + _count_ones(self.match[:k]))
        m.d.comb += self.total.eq(places[-1])
        for slot, output in enumerate([*self.filled, *self.rest]):
            m.d.comb += output.eq(NO_TARGET)
            if slot < TARGETS_PER_FLIT - 1:
                with m.If(slot < self.held):
                    m.d.comb += output.eq(self.kept[slot])
            for k in range(max(0, slot - TARGETS_PER_FLIT + 1), TARGETS_PER_FLIT):
                with m.If(self.match[k] & (places[k] == slot)):
                    m.d.comb += output.eq(self.ids[k])
        return m


class Prune(Component):
    """Rewrites a list of targets to those of one GPU, and ``len`` and ``count`` with it.

    A target ``id`` belongs to GPU ``id >> split``; order and repetitions stay. Packets without a
    list (unicast, static, responses) pass unchanged but for the cleared ``crc``, at the same
    latency. The ingress sends a list only where it has a target, so it never becomes empty.

    Latency: one cycle for a packet without a list, two with up to 8 targets; one more for every
    further TX flit, since the header goes first and needs the last of them. Throughput: one flit
    a cycle, no bubble for lists up to 8; a longer one may cost one cycle, when its last TX flit
    completes a flit and leaves a rest. ``i.ready`` comes from a register.

    Source
    ------
    The DySHARP paper's target-list pruning: each output gets the list of the experts that are
    behind it, found by the target's number over the experts of a GPU.
    """

    i: stream.Interface
    """In(FlitStream), packets with :class:`~dysharp.hw.packet.PruneInfo` in ``crc``."""
    o: stream.Interface
    """Out(FlitStream), packets with ``crc`` zero."""
    gpu: Signal
    """In, the GPU at this output; constant."""

    def __init__(self):
        super().__init__({"i": In(FlitStream), "o": Out(FlitStream), "gpu": In(7)})

    @property
    def module_name(self) -> str:
        """``prune``."""
        return "prune"

    def elaborate(self, platform):
        """Scan: headers aside, lists compacted, all else queued. Emit: header, then its flits."""
        m = Module()
        arriving = Bypass(shape=Flit)
        bodies = Fifo(shape=_Body, depth=tx_flits(MAX_TARGETS))
        heads: Any = stream.Signature(_Head).create(path=("heads",))
        m.submodules.arriving = place(arriving)
        m.submodules.bodies = place(bodies)
        connect(m, flipped(self.i), arriving.i)
        self._scan(m, arriving.o, heads, bodies.i)
        self._emit(m, heads, bodies.o)
        return m

    def _scan(self, m: Module, i, heads, bodies) -> None:
        """Split the input into ``heads`` and ``bodies``; a header waits for the end of its list."""
        compactor = Compactor()
        m.submodules.compactor = place(compactor)
        at_header = Signal(init=1)
        waiting: Any = Signal(_Head)
        is_waiting = Signal()
        list_left = Signal(range(tx_flits(MAX_TARGETS) + 1))
        total = Signal(range(MAX_TARGETS + 1))
        kept = Signal(_REST)
        owes_rest = Signal()

        in_list = Signal()
        list_ends = Signal()
        accept_header = Signal()
        accept_body = Signal()
        head_leaves = Signal()
        m.d.comb += [
            in_list.eq(list_left != 0),
            list_ends.eq(list_left == 1),
            accept_header.eq(i.valid & i.ready & at_header),
            accept_body.eq(i.valid & i.ready & ~at_header),
            i.ready.eq(~owes_rest & Mux(at_header, ~is_waiting | heads.ready, bodies.ready)),
        ]
        with m.If(i.valid & i.ready):
            m.d.sync += at_header.eq(i.payload.last)

        # The list: the targets of this GPU close up; full flits leave, up to 7 ids are kept.
        ids = compactor.ids
        matches = Signal(range(TARGETS_PER_FLIT + 1))
        final_total = Signal(range(MAX_TARGETS + 1))
        fills = Signal()
        leaves_rest = Signal()
        split = data.View(PruneInfo, waiting.header.crc).split
        m.d.comb += [
            Value.cast(ids).eq(i.payload.data),
            compactor.match.eq(Cat((id != NO_TARGET) & (id >> split == self.gpu) for id in ids)),
            compactor.held.eq(total),
            compactor.kept.eq(kept),
            matches.eq(_count_ones(compactor.match)),
            final_total.eq(total + matches),
            fills.eq(compactor.total >= TARGETS_PER_FLIT),
            leaves_rest.eq(list_ends & (compactor.total > TARGETS_PER_FLIT)),
        ]
        with m.If(accept_body & in_list):
            m.d.sync += [
                list_left.eq(list_left - 1),
                total.eq(final_total),
                kept.eq(Mux(fills, compactor.rest, Cat(*compactor.filled)[: len(kept.as_value())])),
                owes_rest.eq(leaves_rest),
            ]

        # Bodies: the rest of a list, or what a TX flit gives, or any other flit as it came.
        with m.If(owes_rest):
            m.d.comb += [
                bodies.valid.eq(1),
                bodies.payload.data.eq(Cat(kept, Const(NO_TARGET, TARGET_BITS))),
            ]
            with m.If(bodies.ready):
                m.d.sync += owes_rest.eq(0)
        with m.Elif(in_list):
            m.d.comb += [
                bodies.valid.eq(accept_body & (fills | list_ends & (compactor.total != 0))),
                bodies.payload.data.eq(compactor.filled),
            ]
        with m.Else():
            m.d.comb += [
                bodies.valid.eq(accept_body),
                bodies.payload.data.eq(i.payload.data),
                bodies.payload.poison.eq(i.payload.poison),
            ]

        # Headers: one waits a cycle, or until its list is known. If it cannot leave with the last
        # of its list, what the list made of it is kept.
        m.d.comb += [
            heads.valid.eq(is_waiting & (~in_list | list_ends & accept_body)),
            head_leaves.eq(heads.valid & heads.ready),
            heads.payload.eq(waiting),
            heads.payload.header.crc.eq(0),
        ]
        with m.If(in_list):
            old_flits = tx_flits(waiting.header.multimem.count)
            m.d.comb += [
                heads.payload.header.len.eq(waiting.header.len - old_flits + tx_flits(final_total)),
                heads.payload.header.multimem.count.eq(final_total),
                heads.payload.poison.eq(i.payload.last & i.payload.poison),
            ]
        with m.If(head_leaves):
            m.d.sync += is_waiting.eq(0)
        with m.Elif(heads.valid):
            m.d.sync += waiting.eq(heads.payload)
        arriving: Any = Signal(Header)
        m.d.comb += arriving.eq(i.payload.data)
        with m.If(accept_header):
            m.d.sync += [
                waiting.header.eq(arriving),
                waiting.poison.eq(i.payload.poison & i.payload.last),
                is_waiting.eq(1),
                list_left.eq(Mux(_has_list(arriving), tx_flits(arriving.multimem.count), 0)),
                total.eq(0),
            ]

    def _emit(self, m: Module, heads, bodies) -> None:
        """Join the header with ``len`` flits behind it."""
        left = Signal(5)
        poison = Signal()
        last = Signal()
        transfer = Signal()
        m.d.comb += transfer.eq(self.o.valid & self.o.ready)
        with m.If(left == 0):
            m.d.comb += [
                last.eq(heads.payload.header.len == 0),
                self.o.valid.eq(heads.valid),
                self.o.payload.data.eq(heads.payload.header),
                self.o.payload.poison.eq(last & heads.payload.poison),
                heads.ready.eq(self.o.ready),
            ]
            with m.If(transfer):
                m.d.sync += [left.eq(heads.payload.header.len), poison.eq(heads.payload.poison)]
        with m.Else():
            m.d.comb += [
                last.eq(left == 1),
                self.o.valid.eq(bodies.valid),
                self.o.payload.data.eq(bodies.payload.data),
                self.o.payload.poison.eq(last & (poison | bodies.payload.poison)),
                bodies.ready.eq(transfer),
            ]
            with m.If(transfer):
                m.d.sync += left.eq(left - 1)
        m.d.comb += self.o.payload.last.eq(last)


def _count_ones(bits):
    """Number of set bits."""
    return sum(list(bits), start=Const(0, 1))


def _has_list(header):
    """TX flits follow, if the count is not 0."""
    return Cat(header.cmd == cmd for cmd, rule in CMD_RULES.items() if rule.targets).any()


def prune_block(config: Config) -> Prune:
    """One output's pruning, as a block of its own."""
    return Prune()
