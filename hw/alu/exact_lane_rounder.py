"""One lane of the exact sum's end: resolves the carries and rounds, once."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.carry_skip import add_skipping
from dysharp.hw.alu.exact_window import choose, resolve
from dysharp.hw.alu.fixed_point import FixedPoint
from dysharp.hw.alu.format_mix import pick
from dysharp.hw.delay import delayed

__all__ = ["ExactLaneRounder"]

_NEAR_STEPS = 3
"""Of the shift that normalises, the steps in its second cycle: by 4, 2 and 1."""


class ExactLaneRounder(Component):
    """The number nearest to an exact sum, ties to even.

    A NaN, and infinities of both signs, give the canonical NaN; an infinity gives itself; a sum of
    zero is +0 unless nothing but -0 was added. In a format that saturates, infinities and what is
    beyond the largest finite number become that number.

    The carries left between the limbs are resolved by lookahead over the limbs. Of the sum only the
    two highest limbs that are not all sign go on, with a bit for whether there is anything below:
    a limb is as long as a significand. Made positive, their leading one is shifted to the top, as
    far as the lowest exponent allows; then follows the rounding.

    Latency: :attr:`latency` cycles, 5: resolve, choose, negate, normalise in two; the rounding
    follows combinationally. Throughput: one sum a cycle; there are no handshakes, and the pipeline
    never stops.

    Parameters
    ----------
    fixed : formats of the numbers and shape of the accumulator
    """

    select: Signal
    """In, the number's format: one bit of one for each format."""
    accumulator: Any
    """In."""
    o: Signal
    """Out, in the low bits; 0 with no format selected."""

    latency = 5

    def __init__(self, *, fixed: FixedPoint):
        self.fixed = fixed
        super().__init__(
            {
                "select": In(len(fixed.formats)),
                "accumulator": In(fixed.layout),
                "o": Out(fixed.mix.bits),
            }
        )

    @property
    def module_name(self) -> str:
        """``exact_lane_rounder_<formats>_<contributions>x<limb bits>``."""
        return f"exact_lane_rounder_{self.fixed.name}"

    def elaborate(self, platform):
        """Resolve, choose, negate, normalise in two steps, each with a register; round."""
        m = Module()
        selects, kind = [self.select], self._kind(m)
        for number in range(1, self.latency + 1):
            selects.append(delayed(m, selects[-1], f"select{number}"))
            kind = delayed(m, kind, f"kind{number}")
        value = delayed(m, resolve(m, self.fixed, self.accumulator, selects[0]), "value1")
        value = delayed(m, choose(m, self.fixed, value, selects[1]), "value2")
        for number, step in enumerate((self._negate, self._approach, self._normalise), 3):
            value = delayed(m, step(m, value), f"value{number}")
        self._round(m, value, selects[-1], kind)
        return m

    def _kind(self, m: Module) -> Any:
        """What the flags say: no number, an infinity, or a sum, and if it is zero of which sign."""
        kind: Any = Signal(
            data.StructLayout({"nan": 1, "infinite": 1, "negative": 1, "minus_zero": 1}),
            name="kind",
        )
        flags = self.accumulator
        m.d.comb += [
            kind.nan.eq(flags.positive & flags.negative),
            kind.infinite.eq(flags.positive | flags.negative),
            kind.negative.eq(flags.negative),
            kind.minus_zero.eq(~flags.other),
        ]
        return kind

    def _negate(self, m: Module, window: Any) -> Any:
        """The magnitude of the window; inverted and one more if nothing stands below."""
        bits = self.fixed.limb_bits
        positive: Any = Signal(
            data.StructLayout(
                {
                    "magnitude": 2 * bits + 1,
                    "below": 1,
                    "number": len(window.number),
                    "negative": 1,
                }
            ),
            name="made_positive",
        )
        low_borrows, high_borrows = window.nothing_below, window.nothing_below & window.low_zero
        halves = []
        for name, borrows in (("low", low_borrows), ("high", high_borrows)):
            adds = Signal(2, name=f"{name}_adds")
            change = Signal(signed(3), name=f"{name}_change")
            addend = Signal(signed(bits), name=f"{name}_addend")
            start = Signal(bits, name=f"{name}_start")
            half = Signal(bits, name=f"{name}_half")
            m.d.comb += [
                adds.eq(window[f"{name}_kept"] + window[f"{name}_carry"]),
                change.eq(Mux(window.negative, borrows - adds, adds)),
                addend.eq(change),
                start.eq(window[name] ^ window.negative.replicate(bits)),
                half.eq(add_skipping(m, start, addend, Const(0, 1))),
            ]
            halves.append(half)
        # The magnitude of a number that is all sign above a zero window is one bit longer.
        carry = window.negative & window.high_zero & high_borrows
        m.d.comb += [
            positive.magnitude.eq(Cat(*halves, carry)),
            positive.below.eq(~window.nothing_below),
            positive.number.eq(window.number),
            positive.negative.eq(window.negative),
        ]
        return positive

    def _approach(self, m: Module, positive: Any) -> Any:
        """Leading one into the topmost eight places; the lowest window stops at exponent 1."""
        fixed = self.fixed
        bits = fixed.significand_bits
        value = positive.magnitude
        width = len(value)
        farthest = width - 1 - bits
        far = range(_NEAR_STEPS, farthest.bit_length())
        length = min(width, bits + (1 << _NEAR_STEPS))
        near: Any = Signal(
            data.StructLayout(
                {
                    "rest": 1,
                    "value": length,
                    "stop": min(width, 1 << _NEAR_STEPS),
                    "exponent": (fixed.sign + 1).bit_length() + 1,
                    "negative": 1,
                }
            ),
            name="approached",
        )
        stop = Signal(width)
        m.d.comb += stop.eq((positive.number == 0) << bits)
        value, stop, shift = _shifted(m, value, stop, far)
        start = Cat(Const(0, fixed.limb_bits.bit_length() - 1), positive.number)
        m.d.comb += [
            near.value.eq(value[width - length :]),
            near.rest.eq(value[: width - length].any() | positive.below),
            near.stop.eq(stop[width - len(near.stop) :]),
            near.exponent.eq(start + (width - bits) - shift),
            near.negative.eq(positive.negative),
        ]
        return near

    def _normalise(self, m: Module, near: Any) -> Any:
        """Leading one to the top."""
        bits = self.fixed.significand_bits
        length = len(near.value)
        normal: Any = Signal(
            data.StructLayout(
                {
                    "rest": 1,
                    "half": 1,
                    "mantissa": bits - 1,
                    "hidden": 1,
                    "exponent": len(near.exponent),
                    "negative": 1,
                }
            ),
            name="normalised",
        )
        stop = Cat(Const(0, length - len(near.stop)), near.stop)
        value, _, shift = _shifted(m, near.value, stop, range(_NEAR_STEPS))
        m.d.comb += [
            Cat(normal.half, normal.mantissa, normal.hidden).eq(value[length - bits - 1 :]),
            normal.rest.eq(value[: length - bits - 1].any() | near.rest),
            normal.exponent.eq(near.exponent - shift),
            normal.negative.eq(near.negative),
        ]
        return normal

    def _round(self, m: Module, normal: Any, select: Any, kind: Any) -> None:
        """To the mantissa of the format; a carry goes on into the exponent, which is just right."""
        fixed = self.fixed
        sign = Signal()
        exponent = Signal.like(normal.exponent)
        m.d.comb += [
            sign.eq(Mux(kind.infinite, kind.negative, normal.negative | kind.minus_zero)),
            exponent.eq(Mux(normal.hidden, normal.exponent, 0)),
        ]
        numbers = []
        for form in fixed.formats:
            dropped = fixed.mix.mantissa_bits - form.mantissa_bits
            tail = Cat(normal.rest, normal.half, normal.mantissa)
            mantissa, half, rest = tail[dropped + 2 :], tail[dropped + 1], tail[: dropped + 1].any()
            if form.ftz:
                mantissa = mantissa & normal.hidden.replicate(len(mantissa))
            below = Signal(len(mantissa) + len(exponent), name=f"below_{form.name}")
            up = Signal(name=f"up_{form.name}")
            rounded = Signal(len(below), name=f"rounded_{form.name}")
            beyond = Signal(name=f"beyond_{form.name}")
            m.d.comb += [
                below.eq(Cat(mantissa, exponent)),
                up.eq(half & (rest | mantissa[0])),
                rounded.eq(add_skipping(m, below, None, up)),
                beyond.eq(kind.infinite | (below > form.largest) | up & (below == form.largest)),
            ]
            magnitude = Mux(beyond, form.overflow, rounded)[: form.bits - 1]
            numbers.append(Mux(kind.nan, form.nan, Cat(magnitude, sign)))
        one = numbers[0] & select[0].replicate(len(numbers[0]))
        m.d.comb += self.o.eq(pick(select, numbers, fixed.mix.bits) if len(numbers) > 1 else one)


def _shifted(m: Module, value: Value, stop: Value, steps: range) -> tuple[Value, Value, Value]:
    """Left by 2 to the power of each step, highest first, if only zeros of both fall off.

    The value, the stop bit beside it, and by how much they were shifted.
    """
    width = len(value)
    shift: list[Value] = [Const(0, 1)] * steps.stop
    for step in reversed(steps):
        distance = 1 << step
        moves = Signal(name=f"moves{distance}")
        moved, stopped = (Signal(width, name=f"{name}{distance}") for name in ("moved", "stop"))
        m.d.comb += [
            moves.eq(~(value | stop)[max(0, width - distance) :].any()),
            moved.eq(Mux(moves, value << distance, value)),
            stopped.eq(Mux(moves, stop << distance, stop)),
        ]
        value, stop, shift[step] = moved, stopped, moves
    return value, stop, Cat(shift)
