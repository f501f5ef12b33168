"""A floating-point adder for any format, or for several."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.carry import absolute_difference, add, greater, increment, named
from dysharp.hw.alu.float_format import FloatFormat
from dysharp.hw.alu.format_mix import FormatMix, pick

__all__ = ["FloatAdder"]

_CUTS = {
    0: (),
    1: ("sum",),
    2: ("added", "sum"),
    3: ("aligned", "counted", "sum"),
    4: ("compared", "aligned", "counted", "sum"),
    5: ("compared", "aligned", "added", "normal", "sum"),
}
"""Steps behind which each depth has a register."""


class FloatAdder(Component):
    """Sum of two numbers of one format, rounded to nearest, ties to even.

    A NaN operand, and ``inf - inf``, give the canonical NaN; ``x + -x`` is +0; ``-0 + -0`` is -0;
    subnormals are kept, or flushed where the format says so; a sum beyond the largest number is
    infinity, or the largest number where the format saturates. The sum does not depend on the
    operands' order.

    Numbers stand in the low bits of ``a``, ``b`` and ``o``; bits above them are not read, and zero
    in ``o``.

    Latency: ``depth`` cycles; 0 is combinational. Throughput: one sum a cycle; there are no
    handshakes and the pipeline never stops. Each cycle may have a format of its own.

    The steps are compare, align, add, count, shift, round. Depth 1 has a register behind the last
    one, 2 also behind add; 3 has them behind align, count and round; 4 behind compare, too; 5
    behind compare, align, add, shift and round.

    Parameters
    ----------
    formats : formats that the adder knows, each with a name of its own
    depth : registers from operands to sum, 0 to 5; the last one holds the sum
    loads : there is a port ``load``

    Errors
    ------
    ValueError for no format, for one named twice, and for another depth.

    Source
    ------
    IEEE 754-2019 sections 4.3.1 and 6; single-path adder with guard, round and sticky bit.
    """

    a: Signal
    """In."""
    b: Signal
    """In."""
    format: Signal
    """In, index into ``formats``; only there if these are more than one."""
    load: Signal
    """In, ``o`` is ``b`` whatever ``a`` is: a NaN made canonical, a subnormal flushed where the
    format says so, all else unchanged, infinities of a format that saturates too."""
    o: Signal
    """Out."""

    def __init__(
        self,
        *,
        formats: tuple[FloatFormat, ...],
        depth: int = 0,
        loads: bool = False,
    ):
        formats = tuple(formats)
        names = [form.name for form in formats]
        if not formats or len(set(names)) != len(names):
            raise ValueError(f"Formats must be one or more, each once, not {names!r}")
        if depth not in _CUTS:
            raise ValueError(f"Depth must be 0 to {max(_CUTS)}, not {depth!r}")
        self.formats, self.depth, self.loads = formats, depth, loads
        self._mix = FormatMix(formats)
        bits = self._mix.bits
        ports = {"a": In(bits), "b": In(bits), "o": Out(bits)}
        if len(formats) > 1:
            ports["format"] = In(range(len(formats)))
        if loads:
            ports["load"] = In(1)
        super().__init__(ports)

    @property
    def latency(self) -> int:
        """Cycles from operands to sum: ``depth``."""
        return self.depth

    @property
    def module_name(self) -> str:
        """``adder_<format>_..._depth<depth>``, and ``_loads`` if it does."""
        names = [form.name for form in self.formats]
        return "_".join(["adder", *names, f"depth{self.depth}", *["loads"] * self.loads])

    def elaborate(self, platform):
        """Compare, align, add, count, shift, round."""
        m = Module()
        state = self._cut(m, "compared", self._compare(m))
        state = self._cut(m, "aligned", self._align(m, **state))
        state = self._cut(m, "added", self._add(m, **state))
        state = self._cut(m, "counted", self._count(m, **state))
        state = self._cut(m, "normal", self._shift(m, **state))
        state = self._cut(m, "sum", self._round(m, **state))
        m.d.comb += self.o.eq(state["o"])
        return m

    def _cut(self, m: Module, name: str, state: dict[str, Any]) -> dict[str, Any]:
        """What later steps need, named; behind a register if this depth has one here."""
        cut: dict[str, Any] = {}
        for key, value in state.items():
            value = Value.cast(value)
            if isinstance(value, Const):
                cut[key] = value
                continue
            cut[key] = Signal(len(value), name=f"{name}_{key}", reset_less=True)
            m.d["sync" if name in _CUTS[self.depth] else "comb"] += cut[key].eq(value)
        return cut

    def _compare(self, m: Module) -> dict[str, Any]:
        """Both operands taken apart, the larger one first, and their exponents' gap."""
        mix = self._mix
        index = self.format if len(self.formats) > 1 else Const(0, 1)
        load = self.load if self.loads else Const(0, 1)
        select = mix.select(m, index)
        # A load adds to -0, which leaves every number as it is.
        addends = mix.select(m, index, ~self.load) if self.loads else select
        a, b = mix.unpack(m, self.a, addends, "a"), mix.unpack(m, self.b, select, "b")
        sign_a = a.sign | load
        subtract = sign_a ^ b.sign
        gap, more, same = absolute_difference(m, a.exponent, b.exponent)
        above, even = greater(Cat(a.mantissa, a.hidden), Cat(b.mantissa, b.hidden))
        keep = named(m, more | same & (above | even), "keep")
        exponent = named(m, Mux(more, a.exponent, b.exponent), "larger")
        # A carry from here is beyond the largest number before any rounding.
        last = mix.alike(
            select,
            lambda form: (
                form.container.exponent_bits,
                form.held(form.largest) >> form.container.mantissa_bits,
            ),
            lambda key: exponent[: key[0]] == key[1],
        )
        return {
            "index": index,
            "load": load,
            "nan": a.nan | b.nan | a.infinite & b.infinite & subtract,
            "infinite": a.infinite | b.infinite,
            "last": last,
            "subtract": subtract,
            "sign": Mux(same & even, sign_a & b.sign, Mux(keep, sign_a, b.sign)),
            "exponent": exponent,
            "gap": gap,
            "large": Cat(Mux(keep, a.mantissa, b.mantissa), a.hidden | b.hidden),
            "small": Cat(Mux(keep, b.mantissa, a.mantissa), a.hidden & b.hidden),
        }

    def _align(self, m: Module, *, gap, small, subtract, **rest) -> dict[str, Any]:
        """The smaller significand moved to the larger one's exponent, inverted to subtract."""
        width = self._mix.mantissa_bits + 3  # hidden bit, and guard and round
        steps = min((width - 1).bit_length(), len(gap))
        value, lost = Cat(Const(0, 2), small), Const(0, 1)
        for step in range(steps):
            move = gap[step]
            lost = lost | (move & value[: 1 << step].any())
            value = named(m, Mux(move, value[1 << step :], value)[:width], f"aligned{step}")
        # Too far to count, even as a sticky bit: it is below half of the last place by itself.
        near = named(m, ~gap[steps:].any(), "near")
        return rest | {
            "subtract": subtract,
            "small": (value & near.replicate(width)) ^ subtract.replicate(width),
            "lost": lost,
            # What is lost borrows from the place below the last one, so no one is to be added.
            "carry": subtract & ~(lost & near),
        }

    def _add(
        self, m: Module, *, large, small, carry, subtract, last, infinite, **rest
    ) -> dict[str, Any]:
        """Sum or difference of the significands; the larger one comes first, so it is positive."""
        total = add(m, Cat(Const(0, 2), large), small, carry)
        over = total[-1] & ~subtract
        return rest | {"total": Cat(total[:-1], over), "beyond": infinite | last & over}

    def _count(self, m: Module, *, total, exponent, **rest) -> dict[str, Any]:
        """How far the leading one is from the top, and may go: the exponent is to stay above 0."""
        width = len(total)
        # A one where the exponent would reach its smallest value stops the count there.
        stop = Cat(exponent == width - 1 - place for place in range(width))
        zeros = _leading_zeros(named(m, total | stop, "probe"))
        return rest | {"total": total, "exponent": exponent, "zeros": zeros}

    def _shift(self, m: Module, *, total, exponent, zeros, lost, **rest) -> dict[str, Any]:
        """Leading one to the top; one place too high without a carry, so the exponent has one."""
        normal = named(m, (total << zeros)[: len(total)], "shifted")
        moved = (exponent + 1 - zeros)[: len(exponent)] & normal[-1].replicate(len(exponent))
        sticky = normal[:2].any() | lost
        return rest | {"significand": Cat(sticky, normal[2:-1]), "exponent": moved}

    def _round(
        self, m: Module, *, significand, exponent, index, sign, nan, beyond, load
    ) -> dict[str, Any]:
        """To the nearest number of the format, and into its bits."""
        mix = self._mix
        select = mix.select(m, index)
        mantissa = significand[2:]
        # Ones below the format's last place carry the increment up to it.
        fill = pick(select, [(1 << mix.below(form)) - 1 for form in mix.formats], len(mantissa))
        up = mix.alike(
            select,
            mix.below,
            lambda low: (
                significand[low + 1] & (significand[low + 2] | significand[: low + 1].any())
            ),
        )
        filled = mantissa | fill if len(mix.formats) > 1 else mantissa
        rounded = named(m, increment(m, Cat(filled, exponent), named(m, up, "up")), "rounded")
        if any(form.holder for form in mix.formats):
            rounded = named(
                m, Cat(rounded[: len(mantissa)] & ~fill, rounded[len(mantissa) :]), "cleared"
            )
        if any(form.ftz for form in mix.formats):
            flush = mix.alike(select, lambda form: form.ftz, lambda ftz: Const(ftz, 1))
            normal = named(m, rounded[len(mantissa) :].any() | ~flush, "unflushed")
            rounded = Cat(rounded[: len(mantissa)] & normal.replicate(len(mantissa)),
                          rounded[len(mantissa) :])  # fmt: skip
        o = mix.pack(m, select, rounded, sign=sign, nan=nan, beyond=beyond, load=load)
        return {"o": o}


def _leading_zeros(value: Value) -> Value:
    """Zeros above the highest one, if there is one. A tree of halves."""
    width = len(value)
    if width == 1:
        return Const(0, 0)
    half = 1 << (width - 1).bit_length() - 1
    low, high = value[: width - half], value[width - half :]
    found = high.any()
    fine, coarse = _leading_zeros(high), _leading_zeros(low)
    return Cat(Mux(found, fine, coarse)[: len(fine)], ~found)
