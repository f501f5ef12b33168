"""An adder whose carry skips, and stays fast when a mapper has rewritten it.

A parallel prefix tree shares its nodes between sums, and a mapper that looks for the smallest logic
(abc's ``dc2``) folds it back into a ripple: small, and no longer fast. Here what a block does to
its carry comes from a tree that no sum uses, so there is nothing to fold: the carry skips from
block to block, and ripples only inside of them.
"""

from amaranth import Cat, Const, Module, Value

from dysharp.hw.alu.carry import group, named

__all__ = ["add_skipping"]


def add_skipping(m: Module, a, b, carry) -> Value:
    """``a + b + carry``, a bit wider than ``a``; ``b`` is as wide, or None for zero."""
    a = Value.cast(a)
    b = Const(0, len(a)) if b is None else Value.cast(b)
    makes, differs, either = (
        list(named(m, value, name))
        for value, name in ((a & b, "makes"), (a ^ b, "differs"), (a | b, "either"))
    )
    carries: list[Value] = []
    for size in _block_sizes(len(a)):
        first, ripple = len(carries), carry
        for k in range(first, first + size):
            carries.append(ripple)
            ripple = named(m, makes[k] | (differs[k] & ripple), "ripple")
        block = slice(first, first + size)
        generate, propagate = group(list(zip(makes[block], either[block], strict=True)))
        carry = named(m, generate | (propagate & carry), "carry")
    return Cat(Cat(*differs) ^ Cat(*carries), carry)


def _block_sizes(width: int) -> list[int]:
    """Sizes of blocks, lowest first, that grow from the ends to the middle.

    So a carry that is made in one block and dies in another has about as far to go whichever
    these blocks are.
    """
    end, count = (2 if width < 24 else 3), 1
    while sum(sizes := [end + min(k, count - 1 - k) for k in range(count)]) < width:
        count += 1
    for _ in range(sum(sizes) - width):
        sizes[max(range(count), key=lambda k: (sizes[k], k))] -= 1
    return [size for size in sizes if size]
