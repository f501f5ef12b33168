"""The one memory of the design: a RAM with one write and one read port.

By a build option (``memory`` in the configuration) it becomes an inferred memory, flip-flops, or an
instance of a macro named ``sram_<depth>x<width>[_g<granularity>]``, which is left to the user.
"""

from contextlib import contextmanager
from contextvars import ContextVar

from amaranth import Array, Instance, Module, Mux, Signal, Value
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
    """

    write_en: Signal
    """In, a bit a granule."""
    write_addr: Signal
    """In."""
    write_data: Signal
    """In."""
    read_en: Signal
    """In."""
    read_addr: Signal
    """In."""
    read_data: Signal
    """Out."""

    def __init__(
        self, *, width: int, depth: int, granularity: int | None = None, transparent: bool = False
    ):
        granularity = granularity or width
        if width < 1 or width % granularity:
            raise ValueError(f"Width must be a positive multiple of the granularity, not {width!r}")
        if depth < 1:
            raise ValueError(f"Depth must be at least 1, not {depth!r}")
        self.width, self.depth = width, depth
        self.granularity, self.transparent = granularity, transparent
        address = ceil_log2(depth)
        super().__init__(
            {
                "write_en": In(width // granularity),
                "write_addr": In(address),
                "write_data": In(width),
                "read_en": In(1),
                "read_addr": In(address),
                "read_data": Out(width),
            }
        )

    @property
    def module_name(self) -> str:
        """``ram_<depth>x<width>[_g<granularity>][_wt]``; ``wt`` is write-through."""
        granules = f"_g{self.granularity}" if self.granularity != self.width else ""
        return f"ram_{self.depth}x{self.width}{granules}" + ("_wt" if self.transparent else "")

    def elaborate(self, platform):
        """The array in the style that :func:`memory_style` set, then the write-through bypass."""
        m = Module()
        word = Signal(self.width)
        build = {"inferred": self._inferred, "flipflops": self._flipflops, "macro": self._macro}
        build[_style.get()](m, word)
        if not self.transparent:
            m.d.comb += self.read_data.eq(word)
            return m
        written = Signal(self.width, reset_less=True)
        collided = Signal(len(self.write_en))
        with m.If(self.read_en):
            collides = self.write_addr == self.read_addr
            m.d.sync += [
                written.eq(self.write_data),
                collided.eq(Mux(collides, self.write_en, 0)),
            ]
        for k, hit in enumerate(collided):
            granule = slice(k * self.granularity, (k + 1) * self.granularity)
            m.d.comb += self.read_data[granule].eq(Mux(hit, written[granule], word[granule]))
        return m

    def _inferred(self, m, word):
        m.submodules.array = array = memory.Memory(shape=self.width, depth=self.depth, init=[])
        write = array.write_port(granularity=self.granularity)
        read = array.read_port()
        m.d.comb += [
            write.en.eq(self.write_en),
            write.addr.eq(self.write_addr),
            write.data.eq(self.write_data),
            read.en.eq(self.read_en),
            read.addr.eq(self.read_addr),
            word.eq(read.data),
        ]

    def _flipflops(self, m, word):
        words = Array(
            Signal(self.width, name=f"word{k}", reset_less=True) for k in range(self.depth)
        )
        for k, write_en in enumerate(self.write_en):
            granule = slice(k * self.granularity, (k + 1) * self.granularity)
            with m.If(write_en):
                m.d.sync += Value.cast(words[self.write_addr])[granule].eq(self.write_data[granule])
        with m.If(self.read_en):
            m.d.sync += word.eq(words[self.read_addr])

    def _macro(self, m, word):
        m.submodules.macro = Instance(
            self.module_name.removesuffix("_wt").replace("ram_", "sram_", 1),
            i_clk=ClockSignal(),
            i_write_en=self.write_en,
            i_write_addr=self.write_addr,
            i_write_data=self.write_data,
            i_read_en=self.read_en,
            i_read_addr=self.read_addr,
            o_read_data=word,
        )
