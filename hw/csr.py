"""Control and status registers: an AXI4-Lite slave made from a register map."""

from dataclasses import dataclass
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.axi import axi4_lite
from dysharp.hw.register_map import (
    WORD_BITS,
    WORD_BYTES,
    Access,
    Register,
    RegisterMap,
    Window,
    window_port,
)

__all__ = ["CsrBank", "Response", "window_port"]


class Response(enum.Enum, shape=2):
    """AXI answers in use."""

    OKAY = 0
    SLVERR = 2


class CsrBank(Component):
    """Registers and table windows behind one AXI4-Lite slave.

    Writes and reads are executed one at a time, a write first if both wait. A read that is issued
    after the answer to a write sees it; between two that are under way no order is promised.
    Address and data of a write may come in either order. Every output of the bus is a register.

    Latency: answer to a write 2 cycles after the later of address and data, answer to a read 3
    cycles after its address. Throughput: a write every 2 cycles, a read every 3.

    Parameters
    ----------
    registers : the map that is built

    Members
    -------
    Besides ``bus`` and ``events``, one by the name of each register and window that needs it:

    <CONTROL> : Out, what was written last; 0 after reset
    <COMMAND> : Out, what is written, for the one cycle of the write; otherwise 0
    <STATUS> : In, what is read
    <STICKY> : In, a bit that is high sets its register's bit, also in the cycle of a clear
    <STICKY>_held : Out, what the register holds
    <FIRST> : In, captured when its lowest field is high and the register holds nothing
    <window> : Out(window_port), one for each window

    Errors
    ------
    SLVERR, without effect: an unmapped address, a write to what is only read, a read of what is
    only written, and a write of part of a word (some of the four strobes) to a window. Registers
    honour the strobes byte by byte; no strobe at all writes nothing. The two lowest address bits
    are ignored.

    Source
    ------
    AMBA AXI and ACE protocol specification (AXI4-Lite).
    """

    bus: Any
    """In(axi4_lite), the slave."""
    events: Any
    """In, a field a counter: what it adds in this cycle; absent without counters."""

    def __init__(self, *, registers: RegisterMap):
        self.registers = registers
        members = {"bus": In(axi4_lite(addr_width=registers.addr_width))}
        counters = {}
        for register in registers.registers:
            if register.access is Access.COUNTER:
                counters[register.name] = register.step_bits
            elif register.access in (Access.CONTROL, Access.COMMAND):
                members[register.name] = Out(register.shape)
            elif register.access is not Access.CONSTANT:
                members[register.name] = In(register.shape)
            if register.access is Access.STICKY:
                members[f"{register.name}_held"] = Out(register.shape)
        if counters:
            members["events"] = In(data.StructLayout(counters))
        members |= {window.name: Out(window.port) for window in registers.windows}
        super().__init__(members)

    @property
    def module_name(self) -> str:
        """``csr_<name of the map>``."""
        return f"csr_{self.registers.name}"

    def elaborate(self, platform):
        """Bus registers, one access at a time, then each register and window on its own."""
        m = Module()
        bus = self.bus
        width = self.registers.addr_width - 2
        write_word, read_word, word = Signal(width), Signal(width), Signal(width)
        write_data, strobes = Signal(WORD_BITS), Signal(WORD_BYTES)
        address_held, data_held, read_held = Signal(), Signal(), Signal()

        m.d.comb += [
            bus.awready.eq(~address_held),
            bus.wready.eq(~data_held),
            bus.arready.eq(~read_held),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [write_word.eq(bus.awaddr[2:]), address_held.eq(1)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [write_data.eq(bus.wdata), strobes.eq(bus.wstrb), data_held.eq(1)]
        with m.If(bus.arvalid & bus.arready):
            m.d.sync += [read_word.eq(bus.araddr[2:]), read_held.eq(1)]
        with m.If(bus.bready):
            m.d.sync += bus.bvalid.eq(0)
        with m.If(bus.rready):
            m.d.sync += bus.rvalid.eq(0)

        write, reading = Signal(), Signal()
        m.d.comb += [
            write.eq(address_held & data_held & ~bus.bvalid & ~reading),
            word.eq(Mux(write, write_word, read_word)),
        ]
        m.d.sync += reading.eq(read_held & ~bus.rvalid & ~reading & ~write)

        access = _Access(m, word, write, write_data, strobes)
        readable, writable, read_data = Signal(), Signal(), Signal(WORD_BITS)
        parts = [self._register(access, register) for register in self.registers.registers]
        with m.Switch(word):
            for register, value in zip(self.registers.registers, parts, strict=True):
                for index in range(register.words):
                    with m.Case(register.word + index):
                        m.d.comb += [
                            readable.eq(register.access.readable),
                            writable.eq(register.access.writable),
                            read_data.eq(value.word_select(index, WORD_BITS)),
                        ]
        for window in self.registers.windows:
            hit = self._window(access, window)
            with m.If(hit):
                m.d.comb += [
                    readable.eq(int(window.readable)),
                    writable.eq(strobes.all() | ~strobes.any()),
                    read_data.eq(getattr(self, window.name).read_data),
                ]

        with m.If(write):
            m.d.sync += [
                address_held.eq(0),
                data_held.eq(0),
                bus.bvalid.eq(1),
                bus.bresp.eq(Mux(writable, Response.OKAY, Response.SLVERR)),
            ]
        with m.If(reading):
            m.d.sync += [
                read_held.eq(0),
                bus.rvalid.eq(1),
                bus.rresp.eq(Mux(readable, Response.OKAY, Response.SLVERR)),
                bus.rdata.eq(Mux(readable, read_data, 0)),
            ]
        return m

    def _register(self, access: "_Access", register: Register) -> Value:
        """Build one register; what it reads."""
        m, kind = access.m, register.access
        if kind is Access.CONSTANT:
            return Const(register.value, register.width)
        if kind is Access.COUNTER:
            count = Signal(register.width, name=register.name)
            cleared = access.write & (access.word == register.word) & access.strobes.any()
            m.d.sync += count.eq(Mux(cleared, 0, count) + self.events[register.name])
            return count
        port = Value.cast(getattr(self, register.name))
        if kind is Access.STATUS:
            return port
        enable, written = access.bits_of(register)
        if kind is Access.COMMAND:
            m.d.comb += port.eq(enable & written)
            return Const(0, register.width)
        held = Signal(register.width, name=f"{register.name}_held")
        if kind is Access.CONTROL:
            m.d.sync += held.eq(held & ~enable | written & enable)
            m.d.comb += port.eq(held)
        elif kind is Access.STICKY:
            m.d.sync += held.eq(held & ~(written & enable) | port)
            m.d.comb += Value.cast(getattr(self, f"{register.name}_held")).eq(held)
        else:
            first = register.fields[0]
            valid = slice(first.lsb, first.lsb + first.width)
            with m.If(enable.any()):
                m.d.sync += held.eq(0)
            with m.If(port[valid].any() & (enable.any() | ~held[valid].any())):
                m.d.sync += held.eq(port)
        return held

    def _window(self, access: "_Access", window: Window) -> Value:
        """Drive one window's port; whether the access is inside of it."""
        m, port = access.m, getattr(self, window.name)
        inside, known = Signal(name=f"{window.name}_hit"), Signal(name=f"{window.name}_known")
        index_low, index_high = window.word_bits, window.word_bits + window.index_bits
        index = access.word[index_low:index_high]
        with m.Switch(access.word[:index_low]):
            for register in window.registers:
                for offset in range(register.words):
                    with m.Case(register.word + offset):
                        m.d.comb += known.eq(1)
        m.d.comb += [
            inside.eq(
                (access.word[index_high:] == window.base // window.span)
                & (index < window.entries)
                & known
            ),
            port.index.eq(index),
            port.word.eq(access.word),
            port.write_data.eq(access.data),
            port.write_en.eq(access.write & inside & access.strobes.all()),
        ]
        return inside


@dataclass
class _Access:
    """The access that is executed in this cycle."""

    m: Module
    word: Signal
    write: Signal
    data: Signal
    strobes: Signal

    def bits_of(self, register: Register) -> tuple[Signal, Signal]:
        """Which bits of a register are written now, and what is written."""
        enable = Signal(register.width, name=f"{register.name}_enable")
        written = Signal(register.width, name=f"{register.name}_written")
        strobed = Cat(strobe.replicate(8) for strobe in self.strobes)
        for index in range(register.words):
            here = self.write & (self.word == register.word + index)
            bits = slice(index * WORD_BITS, (index + 1) * WORD_BITS)
            exists = Const(register.mask, register.width)[bits]
            self.m.d.comb += [
                enable[bits].eq(Mux(here, exists & strobed, 0)),
                written[bits].eq(self.data),
            ]
        return enable, written
