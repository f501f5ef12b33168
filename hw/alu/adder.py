"""A pipelined floating-point adder for any format."""

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.float_format import FloatFormat

__all__ = ["FloatAdder"]


class FloatAdder(Component):
    """Sum of two numbers of one format, rounded to nearest, ties to even.

    A NaN operand, and ``inf - inf``, give the canonical NaN; ``x + -x`` is +0; ``-0 + -0`` is -0;
    subnormals are kept; overflow gives infinity. The sum does not depend on the operands' order.

    Latency: :attr:`latency` cycles, 3: align, add, round. Throughput: one sum a cycle; there are
    no handshakes and the pipeline never stops.

    Parameters
    ----------
    format : format of operands and sum

    Source
    ------
    IEEE 754-2019 sections 4.3.1 and 6; single-path adder with guard, round and sticky bit.
    """

    a: Signal
    """In."""
    b: Signal
    """In."""
    o: Signal
    """Out."""

    latency = 3

    def __init__(self, *, format: FloatFormat):
        self.format = format
        super().__init__({"a": In(format.bits), "b": In(format.bits), "o": Out(format.bits)})

    @property
    def module_name(self) -> str:
        """``adder_<format>``."""
        return f"adder_{self.format.name}"

    def elaborate(self, platform):
        """Three stages, a register behind each."""
        m = Module()
        self._round(m, self._add(m, self._align(m)))
        return m

    def _align(self, m: Module):
        """Larger operand first, and the other one shifted to the same exponent."""
        form = self.format
        swap = Signal()
        large, small = Signal(form.layout), Signal(form.layout)
        m.d.comb += [
            swap.eq(form.magnitude(self.b) > form.magnitude(self.a)),
            large.eq(Mux(swap, self.b, self.a)),
            small.eq(Mux(swap, self.a, self.b)),
        ]
        width = form.mantissa_bits + 4  # hidden bit, and guard, round, sticky
        gap = Signal(form.exponent_bits)
        shifted = Signal(width)
        lost = Signal()
        significand = Cat(Const(0, 3), form.significand(small))
        m.d.comb += gap.eq(form.biased_exponent(large) - form.biased_exponent(small))
        steps = (width - 1).bit_length()
        far = gap[steps:].any()
        value, dropped = significand, Const(0, 1)
        for step in range(steps):
            move = gap[step]
            dropped = dropped | (move & value[: 1 << step].any())
            value = Mux(move, value[1 << step :], value)
        # Too far to count, even as a sticky bit: it is below half of the last place by itself.
        m.d.comb += [shifted.eq(Mux(far, 0, value)), lost.eq(dropped)]
        both_infinite = form.is_infinite(self.a) & form.is_infinite(self.b)
        opposite = large.sign ^ small.sign

        stage = Signal(
            data.StructLayout(
                {
                    "nan": 1,
                    "infinite": 1,
                    "subtract": 1,
                    "sign": 1,
                    "exponent": form.exponent_bits,
                    "large": width,
                    "small": width,
                }
            ),
            name="aligned",
        )
        m.d.sync += [
            stage.nan.eq(form.is_nan(self.a) | form.is_nan(self.b) | both_infinite & opposite),
            stage.infinite.eq(form.is_infinite(large)),
            stage.subtract.eq(opposite),
            stage.sign.eq(large.sign),
            stage.exponent.eq(form.biased_exponent(large)),
            stage.large.eq(Cat(Const(0, 3), form.significand(large))),
            stage.small.eq(Cat(shifted[0] | lost, shifted[1:])),
        ]
        return stage

    def _add(self, m: Module, aligned):
        """Sum or difference of the significands; the larger one comes first, so it is positive."""
        width = len(aligned.large)
        total = Signal(width + 1)
        m.d.comb += total.eq(
            Mux(aligned.subtract, aligned.large - aligned.small, aligned.large + aligned.small)
        )
        stage = Signal(
            data.StructLayout(
                {
                    "nan": 1,
                    "infinite": 1,
                    "sign": 1,
                    "exponent": self.format.exponent_bits,
                    "total": width + 1,
                }
            ),
            name="added",
        )
        m.d.sync += [
            stage.nan.eq(aligned.nan),
            stage.infinite.eq(aligned.infinite),
            stage.sign.eq(aligned.sign & ~(aligned.subtract & (total == 0))),
            stage.exponent.eq(aligned.exponent),
            stage.total.eq(total),
        ]
        return stage

    def _round(self, m: Module, added) -> None:
        """Leading one to its place, as far as the exponent allows; then round."""
        form = self.format
        width = len(added.total)
        # With a carry the leading one is a place too high: count from there, add one back.
        zeros = Signal(range(width + 1))
        room = Signal(form.exponent_bits)
        shift = Signal(range(width + 1))
        normal = Signal(width)
        m.d.comb += [
            zeros.eq(_leading_zeros(added.total)),
            room.eq(added.exponent),
            shift.eq(Mux(zeros > room, room, zeros)),
            normal.eq(added.total << shift),
        ]
        exponent = Signal(form.exponent_bits + 1)
        is_normal = normal[-1]
        m.d.comb += exponent.eq(Mux(is_normal, added.exponent + 1 - shift, 0))
        kept = normal[4:-1]
        half = normal[3]
        rest = normal[:3].any()
        rounded = Signal(form.bits)
        overflow = Signal()
        m.d.comb += [
            rounded.eq(Cat(kept, exponent) + (half & (rest | kept[0]))),
            overflow.eq(rounded[form.mantissa_bits :] >= form.max_exponent),
        ]
        magnitude = Signal(form.bits - 1)
        m.d.comb += magnitude.eq(
            Mux(
                added.infinite | overflow,
                form.max_exponent << form.mantissa_bits,
                rounded[: form.bits - 1],
            )
        )
        m.d.sync += self.o.eq(Mux(added.nan, form.nan, Cat(magnitude, added.sign)))


def _leading_zeros(value):
    """Zeros above the highest one; the width if there is none. A tree of halves."""
    width = len(value)
    if width == 1:
        return ~value[0]
    half = 1 << (width - 1).bit_length() - 1
    low, high = value[: width - half], value[width - half :]
    return Mux(high.any(), _leading_zeros(high), half + _leading_zeros(low))
