"""Sums and bitwise operations on a flit of integers."""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.reductions import dtypes_name
from dysharp.hw.packet import FLIT_BITS, Attr, Dtype, Op

__all__ = ["INTEGER_DTYPES", "IntegerUnit"]

_ADDED = (Dtype.U32, Dtype.S32, Dtype.U64)
_BITWISE = (Dtype.B32, Dtype.B64)
_BLOCK = 32

INTEGER_DTYPES: tuple[Dtype, ...] = (*_ADDED, *_BITWISE)
"""Types that :class:`IntegerUnit` has operations for."""


class IntegerUnit(Component):
    """``add`` of u32, s32 and u64, and ``and``, ``or`` and ``xor`` of b32 and b64, on a whole flit.

    A sum wraps. There is no ``load``: an integer is loaded as it is, which
    :class:`~dysharp.hw.alu.min_max.MinMaxUnit` does for every type.

    Latency: :attr:`latency` cycles, which is ``depth``. Throughput: one flit a cycle, type and
    operation free to change in every one.

    Parameters
    ----------
    dtypes : types of the build; only those in :data:`INTEGER_DTYPES` cost anything
    depth : 0 is combinational; 1 has a register between the sums of 32-bit words and the carries
        that they hand on

    Source
    ------
    PTX ``red``: ``.add`` of ``.u32``, ``.s32``, ``.u64``; ``.and``, ``.or``, ``.xor`` of ``.b32``,
    ``.b64``.
    """

    attr: Any
    """In, type and operation; ``acc`` is not looked at. For others any bits come out."""
    operand: Signal
    """In, the flit."""
    accumulator: Signal
    """In, the flit that was reduced so far."""
    passes: Signal
    """In, ``passed`` is wanted, whatever the operation."""
    passed: Signal
    """In, what another unit computed, to share the register and leave by ``result``."""
    result: Signal
    """Out, :attr:`latency` cycles later."""

    def __init__(self, *, dtypes: tuple[Dtype, ...], depth: int = 0):
        self.dtypes = tuple(dtype for dtype in dtypes if dtype in INTEGER_DTYPES)
        if not self.dtypes:
            words = ", ".join(dtype.name.lower() for dtype in INTEGER_DTYPES)
            raise ValueError(f"Types must hold one of {words}, not {dtypes!r}")
        if depth not in (0, 1):
            raise ValueError(f"Depth must be 0 or 1, not {depth!r}")
        self.latency = depth
        super().__init__(
            {
                "attr": In(Attr),
                "operand": In(FLIT_BITS),
                "accumulator": In(FLIT_BITS),
                "passes": In(1),
                "passed": In(FLIT_BITS),
                "result": Out(FLIT_BITS),
            }
        )

    @property
    def module_name(self) -> str:
        """``integer_unit_<types>_d<depth>``."""
        return f"integer_unit_{dtypes_name(self.dtypes)}_d{self.latency}"

    def elaborate(self, platform):
        """Each block by itself; a register, if there is one; carries from block to block."""
        m = Module()
        adds = any(dtype in self.dtypes for dtype in _ADDED)
        bitwise = any(dtype in self.dtypes for dtype in _BITWISE)
        op = self.attr.op
        # Where both bits are set exactly one is not, so `xor` and `and` make up `or` and `add`.
        uses_xor, uses_and, carries, joins = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            uses_xor.eq(~self.passes & ((op != Op.AND) if bitwise else 1)),
            uses_and.eq(~self.passes & ((op == Op.AND) | (op == Op.OR)) if bitwise else 0),
            carries.eq(~self.passes & (op == Op.ADD) if adds else 0),
            joins.eq((self.attr.dtype == Dtype.U64) if Dtype.U64 in self.dtypes else 0),
        ]
        blocks: list[Value] = [
            self._block(m, k, uses_xor, uses_and, carries) for k in range(FLIT_BITS // _BLOCK)
        ]
        if self.latency:
            blocks = [_registered(m, block, f"block{k}") for k, block in enumerate(blocks)]
            joins = _registered(m, joins, "joins")
        m.d.comb += self.result.eq(Cat(self._carried(m, blocks, joins)))
        return m

    def _block(self, m: Module, k: int, uses_xor, uses_and, carries) -> Value:
        """Result of a block to which nothing is carried, and its carry, which only ``add`` has."""
        a, b = self.operand.word_select(k, _BLOCK), self.accumulator.word_select(k, _BLOCK)
        one, both = Signal(_BLOCK, name=f"one{k}"), Signal(_BLOCK, name=f"both{k}")
        m.d.comb += [one.eq(a ^ b), both.eq(a & b)]
        starts = Mux(carries, both, 0)
        carried: list[Value] = [Const(0, 1)]
        for bit in range(_BLOCK):
            carry = Signal(name=f"carry{k}_{bit + 1}")
            m.d.comb += carry.eq(starts[bit] | one[bit] & carried[-1])
            carried.append(carry)
        passed = self.passed.word_select(k, _BLOCK)
        without = Mux(uses_xor, one, 0) | Mux(uses_and, both, 0) | Mux(self.passes, passed, 0)
        block = Signal(_BLOCK + 1, name=f"sum{k}")
        m.d.comb += block.eq(Cat(without, Const(0, 1)) ^ Cat(carried))
        return block

    def _carried(self, m: Module, blocks, joins) -> list[Value]:
        """Carries added to the blocks above, as far as a number reaches."""
        words = []
        carry: Value = Const(0, 1)
        for k, block in enumerate(blocks):
            if k * _BLOCK % 64 == 0:
                carry = Const(0, 1)
            elif k * _BLOCK % 32 == 0:
                carry = carry & joins
            total = block[:_BLOCK]
            words.append((total + carry)[:_BLOCK])
            upwards = Signal(name=f"upwards{k}")
            m.d.comb += upwards.eq(block[_BLOCK] | total.all() & carry)
            carry = upwards
        return words


def _registered(m: Module, value: Value, name: str) -> Signal:
    register = Signal(len(value), name=name, reset_less=True)
    m.d.sync += register.eq(value)
    return register
