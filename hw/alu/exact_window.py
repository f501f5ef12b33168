"""Where an exact sum begins: the two highest of its limbs that are not all sign.

In two steps, for a register between them. The carries left between the limbs are resolved by
lookahead over the limbs; they are added to no limb before two are chosen.
"""

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from dysharp.hw.alu import prefix
from dysharp.hw.alu.fixed_point import FixedPoint
from dysharp.hw.alu.format_mix import pick

__all__ = ["choose", "resolve"]


def resolve(m: Module, fixed: FixedPoint, accumulator: Any, select: Any) -> Any:
    """The carries into all limbs, and what the limbs are with them: 0, all ones, negative."""
    count = len(fixed.limbs)
    kept = [Const(0, 1), *(accumulator[f"carry{k}"] for k in range(1, count))]
    near = [_Near(m, accumulator[f"limb{k}"], f"limb{k}") for k in range(count)]
    resolved: Any = Signal(
        data.StructLayout(
            {
                "accumulator": fixed.layout,
                "carries": count + 1,
                "zero": count,
                "ones": count,
                "negative": 1,
            }
        ),
        name="resolved",
    )
    generates, propagates, tops = Signal(count), Signal(count), Signal(count)
    m.d.comb += [
        resolved.accumulator.eq(accumulator),
        resolved.carries.eq(Cat(Const(0, 1), prefix.carries(m, generates, propagates))),
        # A sum of a short format has its sign below the last limb.
        resolved.negative.eq(
            pick(list(select), [tops[fixed.limbs_of(f) - 1] for f in fixed.formats], 1)
        ),
    ]
    for k, n in enumerate(near):
        carry = resolved.carries[k]
        m.d.comb += [
            generates[k].eq(n.is_minus[1] & kept[k]),
            propagates[k].eq(Mux(kept[k], n.is_minus[2], n.is_minus[1])),
            resolved.zero[k].eq(n.reaches(0, kept[k], carry)),
            resolved.ones[k].eq(n.reaches(1, kept[k], carry)),
            tops[k].eq(n.top(kept[k], carry)),
        ]
    return resolved


def choose(m: Module, fixed: FixedPoint, resolved: Any, select: Any) -> Any:
    """The two limbs in which the sum begins, as they are, and what is to be added to them."""
    count = len(fixed.limbs)
    limbs = [resolved.accumulator[f"limb{k}"] for k in range(count)]
    kept = [Const(0, 1), *(resolved.accumulator[f"carry{k}"] for k in range(1, count))]
    carries, zero, ones = resolved.carries, resolved.zero, resolved.ones
    negative = resolved.negative

    # What is above the last limb of a short format is not its own.
    used = [
        pick(list(select), [Const(k < fixed.limbs_of(f), 1) for f in fixed.formats], 1)
        for k in range(count)
    ]
    begins = [used[k] & ~Mux(negative, ones[k], zero[k]) for k in range(2, count)]
    first = prefix.highest(m, Cat(Const(1, 1), *begins))
    nothing_below = prefix.all_before(m, zero)

    # The highest limb is extended so that it still wraps to its sign.
    words = [Cat(Const(0, fixed.first), limbs[0]), *limbs[1:]]
    above = (negative | carries[count]).replicate(fixed.limb_bits - len(limbs[-1]))
    words[-1] = Cat(limbs[-1], above)
    if any(fixed.limbs_of(form) == 1 for form in fixed.formats):
        # The window is two limbs even so: the one above a single limb is nothing but sign.
        words[1] = Mux(used[1], words[1], negative.replicate(fixed.limb_bits))
        kept[1] = kept[1] & used[1]
    window: Any = Signal(
        data.StructLayout(
            {
                "low": fixed.limb_bits,
                "high": fixed.limb_bits,
                "low_kept": 1,
                "low_carry": 1,
                "high_kept": 1,
                "high_carry": 1,
                "low_zero": 1,
                "high_zero": 1,
                "nothing_below": 1,
                "number": range(max(2, count - 1)),
                "negative": 1,
            }
        ),
        name="window",
    )

    def chosen(values: Sequence[Any]) -> Value:
        return pick(list(first), values, max(len(Value.cast(value)) for value in values))

    m.d.comb += [
        window.low.eq(chosen(words[:-1])),
        window.high.eq(chosen(words[1:])),
        window.low_kept.eq(chosen(kept[:-1])),
        window.low_carry.eq(chosen(list(carries[:-2]))),
        window.high_kept.eq(chosen(kept[1:])),
        window.high_carry.eq(chosen(list(carries[1:-1]))),
        window.low_zero.eq(chosen(list(zero[:-1]))),
        window.high_zero.eq(chosen(list(zero[1:]))),
        window.nothing_below.eq(chosen(list(nothing_below[:-1]))),
        window.number.eq(chosen([Const(k, len(window.number)) for k in range(count - 1)])),
        window.negative.eq(negative),
    ]
    return window


class _Near:
    """How near a limb is to wrapping: whether it is -3, -2, -1 or 0 modulo its range."""

    def __init__(self, m: Module, limb, name: str):
        width = len(limb)
        self.is_minus = Signal(4, name=f"{name}_is_minus")
        below_top = limb[:-1]
        self._top = limb[-1]
        self._below_is_minus = Signal(3, name=f"{name}_below_top_is_minus")
        m.d.comb += [self.is_minus[k].eq(limb == -k % (1 << width)) for k in range(4)]
        m.d.comb += [self._below_is_minus[k].eq(below_top == -k % (1 << width - 1)) for k in (1, 2)]

    def reaches(self, minus: int, one, other):
        """Whether the limb and two bits make ``-minus``."""
        return Mux(
            one & other,
            self.is_minus[minus + 2],
            Mux(one | other, self.is_minus[minus + 1], self.is_minus[minus]),
        )

    def top(self, one, other):
        """Highest bit of the limb and two bits."""
        below = self._below_is_minus
        return self._top ^ ((one | other) & below[1] | one & other & below[2])
