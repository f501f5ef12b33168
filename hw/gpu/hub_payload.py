"""The Hub's payload buffer: whole packets in, beats of write bursts out."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped
from amaranth.utils import ceil_log2

from dysharp.hw.link.fifo import Fifo
from dysharp.hw.memory import Ram
from dysharp.hw.packet import FLIT_BITS, FLIT_BYTES
from dysharp.hw.share import place

__all__ = ["HubPayload", "PayloadFlit", "PayloadRun", "bank_of_lane", "write_beat"]

BEATS_AHEAD = 4


class PayloadFlit(data.Struct):
    """A DATA or BE flit of a packet.

    Members
    -------
    data : 128 bits
    index : which of the packet's DATA flits
    enables : a BE flit, not data
    first : the first DATA flit; what stands before is a BE flit or nothing
    last : the packet is complete
    """

    data: FLIT_BITS
    index: 5
    enables: 1
    first: 1
    last: 1


class PayloadRun(data.Struct):
    """The oldest packet's data, once as a stretch of memory.

    Members
    -------
    lane : 16-byte lane of a beat where the first flit goes
    flits : DATA flits
    first_beats : beats of the first burst; the others, if any, are a second one
    none : nothing is written
    last : the packet has no more runs and is forgotten
    """

    lane: 3
    flits: 5
    first_beats: 5
    none: 1
    last: 1


def write_beat(data_width: int) -> data.StructLayout:
    """What the AXI4 write data channel carries."""
    return data.StructLayout({"data": data_width, "strb": data_width // 8, "last": 1})


class HubPayload(Component):
    """Buffers the DATA of whole packets and plays it once for each expert that wants it.

    Flit ``j`` stands in bank ``j mod lanes``, so a beat at any alignment reads each bank
    once and is turned into place.

    Latency: three cycles from a run to its first beat. Throughput: a flit a cycle in, a beat a
    cycle out, no bubble between runs that are known. ``i.ready`` is low while all places are taken.

    Parameters
    ----------
    data_width : bits of a memory beat, 128 to 1024
    chunk_bytes : the longest payload
    packets : places, at least 2
    """

    i: stream.Interface
    """In(stream of PayloadFlit)."""
    run: stream.Interface
    """In(stream of PayloadRun), packets in the order in which they came."""
    o: stream.Interface
    """Out(stream of :func:`write_beat`)."""

    def __init__(self, *, data_width: int, chunk_bytes: int, packets: int):
        if data_width not in (128, 256, 512, 1024):
            raise ValueError(f"Data width must be 128, 256, 512 or 1024, not {data_width!r}")
        if packets < 2:
            raise ValueError(f"Packets must be at least 2, not {packets!r}")
        self.data_width, self.chunk_bytes, self.packets = data_width, chunk_bytes, packets
        super().__init__(
            {
                "i": In(stream.Signature(PayloadFlit)),
                "run": In(stream.Signature(PayloadRun)),
                "o": Out(stream.Signature(write_beat(data_width))),
            }
        )

    @property
    def module_name(self) -> str:
        """``hub_payload_w<data width>_c<chunk bytes>_p<packets>``."""
        return f"hub_payload_w{self.data_width}_c{self.chunk_bytes}_p{self.packets}"

    def elaborate(self, platform):
        """A ring of places; beat by beat from the oldest."""
        m = Module()
        self.lanes = self.data_width // FLIT_BITS
        self.flits = self.chunk_bytes // FLIT_BYTES
        self.words = self.flits // self.lanes
        lane_bits = ceil_log2(self.lanes)
        head, tail = Signal(range(self.packets)), Signal(range(self.packets))
        used = Signal(range(self.packets + 1))
        arrive, leave = Signal(), Signal()
        banks, enables = self._store(m, tail, arrive)

        m.submodules.beats = place(
            beats := Fifo(shape=write_beat(self.data_width), depth=BEATS_AHEAD)
        )
        run = self.run.payload
        beat = Signal(range(self.words + 2))
        total = Signal(range(self.words + 2))
        room, issue, is_end = Signal(), Signal(), Signal()
        m.d.comb += [
            self.i.ready.eq(used != self.packets),
            arrive.eq(self.i.valid & self.i.ready & self.i.p.last),
            total.eq((run.flits + run.lane + self.lanes - 1) >> lane_bits),
            room.eq(beats.level <= BEATS_AHEAD - 2),
            is_end.eq(run.none | (beat == total - 1)),
            issue.eq(self.run.valid & (room | run.none)),
            self.run.ready.eq(issue & is_end),
            leave.eq(issue & is_end & run.last),
        ]
        m.d.sync += used.eq(used + arrive - leave)
        with m.If(arrive):
            m.d.sync += tail.eq(Mux(tail == self.packets - 1, 0, tail + 1))
        with m.If(leave):
            m.d.sync += head.eq(Mux(head == self.packets - 1, 0, head + 1))
        with m.If(issue):
            m.d.sync += beat.eq(Mux(is_end, 0, beat + 1))

        for b, bank in enumerate(banks):
            m.d.comb += [
                bank.read_en.eq(issue),
                bank.read_addr.eq(head * self.words + beat - self._wraps(b, run.lane)),
            ]
        m.d.comb += [enables.read_en.eq(issue), enables.read_addr.eq(head)]

        going, lane, flits, now = Signal(), Signal(3), Signal(5), Signal.like(beat)
        is_last = Signal()
        m.d.sync += [
            going.eq(issue & ~run.none),
            lane.eq(run.lane),
            flits.eq(run.flits),
            now.eq(beat),
            is_last.eq(is_end | (beat + 1 == run.first_beats)),
        ]
        words = Cat(bank.read_data for bank in banks)
        m.d.comb += [
            beats.i.valid.eq(going),
            beats.i.p.data.eq(_turn_up(words, lane[:lane_bits], FLIT_BITS)),
            beats.i.p.strb.eq(self._strobes(enables.read_data, flits, lane[:lane_bits], now)),
            beats.i.p.last.eq(is_last),
        ]
        connect(m, beats.o, flipped(self.o))
        return m

    def _store(self, m: Module, tail, arrive):
        """Banks and byte enables with their write sides."""
        flit = self.i.payload
        taken = self.i.valid & self.i.ready
        banks = []
        index_bits = ceil_log2(self.flits)
        lane_bits = ceil_log2(self.lanes)
        for b in range(self.lanes):
            bank = Ram(width=FLIT_BITS, depth=self.packets * self.words)
            m.submodules[f"bank{b}"] = place(bank)
            here = flit.index[:lane_bits] == b if lane_bits else Const(1, 1)
            m.d.comb += [
                bank.write_en.eq(taken & ~flit.enables & here),
                bank.write_addr.eq(tail * self.words + flit.index[lane_bits:index_bits]),
                bank.write_data.eq(flit.data),
            ]
            banks.append(bank)
        m.submodules.enables = place(enables := Ram(width=FLIT_BITS, depth=self.packets))
        seen, given = Signal(), Signal(FLIT_BITS)
        with m.If(taken & flit.enables):
            m.d.sync += [given.eq(flit.data), seen.eq(1)]
        with m.If(arrive):
            m.d.sync += seen.eq(0)
        m.d.comb += [
            enables.write_en.eq(arrive),
            enables.write_addr.eq(tail),
            enables.write_data.eq(Mux(seen, given, ~0)),
        ]
        return banks, enables

    def _wraps(self, bank: int, lane):
        return bank_of_lane(bank, lane, self.lanes)

    def _strobes(self, enables, flits, lane, beat):
        """Byte enables of the whole payload, moved to their lane; then those of one beat."""
        present = Cat((flits > j).replicate(FLIT_BYTES) for j in range(self.flits))
        allowed = Cat(enables, Const(-1, self.chunk_bytes))[: self.chunk_bytes] & present
        moved = Cat(allowed, Const(0, self.data_width // 8)) << (lane * FLIT_BYTES)
        return moved.word_select(beat, self.data_width // 8)


def bank_of_lane(bank: int, lane, lanes: int):
    """Whether ``bank`` is read one word earlier in a beat, for data that start at ``lane``."""
    return lane + bank >= lanes


def _turn_up(words, lane, width: int):
    """Bank 0 to ``lane``, the others after it, round the end."""
    return words.rotate_left(0) if not len(lane) else _rotate(words, lane, width)


def _rotate(words, lane, width: int):
    for bit in range(len(lane)):
        words = Mux(lane[bit], words.rotate_left(width << bit), words)
    return words
