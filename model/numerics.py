"""The reductions as a specification: every (dtype, op, acc) of the wire and what it computes.

A reduction takes elements of one type in the order given. The first one is loaded (converted to
the accumulator's type, which is exact, and a NaN made canonical; it is not added to 0, so -0 alone
stays -0), the others are combined with it one by one, each result rounded to the accumulator's
type, and what comes out is rounded to the wire's type once. The same in the switch and in a GPU.

The functions work on bit patterns in plain Python integers and are meant to be read; what they do
to a floating-point number is in :mod:`dysharp.model.floats`. Their twin on numpy arrays, tested
equal to them, is :mod:`dysharp.model.numerics_array`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op
from dysharp.model import floats
from dysharp.model.floats import BF16, E4M3, E5M2, F16, F32, F32_FTZ, F64, FloatFormat

__all__ = [
    "ALL_DTYPES",
    "DEFAULT_DTYPES",
    "FORMATS",
    "REDUCTIONS",
    "IntegerFormat",
    "Reduction",
    "attr_bits",
    "elements",
    "flit",
    "reduce_exact",
    "reduce_list",
    "reduction",
    "row_of",
    "supports",
]


@dataclass(frozen=True)
class IntegerFormat:
    """Two's complement integers, unsigned ones, or plain bits.

    Parameters
    ----------
    name : name as in PTX
    bits : width
    signed : the top bit counts negative in comparisons
    """

    name: str
    bits: int
    signed: bool = False

    def value(self, bits: int) -> int:
        """The number that a bit pattern stands for."""
        return bits - (self.signed and bits >> self.bits - 1) * (1 << self.bits)


U32 = IntegerFormat("u32", 32)
S32 = IntegerFormat("s32", 32, signed=True)
U64 = IntegerFormat("u64", 64)
S64 = IntegerFormat("s64", 64, signed=True)
B32 = IntegerFormat("b32", 32)
B64 = IntegerFormat("b64", 64)

Format = FloatFormat | IntegerFormat


@dataclass(frozen=True)
class Reduction:
    """One row of the table of reductions.

    Parameters
    ----------
    op : what combines two elements
    wire : type of the elements
    accumulator : type in which they are combined
    """

    op: Op
    wire: Format
    accumulator: Format

    def load(self, bits: int) -> int:
        """An element of the wire's type in the accumulator's."""
        if isinstance(self.wire, FloatFormat) and isinstance(self.accumulator, FloatFormat):
            return floats.load(bits, self.wire, self.accumulator)
        return bits

    def combine(self, total: int, operand: int) -> int:
        """One step: both in the accumulator's type, and so is the result."""
        if isinstance(self.accumulator, FloatFormat):
            return _FLOAT_OPS[self.op](total, operand, self.accumulator)
        return _combine_integers(self.op, total, operand, self.accumulator)

    def result(self, total: int) -> int:
        """The accumulator in the wire's type, rounded once; fp8 saturates, infinities too."""
        if isinstance(self.wire, FloatFormat) and isinstance(self.accumulator, FloatFormat):
            return floats.convert(total, self.accumulator, self.wire)
        return total


_FLOAT_OPS = {Op.ADD: floats.add, Op.MIN: floats.minimum, Op.MAX: floats.maximum}


def _combine_integers(op: Op, a: int, b: int, form: IntegerFormat) -> int:
    match op:
        case Op.ADD:
            return (a + b) % (1 << form.bits)
        case Op.MIN:
            return min(a, b, key=form.value)
        case Op.MAX:
            return max(a, b, key=form.value)
        case Op.AND:
            return a & b
        case Op.OR:
            return a | b
        case Op.XOR:
            return a ^ b


_ARITHMETIC = (Op.ADD, Op.MIN, Op.MAX)
_LOGIC = (Op.AND, Op.OR, Op.XOR)
_TABLE: dict[Dtype, tuple[tuple[Op, ...], tuple[Format, ...]]] = {
    # dtype: (ops, (accumulator of acc 0, of acc 1)); that of acc 0 is the type itself
    Dtype.BF16: (_ARITHMETIC, (BF16, F32)),
    Dtype.F16: (_ARITHMETIC, (F16, F32)),
    Dtype.F32: ((Op.ADD,), (F32,)),
    Dtype.F64: ((Op.ADD,), (F64,)),
    Dtype.E4M3: (_ARITHMETIC, (E4M3, F16)),
    Dtype.E5M2: (_ARITHMETIC, (E5M2, F16)),
    Dtype.U32: (_ARITHMETIC, (U32,)),
    Dtype.S32: (_ARITHMETIC, (S32,)),
    Dtype.U64: (_ARITHMETIC, (U64,)),
    Dtype.S64: ((Op.MIN, Op.MAX), (S64,)),
    Dtype.B32: (_LOGIC, (B32,)),
    Dtype.B64: (_LOGIC, (B64,)),
}

FORMATS: dict[Dtype, Format] = {dtype: forms[0] for dtype, (_, forms) in _TABLE.items()}
"""The type of an element on the wire."""

REDUCTIONS: dict[tuple[Dtype, Op, int], Reduction] = {
    (dtype, op, acc): Reduction(op, forms[0], form)
    for dtype, (ops, forms) in _TABLE.items()
    for op in ops
    for acc, form in enumerate(forms)
}
"""(dtype, op, acc) of a packet's attr to what is done; anything else is refused (ERR 5)."""

ALL_DTYPES = frozenset(FORMATS)
DEFAULT_DTYPES = ALL_DTYPES - {Dtype.F64}
"""The types that a build has unless it says otherwise."""


def reduction(dtype: Dtype, op: Op, acc: int, *, ftz: bool = False) -> Reduction:
    """Look up a row of :data:`REDUCTIONS`; ``ftz`` flushes the subnormals of f32.

    Raises
    ------
    ValueError
        If the combination is unsupported.
    """
    try:
        row = REDUCTIONS[dtype, op, acc]
    except KeyError:
        raise ValueError(
            f"Reduction must be one of the supported (dtype, op, acc), "
            f"not {dtype.name} {op.name} acc={acc}"
        ) from None
    return replace(row, accumulator=F32_FTZ) if ftz and dtype is Dtype.F32 else row


def attr_bits(dtype: Dtype, op: Op = Op.ADD, acc: int = 0) -> int:
    """The attr field of a packet that asks for a reduction."""
    return Attr.const({"dtype": dtype, "op": op, "acc": acc}).as_bits()


_BY_ATTR = {attr_bits(*row): row for row in REDUCTIONS}


def row_of(attr: int) -> tuple[Dtype, Op, int]:
    """The key of :data:`REDUCTIONS` that an attr field (not 0) names; ValueError if none."""
    if attr not in _BY_ATTR:
        raise ValueError(f"Attr must be that of a supported reduction, not {attr:#04x}")
    return _BY_ATTR[attr]


def supports(attr: int, dtypes: Iterable[Dtype] = DEFAULT_DTYPES) -> bool:
    """Whether a build with these types reduces what an attr field (not 0) asks for."""
    return attr in _BY_ATTR and _BY_ATTR[attr][0] in dtypes


def reduce_list(
    values: Iterable[int],
    *,
    dtype: Dtype = Dtype.BF16,
    op: Op = Op.ADD,
    acc: int = 1,
    ftz: bool = False,
) -> int:
    """Reduce bit patterns in the order given: load the first, combine the rest, round once.

    Parameters
    ----------
    values : at least one bit pattern of ``dtype``
    dtype, op, acc : as in a packet's attr
    ftz : flush the subnormals of f32

    Returns
    -------
    int
        Bit pattern of ``dtype``.
    """
    row = reduction(dtype, op, acc, ftz=ftz)
    return row.result(reduce(row.combine, map(row.load, _some(values))))


def reduce_exact(
    values: Iterable[int],
    *,
    dtype: Dtype = Dtype.BF16,
    op: Op = Op.ADD,
    acc: int = 1,
    ftz: bool = False,
) -> int:
    """Reduce bit patterns as if the accumulator had no limits, and round once to ``dtype``.

    The same for every order of the values. min, max and integers are exact in any case. Parameters
    as of :func:`reduce_list`; ``acc`` says only whether the combination is supported.
    """
    row = reduction(dtype, op, acc, ftz=ftz)
    if op is not Op.ADD or isinstance(row.wire, IntegerFormat):
        return reduce_list(values, dtype=dtype, op=op, acc=acc)
    return floats.add_exactly(_some(values), F32_FTZ if row.accumulator is F32_FTZ else row.wire)


def _some(values: Iterable[int]) -> list[int]:
    found = list(values)
    if not found:
        raise ValueError("Values must be at least one bit pattern, not none")
    return found


def elements(word: int, dtype: Dtype) -> list[int]:
    """The elements of a flit, lowest bits first."""
    bits = FORMATS[dtype].bits
    return [word >> low & (1 << bits) - 1 for low in range(0, FLIT_BITS, bits)]


def flit(values: Sequence[int], dtype: Dtype) -> int:
    """The inverse of :func:`elements`."""
    bits = FORMATS[dtype].bits
    if len(values) * bits != FLIT_BITS:
        raise ValueError(f"Elements must be {FLIT_BITS // bits} a flit, not {len(values)}")
    return sum(value << bits * lane for lane, value in enumerate(values))
