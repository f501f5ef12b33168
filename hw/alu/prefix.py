"""Trees that tell each place of a word about all the places before it."""

from amaranth import Cat, Module, Signal, Value

__all__ = ["all_before", "carries", "highest"]


def carries(m: Module, generates: Signal, propagates: Signal) -> Value:
    """Carries out of each place, without one into the first; a tree of doubling steps."""
    distance = 1
    while distance < len(generates):
        reach, through = Signal.like(generates), Signal.like(propagates)
        below = (generates << distance)[: len(generates)]
        passed = ((propagates << distance) | (1 << distance) - 1)[: len(generates)]
        m.d.comb += [
            reach.eq(generates | propagates & below),
            through.eq(propagates & passed),
        ]
        generates, propagates = reach, through
        distance *= 2
    return generates


def all_before(m: Module, bits: Value) -> Value:
    """For each place whether all lower ones are set; a tree of doubling steps."""
    every, distance = (bits << 1 | 1)[: len(bits)], 1
    while distance < len(bits):
        longer = Signal(len(bits))
        m.d.comb += longer.eq(every & (every << distance | (1 << distance) - 1))
        every, distance = longer, 2 * distance
    return every


def highest(m: Module, bits: Value) -> Signal:
    """Only the highest of the bits that are set."""
    highest = Signal(len(bits))
    none_above = all_before(m, ~Cat(reversed(list(bits))))
    m.d.comb += highest.eq(bits & Cat(reversed(list(none_above))))
    return highest
