"""One-hot codes: the number of the bit that is set, and what it selects."""

from amaranth import Cat, Value

__all__ = ["encode", "select"]


def encode(one_hot) -> Value:
    """Number of the bit that is set; 0 if none is."""
    width = len(one_hot)
    bits = range(max(width - 1, 1).bit_length())
    return Cat(Cat(one_hot[k] for k in range(width) if k >> bit & 1).any() for bit in bits)


def select(one_hot, values) -> Value:
    """The value whose bit is set, 0 if none is: a plane of ANDs and a tree of ORs."""
    terms = [
        Value.cast(value) & bit.replicate(len(Value.cast(value)))
        for value, bit in zip(values, one_hot, strict=True)
    ]
    while len(terms) > 1:
        pairs = [terms[k : k + 2] for k in range(0, len(terms), 2)]
        terms = [pair[0] | pair[-1] for pair in pairs]
    return terms[0]
