"""Smaller or larger of two: one number, or every number of a flit."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.carry import named
from dysharp.hw.alu.float_format import FLOATS, FloatFormat
from dysharp.hw.alu.reductions import ALL_DTYPES, check_dtypes, dtypes_name, supported
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op

__all__ = ["MIN_MAX_DTYPES", "FloatMinMax", "MinMaxUnit"]

_UNSIGNED = {Dtype.U32: 32, Dtype.U64: 64}
_SIGNED = {Dtype.S32: 32, Dtype.S64: 64}
_WIDTHS = {**_UNSIGNED, **_SIGNED, **{dtype: form.bits for dtype, form in FLOATS.items()}}

MIN_MAX_DTYPES: tuple[Dtype, ...] = tuple(
    dict.fromkeys(row.dtype for row in supported(ALL_DTYPES) if row.op is Op.MIN)
)
"""Types that :class:`MinMaxUnit` has operations for."""


class FloatMinMax(Component):
    """Smaller or larger of two floating-point numbers.

    A NaN loses to a number; two NaNs give the canonical one. +0 is above -0. Subnormals and
    infinities are numbers like all others, whatever the format does when it rounds.

    Latency: none, combinational.

    Parameters
    ----------
    format : format of operands and result

    Source
    ------
    IEEE 754-2019 section 9.6 ``minimumNumber``, ``maximumNumber``; PTX ``min``, ``max``.
    """

    larger: Signal
    """In, the larger one is wanted, not the smaller one."""
    a: Signal
    """In."""
    b: Signal
    """In."""
    o: Signal
    """Out."""

    def __init__(self, *, format: FloatFormat):
        self.format = format
        bits = format.bits
        super().__init__({"larger": In(1), "a": In(bits), "b": In(bits), "o": Out(bits)})

    @property
    def module_name(self) -> str:
        """``min_max_<format>``."""
        return f"min_max_{self.format.name}"

    def elaborate(self, platform):
        """Patterns compare like the numbers if both signs are +, and else the other way round."""
        m = Module()
        a_wins, a_nan, b_nan = Signal(), Signal(), Signal()
        m.d.comb += [
            a_wins.eq((self.a < self.b) ^ (self.a[-1] | self.b[-1]) ^ self.larger),
            a_nan.eq(self.format.is_nan(self.a)),
            b_nan.eq(self.format.is_nan(self.b)),
        ]
        with m.If(a_nan & b_nan):
            m.d.comb += self.o.eq(self.format.nan)
        with m.Elif(b_nan | a_wins & ~a_nan):
            m.d.comb += self.o.eq(self.a)
        with m.Else():
            m.d.comb += self.o.eq(self.b)
        return m


class MinMaxUnit(Component):
    """``min`` and ``max`` of every type that has them, and the load of every type, on a whole flit.

    One comparator of 128 bits is cut where the type's numbers end. Floating-point numbers are
    compared as by :class:`FloatMinMax`. A load gives the operand with its NaNs made canonical; of a
    type without ``min`` and ``max`` it gives the operand.

    Latency: none, combinational.

    Parameters
    ----------
    dtypes : types of the build; only those in :data:`MIN_MAX_DTYPES` cost anything

    Source
    ------
    PTX ``red``: ``.min``, ``.max``; IEEE 754-2019 section 9.6.
    """

    attr: Any
    """In, type and operation; ``acc`` is not looked at. For others any bits come out."""
    load: Signal
    """In, the operand starts a reduction; ``accumulator`` counts for nothing."""
    operand: Signal
    """In, the flit."""
    accumulator: Signal
    """In, the flit that was reduced so far."""
    result: Signal
    """Out."""

    def __init__(self, *, dtypes: tuple[Dtype, ...]):
        check_dtypes(dtypes)
        self.dtypes = tuple(dtype for dtype in dtypes if dtype in MIN_MAX_DTYPES)
        super().__init__(
            {
                "attr": In(Attr),
                "load": In(1),
                "operand": In(FLIT_BITS),
                "accumulator": In(FLIT_BITS),
                "result": Out(FLIT_BITS),
            }
        )

    @property
    def module_name(self) -> str:
        """``min_max_unit_<types>``."""
        return f"min_max_unit_{dtypes_name(self.dtypes) or 'none'}"

    def elaborate(self, platform):
        """Cells, as wide as the narrowest type, each take one side or are made NaN.

        A number's highest cell decides, and the others follow.
        """
        m = Module()
        if not self.dtypes:
            m.d.comb += self.result.eq(self.operand)
            return m
        widths = [_WIDTHS[dtype] for dtype in self.dtypes]
        cell = min(widths)
        # From the lower half of so many bits to the upper one a number goes on.
        joins = {
            width: self._is(m, f"joins{width}", [d for d in self.dtypes if _WIDTHS[d] >= width])
            for width in _doubled(cell, max(widths))
        }
        takes, blanks = self._decide(m, cell, self._compare(m, cell, joins))
        for width, join in reversed(joins.items()):
            size = width // cell
            for highest in range(size - 1, len(takes), size):
                follower = highest - size // 2
                for choice in (takes, blanks):
                    followed = Signal(name=f"followed{width}_{follower}")
                    m.d.comb += followed.eq(Mux(join, choice[highest], choice[follower]))
                    choice[follower] = followed
        nans = self._nans(m)
        for k, (take, blank) in enumerate(zip(takes, blanks, strict=True)):
            winner = Mux(
                take, self.operand.word_select(k, cell), self.accumulator.word_select(k, cell)
            )
            m.d.comb += self.result.word_select(k, cell).eq(
                Mux(blank, nans.word_select(k, cell), winner)
            )
        return m

    def _is(self, m: Module, name: str, dtypes) -> Signal:
        """Whether the type is one of these; no logic if it is always or never one."""
        flag = Signal(name=name)
        if set(self.dtypes).issubset(dtypes):
            m.d.comb += flag.eq(1)
        else:
            hits = [self.attr.dtype == dtype for dtype in self.dtypes if dtype in dtypes]
            m.d.comb += flag.eq(Cat(hits).any())
        return flag

    def _compare(self, m: Module, cell: int, joins: dict[int, Signal]) -> list[Value]:
        """For each cell as the highest of a number: the operand's pattern is below. A tree."""
        pairs = list(zip(self.operand, self.accumulator, strict=True))
        below, up_to = [~a & b for a, b in pairs], [~a | b for a, b in pairs]
        highest = below
        for width in [*_doubled(1, cell), *joins]:
            join = joins.get(width, Const(1, 1))
            below = [
                high | equal_or_below & join & low
                for high, equal_or_below, low in zip(
                    below[1::2], up_to[1::2], below[::2], strict=True
                )
            ]
            up_to = [high & low for high, low in zip(up_to[1::2], up_to[::2], strict=True)]
            below, up_to = (
                list(named(m, Cat(bits), f"{name}{width}"))
                for name, bits in (("below", below), ("up_to", up_to))
            )
            if width <= cell:
                highest = list(below)
            else:
                highest[width // cell - 1 :: width // cell] = below
        return highest

    def _decide(self, m: Module, cell: int, below: list[Value]) -> tuple[list, list]:
        """For each cell as the highest of a number: take the operand; be NaN."""
        is_max = self.attr.op == Op.MAX
        is_float, is_signed = self._is(m, "is_float", FLOATS), self._is(m, "is_signed", _SIGNED)
        takes, blanks = [], []
        for k, pattern_below in enumerate(below):
            a, b = self.operand[: (k + 1) * cell], self.accumulator[: (k + 1) * cell]
            a_nan = named(m, self._is_nan(a), f"a_nan{k}")
            b_nan = named(m, self._is_nan(b), f"b_nan{k}")
            # Patterns compare like the numbers, except: magnitudes with a minus among them, and
            # complements of two signs, the other way round.
            swapped = is_float & (a[-1] | b[-1]) | is_signed & (a[-1] ^ b[-1])
            take = self.load | b_nan | (pattern_below ^ swapped ^ is_max) & ~a_nan
            takes.append(named(m, take, f"take{k}"))
            blanks.append(named(m, a_nan & (b_nan | self.load), f"blank{k}"))
        return takes, blanks

    def _is_nan(self, value: Value) -> Value:
        """Whether the number at the high end is a NaN."""
        return Cat(
            (self.attr.dtype == dtype) & form.is_nan(value[-form.bits :])
            for dtype, form in FLOATS.items()
            if dtype in self.dtypes and len(value) % form.bits == 0
        ).any()

    def _nans(self, m: Module) -> Value:
        """A flit of canonical NaNs; for a type that has none, of any."""
        nans = Signal(FLIT_BITS)
        for k, dtype in enumerate(d for d in self.dtypes if d in FLOATS):
            form = FLOATS[dtype]
            with m.If((self.attr.dtype == dtype) | (k == 0)):
                m.d.comb += nans.eq(Const(form.nan, form.bits).replicate(FLIT_BITS // form.bits))
        return nans


def _doubled(low: int, high: int) -> list[int]:
    """Powers of two above ``low``, up to ``high``."""
    return [1 << k for k in range(low.bit_length(), high.bit_length())]
