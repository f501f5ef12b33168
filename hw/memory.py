"""The one memory of the design: a RAM with one write and one read port.

By a build option it becomes an inferred memory, flip-flops, or a named SRAM macro; see
``docs/memory.md``.
"""

from contextlib import contextmanager
from contextvars import ContextVar

from amaranth import Array, Cat, Instance, Module, Mux, Signal
from amaranth.hdl import ClockSignal
from amaranth.lib import memory
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

__all__ = ["MEMORY_STYLES", "memory_style", "Ram"]

MEMORY_STYLES = ("inferred", "flipflops", "macro")

_style: ContextVar[str] = ContextVar("memory style", default="inferred")


@contextmanager
def memory_style(style: str):
    """Build every :class:`Ram` elaborated inside the block as ``style``.

    Parameters
    ----------
    style : ``inferred`` | ``flipflops`` | ``macro``
    """
    if style not in MEMORY_STYLES:
        raise ValueError(f"Memory style must be one of {', '.join(MEMORY_STYLES)}, not {style!r}")
    token = _style.set(style)
    try:
        yield
    finally:
        _style.reset(token)


class Ram(Component):
    """One-write, one-read synchronous RAM with write enables by granule.

    Latency: read data appears one cycle after ``read_en``, and holds until the next read.
    Throughput: one read and one write every cycle. A read of the address written in the same cycle
    gives the new data if ``transparent``, else it is undefined and users must avoid it. Contents
    are undefined until written; reset leaves them.

    Parameters
    ----------
    width : bits a word
    depth : words, at least 1
    granularity : bits that one write enable covers; None for the whole word
    transparent : a colliding read sees the new data

    Members
    -------
    write_en : In, a bit a granule
    write_addr, write_data : In
    read_en, read_addr : In
    read_data : Out
    """

    def __init__(self, *, width: int, depth: int, granularity: int | None = None,
                 transparent: bool = False):
        granularity = granularity or width
        if width < 1 or width % granularity:
            raise ValueError(f"Width must be a positive multiple of the granularity, not {width!r}")
        if depth < 1:
            raise ValueError(f"Depth must be at least 1, not {depth!r}")
        self.width, self.depth = width, depth
        self.granularity, self.transparent = granularity, transparent
        address = ceil_log2(depth)
        super().__init__({
            "write_en": In(width // granularity),
            "write_addr": In(address),
            "write_data": In(width),
            "read_en": In(1),
            "read_addr": In(address),
            "read_data": Out(width),
        })

    @property
    def module_name(self) -> str:
        """``ram_<depth>x<width>[_g<granularity>][_wt]``; ``wt`` is write-through."""
        granules = f"_g{self.granularity}" if self.granularity != self.width else ""
        return f"ram_{self.depth}x{self.width}{granules}" + ("_wt" if self.transparent else "")

    def elaborate(self, platform):
        """Build the memory in the style that :func:`memory_style` set."""
        build = {"inferred": self._inferred, "flipflops": self._flipflops, "macro": self._macro}
        return build[_style.get()]()

    def _inferred(self) -> Module:
        m = Module()
        m.submodules.array = array = memory.Memory(shape=self.width, depth=self.depth, init=[])
        write = array.write_port(granularity=self.granularity)
        read = array.read_port(transparent_for=[write] if self.transparent else [])
        m.d.comb += [
            write.en.eq(self.write_en), write.addr.eq(self.write_addr),
            write.data.eq(self.write_data),
            read.en.eq(self.read_en), read.addr.eq(self.read_addr),
            self.read_data.eq(read.data),
        ]
        return m

    def _flipflops(self) -> Module:
        m = Module()
        words = Array(Signal(self.width, name=f"word{k}", reset_less=True)
                      for k in range(self.depth))
        mask = self._bit_mask()
        old = words[self.write_addr]
        with m.If(self.write_en.any()):
            m.d.sync += old.eq(old & ~mask | self.write_data & mask)
        hold = Signal(self.width, reset_less=True)
        with m.If(self.read_en):
            m.d.sync += hold.eq(self._bypass(words[self.read_addr], mask))
        m.d.comb += self.read_data.eq(hold)
        return m

    def _macro(self) -> Module:
        m = Module()
        macro_data = Signal(self.width)
        m.submodules.macro = Instance(
            f"sram_{self.depth}x{self.width}",
            i_clk=ClockSignal(), i_write_mask=self._bit_mask(), i_write_addr=self.write_addr,
            i_write_data=self.write_data, i_read_en=self.read_en, i_read_addr=self.read_addr,
            o_read_data=macro_data)
        if not self.transparent:
            m.d.comb += self.read_data.eq(macro_data)
            return m
        mask = Signal(self.width)
        written = Signal(self.width)
        with m.If(self.read_en):
            same = self.write_addr == self.read_addr
            m.d.sync += [mask.eq(Mux(same, self._bit_mask(), 0)), written.eq(self.write_data)]
        m.d.comb += self.read_data.eq(macro_data & ~mask | written & mask)
        return m

    def _bit_mask(self):
        bits = [en.replicate(self.granularity) for en in self.write_en]
        return Cat(*bits)

    def _bypass(self, word, mask):
        if not self.transparent:
            return word
        collides = self.write_addr == self.read_addr
        return Mux(collides, word & ~mask | self.write_data & mask, word)

