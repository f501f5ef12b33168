"""Proofs that requests hold no response, and that a stranger's requests reach nobody."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.hdl import Assert, Assume, Elaboratable
from amaranth.lib import data
from amaranth.lib.wiring import In

from dysharp.hw.config import load_preset
from dysharp.hw.packet import FLIT_BITS, MAX_FLITS, Dtype, Header
from dysharp.hw.share import ports_of
from dysharp.hw.switch.crosspoint import Column
from dysharp.hw.switch.ingress import ingress_block
from dysharp.hw.switch.parser import FlitKind
from dysharp.hw.switch.replicate import Replicate
from dysharp.hw.switch.route import Route
from dysharp.sim_tb.formal import ProofFailed, prove, prove_independent

REQUEST_SIDE = ["rx_req", "req", "reserve", "session", "objects", "error"]


def test_no_request_holds_a_response_on_its_way_in():
    """Whatever requests, outputs, sessions and the object table do, responses go the same way."""
    prove_independent(
        ingress_block(load_preset("tiny")), ["rx_rsp", "rsp"], REQUEST_SIDE, name="ingress_rsp"
    )


def test_a_path_is_found():
    dut = ingress_block(load_preset("tiny"))
    with pytest.raises(ProofFailed, match="a path leads to"):
        prove_independent(dut, ["error"], ["rx_req.valid"], name="ingress_error")
    with pytest.raises(ValueError, match="flows that way, not 'rx_rsp.ready'"):
        prove_independent(dut, ["req"], ["rx_rsp.ready"], name="ingress_error")


class StrangerHarness(Elaboratable):
    """A route whose GPU is a member of no object; any flits that a parser hands on, any objects.

    Parameters
    ----------
    member : it may be one after all
    """

    def __init__(self, *, member: bool = False):
        self.member = member
        self.dut = Route(
            gpus=2,
            links=1,
            objects=1,
            chunk_bytes=128,
            gpu_address_bit=40,
            dtypes=(Dtype.BF16,),
        )
        ports = ports_of(self.dut).values()
        self.ports = [value for value, flow in ports if flow is In]

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        flit, routed = dut.i.payload, dut.o.payload
        header: Any = data.View(Header, routed.flit.data)
        enters, leaves = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
        begins, at_header = Signal(init=1), Signal(init=1)
        multimem, was_multimem = Signal(), Signal()
        m.d.comb += [
            Assume(dut.gpu == 0),
            Assume((flit.kind == FlitKind.HDR) == begins),
            multimem.eq(Mux(at_header, header.tx, was_multimem)),
            Assert(~(dut.o.valid & routed.decided & multimem) | routed.record.refused),
        ]
        if not self.member:
            m.d.comb += [Assume(~dut.objects[k].members[0]) for k in range(dut.object_count)]
        with m.If(enters):
            m.d.sync += begins.eq(flit.last)
        with m.If(leaves):
            m.d.sync += [
                was_multimem.eq(multimem),
                at_header.eq(routed.flit.last | routed.decided & routed.record.refused),
            ]
        return m


def test_a_stranger_is_refused():
    """Whatever a GPU that is no member sends to objects is refused, so it reaches no queue."""
    harness = StrangerHarness()
    prove(harness, harness.ports, name="stranger", depth=7)


def test_a_member_is_no_stranger():
    harness = StrangerHarness(member=True)
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="member", depth=7)


def test_no_request_holds_a_response_at_an_output():
    """Contributions and unicast responses leave their queues whatever the request queues do."""
    ports = 4
    dut = Column(ports=ports, request_depth=MAX_FLITS, response_depth=MAX_FLITS)
    responses = ["response", "contribution", *(f"inputs.{k}.rsp" for k in range(ports))]
    requests = ["request", *(f"inputs.{k}.req" for k in range(ports))]
    prove_independent(dut, responses, requests, name="column_rsp")
    prove_independent(dut, requests, responses, name="column_req")


class RefusalHarness(Elaboratable):
    """Packets of any length with any targets, some refused; these bear a mark in every flit.

    Parameters
    ----------
    dut : the block under proof
    """

    def __init__(self, dut: Replicate):
        self.dut = dut
        self.refuses = Signal()
        self.ports = [value for value, flow in ports_of(dut).values() if flow is In]
        self.ports.append(self.refuses)

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        flit, record, decided = (dut.i.payload[name] for name in ("flit", "record", "decided"))
        accept, begins = dut.i.valid & dut.i.ready, Signal(init=1)
        refuses, refused = Signal(), Signal()
        number, length, is_known = Signal(5), Signal(5), Signal()
        m.d.comb += [
            refuses.eq(Mux(begins, self.refuses, refused)),
            Assume(dut.push.credit == 0),
            # The mark stands where neither tag nor crc is written.
            Assume(flit.data == Cat(Const(0, FLIT_BITS - 1), refuses)),
            Assume(~decided | (record.refused == refuses) & (record.len >= number) & ~is_known),
            Assume(~decided | record.session.ports.any()),
            Assume(flit.last == Mux(decided, record.len == number, is_known & (length == number))),
            Assert(~dut.push.push.any() | ~dut.push.flit.data[-1]),
        ]
        with m.If(accept):
            m.d.sync += [begins.eq(0), refused.eq(refuses), number.eq(number + 1)]
            with m.If(decided):
                m.d.sync += [is_known.eq(1), length.eq(record.len)]
            with m.If(flit.last | decided & refuses):
                m.d.sync += [begins.eq(1), is_known.eq(0), number.eq(0)]
        return m


class Trusting(Replicate):
    """Records refused packets like all others."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        records = m.submodules.records
        accept = self.i.valid & self.i.ready
        m.d.comb += records.i.valid.eq(accept & self.i.payload.decided)
        return m


def test_nothing_of_a_refused_packet_leaves():
    """Before, between and behind packets that are not refused."""
    harness = RefusalHarness(Replicate(ports=2, queue_depth=MAX_FLITS))
    prove(harness, harness.ports, name="refusal", depth=6)


def test_a_refused_packet_that_leaves_is_found():
    harness = RefusalHarness(Trusting(ports=2, queue_depth=MAX_FLITS))
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(harness, harness.ports, name="refusal_trusting", depth=6)
