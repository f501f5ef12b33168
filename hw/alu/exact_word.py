"""Where the exact sums of a flit stand in its accumulator word."""

from dataclasses import dataclass

from amaranth import Cat, Value

from dysharp.hw.alu.fixed_point import FixedPoint
from dysharp.hw.alu.float_format import BF16, F32, F32_FTZ, FLOATS, FloatFormat
from dysharp.hw.alu.reductions import check_dtypes, dtypes_name
from dysharp.hw.packet import FLIT_BITS, Dtype, Op

__all__ = ["ExactWord", "LanePlace"]

_FP8 = (Dtype.E4M3, Dtype.E5M2)
_LANES = FLIT_BITS // BF16.bits


@dataclass(frozen=True)
class LanePlace:
    """One lane.

    Attributes
    ----------
    name : of the submodule
    fixed : formats, in the order of ``elements``, and shape of the accumulator
    elements : which number of a flit the lane takes, for each type that it serves
    offset : lowest bit of the accumulator in the word
    shares : other lanes use these bits too, when other types are reduced
    """

    name: str
    fixed: FixedPoint
    elements: dict[Dtype, int]
    offset: int
    shares: bool

    @property
    def bits(self) -> slice:
        """Where in the word the accumulator stands."""
        return slice(self.offset, self.offset + self.fixed.bits)

    @property
    def dtypes(self) -> tuple[Dtype, ...]:
        """Types, in the order of the formats."""
        return tuple(self.elements)

    def select(self, attr) -> Value:
        """One bit for each format: that of the sum that ``attr`` asks for."""
        return Cat((attr.op == Op.ADD) & (attr.dtype == dtype) for dtype in self.elements)

    def number_at(self, dtype: Dtype) -> slice:
        """Bits of a flit in which the lane's number stands."""
        bits = FLOATS[dtype].bits
        return slice(self.elements[dtype] * bits, (self.elements[dtype] + 1) * bits)


class ExactWord:
    """Lanes of a build and where each has its accumulator.

    Eight lanes are wide enough for f32, bf16 and f16, of which f32 uses four, and take one half of
    an fp8 flit; eight narrow ones take the other half. An fp8 sum is so short that two stand in the
    place of one wide accumulator. f64 has two lanes of its own over the same bits as all others.
    What is no sum of floating-point numbers stands in the low 128 bits.

    Parameters
    ----------
    dtypes : types that are built
    ftz : f32 subnormals count as zero
    contributions : flits that are added at the most

    Attributes
    ----------
    lanes : all lanes; later ones lie over earlier ones where their types are used
    bits : width of the word
    """

    def __init__(self, *, dtypes: tuple[Dtype, ...], ftz: bool, contributions: int):
        check_dtypes(dtypes)
        self.dtypes, self.ftz, self.contributions = dtypes, ftz, contributions
        self.lanes: list[LanePlace] = []
        offset = 0
        for lane in range(_LANES):
            wide = {d: lane for d in (Dtype.F32,) if d in dtypes and lane < _LANES // 2}
            wide |= {d: lane for d in (Dtype.BF16, Dtype.F16) if d in dtypes}
            wide |= {d: 2 * lane for d in _FP8 if d in dtypes}
            offset = self._add(f"lane{lane}", wide, offset)
            if narrow := {d: 2 * lane + 1 for d in _FP8 if d in dtypes}:
                offset = self._add_narrow(f"odd_lane{lane}", narrow, offset)
        if Dtype.F64 in dtypes:
            double = self._add("double_lane0", {Dtype.F64: 0}, 0)
            double = self._add("double_lane1", {Dtype.F64: 1}, double)
            offset = max(offset, double)
        self.bits = max(offset, FLIT_BITS)

    @property
    def name(self) -> str:
        """``<types>[_ftz]_<contributions>``, for names of modules."""
        return f"{dtypes_name(self.dtypes)}{'_ftz' if self.ftz else ''}_{self.contributions}"

    @property
    def added(self) -> tuple[Dtype, ...]:
        """Types whose sums the lanes make."""
        return tuple(dict.fromkeys(dtype for lane in self.lanes for dtype in lane.dtypes))

    def _fixed(self, dtypes) -> FixedPoint:
        formats: list[FloatFormat] = [FLOATS[dtype] for dtype in dtypes]
        if self.ftz:
            formats = [F32_FTZ if form is F32 else form for form in formats]
        return FixedPoint(formats, contributions=self.contributions)

    def _add(self, name: str, elements: dict[Dtype, int], offset: int) -> int:
        """Add a lane, if it serves any type; the next free bit."""
        if not elements:
            return offset
        fixed = self._fixed(elements)
        shares = any(offset < lane.bits.stop for lane in self.lanes)
        self.lanes.append(LanePlace(name, fixed, elements, offset, shares))
        return offset + fixed.bits

    def _add_narrow(self, name: str, elements: dict[Dtype, int], end: int) -> int:
        """Add a narrow lane above what fp8 needs of the wide one before it, if there is room."""
        wide = self.lanes[-1]
        needed = max(wide.fixed.bits_of(FLOATS[dtype]) for dtype in elements)
        return max(end, self._add(name, elements, wide.offset + needed))
