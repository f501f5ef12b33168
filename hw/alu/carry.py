"""Carries by trees of generate and propagate."""

from amaranth import Cat, Const, Module, Mux, Signal, Value

__all__ = ["absolute_difference", "add", "greater", "group", "increment", "named"]

_Pairs = list[tuple[Value, Value]]


def named(m: Module, value, name: str) -> Signal:
    """A wire with the value; what uses it does not repeat the expression."""
    value = Value.cast(value)
    wire = Signal(len(value), name=name)
    m.d.comb += wire.eq(value)
    return wire


def add(m: Module, a, b, carry) -> Value:
    """``a + b + carry``, a bit wider than ``a`` and ``b``, which are of one width."""
    a, b = Value.cast(a), Value.cast(b)
    makes, differs = list(named(m, a & b, "makes")), list(named(m, a ^ b, "differs"))
    prefixes = _prefixes(m, list(zip(makes, differs, strict=True)))
    carries = [carry, *(generate | (propagate & carry) for generate, propagate in prefixes)]
    return Cat(Cat(*differs) ^ Cat(*carries[:-1]), carries[-1])


def increment(m: Module, a, carry) -> Value:
    """``a + carry``, a bit wider than ``a``."""
    zeros = Const(0, len(Value.cast(a)))
    return add(m, a, zeros, carry)


def greater(a, b) -> tuple[Value, Value]:
    """Whether ``a > b``, and whether they are equal."""
    pairs = zip(Value.cast(a), Value.cast(b), strict=True)
    return group([(x & ~y, ~(x ^ y)) for x, y in pairs])


def absolute_difference(m: Module, a, b) -> tuple[Value, Value, Value]:
    """``|a - b|``, whether ``a > b``, and whether they are equal.

    One tree of carries serves both differences: ``a + ~b`` is ``a - b - 1``, its complement
    ``b - a``, and a carry into it makes it ``a - b``.
    """
    a, b = Value.cast(a), Value.cast(b)
    same = list(named(m, ~(a ^ b), "same"))
    prefixes = _prefixes(m, [(x & ~y, equal) for x, y, equal in zip(a, b, same, strict=True)])
    more, equal = prefixes[-1]
    into = [(Const(0, 1), Const(1, 1)), *prefixes[:-1]]
    difference = Cat(
        Mux(more, x ^ (generate | propagate), ~(x ^ generate))
        for x, (generate, propagate) in zip(same, into, strict=True)
    )
    return difference, more, equal


def _prefixes(m: Module, pairs: _Pairs) -> _Pairs:
    """What bits 0 to k do to a carry, for each k."""
    distance = 1
    while distance < len(pairs):
        below = {k: pairs[k // distance * distance - 1] for k in range(len(pairs))}
        pairs = [
            _named_pair(m, _join(pair, below[k])) if k & distance else pair
            for k, pair in enumerate(pairs)
        ]
        distance *= 2
    return pairs


def group(pairs: _Pairs) -> tuple[Value, Value]:
    """What some bits, lowest first, do to a carry: make one, pass one on."""
    if len(pairs) == 1:
        return pairs[0]
    half = 1 << (len(pairs) - 1).bit_length() - 1
    return _join(group(pairs[half:]), group(pairs[:half]))


def _join(high: tuple[Value, Value], low: tuple[Value, Value]) -> tuple[Value, Value]:
    return high[0] | (high[1] & low[0]), high[1] & low[1]


def _named_pair(m: Module, pair: tuple[Value, Value]) -> tuple[Value, Value]:
    return named(m, pair[0], "generate"), named(m, pair[1], "propagate")
