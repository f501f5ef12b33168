"""The Hub's store side: write bursts out, answers of memory back."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.axi import ADDR_BITS, PAGE_BYTES
from dysharp.hw.gpu.hub_payload import PayloadRun
from dysharp.hw.gpu.hub_records import STATUS_BITS, Access, Written
from dysharp.hw.link.fifo import Fifo, Skid
from dysharp.hw.packet import FLIT_BITS, FLIT_BYTES, Status
from dysharp.hw.share import place
from dysharp.hw.switch.error_answer import smaller_status

__all__ = ["Burst", "BurstCut", "HubWriter"]

PAGE_FLITS = PAGE_BYTES // FLIT_BYTES
RUNS_AHEAD = 4


class Burst(data.Struct):
    """Address channel of a burst.

    Members
    -------
    addr : aligned to a beat
    len : beats - 1
    """

    addr: ADDR_BITS
    len: 8


class BurstCut(Component):
    """Takes a stretch of memory apart at a 4 KB boundary. Combinational.

    Parameters
    ----------
    data_width : bits of a beat
    """

    vaddr: Signal
    """In, start."""
    flits: Signal
    """In, length, at most 16 flits."""
    second: Signal
    """In, which of the two bursts is wanted."""
    burst: Any
    """Out(Burst)."""
    crosses: Signal
    """Out, there are two."""
    lane: Signal
    """Out, where in its beat the first flit stands."""
    beats: Signal
    """Out, of both bursts together."""
    first_beats: Signal
    """Out, of the first."""

    def __init__(self, *, data_width: int):
        self.data_width = data_width
        super().__init__(
            {
                "vaddr": In(ADDR_BITS),
                "flits": In(5),
                "second": In(1),
                "burst": Out(Burst),
                "crosses": Out(1),
                "lane": Out(3),
                "beats": Out(5),
                "first_beats": Out(5),
            }
        )

    @property
    def module_name(self) -> str:
        """``burst_cut_<data width>``."""
        return f"burst_cut_{self.data_width}"

    def elaborate(self, platform):
        """Count beats to the boundary and beats in all."""
        m = Module()
        lanes = self.data_width // FLIT_BITS
        lane_bits = ceil_log2(lanes)
        first_flit = self.vaddr[4 : 4 + lane_bits]
        beat_bits = 4 + lane_bits
        to_page = Signal(range(PAGE_FLITS // lanes + 1))
        m.d.comb += [
            self.lane.eq(first_flit),
            self.beats.eq((first_flit + self.flits + lanes - 1) >> lane_bits),
            to_page.eq(PAGE_FLITS // lanes - self.vaddr[beat_bits:12]),
            self.crosses.eq(self.beats > to_page),
            self.first_beats.eq(Mux(self.crosses, to_page, self.beats)),
            self.burst.addr.eq(
                Mux(
                    self.second,
                    (self.vaddr[12:] + 1) << 12,
                    self.vaddr[beat_bits:] << beat_bits,
                )
            ),
            self.burst.len.eq(Mux(self.second, self.beats - to_page, self.first_beats) - 1),
        ]
        return m


class _Pending(data.Struct):
    """A burst that memory will answer, or an entry that needs no burst."""

    burst: 1
    whole: 1
    last: 1
    counted: 1
    status: STATUS_BITS
    written: Written


class HubWriter(Component):
    """Writes one access after the other and tells when memory has them.

    A write burst may begin inside of a beat and never crosses 4 KB; an access that does is two
    bursts. Answers are always taken: what they need to be understood has a place before the burst
    leaves. A refused write (SLVERR, DECERR) makes its packet ``POISONED``, as its data is not to be
    trusted any more.

    Latency: 3 cycles to the address. Throughput: a burst a cycle.

    Parameters
    ----------
    data_width : bits of a memory beat
    bursts : bursts that memory has not answered
    """

    i: stream.Interface
    """In(stream of Access), without ``load``."""
    aw: stream.Interface
    """Out(stream of Burst)."""
    run: stream.Interface
    """Out(stream of PayloadRun), to the payload buffer, in the order of ``aw``."""
    b_valid: Signal
    """In, memory has answered the oldest burst."""
    b_error: Signal
    """In, it refused it."""
    o: stream.Interface
    """Out(stream of a status), once a packet, when all its entries are done: the smallest."""
    written: stream.Interface
    """Out(stream of Written), an entry that is done and counts."""

    def __init__(self, *, data_width: int, bursts: int):
        if bursts < 2:
            raise ValueError(f"Bursts must be at least 2, not {bursts!r}")
        self.data_width, self.bursts = data_width, bursts
        super().__init__(
            {
                "i": In(stream.Signature(Access)),
                "aw": Out(stream.Signature(Burst)),
                "run": Out(stream.Signature(PayloadRun)),
                "b_valid": In(1),
                "b_error": In(1),
                "o": Out(stream.Signature(STATUS_BITS)),
                "written": Out(stream.Signature(Written)),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_writer_w<data width>_b<bursts>``."""
        return f"hub_writer_w{self.data_width}_b{self.bursts}"

    def elaborate(self, platform):
        """Bursts out; then the pending ones in order, each with its answer."""
        m = Module()
        m.submodules.bursts_out = place(bursts := Skid(shape=Burst))
        m.submodules.runs = place(runs := Fifo(shape=PayloadRun, depth=RUNS_AHEAD))
        m.submodules.pending = place(pending := Fifo(shape=_Pending, depth=self.bursts))
        m.submodules.answers = place(answers := Fifo(shape=1, depth=self.bursts))
        self._issue(m, bursts.i, runs.i, pending.i)
        self._retire(m, pending.o, answers.o)
        m.d.comb += [
            answers.i.valid.eq(self.b_valid),
            answers.i.payload.eq(self.b_error),
        ]
        connect(m, bursts.o, flipped(self.aw))
        connect(m, runs.o, flipped(self.run))
        return m

    def _issue(self, m: Module, bursts, runs, pending) -> None:
        access = self.i.payload
        m.submodules.cut = place(cut := BurstCut(data_width=self.data_width))
        second = Signal()
        writes, wants_run, whole, step = (
            Signal(name=name) for name in ("writes", "wants_run", "whole", "step")
        )
        m.d.comb += [
            cut.vaddr.eq(access.vaddr),
            cut.flits.eq(access.flits),
            cut.second.eq(second),
            writes.eq(access.status == 0),
            whole.eq(~writes | second | ~cut.crosses),
            wants_run.eq(~second & (writes | access.last)),
            step.eq(
                self.i.valid & pending.ready & (~writes | bursts.ready) & (~wants_run | runs.ready)
            ),
            self.i.ready.eq(step & whole),
            bursts.valid.eq(step & writes),
            bursts.payload.eq(cut.burst),
            runs.valid.eq(step & wants_run),
            runs.p.lane.eq(cut.lane),
            runs.p.flits.eq(access.flits),
            runs.p.first_beats.eq(cut.first_beats),
            runs.p.none.eq(~writes),
            runs.p.last.eq(access.last),
            pending.valid.eq(step),
            pending.p.burst.eq(writes),
            pending.p.whole.eq(whole),
            pending.p.last.eq(access.last),
            pending.p.counted.eq(access.counted),
            pending.p.status.eq(access.status),
            pending.p.written.object.eq(access.object),
            pending.p.written.slot.eq(access.slot),
            pending.p.written.lidx.eq(access.lidx),
            pending.p.written.flits.eq(access.flits),
        ]
        with m.If(step):
            m.d.sync += second.eq(~whole)

    def _retire(self, m: Module, pending, answers) -> None:
        worst, status = Signal(STATUS_BITS), Signal(STATUS_BITS)
        half_failed, failed, tells, ends, done, retire = (
            Signal(name=name)
            for name in ("half_failed", "failed", "tells", "ends", "done", "retire")
        )
        entry = pending.payload
        m.d.comb += [
            done.eq(pending.valid & (~entry.burst | answers.valid)),
            failed.eq(half_failed | entry.burst & answers.payload),
            tells.eq(entry.burst & entry.whole & entry.counted & ~failed),
            ends.eq(entry.whole & entry.last),
            status.eq(
                smaller_status(
                    worst, Mux(entry.burst, Mux(failed, Status.POISONED.value, 0), entry.status)
                )
            ),
            self.written.valid.eq(done & tells & (~ends | self.o.ready)),
            self.written.payload.eq(entry.written),
            self.o.valid.eq(done & ends & (~tells | self.written.ready)),
            self.o.payload.eq(status),
            retire.eq(done & (~tells | self.written.ready) & (~ends | self.o.ready)),
            pending.ready.eq(retire),
            answers.ready.eq(retire & entry.burst),
        ]
        with m.If(retire):
            m.d.sync += [
                worst.eq(Mux(ends, 0, status)),
                half_failed.eq(failed & ~entry.whole),
            ]
