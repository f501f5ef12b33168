"""Proofs of what everything else is built on: queues, the arbiter, the link's mux."""

import pytest
from amaranth import Module, Signal, Value
from amaranth.hdl import Assert, Elaboratable

from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.link.fifo import Bypass, Fifo, Skid
from dysharp.hw.link.link_mux import LinkMux
from dysharp.sim_tb.formal import ProofFailed, prove


def past(m, value):
    """A value as it was a cycle ago; zero in the first cycle."""
    before = Signal.like(Value.cast(value))
    m.d.sync += before.eq(value)
    return before


def keeps_its_word(m, stream):
    """Assert that a word offered and not taken is offered again, unchanged."""
    payload = Value.cast(stream.payload)
    waited, before = past(m, stream.valid & ~stream.ready), past(m, payload)
    m.d.comb += Assert(~waited | stream.valid & (payload == before))


class ArbiterHarness(Elaboratable):
    """One grant, to somebody who asks, whenever somebody asks; nobody waits for more than all.

    What counts are grants that are used; between them any time may pass.
    """

    def __init__(self, count, waits):
        self.dut, self.waits = RoundRobin(count=count), waits
        self.ports = [self.dut.request, self.dut.advance]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        waited = Signal(range(self.waits + 2))
        granted = Signal(dut.count)
        m.d.comb += granted.eq(~dut.behind)
        with m.If(~dut.request[0] | dut.advance & dut.grant[0]):
            m.d.sync += waited.eq(0)
        with m.Elif(dut.advance):
            m.d.sync += waited.eq(waited + 1)
        m.d.comb += [
            Assert(dut.grant & ~dut.request == 0),
            Assert(dut.grant & (dut.grant - 1) == 0),
            Assert(dut.grant.any() == dut.request.any()),
            Assert(waited <= self.waits),
            # Grants go up, so there were no more than stand in front of the last one and with it.
            Assert((waited == 0) | (waited < dut.count - sum(dut.behind))),
            Assert(granted & (granted + 1) == 0),
            Assert(granted[0]),
        ]
        return m


class QueueHarness(Elaboratable):
    """Any word comes out once, after those before it, unchanged, and is offered until taken."""

    def __init__(self, queue, depth):
        self.dut, self.depth = queue, depth
        self.mark = Signal()
        self.ports = [queue.i.valid, queue.i.payload, queue.o.ready, self.mark]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        enters, leaves = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        held, ahead = Signal(range(self.depth + 2)), Signal(range(self.depth + 2))
        marked, gone, word = Signal(), Signal(), Signal.like(dut.i.payload)
        m.d.sync += held.eq(held + enters - leaves)
        with m.If(enters & self.mark & ~marked):
            m.d.sync += [marked.eq(1), word.eq(dut.i.payload), ahead.eq(held - leaves)]
        with m.Elif(marked & leaves & ~gone):
            m.d.comb += Assert((ahead != 0) | (dut.o.payload == word))
            m.d.sync += [ahead.eq(ahead - 1), gone.eq(ahead == 0)]
        m.d.comb += [Assert(held <= self.depth), Assert(dut.o.valid == (held != 0))]
        keeps_its_word(m, dut.o)
        return m


class BypassHarness(Elaboratable):
    """A word passes at once or is held, unchanged, until it is taken; never two, never twice."""

    def __init__(self):
        self.dut = Bypass(shape=2)
        self.ports = [self.dut.i.valid, self.dut.i.payload, self.dut.o.ready]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        enters, leaves = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        is_held, word = Signal(), Signal.like(dut.i.payload)
        with m.If(is_held):
            m.d.comb += [Assert(dut.o.valid & ~dut.i.ready), Assert(dut.o.payload == word)]
        with m.Else():
            m.d.comb += [
                Assert((dut.o.valid == dut.i.valid) & dut.i.ready),
                Assert(~dut.o.valid | (dut.o.payload == dut.i.payload)),
            ]
        with m.If(enters):
            m.d.sync += word.eq(dut.i.payload)
        m.d.sync += is_held.eq((is_held | enters) & ~leaves)
        return m


class LinkHarness(Elaboratable):
    """In no cycle does a new flit appear in both classes; none is dropped or changed on offer."""

    def __init__(self):
        self.dut = LinkMux()
        streams = (self.dut.i_req, self.dut.i_rsp)
        self.ports = [self.dut.o_req.ready, self.dut.o_rsp.ready]
        self.ports += [port for s in streams for port in (s.valid, Value.cast(s.payload))]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        appear = []
        for stream in (dut.o_req, dut.o_rsp):
            waits = past(m, stream.valid & ~stream.ready)
            appear.append(stream.valid & ~waits)
            keeps_its_word(m, stream)
        m.d.comb += Assert(~(appear[0] & appear[1]))
        return m


@pytest.mark.parametrize("count", [2, 5])
def test_round_robin(count):
    harness = ArbiterHarness(count, waits=count - 1)
    prove(harness, harness.ports, name=f"round_robin_{count}", depth=count + 2, induction=True)


def test_a_proof_can_fail():
    harness = ArbiterHarness(4, waits=2)
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="round_robin_impatient", depth=8)


@pytest.mark.parametrize("depth", [2, 3])
def test_fifo(depth):
    harness = QueueHarness(Fifo(shape=2, depth=depth), depth)
    prove(harness, harness.ports, name=f"fifo_{depth}", depth=2 * depth + 2)


def test_a_fifo_that_holds_too_much_is_found():
    harness = QueueHarness(Fifo(shape=2, depth=3), 2)
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="fifo_too_long", depth=6)


def test_skid():
    harness = QueueHarness(Skid(shape=2), 2)
    prove(harness, harness.ports, name="skid", depth=10)


def test_bypass():
    harness = BypassHarness()
    prove(harness, harness.ports, name="bypass", depth=3, induction=True)


def test_link_mux():
    harness = LinkHarness()
    prove(harness, harness.ports, name="link_mux", depth=7)


class TurnHarness(Elaboratable):
    """A response that the link would take is taken in, whatever requests do, within some cycles."""

    def __init__(self, waits):
        self.dut, self.waits = LinkMux(), waits
        streams = (self.dut.i_req, self.dut.i_rsp)
        self.ports = [self.dut.o_req.ready, self.dut.o_rsp.ready]
        self.ports += [port for s in streams for port in (s.valid, Value.cast(s.payload))]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        waited = Signal(range(self.waits + 2))
        with m.If(dut.o_rsp.ready & dut.i_rsp.valid & ~dut.i_rsp.ready):
            m.d.sync += waited.eq(waited + 1)
        with m.Else():
            m.d.sync += waited.eq(0)
        m.d.comb += Assert(waited <= self.waits)
        return m


def test_a_response_waits_for_its_turn():
    """For a flit of a request and the response before it, whether requests come or stand still."""
    harness = TurnHarness(waits=2)
    prove(harness, harness.ports, name="link_turn", depth=4, induction=True)
    harness = TurnHarness(waits=1)
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="link_impatient", depth=6)
