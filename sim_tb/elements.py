"""Random payloads of every type: any bits, and often the ones at which mistakes show."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache

from dysharp.hw.packet import FLIT_BYTES, Dtype
from dysharp.model.floats import FloatFormat
from dysharp.model.numerics import FORMATS, REDUCTIONS, attr_bits, flit

__all__ = ["attrs", "random_bytes", "random_flit", "special_elements"]


def attrs(dtypes: Iterable[Dtype]) -> tuple[int, ...]:
    """The attr of every reduction that a build with these types has."""
    wanted = set(dtypes)
    return tuple(attr_bits(*row) for row in REDUCTIONS if row[0] in wanted)


@cache
def special_elements(dtype: Dtype) -> tuple[int, ...]:
    """Bit patterns of both signs at which an adder's cases change.

    Of a float: zero, the smallest and the largest subnormal, the smallest normal, 1, 1 and a last
    place, a number so large that 1 is beyond its mantissa and one that makes 1 a tie, the largest,
    infinity, a signalling, a quiet and the longest NaN (in a format without them, numbers).
    """
    form = FORMATS[dtype]
    if not isinstance(form, FloatFormat):
        top = 1 << form.bits - 1
        return 0, 1, 2, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1
    hidden, sign = 1 << form.mantissa_bits, 1 << form.bits - 1
    one = (1 - form.min_exponent) * hidden
    magnitudes = (
        *(0, 1, hidden - 1, hidden, one, one + 1, form.largest),
        *(min(one + (form.mantissa_bits + k) * hidden, form.largest) for k in (1, 4)),
        *(form.infinity, form.infinity + 1, form.infinity + hidden // 2, sign - 1),
    )
    return tuple(one | side for one in magnitudes for side in (0, sign))


def random_flit(values: random.Random, dtype: Dtype, *, special: float = 0.2) -> int:
    """A flit, each element with a chance of ``special`` one of :func:`special_elements`."""
    bits, chosen = FORMATS[dtype].bits, special_elements(dtype)
    lanes = 8 * FLIT_BYTES // bits
    return flit(
        [
            values.choice(chosen) if values.random() < special else values.getrandbits(bits)
            for _ in range(lanes)
        ],
        dtype,
    )


def random_bytes(
    values: random.Random, dtype: Dtype, flits: int, *, special: float = 0.25
) -> bytes:
    """So many flits of random elements, as they lie in memory."""
    return b"".join(
        random_flit(values, dtype, special=special).to_bytes(FLIT_BYTES, "little")
        for _ in range(flits)
    )
