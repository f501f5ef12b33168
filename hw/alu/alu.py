"""The datapath of the reduction: one flit a cycle into its accumulators."""

from amaranth import Cat, Const, Module, Mux, Signal, Value

from dysharp.hw.alu.accumulators import (
    ADDED,
    F64_BITS,
    SLOT_BITS,
    Formats,
    accumulator_bits,
    adder_formats,
    sum_formats,
    widened,
)
from dysharp.hw.alu.adder import FloatAdder
from dysharp.hw.alu.flit_alu import FlitAlu
from dysharp.hw.alu.float_format import F32, F64
from dysharp.hw.alu.reductions import DEFAULT_DEPTH, DEFAULT_DTYPES, Arithmetic
from dysharp.hw.packet import FLIT_BITS, Dtype, Op
from dysharp.hw.share import place

__all__ = ["ReductionAlu"]


class ReductionAlu(FlitAlu):
    """Combines a flit of operands with its accumulators, in any type and operation of the build.

    Where elements are added they are taken in the accumulator's type: eight adders serve bf16,
    f16, f32 and every other element of an fp8 flit, eight narrower ones the rest of it. ``min``,
    ``max``, integers and bits have one unit each for the whole flit. Only what some type of the
    build needs is built.

    The first flit of a reduction is loaded: converted exactly, a NaN made canonical, nothing else
    changed. For the layout of accumulators see :mod:`dysharp.hw.alu.accumulators`, for the ports
    :class:`~dysharp.hw.alu.flit_alu.FlitAlu`.

    Latency: :attr:`latency` cycles for every type and operation. Throughput: one flit a cycle,
    each with a type and operation of its own; there are no handshakes, and the pipeline never
    stops.

    Parameters
    ----------
    dtypes : types that are built
    depth : latency in cycles
    ftz : f32 additions take and give zero for subnormals

    Source
    ------
    PTX ``multimem.ld_reduce`` and ``multimem.red``: types, operations, ``.acc::f32``,
    ``.acc::f16``; see ``docs/alu.md``.
    """

    def __init__(
        self,
        *,
        dtypes: tuple[Dtype, ...] = DEFAULT_DTYPES,
        depth: int = DEFAULT_DEPTH,
        ftz: bool = False,
    ):
        self.arithmetic = Arithmetic(dtypes=dtypes, ftz=ftz, depth=depth)
        self.latency = depth
        super().__init__(dtypes=dtypes, accumulator_bits=accumulator_bits(dtypes))

    @property
    def module_name(self) -> str:
        """``alu_<of the arithmetic>``."""
        return f"alu_{self.arithmetic.name}"

    def elaborate(self, platform):
        """Adders and flit-wide units side by side; the one that was asked is heard."""
        m = Module()
        slots, doubles, others = self._sums(m), self._doubles(m), self._others(m)
        adds = self.attr.op == Op.ADD
        answers = [
            ("others", Const(1, 1), others),
            ("slots", adds & self._is(*ADDED), slots[: FLIT_BITS // SLOT_BITS]),
            ("doubles", adds & self._is(Dtype.F64), doubles),
        ]
        flit: Value = Const(0, 0)
        for name, chosen, parts in answers:
            if parts:
                answer = Cat(parts)
                flit = Mux(self._later(m, chosen, name), answer, flit) if len(flit) else answer
        m.d.comb += self.result.eq(Cat(flit, slots[FLIT_BITS // SLOT_BITS :]))
        return m

    def _is(self, *dtypes: Dtype) -> Value:
        """The flit is of one of these types."""
        return Cat(self.attr.dtype == dtype for dtype in dtypes if dtype in self.dtypes).any()

    def _later(self, m: Module, value, name: str, *, after: int = 0) -> Value:
        """The value at :attr:`latency`, of which ``after`` cycles are over."""
        for stage in range(after, self.latency):
            register = Signal(len(value), name=f"{name}{stage + 1}", reset_less=True)
            m.d.sync += register.eq(value)
            value = register
        return value

    def _sums(self, m: Module) -> list[Value]:
        """Sums of all types that are narrower than f64, slot by slot."""
        ftz = self.arithmetic.ftz
        floats = sum_formats(self.dtypes, ftz=ftz)
        bytes_ = sum_formats(self.dtypes, half=True, ftz=ftz)
        if not floats:
            return []
        slots: list[Value] = []
        half = SLOT_BITS // 2
        is_byte = self._later(m, self._is(*bytes_), "is_byte") if bytes_ else None
        for k in range(self.accumulator_bits // SLOT_BITS):
            words = FLIT_BITS // F32.bits
            formats = {d: f for d, f in floats.items() if k < words or d is not Dtype.F32}
            element = self.operand.word_select(k, 16)
            slot = self.accumulator.word_select(k, SLOT_BITS)
            word = self.operand.word_select(k % words, F32.bits)
            total = self._sum(m, f"add{k}", formats, element, slot, word)
            if is_byte is not None:
                odd = self._sum(m, f"add{k}_odd", bytes_, element[8:], slot[half:], word)
                upper = odd if len(total) <= half else Mux(is_byte, odd, total[half:])
                total = Cat(total[:half], upper)
            slots.append(total)
        return slots

    def _sum(
        self,
        m: Module,
        name: str,
        formats: dict[Dtype, Formats],
        element: Value,
        accumulator,
        word: Value,
    ) -> Value:
        """One adder for all types of ``formats``; elements are widened to what sums stand in."""
        operands: dict[Dtype, Value] = {}
        for dtype in formats:
            own = ADDED[dtype].own
            number = word if dtype is Dtype.F32 else element[: own.bits]
            operands[dtype] = widened(m, f"{name}_{own.name}", number, dtype)
        known = adder_formats(formats)
        adder = FloatAdder(formats=known, depth=self.latency, loads=True)
        m.submodules[name] = place(adder)
        with m.Switch(self.attr.dtype):
            for dtype in formats:
                with m.Case(dtype):
                    m.d.comb += adder.b.eq(operands[dtype])
                    if len(known) > 1:
                        places = [known.index(form) for form in formats[dtype]]
                        m.d.comb += adder.format.eq(Mux(self.attr.acc, *reversed(places)))
        m.d.comb += [adder.a.eq(accumulator), adder.load.eq(self.load)]
        return adder.o

    def _doubles(self, m: Module) -> list[Value]:
        """Sums of f64."""
        if Dtype.F64 not in self.dtypes:
            return []
        sums: list[Value] = []
        for k in range(FLIT_BITS // F64_BITS):
            adder = FloatAdder(formats=(F64,), depth=self.latency, loads=True)
            m.submodules[f"double{k}"] = place(adder)
            m.d.comb += [
                adder.a.eq(self.accumulator.word_select(k, F64_BITS)),
                adder.b.eq(self.operand.word_select(k, F64_BITS)),
                adder.load.eq(self.load),
            ]
            sums.append(adder.o)
        return sums

    def _others(self, m: Module) -> list[Value]:
        """Results of the flit-wide units, brought to the latency of the adders."""
        found = self.unrounded(m, attr=self.attr, load=self.load, operand=self.operand, depth=1)
        return [self._later(m, found[0], "other", after=found[1])] if found else []
