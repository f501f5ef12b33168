"""A floating-point adder for any format, or for several."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.float_format import FloatFormat
from dysharp.hw.alu.format_mix import FormatMix, pick

__all__ = ["FloatAdder"]

_CUTS = {
    0: (),
    1: ("rounded",),
    2: ("aligned", "rounded"),
    3: ("aligned", "added", "rounded"),
    4: ("compared", "aligned", "added", "rounded"),
    5: ("compared", "aligned", "added", "normal", "rounded"),
}


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

    Parameters
    ----------
    formats : formats that the adder knows, each with a name of its own
    depth : registers from operands to sum, 0 to 5; the last one holds the sum
    fast : the shorter path, for more area
    loads : there is a port ``load``

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
        fast: bool = False,
        loads: bool = False,
    ):
        formats = tuple(formats)
        if not formats or len({form.name for form in formats}) != len(formats):
            raise ValueError(
                f"Formats must be one or more, each once, not {[form.name for form in formats]!r}"
            )
        if depth not in _CUTS:
            raise ValueError(f"Depth must be 0 to {max(_CUTS)}, not {depth!r}")
        self.formats, self.depth, self.fast, self.loads = formats, depth, fast, loads
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
        """``adder_<format>_..._depth<depth>``, then ``_fast`` and ``_loads`` if so."""
        names = [form.name for form in self.formats]
        options = ["fast"] * self.fast + ["loads"] * self.loads
        return "_".join(["adder", *names, f"depth{self.depth}", *options])

    def elaborate(self, platform):
        """Compare, align, add, normalise, round."""
        m = Module()
        compared = self._cut(m, "compared", self._compare(m))
        aligned = self._cut(m, "aligned", self._align(m, compared))
        added = self._cut(m, "added", self._add(m, aligned))
        normal = self._cut(m, "normal", self._normalise(m, added))
        m.d.comb += self.o.eq(self._cut(m, "rounded", {"o": self._round(m, normal)})["o"])
        return m

    def _cut(self, m: Module, name: str, values: dict[str, Any]) -> dict[str, Any]:
        """The values behind a register, if this depth has one here, else as they are."""
        cut = {}
        for key, value in values.items():
            signal = Signal.like(value if isinstance(value, Signal) else Value.cast(value),
                                 name=f"{name}_{key}")  # fmt: skip
            m.d["sync" if name in _CUTS[self.depth] else "comb"] += signal.eq(value)
            cut[key] = signal
        return cut

    def _compare(self, m: Module) -> dict[str, Any]:
        """Both operands taken apart, the larger one first, and their exponents' gap."""
        mix = self._mix
        index = self.format if len(self.formats) > 1 else Const(0, 1)
        load = self.load if self.loads else Const(0, 1)
        select = mix.select(index)
        # A load adds to -0, which leaves every number as it is.
        addend = Signal.like(self.a, name="addend")
        m.d.comb += addend.eq(self.a & ~load.replicate(mix.bits))
        a, b = mix.unpack(m, addend, select, "a"), mix.unpack(m, self.b, select, "b")
        magnitude_a, magnitude_b = Cat(a.mantissa, a.exponent), Cat(b.mantissa, b.exponent)
        swap = Signal()
        sign_a = a.sign | load
        m.d.comb += swap.eq(magnitude_b > magnitude_a)
        large_exponent = Mux(swap, b.exponent, a.exponent)
        small_exponent = Mux(swap, a.exponent, b.exponent)
        large_hidden, small_hidden = Mux(swap, b.hidden, a.hidden), Mux(swap, a.hidden, b.hidden)
        # A subnormal's exponent counts as 1.
        gap = Signal(mix.exponent_bits)
        m.d.comb += gap.eq(large_exponent - small_exponent - (large_hidden & ~small_hidden))
        subtract = sign_a ^ b.sign
        return {
            "index": index,
            "load": load,
            "nan": a.nan | b.nan | a.infinite & b.infinite & subtract,
            "infinite": a.infinite | b.infinite,
            "subtract": subtract,
            "sign": Mux(swap, b.sign, sign_a),
            "exponent": Cat(large_exponent[0] | ~large_hidden, large_exponent[1:]),
            "gap": gap,
            "large": Cat(Mux(swap, b.mantissa, a.mantissa), large_hidden),
            "small": Cat(Mux(swap, a.mantissa, b.mantissa), small_hidden),
        }

    def _align(self, m: Module, compared: dict[str, Any]) -> dict[str, Any]:
        """The smaller significand moved to the larger one's exponent."""
        width = self._mix.mantissa_bits + 4  # hidden bit, and guard, round, sticky
        gap = compared["gap"]
        steps = (width - 1).bit_length()
        far = gap[steps:].any()
        value: Value = Cat(Const(0, 3), compared["small"])
        lost: Value = Const(0, 1)
        for step in range(min(steps, len(gap))):
            move = gap[step]
            lost = lost | (move & value[: 1 << step].any())
            value = Mux(move, value[1 << step :], value)
        # Too far to count, even as a sticky bit: it is below half of the last place by itself.
        value = Mux(far, 0, value)
        kept = {key: compared[key] for key in compared if key not in ("gap", "small")}
        return kept | {"small": Cat(value[0] | lost, value[1:])}

    def _add(self, m: Module, aligned: dict[str, Any]) -> dict[str, Any]:
        """Sum or difference of the significands; the larger one comes first, so it is positive."""
        width = self._mix.mantissa_bits + 4
        large, small = Cat(Const(0, 3), aligned["large"]), aligned["small"]
        subtract = aligned["subtract"]
        total = Signal(width + 1)
        m.d.comb += total.eq(Mux(subtract, large - small, large + small))
        kept = {key: aligned[key] for key in aligned if key not in ("large", "small", "subtract")}
        return kept | {"total": total, "sign": aligned["sign"] & ~(subtract & (total == 0))}

    def _normalise(self, m: Module, added: dict[str, Any]) -> dict[str, Any]:
        """Leading one to the top, as far as the exponent allows."""
        total, exponent = added["total"], added["exponent"]
        width = len(total)
        # With a carry the leading one is a place too high: count from there, add one back. A one
        # where the exponent would reach its smallest value stops the count there.
        stop = Cat(exponent == width - 1 - place for place in range(width))
        shift = Signal(range(width))
        m.d.comb += shift.eq(_leading_zeros(total | stop))
        normal = Signal(width)
        m.d.comb += normal.eq(total << shift)
        moved = Signal(self._mix.exponent_bits + 1)
        m.d.comb += moved.eq(Mux(normal[-1], exponent + 1 - shift, 0))
        kept = {key: added[key] for key in added if key != "total"}
        return kept | {"exponent": moved, "significand": Cat(normal[:3].any(), normal[3:-1])}

    def _round(self, m: Module, normal: dict[str, Any]) -> Value:
        """To the nearest number of the format, and into its bits."""
        mix = self._mix
        select = mix.select(normal["index"])
        bits = normal["significand"]  # mantissa, half of the last place, sticky bit
        halves, rests, odds, ones = [], [], [], []
        for form in self.formats:
            dropped = mix.mantissa_bits - form.mantissa_bits
            halves.append(bits[dropped + 1])
            rests.append(bits[: dropped + 1].any())
            odds.append(bits[dropped + 2])
            ones.append((1 << dropped) - 1)
        up = pick(select, halves, 1) & (pick(select, rests, 1) | pick(select, odds, 1))
        # Ones below the last place carry the increment up to it.
        below = pick(select, ones, mix.mantissa_bits)
        mantissa = bits[2:] | below if len(self.formats) > 1 else bits[2:]
        rounded = Signal(mix.mantissa_bits + mix.exponent_bits + 1)
        m.d.comb += rounded.eq(Cat(mantissa, normal["exponent"]) + up)
        fields = Signal(mix.layout, name="sum")
        over = []
        for form in self.formats:
            number = rounded[mix.mantissa_bits - form.mantissa_bits :][: form.bits]
            over.append(number > form.largest)
        flush = pick(select, [Const(form.ftz, 1) for form in self.formats], 1)
        exponent = rounded[mix.mantissa_bits :]
        subnormal = flush & (exponent == 0)
        m.d.comb += [
            fields.mantissa.eq(rounded & ~subnormal.replicate(mix.mantissa_bits)),
            fields.exponent.eq(exponent),
            fields.sign.eq(normal["sign"]),
            fields.nan.eq(normal["nan"]),
        ]
        overflow = normal["infinite"] | pick(select, over, 1)
        return mix.pack(select, fields, overflow, ~normal["load"])


def _leading_zeros(value):
    """Zeros above the highest one; the width less one if there is none. A tree of halves."""
    width = len(value)
    if width == 1:
        return Const(0, 0)
    half = 1 << (width - 1).bit_length() - 1
    low, high = value[: width - half], value[width - half :]
    if width == half << 1:
        any_high = high.any()
        return Cat(Mux(any_high, _leading_zeros(high), _leading_zeros(low)), ~any_high)
    return Mux(high.any(), _leading_zeros(high), half + _leading_zeros(low))
