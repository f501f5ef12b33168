"""The Hub's reduction: the entries of one packet, in list order, to one result."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.alu.alu import ReductionAlu
from dysharp.hw.alu.reductions import Arithmetic
from dysharp.hw.alu.result_rounder import ResultRounder
from dysharp.hw.gpu.hub_records import STATUS_BITS, ReadItem, record
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.memory import Ram
from dysharp.hw.packet import FLIT_BITS, FLIT_BYTES, Attr
from dysharp.hw.share import place
from dysharp.hw.switch.error_answer import smaller_status

__all__ = ["HubReduce"]


class _Step(data.Struct):
    """A group of flits on its way through the adders."""

    valid: 1
    load: 1
    raw: 1
    emit: 1
    group: 4
    attr: Attr


class HubReduce(Component):
    """Loads the first entry of a packet, adds the others in order, and rounds once at the last.

    A NaN of a single entry becomes canonical too. RD's data passes through as it is. A packet with
    an error gives its smallest status and no data.

    Latency: 3 cycles from the last entry's data, and those of the ALU. Throughput: ``group`` flits
    a cycle, but an entry that is reduced takes at least as many cycles as the ALU has stages.

    Parameters
    ----------
    data_width : bits of a memory beat
    chunk_bytes : the longest access
    group : flits a cycle, a divisor of the beat's; each has its own ALU
    arithmetic : types, and depth of the ALUs

    Source
    ------
    ``docs/hub.md``: list order, one rounding to the wire's type.
    """

    i: stream.Interface
    """In(stream of ReadItem)."""
    word_en: Signal
    """Out, read word ``word`` of the entry at ``i``."""
    word: Signal
    """Out."""
    word_data: Signal
    """In, one cycle later."""
    o: stream.Interface
    """Out(stream of a status), once a packet, before its data."""
    result: stream.Interface
    """Out(stream of ``group`` flits), the data; a packet's last group may be part empty."""

    def __init__(self, *, data_width: int, chunk_bytes: int, group: int, arithmetic: Arithmetic):
        flits = data_width // FLIT_BITS
        if group < 1 or flits % group:
            raise ValueError(f"Group must be a divisor of the beat's {flits} flits, not {group!r}")
        self.data_width, self.chunk_bytes, self.group = data_width, chunk_bytes, group
        self.arithmetic = arithmetic
        super().__init__(
            {
                "i": In(stream.Signature(ReadItem)),
                "word_en": Out(1),
                "word": Out(4),
                "word_data": In(data_width),
                "o": Out(stream.Signature(STATUS_BITS)),
                "result": Out(stream.Signature(group * FLIT_BITS)),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_reduce_w<data width>_c<chunk bytes>_g<group>_<of the arithmetic>``."""
        return (
            f"hub_reduce_w{self.data_width}_c{self.chunk_bytes}_g{self.group}"
            f"_{self.arithmetic.name}"
        )

    def elaborate(self, platform):
        """Group by group: read word and accumulators, add, write back or round."""
        m = Module()
        groups = self.chunk_bytes // FLIT_BYTES // self.group
        group_bits = ceil_log2(self.group)
        latency = self.arithmetic.depth
        depth = 2 * groups + latency + 4
        m.submodules.results = place(results := Fifo(shape=self.group * FLIT_BITS, depth=depth))
        m.submodules.statuses = place(statuses := Fifo(shape=STATUS_BITS, depth=2))

        item = self.i.payload
        number = Signal(5)
        first, worst, total = Signal(init=1), Signal(STATUS_BITS), Signal(STATUS_BITS)
        needed, length = Signal(5), Signal(5)
        works, emits, is_begin, is_end, has_room, step = (
            Signal(name=name)
            for name in ("works", "emits", "is_begin", "is_end", "has_room", "step")
        )
        m.d.comb += [
            total.eq(smaller_status(worst, item.status)),
            works.eq(total == 0),
            emits.eq(works & item.last),
            needed.eq((item.flits + self.group - 1) >> group_bits),
            length.eq(
                # The next entry adds to the sums of this one, which leave the ALUs no earlier.
                Mux(item.reduce & (needed < latency), latency, needed)
            ),
            is_begin.eq(number == 0),
            is_end.eq(~works | (number == length - 1)),
            has_room.eq(
                (~emits | (results.level < depth - latency - 2))
                & (~(is_begin & item.last) | statuses.i.ready)
            ),
            step.eq(self.i.valid & has_room),
            self.i.ready.eq(step & is_end),
            statuses.i.valid.eq(step & is_begin & item.last),
            statuses.i.payload.eq(total),
        ]
        with m.If(step):
            m.d.sync += number.eq(Mux(is_end, 0, number + 1))
            with m.If(is_end):
                m.d.sync += [first.eq(item.last), worst.eq(Mux(item.last, 0, total))]

        now = record(_Step)
        words_bits = ceil_log2(self.data_width // FLIT_BITS // self.group)
        m.d.comb += [
            self.word_en.eq(step),
            self.word.eq(number >> words_bits),
            now.valid.eq(step & works & (number < needed)),
            now.load.eq(first),
            now.raw.eq(~item.reduce),
            now.emit.eq(emits),
            now.group.eq(number),
            now.attr.eq(item.attr),
        ]
        self._compute(m, now, groups, words_bits, results.i)
        connect(m, statuses.o, flipped(self.o))
        connect(m, results.o, flipped(self.result))
        return m

    def _compute(self, m: Module, now, groups: int, words_bits: int, results) -> None:
        """ALUs; what belongs to a sum goes beside it, stage by stage."""
        width = self.group * FLIT_BITS
        alus = [ReductionAlu(**self.arithmetic.options) for _ in range(self.group)]
        rounders = [ResultRounder(dtypes=self.arithmetic.dtypes) for _ in alus]
        m.submodules.sums = place(
            sums := Ram(width=self.group * alus[0].accumulator_bits, depth=groups, transparent=True)
        )
        adding = record(_Step)
        operand = Signal(width)
        total = Signal(len(sums.write_data))
        sofar = Signal.like(total)
        m.d.sync += adding.eq(now)
        m.d.comb += [
            sums.read_en.eq(now.valid),
            sums.read_addr.eq(now.group),
            operand.eq(
                self.word_data.word_select(adding.group[:words_bits], width)
                if words_bits
                else self.word_data
            ),
        ]
        for k, alu in enumerate(alus):
            m.submodules[f"alu{k}"] = place(alu)
            m.d.comb += [
                alu.attr.eq(adding.attr),
                alu.load.eq(adding.load),
                alu.operand.eq(operand.word_select(k, FLIT_BITS)),
                alu.accumulator.eq(sofar.word_select(k, alu.accumulator_bits)),
            ]
        done, raw = adding, operand
        for stage in range(self.arithmetic.depth):
            step, data_too = record(_Step, name=f"step{stage}"), Signal(width, name=f"raw{stage}")
            m.d.sync += [step.eq(done), data_too.eq(raw)]
            done, raw = step, data_too
        # A sum that is wanted as it leaves the ALUs has been read too early.
        m.d.comb += [
            total.eq(Cat(alu.result for alu in alus)),
            sofar.eq(Mux(sums.write_en & (done.group == adding.group), total, sums.read_data)),
            sums.write_en.eq(done.valid & ~done.raw & ~done.emit),
            sums.write_addr.eq(done.group),
            sums.write_data.eq(total),
            results.valid.eq(done.valid & done.emit),
            results.payload.eq(Mux(done.raw, raw, Cat(rounder.o for rounder in rounders))),
        ]
        for k, (alu, rounder) in enumerate(zip(alus, rounders, strict=True)):
            m.submodules[f"rounder{k}"] = place(rounder)
            m.d.comb += [rounder.attr.eq(done.attr), rounder.accumulator.eq(alu.result)]
