"""One lane of the exact sum: adds a number to a wide fixed-point accumulator."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.alu.fixed_point import FixedPoint

__all__ = ["ExactLane"]


class ExactLane(Component):
    """An accumulator and a number give the next accumulator; nothing is ever rounded.

    The significand is shifted inside of a limb, put into the two limbs that its exponent names,
    inverted if negative, and added to all limbs at once, each with the carry that the one below it
    gave the last time. The longest path is a shift inside of a limb and an addition of one.

    Latency: none, combinational. With no format selected ``o`` means nothing.

    Parameters
    ----------
    fixed : formats of the numbers and shape of the accumulator
    """

    select: Signal
    """In, the number's format: one bit of one for each format."""
    load: Signal
    """In, the number starts a sum; ``accumulator`` counts for nothing."""
    number: Signal
    """In, in the low bits."""
    accumulator: Any
    """In."""
    o: Any
    """Out."""

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
        """Unpack, shift, add limb by limb."""
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
        inside, limb = (
            position[: ceil_log2(fixed.limb_bits)],
            position[ceil_log2(fixed.limb_bits) :],
        )
        window = Signal(2 * fixed.limb_bits)
        m.d.comb += window.eq(significand << inside)

        kept: Any = Signal(fixed.layout)
        m.d.comb += kept.eq(Mux(self.load, 0, self.accumulator))
        for index, (start, width) in enumerate(fixed.limbs):
            halves = (window[: fixed.limb_bits], window[fixed.limb_bits :])
            places = (limb == index, limb + 1 == index)
            low = start % fixed.limb_bits
            addend = Signal(width, name=f"addend{index}")
            total = Signal(width + 1, name=f"total{index}")
            # A negative number is its bits inverted, and one more in the lowest limb.
            carry = number.sign if index == 0 else kept[f"carry{index}"]
            parts = [
                half[low : low + width] & place.replicate(width)
                for half, place in zip(halves, places, strict=True)
            ]
            m.d.comb += [
                addend.eq((parts[0] | parts[1]) ^ number.sign.replicate(width)),
                total.eq(kept[f"limb{index}"] + addend + carry),
                self.o[f"limb{index}"].eq(total),
            ]
            if index + 1 < len(fixed.limbs):
                m.d.comb += self.o[f"carry{index + 1}"].eq(total[-1])

        minus_zero = number.sign & zero & ~special
        m.d.comb += [
            self.o.positive.eq(kept.positive | number.nan | number.infinite & ~number.sign),
            self.o.negative.eq(kept.negative | number.nan | number.infinite & number.sign),
            self.o.other.eq(kept.other | ~minus_zero),
        ]
        return m
