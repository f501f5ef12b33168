"""Proofs that requests hold no response, and that a stranger's requests reach nobody."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth import Module, Mux, Signal
from amaranth.hdl import Assert, Assume, Elaboratable
from amaranth.lib import data
from amaranth.lib.wiring import In

from dysharp.hw.config import load_preset
from dysharp.hw.packet import Dtype, Header
from dysharp.hw.share import ports_of
from dysharp.hw.switch.ingress import ingress_block
from dysharp.hw.switch.parser import FlitKind
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
