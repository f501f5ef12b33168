"""A number of one floating-point format in another."""

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.float_format import FloatFormat

__all__ = ["FloatConverter"]


class FloatConverter(Component):
    """The same number in another format: exactly if it fits, else rounded once.

    Rounds to nearest, ties to even. Subnormals are kept: each becomes normal or subnormal as the
    target has it. What lies beyond the target's largest number, and an infinity, becomes an
    infinity, or the largest number if the target saturates. A NaN becomes the target's canonical
    one, whatever its sign; zeros keep their sign.

    The target may be wider or narrower in exponent, mantissa or both; steps that a pair of formats
    never needs are not built.

    Latency: none, combinational.

    Parameters
    ----------
    source, target : formats of input and output

    Errors
    ------
    ValueError for a format that flushes subnormals, for the same format twice, and for a target
    with a wider exponent in which some subnormals of the source are subnormal again.

    Source
    ------
    IEEE 754-2019 sections 4.3.1 and 5.4.2; PTX ``cvt.rn``, ``cvt.rn.satfinite``.
    """

    i: Signal
    """In."""
    o: Signal
    """Out."""

    def __init__(self, *, source: FloatFormat, target: FloatFormat):
        for form in (source, target):
            if form.ftz:
                raise ValueError(f"Format must keep subnormals, not {form.name!r}")
        if source.name == target.name:
            raise ValueError(f"Formats must be two, not {source.name!r} twice")
        self.source, self.target = source, target
        self._rebias = (1 << target.exponent_bits - 1) - (1 << source.exponent_bits - 1)
        if 0 < self._rebias < source.mantissa_bits:
            raise ValueError(
                f"Target must have all of the source's subnormals as normals, not {target.name!r}"
            )
        super().__init__({"i": In(source.bits), "o": Out(target.bits)})

    @property
    def module_name(self) -> str:
        """``convert_<source>_<target>``."""
        return f"convert_{self.source.name}_{self.target.name}"

    def elaborate(self, platform):
        """Exponent and significand as the target has them, rounding, limits, NaN."""
        m = Module()
        source, target = self.source, self.target
        # Bits below the target's mantissa, to round by.
        below = max(source.mantissa_bits - target.mantissa_bits, int(self._rebias < 0))
        above = Const(0, target.mantissa_bits + below - source.mantissa_bits)
        significand = Cat(above, source.significand(self.i))
        exponent, sticky = source.view(self.i).exponent, Const(0, 1)
        if self._rebias > 0:
            exponent, significand = self._normalise(significand)
        elif self._rebias < 0:
            exponent, significand, sticky = self._denormalise(significand)

        up: Value = Const(0, 1)
        if below:
            rest = significand[: below - 1].any() | sticky
            up = significand[below - 1] & (rest | significand[below])
        # A carry out of the mantissa moves on into the exponent, which is just right: the next
        # power of two, the first normal number, or beyond the largest.
        rounded = Signal(target.mantissa_bits + len(exponent) + 1)
        m.d.comb += rounded.eq(Cat(significand[below:-1], exponent) + up)
        beyond = source.is_infinite(self.i)
        if self._rebias <= 0:
            beyond = beyond | (rounded > target.largest)
        magnitude = Mux(beyond, target.overflow, rounded[: target.bits - 1])
        m.d.comb += self.o.eq(
            Mux(source.is_nan(self.i), target.nan, Cat(magnitude[: target.bits - 1], self.i[-1]))
        )
        return m

    def _normalise(self, significand: Value) -> tuple[Value, Value]:
        """Exponent and significand where every number but zero is normal."""
        zeros = []
        for step in reversed(range(self.source.mantissa_bits.bit_length())):
            empty = ~significand[-(1 << step) :].any()
            significand = Mux(empty, significand << (1 << step), significand)[: len(significand)]
            zeros.insert(0, empty)
        exponent = self.source.biased_exponent(self.i) + self._rebias - Cat(zeros)
        return Mux(significand[-1], exponent[: self.target.exponent_bits], 0), significand

    def _denormalise(self, significand: Value) -> tuple[Value, Value, Value]:
        """Exponent, significand, and whether a one was lost, where the small are subnormal."""
        exponent = self.source.biased_exponent(self.i)
        smallest = 1 - self._rebias
        is_small = exponent < smallest
        # A shift by all bits and one leaves less than half of the last place.
        steps = (self.target.mantissa_bits + 2).bit_length()
        distance = Mux(is_small, smallest - exponent, 0)
        sticky: Value = Const(0, 1)
        for step in range(steps):
            sticky = sticky | distance[step] & significand[: 1 << step].any()
            significand = Mux(distance[step], significand >> (1 << step), significand)
        far = distance[steps : self.source.exponent_bits].any()
        field = (exponent + self._rebias)[: self.source.exponent_bits]
        return Mux(is_small, 0, field), Mux(far, 0, significand), sticky
