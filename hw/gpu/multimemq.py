"""The MultimemQ: the source GPU's queue of multimem instructions."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.axi import axi4_read
from dysharp.hw.config import Config
from dysharp.hw.gpu.instruction import Instruction, Result
from dysharp.hw.gpu.list_fetch import ListFetch
from dysharp.hw.gpu.outstanding import Outstanding
from dysharp.hw.gpu.packetizer import Completion, Packetizer, QueuedInstruction
from dysharp.hw.link.fifo import Fifo, Skid
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.packet import (
    CHUNK_BYTES,
    FLIT_BYTES,
    MAX_FLITS,
    Status,
    tx_flits,
)
from dysharp.hw.share import place
from dysharp.hw.switch.parser import Parser

__all__ = ["MultimemQ", "MultimemQEvents", "multimemq_block"]


class MultimemQEvents(data.Struct):
    """Pulses.

    Members
    -------
    packets : a packet has begun
    answered : an answer has come to its instruction
    faulted : among these, with a fault
    unknown : an answer that nobody waits for was dropped
    malformed : a response packet was dropped as malformed
    refused : an instruction completed with a fault and sent nothing
    empty : an instruction completed without a fault and sent nothing, as its list names nobody
    """

    packets: 1
    answered: 1
    faulted: 1
    unknown: 1
    malformed: 1
    refused: 1
    empty: 1


class MultimemQ(Component):
    """Takes multimem instructions, reads their lists, sends their packets, returns their results.

    Instructions leave in the order in which they came; results come back as they are complete, in
    any order, each one's beats together. Store data is one burst of ``data`` an instruction, in
    the order of the instructions; an operation that is none has no data.

    Entries 0xFFFF of a list are dropped. A dynamic instruction left with no target sends nothing:
    a store completes, a load returns +0. Only a static instruction sends count 0. MM_STP completes
    when its packet has left, all others with their one answer.

    Latency: seven cycles from instruction to HDR for a static one, plus memory's and four more for
    one with a list. Throughput: one flit a cycle, no bubble between packets, as long as the lists
    are there; see :class:`ListFetch`. Responses are taken at one flit a cycle, always: a stalled
    ``result`` never holds up ``rx``.

    Errors, as the result's ``fault``
    ------
    MALFORMED: no multimem operation, ``maddr`` not 16-byte or ``list_addr`` not 2-byte aligned, no
    flits or more than the chunk has left; an answer that does not fit (see :class:`Outstanding`).
    UNSUPPORTED: HDR, list and data are more than 32 flits (splitting is not built). POISONED: the
    list could not be read, or the answer is poison. Anything else: status of the ERR.

    Parameters
    ----------
    entries : instructions that wait for their packet, at least 2
    outstanding : packets that wait for their answer
    chunk_bytes : 128 or 256
    data_width : bits of a memory beat, 128 to 1024
    result_beats : beats of results reserved or held, at least 16; by default a chunk for each
        outstanding packet

    Source
    ------
    The DySHARP paper (MultimemQ of 32 entries apart from the LSQ); PTX multimem.
    """

    inst: stream.Interface
    """In(stream of Instruction)."""
    inst_data: stream.Interface
    """In(FlitStream), ``last`` ends an instruction's data."""
    result: stream.Interface
    """Out(stream of Result)."""
    tx: stream.Interface
    """Out(FlitStream), requests."""
    rx: stream.Interface
    """In(FlitStream), responses, always taken."""
    m_axi: Any
    """Out, read channels of AXI4, id ``LIST_FETCH``."""
    events: data.View
    """Out(MultimemQEvents)."""

    def __init__(
        self,
        *,
        entries: int = 32,
        outstanding: int,
        chunk_bytes: int,
        data_width: int,
        result_beats: int | None = None,
    ):
        if chunk_bytes not in CHUNK_BYTES:
            raise ValueError(f"Chunk bytes must be 128 or 256, not {chunk_bytes!r}")
        if entries < 1:
            raise ValueError(f"Entries must be at least 1, not {entries!r}")
        self.entries, self.outstanding = entries, outstanding
        self.chunk_bytes, self.data_width = chunk_bytes, data_width
        if result_beats is None:
            result_beats = max(16, outstanding * (chunk_bytes // FLIT_BYTES))
        self.result_beats = result_beats
        super().__init__(
            {
                "inst": In(stream.Signature(Instruction)),
                "inst_data": In(FlitStream),
                "result": Out(stream.Signature(Result)),
                "tx": Out(FlitStream),
                "rx": In(FlitStream),
                "m_axi": Out(axi4_read(data_width=data_width)),
                "events": Out(MultimemQEvents),
            }
        )

    @property
    def module_name(self) -> str:
        """``multimemq_<entries>_o<outstanding>_r<result beats>_c<chunk>_w<data width>``."""
        return (
            f"multimemq_{self.entries}_o{self.outstanding}_r{self.result_beats}"
            f"_c{self.chunk_bytes}_w{self.data_width}"
        )

    def elaborate(self, platform):
        """Queue and list fetch side by side, packetizer, answers, and the two ways of results."""
        m = Module()
        depth = max(2, self.entries)
        queue = Fifo(shape=QueuedInstruction, depth=depth)
        lists = ListFetch(data_width=self.data_width, lists=depth)
        answers = Outstanding(entries=self.outstanding, beats=self.result_beats)
        packetizer = Packetizer(room_bits=len(answers.room))
        parser = Parser(responses=True, chunk_bytes=self.chunk_bytes)
        done = Fifo(shape=Completion, depth=4)
        m.submodules.queue = place(queue)
        m.submodules.lists = place(lists)
        m.submodules.packetizer = place(packetizer)
        m.submodules.parser = place(parser)
        m.submodules.answers = place(answers)
        m.submodules.done = place(done)

        self._take(m, queue, lists)
        connect(m, queue.o, packetizer.i)
        connect(m, lists.o, packetizer.list)
        connect(m, lists.tx, packetizer.tx)
        connect(m, lists.m_axi, flipped(self.m_axi))
        connect(m, flipped(self.inst_data), packetizer.data)
        connect(m, answers.tag, packetizer.tag)
        connect(m, packetizer.sent, answers.sent)
        connect(m, packetizer.done, done.i)
        connect(m, packetizer.o, flipped(self.tx))
        connect(m, flipped(self.rx), parser.i)
        connect(m, parser.o, answers.i)
        m.d.comb += [packetizer.room.eq(answers.room), parser.error.ready.eq(1)]
        self._give(m, answers.o, done.o)
        m.d.comb += [
            self.events.packets.eq(packetizer.events.packets),
            self.events.answered.eq(answers.events.answered),
            self.events.faulted.eq(answers.events.faulted),
            self.events.unknown.eq(answers.events.unknown),
            self.events.malformed.eq(parser.fault.valid),
            self.events.refused.eq(packetizer.events.refused),
            self.events.empty.eq(packetizer.events.empty),
        ]
        return m

    def _take(self, m: Module, queue: Fifo, lists: ListFetch) -> None:
        """Check an instruction; it joins the queue and its list is asked for in one cycle."""
        instruction = self.inst.p
        chunk_flits = self.chunk_bytes // FLIT_BYTES
        first_flit = instruction.maddr[4 : 4 + (chunk_flits - 1).bit_length()]
        fault = Signal(Status)
        has_list, listed = Signal(), Signal()
        length = Signal(range(1 + 16 + 32))
        m.d.comb += [
            has_list.eq(~instruction.static & (instruction.count != 0)),
            length.eq(
                1
                + Mux(has_list, tx_flits(instruction.count), 0)
                + Mux(instruction.gives_data, instruction.flits, 0)
            ),
        ]
        with m.If(
            ~instruction.known
            | (instruction.maddr[:4] != 0)
            | (instruction.flits == 0)
            | (first_flit + instruction.flits > chunk_flits)
            | has_list & instruction.list_addr[0]
        ):
            m.d.comb += fault.eq(Status.MALFORMED)
        with m.Elif(length > MAX_FLITS):
            m.d.comb += fault.eq(Status.UNSUPPORTED)
        m.d.comb += [
            listed.eq(has_list & (fault == Status.OK)),
            self.inst.ready.eq(queue.i.ready & lists.i.ready),
            queue.i.valid.eq(self.inst.valid & lists.i.ready),
            queue.i.p.instruction.eq(instruction),
            queue.i.p.fault.eq(fault),
            queue.i.p.listed.eq(listed),
            lists.i.valid.eq(self.inst.valid & listed & queue.i.ready),
            lists.i.p.addr.eq(instruction.list_addr),
            lists.i.p.count.eq(instruction.count),
        ]

    def _give(self, m: Module, answered, completed) -> None:
        """Results of answers and completions without one in turn, each whole."""
        zeros_left = Signal(5)
        in_zeros, in_answer, favour_answer = Signal(), Signal(), Signal()
        choose_answer, left = Signal(), Signal(5)
        out = Skid(shape=Result)
        m.submodules.out = place(out)
        result = out.i
        m.d.comb += [
            choose_answer.eq(
                in_answer | ~in_zeros & answered.valid & (favour_answer | ~completed.valid)
            ),
            left.eq(Mux(in_zeros, zeros_left, completed.p.zeros)),
        ]
        connect(m, out.o, flipped(self.result))
        with m.If(choose_answer):
            m.d.comb += [
                result.valid.eq(answered.valid),
                result.payload.eq(answered.payload),
                answered.ready.eq(result.ready),
            ]
        with m.Else():
            m.d.comb += [
                result.valid.eq(completed.valid),
                result.p.id.eq(completed.p.id),
                result.p.fault.eq(completed.p.fault),
                result.p.has_data.eq(left != 0),
                result.p.last.eq(left <= 1),
                completed.ready.eq(result.ready & result.p.last),
            ]
        with m.If(result.valid & result.ready):
            m.d.sync += [
                in_answer.eq(choose_answer & ~result.p.last),
                in_zeros.eq(~choose_answer & ~result.p.last),
                favour_answer.eq(~choose_answer),
                zeros_left.eq(left - 1),
            ]


def multimemq_block(config: Config) -> MultimemQ:
    """The MultimemQ of a configuration."""
    return MultimemQ(
        entries=config.gpu.multimemq_entries,
        outstanding=config.gpu.outstanding,
        chunk_bytes=config.chunk_bytes,
        data_width=config.gpu.memory_width,
    )
