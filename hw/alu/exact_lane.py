"""One lane of the exact sum: adds a number to a wide fixed-point accumulator."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.alu.carry_skip import add_skipping
from dysharp.hw.alu.fixed_point import FixedPoint

__all__ = ["ExactLane"]


class ExactLane(Component):
    """An accumulator and a number give the next accumulator; nothing is ever rounded.

    The significand is shifted inside of a limb, put into the two limbs that its exponent names,
    inverted if negative, and added to all limbs at once, each with the carry that the one below it
    gave the last time. The longest paths are a shift inside of a limb and an addition of one.

    Latency: one cycle from ``number``, none from ``accumulator``: the number is unpacked and
    shifted before its accumulator is needed. Throughput: one number a cycle. With no format
    selected ``o`` means nothing.

    Parameters
    ----------
    fixed : formats of the numbers and shape of the accumulator
    """

    select: Signal
    """In, the number's format: one bit of one for each format."""
    load: Signal
    """In, with ``number``: it starts a sum, and ``accumulator`` counts for nothing."""
    number: Signal
    """In, in the low bits."""
    accumulator: Any
    """In, a cycle after ``number``."""
    o: Any
    """Out, with ``accumulator``."""

    def __init__(self, *, fixed: FixedPoint):
        self.fixed = fixed
        super().__init__(
            {
                "select": In(len(fixed.formats)),
                "load": In(1),
                "number": In(fixed.mix.bits),
                "accumulator": In(fixed.layout),
                "o": Out(fixed.layout),
            }
        )

    @property
    def module_name(self) -> str:
        """``exact_lane_<formats>_<contributions>x<limb bits>``."""
        return f"exact_lane_{self.fixed.name}"

    def elaborate(self, platform):
        """Unpack and shift; in the next cycle add limb by limb."""
        m = Module()
        fixed = self.fixed
        number: Any = fixed.mix.unpack(m, self.number, list(self.select), "unpacked")
        special, zero = Signal(), Signal()
        significand = Signal(fixed.significand_bits)
        position = Signal(fixed.mix.exponent_bits)
        m.d.comb += [
            special.eq(number.nan | number.infinite),
            significand.eq(Mux(special, 0, Cat(number.mantissa, number.hidden))),
            zero.eq(~number.hidden & ~number.mantissa.any()),
            # A subnormal counts like one of the lowest exponent.
            position.eq(Cat(number.exponent[0] | ~number.hidden, number.exponent[1:])),
        ]
        inside_bits = ceil_log2(fixed.limb_bits)
        inside, limb = position[:inside_bits], position[inside_bits:]

        load, negative = Signal(), Signal()
        window = Signal(2 * fixed.limb_bits)
        starts = Signal(len(fixed.limbs))
        flags: Any = Signal(data.StructLayout({"positive": 1, "negative": 1, "other": 1}))
        m.d.sync += [
            load.eq(self.load),
            negative.eq(number.sign),
            window.eq(significand << inside),
            starts.eq(Cat(limb == index for index in range(len(fixed.limbs)))),
            flags.positive.eq(number.nan | number.infinite & ~number.sign),
            flags.negative.eq(number.nan | number.infinite & number.sign),
            flags.other.eq(~(number.sign & zero & ~special)),
        ]

        kept: Any = Signal(fixed.layout)
        m.d.comb += kept.eq(Mux(load, 0, self.accumulator))
        for index, (start, width) in enumerate(fixed.limbs):
            low = start % fixed.limb_bits
            lower, upper = window[low:][:width], window[fixed.limb_bits + low :][:width]
            below = starts[index - 1] if index else Const(0, 1)
            addend = Signal(width, name=f"addend{index}")
            total = Signal(width + 1, name=f"total{index}")
            inverted = Signal(width, name=f"inverted{index}")
            # A negative number is its bits inverted, and one more in the lowest limb.
            carry = kept[f"carry{index}"] if index else negative
            m.d.comb += [
                addend.eq(Mux(starts[index], lower, 0) | Mux(below, upper, 0)),
                inverted.eq(addend ^ negative.replicate(width)),
                total.eq(add_skipping(m, kept[f"limb{index}"], inverted, carry)),
                self.o[f"limb{index}"].eq(total),
            ]
            if index + 1 < len(fixed.limbs):
                m.d.comb += self.o[f"carry{index + 1}"].eq(total[-1])
        for flag in ("positive", "negative", "other"):
            m.d.comb += self.o[flag].eq(kept[flag] | flags[flag])
        return m
