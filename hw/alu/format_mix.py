"""Numbers of several formats in one datapath."""

from collections.abc import Callable, Sequence
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from dysharp.hw.alu.carry import named
from dysharp.hw.alu.float_format import FloatFormat

__all__ = ["FormatMix", "pick"]


def pick(select: Sequence[Value], values: Sequence[Any], width: int) -> Value:
    """Of ``values`` the one whose ``select`` is set; zero if none is."""
    terms = [
        Value.cast(value)[:width] if isinstance(which, Const) else value & which.replicate(width)
        for which, value in zip(select, values, strict=True)
    ]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [low | high for low, high in pairs] + terms[len(terms) & ~1 :]
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
        self.containers = tuple(dict.fromkeys(form.container for form in self.formats))
        self.exponent_bits = max(form.exponent_bits for form in self.containers)
        self.mantissa_bits = max(form.mantissa_bits for form in self.containers)
        self.bits = max(form.bits for form in self.containers)

    def below(self, form: FloatFormat) -> int:
        """Bits of the mantissa field below the last one of ``form``."""
        return self.mantissa_bits - form.mantissa_bits

    @property
    def layout(self) -> data.StructLayout:
        """Fields of a number taken apart."""
        return data.StructLayout(
            {
                "mantissa": self.mantissa_bits,
                "hidden": 1,  # the leading bit of a normal number
                "exponent": self.exponent_bits,  # 1 for a subnormal, whose significand counts alike
                "sign": 1,
                "nan": 1,
                "infinite": 1,
            }
        )

    def select(self, m: Module, index: Any, enable: Value | None = None) -> list[Value]:
        """A wire a format, set for that of the index, and for none without ``enable``."""
        if len(self.formats) == 1:
            return [Const(1, 1) if enable is None else named(m, enable, "enable")]
        chosen = [Value.cast(index) == k for k in range(len(self.formats))]
        if enable is not None:
            chosen = [which & enable for which in chosen]
        return [
            named(m, which, f"is_{form.name}")
            for form, which in zip(self.formats, chosen, strict=True)
        ]

    def alike(
        self,
        select: Sequence[Value],
        key: Callable[[FloatFormat], Any],
        build: Callable[[Any], Any],
    ) -> Value:
        """``build(key)``, one bit, for the key of the format selected; each key is built once."""
        groups: dict[Any, list[Value]] = {}
        for form, which in zip(self.formats, select, strict=True):
            groups.setdefault(key(form), []).append(which)
        chosen = [which[0] if len(which) == 1 else Cat(*which).any() for which in groups.values()]
        return pick(chosen, [build(value) for value in groups], 1)

    def _by_container(self, m: Module, select: Sequence[Value], name: str) -> list[Value]:
        """A wire a container, set for each of the formats in it."""
        if self.containers == self.formats:
            return list(select)
        pairs = list(zip(self.formats, select, strict=True))
        return [
            Const(1, 1)
            if len(self.containers) == 1 and all(isinstance(which, Const) for which in select)
            else named(
                m,
                Cat(which for form, which in pairs if form.container == container).any(),
                f"{name}_in_{container.name}",
            )
            for container in self.containers
        ]

    def unpack(self, m: Module, value: Any, select: Sequence[Value], name: str) -> Any:
        """``value`` taken apart: a view of :attr:`layout`. With no format selected it is +0."""
        fields = Signal(self.layout, name=name)
        inside = self._by_container(m, select, name)
        views = [form.view(Value.cast(value)[: form.bits]) for form in self.containers]
        aligned = [
            Cat(Const(0, self.below(form)), view.mantissa)
            for form, view in zip(self.containers, views, strict=True)
        ]
        mantissa = Signal(self.mantissa_bits, name=f"{name}_mantissa")
        exponent = Signal(self.exponent_bits, name=f"{name}_exponent")
        flush = self.alike(select, lambda form: form.ftz, lambda ftz: Const(ftz, 1))
        significant = named(m, fields.hidden | ~flush, f"{name}_significant")
        # The highest exponent: of NaNs and infinities, or if there are no infinities, of the NaN
        # that has the highest mantissa, too.
        special = self.alike(
            select,
            lambda form: (form.container.exponent_bits, form.container.infinities),
            lambda key: exponent[: key[0]].all() & Const(key[1], 1),
        )
        highest = self.alike(
            select,
            lambda form: (
                None
                if form.container.infinities
                else (form.container.exponent_bits, form.container.mantissa_bits)
            ),
            lambda key: Cat(exponent[: key[0]], mantissa[-key[1] :]).all() if key else Const(0, 1),
        )
        m.d.comb += [
            mantissa.eq(pick(inside, aligned, self.mantissa_bits)),
            exponent.eq(pick(inside, [view.exponent for view in views], self.exponent_bits)),
            fields.hidden.eq(exponent.any()),
            fields.mantissa.eq(
                mantissa & significant.replicate(self.mantissa_bits)
                if any(form.ftz for form in self.formats)
                else mantissa
            ),
            fields.exponent.eq(Cat(exponent[0] | ~fields.hidden, exponent[1:])),
            fields.sign.eq(pick(inside, [view.sign for view in views], 1)),
            fields.nan.eq(special & mantissa.any() | highest),
            fields.infinite.eq(special & ~mantissa.any()),
        ]
        return fields

    def pack(
        self, m: Module, select: Sequence[Value], rounded: Value, *, sign, nan, beyond, load
    ) -> Value:
        """The bits of a number.

        Parameters
        ----------
        select : the format
        rounded : mantissa field, exponent field and a carry, after rounding
        sign : of the number
        nan : it is none; ``rounded`` counts for nothing
        beyond : it is an infinity, or beyond the largest number before rounding already
        load : an infinity stays one where the format saturates
        """
        special = named(m, nan | beyond, "special")
        mantissa = rounded[: self.mantissa_bits] & ~special.replicate(self.mantissa_bits)
        exponent = rounded[self.mantissa_bits :] | special.replicate(self.exponent_bits + 1)
        packed = []
        for form in self.containers:
            quiet = Const(form.nan, form.bits)
            top = mantissa[self.below(form) :] | quiet[: form.mantissa_bits] & nan.replicate(
                form.mantissa_bits
            )
            number: Value = Cat(top, exponent[: form.exponent_bits])
            reached = rounded[self.below(form) :][: form.bits]
            for inner, which in zip(self.formats, select, strict=True):
                if inner.container == form:
                    number = self._limited(inner, number, reached, which, nan, beyond, load)
            packed.append(Cat(number, Mux(nan, quiet[-1], sign)))
        return pick(self._by_container(m, select, "packed"), packed, self.bits)

    def _limited(
        self, form: FloatFormat, number: Value, reached: Value, which: Value, nan, beyond, load
    ) -> Value:
        """The number, but beyond the format's largest one what the format has for that."""
        container = form.container
        keep = nan | load if form.saturates and form.infinities else nan
        if form is not container:
            largest = form.held(form.largest)
            if largest >> container.mantissa_bits == container.largest >> container.mantissa_bits:
                if not form.saturates:
                    return number  # what is rounded up from the largest is infinity as it is
            over = beyond | (reached > largest)
            limit = largest if form.saturates else container.overflow
            return Mux(which & over & ~keep, Const(limit, form.container.bits - 1), number)
        if not form.saturates:
            return number
        over = beyond | (
            reached[form.mantissa_bits : -1].all()
            if form.infinities
            else reached[-1] | reached[:-1].all()
        )
        return Mux(over & ~keep, Const(form.largest, form.bits - 1), number)
