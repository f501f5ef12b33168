"""Proofs of the crossbar's credits: no queue overflows, no credit is lost, readers are fair."""

from __future__ import annotations

import pytest
from amaranth import Module, Signal
from amaranth.hdl import Assert, Assume, Elaboratable
from amaranth.lib.wiring import In

from dysharp.hw.packet import MAX_FLITS
from dysharp.hw.share import ports_of
from dysharp.hw.switch.credits import Credits
from dysharp.hw.switch.packet_queue import PacketQueue
from dysharp.hw.switch.queue_reader import QueueReader
from dysharp.sim_tb.formal import ProofFailed, prove


class OpenQueue(PacketQueue):
    """A packet queue that shows how full it is."""

    def __init__(self, *, depth: int):
        super().__init__(depth=depth)
        self.level = Signal(range(depth + 1))

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.d.comb += self.level.eq(m.submodules.queue.level)
        return m


class CreditHarness(Elaboratable):
    """A queue, who counts for it, and who writes packets of any length into it at any pace.

    Every flit of room is in one place: with the counter, promised to a packet that is begun, in the
    queue, or on its way back.
    """

    def __init__(self, credits: Credits):
        self.credits, self.queue = credits, OpenQueue(depth=credits.depth)
        self.begin, self.push = Signal(), Signal()
        flit, ready = self.queue.lane.flit.as_value(), self.queue.o.ready
        self.ports = [credits.flits, self.begin, self.push, flit, ready]

    def elaborate(self, platform):
        m = Module()
        m.submodules.credits, m.submodules.queue = credits, queue = self.credits, self.queue
        lane, depth = queue.lane, queue.depth
        promised = Signal(range(depth + 1))
        with m.If(credits.take):
            m.d.sync += promised.eq(promised - lane.push + credits.flits)
        with m.Else():
            m.d.sync += promised.eq(promised - lane.push)
        m.d.comb += [
            Assume((credits.flits != 0) & (credits.flits <= MAX_FLITS)),
            credits.take.eq(self.begin & credits.fits),
            credits.credit.eq(lane.credit),
            lane.push.eq(self.push & (promised != 0)),
            Assert(~lane.push | (queue.level != depth)),
            Assert(credits.left[0] + promised + queue.level + lane.credit == depth),
        ]
        return m


class Forgetful(Credits):
    """Loses the credit that comes in the cycle in which a packet is begun."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        with m.If(self.take):
            m.d.sync += self.left[0].eq(self.left[0] - self.flits)
        return m


@pytest.mark.parametrize("depth", [MAX_FLITS, MAX_FLITS + 9])
def test_no_queue_overflows_and_no_credit_is_lost(depth):
    harness = CreditHarness(Credits(queues=1, depth=depth))
    prove(harness, harness.ports, name=f"credits_{depth}", depth=3, induction=True)


def test_a_lost_credit_is_found():
    harness = CreditHarness(Forgetful(queues=1, depth=MAX_FLITS))
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="credits_forgetful", depth=8)


class TurnHarness(Elaboratable):
    """A queue whose packet is whole is served after some packets of others, whatever these do."""

    def __init__(self, *, count: int, waits: int):
        self.dut, self.waits = QueueReader(count=count), waits
        self.ports = [value for value, flow in ports_of(self.dut).values() if flow is In]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        asks, waits, within = Signal(), Signal(), Signal()
        passed = Signal(range(self.waits + 2))
        ends = dut.o.valid & dut.o.ready & dut.o.payload.last
        m.d.comb += [
            asks.eq(dut.starts[0] & dut.whole[0]),
            Assume(dut.starts & ~dut.valid == 0),
            Assume(~within | ~dut.starts[0]),
            Assume(~waits | asks),
            Assert(dut.take & (dut.take - 1) == 0),
            Assert(passed <= self.waits),
        ]
        m.d.sync += waits.eq(asks & ~dut.take[0])
        with m.If(dut.take[0]):
            m.d.sync += within.eq(~dut.o.payload.last)
        with m.If(~asks | dut.take[0]):
            m.d.sync += passed.eq(0)
        with m.Elif(ends):
            m.d.sync += passed.eq(passed + 1)
        return m


def test_a_whole_packet_is_read_in_its_turn():
    """It waits for the packet under way and for one of each other queue."""
    harness = TurnHarness(count=3, waits=3)
    prove(harness, harness.ports, name="reader_turn", depth=10)


def test_the_bound_of_a_reader_is_not_smaller():
    harness = TurnHarness(count=3, waits=2)
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="reader_impatient", depth=10)
