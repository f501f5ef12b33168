"""Numbers of several formats in one datapath."""

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from dysharp.hw.alu.float_format import FloatFormat

__all__ = ["FormatMix", "pick"]


def pick(select: Sequence[Value], values: Sequence[Any], width: int) -> Value:
    """Of ``values`` the one whose ``select`` is set; the only one if there is just one."""
    if len(values) == 1:
        return Value.cast(values[0])
    terms = [Value.cast(v) & s.replicate(width) for s, v in zip(select, values, strict=True)]
    while len(terms) > 1:
        terms = [
            terms[k] | terms[k + 1] if k + 1 < len(terms) else terms[k]
            for k in range(0, len(terms), 2)
        ]
    return terms[0][:width]


class FormatMix:
    """Fields wide enough for each of some formats.

    A number's mantissa stands at the top of the widest mantissa, zeros below; its exponent field
    stands as it is at the low end of the widest one. So sums and comparisons need not know the
    format: every format has the same smallest exponent, 1, and only rounding and overflow differ.

    Parameters
    ----------
    formats : one or more, each with a name of its own
    """

    def __init__(self, formats: Sequence[FloatFormat]):
        self.formats = tuple(formats)
        self.exponent_bits = max(form.exponent_bits for form in self.formats)
        self.mantissa_bits = max(form.mantissa_bits for form in self.formats)
        self.bits = max(form.bits for form in self.formats)

    @property
    def layout(self) -> data.StructLayout:
        """Fields of a number taken apart; ``nan`` and ``infinite`` void ``exponent``."""
        return data.StructLayout(
            {
                "mantissa": self.mantissa_bits,
                "hidden": 1,
                "exponent": self.exponent_bits,
                "sign": 1,
                "nan": 1,
                "infinite": 1,
            }
        )

    def select(self, index) -> list[Value]:
        """A wire a format, set for that of the index."""
        return [Value.cast(index) == k for k in range(len(self.formats))]

    def unpack(self, m: Module, value, select: Sequence[Value], name: str) -> Any:
        """``value`` taken apart: a view of :attr:`layout`. With no format selected, it is +0."""
        value = Value.cast(value)
        fields = Signal(self.layout, name=name)
        views = [form.view(value[: form.bits]) for form in self.formats]
        align = [self.mantissa_bits - form.mantissa_bits for form in self.formats]
        mantissas = [Cat(Const(0, n), view.mantissa) for n, view in zip(align, views, strict=True)]
        mantissa = pick(select, mantissas, self.mantissa_bits)
        exponent = pick(select, [view.exponent for view in views], self.exponent_bits)
        hidden = fields.exponent.any()
        flush = pick(select, [Const(form.ftz, 1) for form in self.formats], 1)
        m.d.comb += [
            fields.mantissa.eq(mantissa & (hidden | ~flush).replicate(self.mantissa_bits)),
            fields.hidden.eq(hidden),
            fields.exponent.eq(exponent),
            fields.sign.eq(pick(select, [view.sign for view in views], 1)),
            fields.nan.eq(
                pick(select, [form.is_nan(value[: form.bits]) for form in self.formats], 1)
            ),
            fields.infinite.eq(
                pick(select, [form.is_infinite(value[: form.bits]) for form in self.formats], 1)
            ),
        ]
        return fields

    def pack(self, select: Sequence[Value], fields: Any, overflow, saturate) -> Value:
        """The bits of ``fields``; beyond the largest number with ``overflow``, and so infinity or,
        with ``saturate`` in a format that saturates, the largest number."""
        packed = []
        for form in self.formats:
            mantissa = fields.mantissa[self.mantissa_bits - form.mantissa_bits :]
            number = Cat(mantissa, fields.exponent[: form.exponent_bits])
            beyond: Any = Const(form.overflow, form.bits - 1)
            if form.saturates and form.infinity is not None:
                beyond = Mux(saturate, beyond, form.infinity)
            magnitude = Mux(overflow, beyond, number)
            packed.append(Mux(fields.nan, Const(form.nan, form.bits), Cat(magnitude, fields.sign)))
        return pick(select, packed, self.bits)
