"""Where the sums of a flit stand while it is reduced.

The accumulators of a flit are eight slots of 32 bits. A sum of bf16 or f16 number ``k`` stands in
slot ``k``, as f32; a sum of f32 number ``k`` in slot ``k``; a sum of fp8 number ``j`` in half
``j % 2`` of slot ``j // 2``, as f16. So with either accumulation: sums that are rounded to the
type itself in every step stand as the same numbers of the wider one.
Sums of f64, and what ``min``, ``max``, integers and bits reduce, stand in the low 128 bits like the
numbers of a flit. A build without a type that is accumulated in a wider one has four slots.
"""

from typing import NamedTuple

from amaranth import Cat, Const, Module, Value

from dysharp.hw.alu.converter import FloatConverter
from dysharp.hw.alu.float_format import F16, F32, F32_FTZ, F64, FLOATS, FloatFormat
from dysharp.hw.packet import FLIT_BITS, Dtype
from dysharp.hw.share import place

__all__ = [
    "ADDED",
    "F64_BITS",
    "SLOT_BITS",
    "Formats",
    "accumulator_bits",
    "adder_formats",
    "sum_formats",
    "widened",
]

SLOT_BITS = F32.bits
F64_BITS = F64.bits


class Formats(NamedTuple):
    """What a type is added in.

    Members
    -------
    own : the type itself, to which sums are rounded with acc 0
    wider : in whose bits sums stand, to which they are rounded with acc 1; f32's own
    """

    own: FloatFormat
    wider: FloatFormat


_WIDER = {Dtype.F32: F32, Dtype.F16: F32, Dtype.BF16: F32, Dtype.E4M3: F16, Dtype.E5M2: F16}

ADDED: dict[Dtype, Formats] = {
    dtype: Formats(FLOATS[dtype], wider) for dtype, wider in _WIDER.items()
}
"""Floating-point types that the slots' adders serve; f64 has adders of its own."""


def accumulator_bits(dtypes: tuple[Dtype, ...]) -> int:
    """Bits of a flit's accumulators: 256 if a type can be accumulated in a wider one, else 128."""
    wider = any(dtype in ADDED and ADDED[dtype].own != ADDED[dtype].wider for dtype in dtypes)
    return 2 * FLIT_BITS if wider else FLIT_BITS


def sum_formats(
    dtypes: tuple[Dtype, ...], *, half: bool = False, ftz: bool = False
) -> dict[Dtype, Formats]:
    """What the sums of each type are rounded to in a slot's adder, with acc 0 and with acc 1.

    Parameters
    ----------
    dtypes : types of the build
    half : in the adder of a slot's upper half, which only fp8 needs
    ftz : f32 subnormals count as zero
    """
    f32 = F32_FTZ if ftz else F32
    formats = {}
    for dtype in dtypes:
        if dtype not in ADDED or (half and ADDED[dtype].own.bits > 8):
            continue
        own, wider = ADDED[dtype]
        is_f32 = dtype is Dtype.F32
        formats[dtype] = Formats(f32, f32) if is_f32 else Formats(own.held_in(wider), wider)
    return formats


def adder_formats(formats: dict[Dtype, Formats]) -> tuple[FloatFormat, ...]:
    """Formats of the adder that serves these types, each once."""
    return tuple(dict.fromkeys(form for pair in formats.values() for form in pair))


def widened(m: Module, name: str, number: Value, dtype: Dtype) -> Value:
    """The number as its sums stand; a NaN may stay as it is, the adder makes it canonical."""
    own, wider = ADDED[dtype]
    if own == wider:
        return number
    if own.exponent_bits == wider.exponent_bits:
        return Cat(Const(0, wider.mantissa_bits - own.mantissa_bits), number)
    converter = FloatConverter(source=own, target=wider)
    m.submodules[f"{name}_widened"] = place(converter)
    m.d.comb += converter.i.eq(number)
    return converter.o
