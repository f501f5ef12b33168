"""What can be reduced: the table of types, operations and accumulations, and a build's part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from amaranth.hdl import Cat, Value

from dysharp.hw.errors import ConfigError
from dysharp.hw.packet import Dtype, Op
from dysharp.hw.rules import suggest

__all__ = [
    "ALL_DTYPES",
    "DEFAULT_ARITHMETIC",
    "DEFAULT_DEPTH",
    "DEFAULT_DTYPES",
    "MAX_DEPTH",
    "Arithmetic",
    "Reduction",
    "check_dtypes",
    "dtypes_name",
    "is_supported",
    "parse_dtypes",
    "supported",
]

_ORDERED = (Op.ADD, Op.MIN, Op.MAX)
_BITWISE = (Op.AND, Op.OR, Op.XOR)

# Operations of each type, and the accumulations that it has: 0 its own type, 1 the wider one.
_TABLE: dict[Dtype, tuple[tuple[Op, ...], tuple[int, ...]]] = {
    Dtype.U32: (_ORDERED, (0,)),
    Dtype.S32: (_ORDERED, (0,)),
    Dtype.U64: (_ORDERED, (0,)),
    Dtype.S64: ((Op.MIN, Op.MAX), (0,)),
    Dtype.B32: (_BITWISE, (0,)),
    Dtype.B64: (_BITWISE, (0,)),
    Dtype.F16: (_ORDERED, (0, 1)),
    Dtype.BF16: (_ORDERED, (0, 1)),
    Dtype.F32: ((Op.ADD,), (0,)),
    Dtype.F64: ((Op.ADD,), (0,)),
    Dtype.E4M3: (_ORDERED, (0, 1)),
    Dtype.E5M2: (_ORDERED, (0, 1)),
}

ALL_DTYPES: tuple[Dtype, ...] = tuple(_TABLE)
"""Every type that can be built."""
DEFAULT_DTYPES: tuple[Dtype, ...] = tuple(dtype for dtype in _TABLE if dtype is not Dtype.F64)
"""Every type but f64, whose adders are large."""
DEFAULT_DEPTH = 4
"""Cycles from operand to sum unless a configuration says otherwise."""
MAX_DEPTH = 5
"""The most stages that the adders can be cut into."""


class Reduction(NamedTuple):
    """One row: a type, an operation, and 1 for the wider accumulator."""

    dtype: Dtype
    op: Op
    acc: int


@dataclass(frozen=True)
class Arithmetic:
    """What a build's arithmetic can do, and in how many stages.

    Parameters
    ----------
    dtypes : types that are built, in the order of their numbers
    ftz : f32 subnormals, read or computed by an addition, count as zero
    depth : pipeline stages of the addition

    Raises
    ------
    ValueError
        For types or a depth that cannot be built.
    """

    dtypes: tuple[Dtype, ...] = DEFAULT_DTYPES
    ftz: bool = False
    depth: int = DEFAULT_DEPTH

    def __post_init__(self) -> None:
        check_dtypes(self.dtypes)
        if not 1 <= self.depth <= MAX_DEPTH:
            raise ValueError(f"Depth must be from 1 to {MAX_DEPTH}, not {self.depth!r}")

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of an ALU's constructor."""
        return {"dtypes": self.dtypes, "depth": self.depth, "ftz": self.ftz}

    @property
    def name(self) -> str:
        """``<types>[_ftz]_d<depth>``, for the names of modules."""
        return f"{dtypes_name(self.dtypes)}{'_ftz' if self.ftz else ''}_d{self.depth}"


def check_dtypes(dtypes: Iterable[Dtype]) -> None:
    """Raise ValueError unless these are types of the table, one or more, each once, in order."""
    given = tuple(dtypes)
    if not given or given != tuple(dtype for dtype in ALL_DTYPES if dtype in given):
        raise ValueError(
            f"Types must be a choice of {', '.join(map(_word, ALL_DTYPES))} in this order, "
            f"not {given!r}"
        )


def dtypes_name(dtypes: tuple[Dtype, ...]) -> str:
    """A short name of a set of types: ``all``, ``all_f64``, or the types one by one."""
    names = {DEFAULT_DTYPES: "all", ALL_DTYPES: "all_f64"}
    return names.get(dtypes) or "_".join(map(_word, dtypes))


def parse_dtypes(word: str) -> tuple[Dtype, ...]:
    """Read ``all``, ``all+f64``, or a list such as ``bf16,f32``.

    Raises
    ------
    ConfigError
        For a type that there is not, or one that is named twice.
    """
    sets = {"all": DEFAULT_DTYPES, "all+f64": ALL_DTYPES}
    if word in sets:
        return sets[word]
    known = {_word(dtype): dtype for dtype in ALL_DTYPES}
    chosen: list[Dtype] = []
    names = [part.strip() for part in word.split(",")]
    for name in names:
        if name in sets:
            whole = "all+f64" if {"f64", "all+f64"} & set(names) else "all"
            rule = f"Types must be {name} alone, or named one by one, not {word!r}"
            raise ConfigError("dtypes", word, rule, hint=f"did you mean {whole}?")
        if name not in known:
            rule = f"Types must be all, all+f64, or of {', '.join(known)}, not {name!r}"
            raise ConfigError("dtypes", word, rule, hint=suggest(name, [*sets, *known]))
        if known[name] in chosen:
            raise ConfigError("dtypes", word, f"Types must be named once, not {name!r} again")
        chosen.append(known[name])
    return tuple(dtype for dtype in ALL_DTYPES if dtype in chosen)


def supported(dtypes: Iterable[Dtype] = DEFAULT_DTYPES) -> tuple[Reduction, ...]:
    """Every reduction that a build with these types computes."""
    return tuple(
        Reduction(dtype, op, acc)
        for dtype in dtypes
        for op in _TABLE[dtype][0]
        for acc in _TABLE[dtype][1]
    )


def is_supported(attr, dtypes: Iterable[Dtype]) -> Value:
    """Whether a build with these types computes what a resolved ``attr`` asks for.

    Parameters
    ----------
    attr : view of :class:`~dysharp.hw.packet.Attr`, not 0
    dtypes : types of the build

    Returns
    -------
    Value
        One bit, combinational. What it refuses is answered with ERR 5.
    """
    hits = []
    for dtype in dtypes:
        ops, accs = _TABLE[dtype]
        hit = (attr.dtype == dtype) & Cat(attr.op == op for op in ops).any()
        hits.append(hit if 1 in accs else hit & ~attr.acc)
    return Cat(hits).any()


def _word(dtype: Dtype) -> str:
    return dtype.name.lower()


DEFAULT_ARITHMETIC = Arithmetic()
"""Every type but f64, subnormals kept."""
