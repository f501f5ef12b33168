"""Elements in flits: reductions of whole payloads, as the hardware's golden models need them."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.packet import FLIT_BYTES, Dtype
from dysharp.model.exact import reduce_exact_array
from dysharp.model.numerics import FORMATS, row_of
from dysharp.model.numerics_array import bits_type, reduce_array

__all__ = ["from_flits", "reduce_flits", "to_flits"]


def from_flits(flits: Iterable[int], dtype: Dtype) -> NDArray[Any]:
    """The elements of DATA flits, lowest bits first, as bit patterns."""
    raw = b"".join(flit.to_bytes(FLIT_BYTES, "little") for flit in flits)
    return np.frombuffer(raw, bits_type(FORMATS[dtype].bits))


def to_flits(bits: NDArray[Any]) -> tuple[int, ...]:
    """The inverse of :func:`from_flits`."""
    raw = bits.tobytes()
    return tuple(
        int.from_bytes(raw[first : first + FLIT_BYTES], "little")
        for first in range(0, len(raw), FLIT_BYTES)
    )


def reduce_flits(
    operands: Sequence[Sequence[int]], attr: int, *, exact: bool = False, ftz: bool = False
) -> tuple[int, ...]:
    """Reduce payloads, each the same number of DATA flits.

    Parameters
    ----------
    operands : at least one payload, in the order in which they are combined
    attr : what is reduced, not 0; ValueError if that is unsupported
    exact : keep every bit until one rounding at the end, so that the order is of no account
    ftz : flush the subnormals of f32
    """
    dtype, op, acc = row_of(attr)
    reduce = reduce_exact_array if exact else reduce_array
    arrays = [from_flits(flits, dtype) for flits in operands]
    return to_flits(reduce(arrays, dtype=dtype, op=op, acc=acc, ftz=ftz))
