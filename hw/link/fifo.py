"""First-in first-out queues: one in a RAM, and two of flip-flops that cut paths."""

from amaranth import Module, Mux, Signal, Value
from amaranth.hdl import Shape, ShapeLike
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.memory import Ram
from dysharp.hw.share import place

__all__ = ["Bypass", "Fifo", "Skid"]


def _width(shape: ShapeLike) -> int:
    return Shape.cast(shape).width


class Fifo(Component):
    """Queue of ``depth`` words in a RAM.

    Latency: one cycle from input to output. Throughput: one word a cycle at any fill. When full,
    ``i.ready`` is low even if a word leaves in that cycle, so no path leads from ``o.ready`` to
    ``i.ready``; when empty, ``o.valid`` is low.

    Parameters
    ----------
    shape : shape of a word
    depth : words, at least 2
    """

    i: stream.Interface
    """In, stream."""
    o: stream.Interface
    """Out, stream."""
    level: Signal
    """Out, words held, 0 to ``depth``."""

    def __init__(self, *, shape: ShapeLike, depth: int):
        if depth < 2:
            raise ValueError(f"Depth must be at least 2, not {depth!r}")
        self.shape, self.depth = shape, depth
        super().__init__(
            {
                "i": In(stream.Signature(shape)),
                "o": Out(stream.Signature(shape)),
                "level": Out(range(depth + 1)),
            }
        )

    @property
    def module_name(self) -> str:
        """``fifo_<depth>x<width>``."""
        return f"fifo_{self.depth}x{_width(self.shape)}"

    def elaborate(self, platform):
        """Ring of ``depth`` words; the RAM's read port always shows the word that leaves next."""
        m = Module()
        ram = Ram(width=_width(self.shape), depth=self.depth, transparent=True)
        m.submodules.ram = place(ram)
        head = Signal(range(self.depth))
        tail = Signal(range(self.depth))
        level = Signal(range(self.depth + 1))
        next_head = Signal(range(self.depth))

        accept = self.i.valid & self.i.ready
        leave = self.o.valid & self.o.ready
        m.d.comb += [
            self.i.ready.eq(level != self.depth),
            ram.write_en.eq(accept),
            ram.write_addr.eq(tail),
            ram.write_data.eq(self.i.payload),
        ]
        with m.If(accept):
            m.d.sync += tail.eq(self._next(tail))

        m.d.comb += [
            next_head.eq(Mux(leave, self._next(head), head)),
            ram.read_en.eq(1),
            ram.read_addr.eq(next_head),
            self.o.valid.eq(level != 0),
            Value.cast(self.o.payload).eq(ram.read_data),
        ]
        m.d.sync += [head.eq(next_head), level.eq(level + accept - leave)]
        m.d.comb += self.level.eq(level)
        return m

    def _next(self, pointer):
        return Mux(pointer == self.depth - 1, 0, pointer + 1)


class Skid(Component):
    """Two-entry queue of flip-flops that registers valid, payload and ready.

    Latency: one cycle. Throughput: one word a cycle. ``o`` and ``i.ready`` come straight from
    registers, so no combinational path crosses the block.

    Parameters
    ----------
    shape : shape of a word
    """

    i: stream.Interface
    """In, stream."""
    o: stream.Interface
    """Out, stream."""

    def __init__(self, *, shape: ShapeLike):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    @property
    def module_name(self) -> str:
        """``skid_<width>``."""
        return f"skid_{_width(self.shape)}"

    def elaborate(self, platform):
        """``front`` is what leaves; ``back`` takes the word that arrives while ``front`` waits."""
        m = Module()
        front, back = (Signal(_width(self.shape), name=name) for name in ("front", "back"))
        front_valid, back_valid = Signal(), Signal()
        front_free = self.o.ready | ~front_valid
        m.d.comb += [
            self.i.ready.eq(~back_valid),
            self.o.valid.eq(front_valid),
            Value.cast(self.o.payload).eq(front),
        ]
        with m.If(front_free):
            m.d.sync += [
                front.eq(Mux(back_valid, back, self.i.payload)),
                front_valid.eq(back_valid | self.i.valid),
                back_valid.eq(0),
            ]
        with m.Elif(self.i.valid & ~back_valid):
            m.d.sync += [back.eq(self.i.payload), back_valid.eq(1)]
        return m


class Bypass(Component):
    """One-entry queue of flip-flops that registers ready alone.

    Latency: none; a word passes in the cycle in which it comes, and is held only if nobody takes it
    then. Throughput: one word a cycle. ``i.ready`` comes straight from a register, so no path leads
    from ``o.ready`` to ``i.ready``.

    Parameters
    ----------
    shape : shape of a word
    """

    i: stream.Interface
    """In, stream."""
    o: stream.Interface
    """Out, stream."""

    def __init__(self, *, shape: ShapeLike):
        self.shape = shape
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    @property
    def module_name(self) -> str:
        """``bypass_<width>``."""
        return f"bypass_{_width(self.shape)}"

    def elaborate(self, platform):
        """``held`` keeps the word that was not taken."""
        m = Module()
        held = Signal(_width(self.shape))
        is_held = Signal()
        m.d.comb += [
            self.i.ready.eq(~is_held),
            self.o.valid.eq(is_held | self.i.valid),
            Value.cast(self.o.payload).eq(Mux(is_held, held, self.i.payload)),
        ]
        m.d.sync += is_held.eq(self.o.valid & ~self.o.ready)
        with m.If(~is_held):
            m.d.sync += held.eq(self.i.payload)
        return m
