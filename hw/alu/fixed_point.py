"""The fixed point in which sums of floating-point numbers are exact."""

from collections.abc import Sequence

from amaranth.lib import data
from amaranth.utils import ceil_log2

from dysharp.hw.alu.float_format import FloatFormat
from dysharp.hw.alu.format_mix import FormatMix

__all__ = ["FixedPoint"]

_WIDEST_LIMB = 32


class FixedPoint:
    """A two's complement number that holds any sum of ``contributions`` numbers exactly.

    Bit ``e + k`` is worth bit ``k`` of a significand with the exponent field ``e``; the significand
    stands at the top of the widest one of the formats. So no format needs its exponent converted,
    and each starts at the low end: a number holds values of one format at a time.

    The bits are cut into limbs. A limb hands its carry to the next one only at the next addition,
    and until then the carry is kept beside it: no addition is longer than a limb, and the number
    is one bit a limb longer than the sum, however many numbers are added.

    Parameters
    ----------
    formats : one or more, each with a name of its own
    contributions : numbers that are added at the most
    limb_bits : bits of a limb, a power of two from the widest significand on; None for 32, less if
        that makes one limb only, more if a significand needs it

    Attributes
    ----------
    first, sign : numbers of the lowest and the highest bit that is kept
    limbs : (number of the lowest bit, width) of each limb; but for the first and the last one they
        start at multiples of ``limb_bits``

    Errors
    ------
    ValueError for fewer than two contributions, for limbs that are shorter than a significand, and
    if there is only one.

    Source
    ------
    U. Kulisch, Computer Arithmetic and Validity, chapter 8; carries kept at limbs: F. de Dinechin
    and B. Pasca, An FPGA-specific approach to floating-point accumulation, FPT 2008.
    """

    def __init__(
        self,
        formats: Sequence[FloatFormat],
        *,
        contributions: int = 128,
        limb_bits: int | None = None,
    ):
        if contributions < 2:
            raise ValueError(f"Contributions must be at least 2, not {contributions!r}")
        self.formats = tuple(formats)
        self.mix = FormatMix(self.formats)
        self.contributions = contributions
        self.significand_bits = self.mix.mantissa_bits + 1
        self.first = 1
        self.sign = max(self.sign_of(form) for form in self.formats)
        self.limb_bits = self._widest_limb() if limb_bits is None else limb_bits
        if self.limb_bits & self.limb_bits - 1 or self.limb_bits < self.significand_bits:
            raise ValueError(
                f"Limb bits must be a power of two from {self.significand_bits} on, "
                f"not {self.limb_bits!r}"
            )
        # The highest limb is told from its sign alone by two bits or more.
        self.sign += self.sign % self.limb_bits == 0
        starts = [self.first, *range(self.limb_bits, self.sign + 1, self.limb_bits)]
        ends = [*starts[1:], self.sign + 1]
        self.limbs = tuple((start, end - start) for start, end in zip(starts, ends, strict=True))
        if len(self.limbs) < 2:
            raise ValueError(f"Limbs must be at least two, not one of {self.limb_bits!r} bits")

    def _widest_limb(self) -> int:
        bits = max(_WIDEST_LIMB, 1 << ceil_log2(self.significand_bits))
        while bits > self.sign:
            bits //= 2
        return bits

    @property
    def name(self) -> str:
        """``<formats>_<contributions>x<limb bits>``, for names of modules."""
        names = "_".join(form.name for form in self.formats)
        return f"{names}_{self.contributions}x{self.limb_bits}"

    def sign_of(self, form: FloatFormat) -> int:
        """Number of the bit that is enough as sign of a sum of one format."""
        highest_exponent = form.max_exponent - form.infinities
        return highest_exponent + self.significand_bits + ceil_log2(self.contributions)

    def limbs_of(self, form: FloatFormat) -> int:
        """Limbs, from the lowest one on, that a sum of one format needs."""
        return self.sign_of(form) // self.limb_bits + 1

    @property
    def layout(self) -> data.StructLayout:
        """The number as it is kept.

        ``positive`` and ``negative`` say that an infinity of that sign has come, both of them that
        the sum is NaN; ``other`` that something else than -0 has come. ``limb<k>`` are the limbs,
        ``carry<k>`` what is still to be added to them.
        """
        fields: dict[str, int] = {
            "positive": 1,
            "negative": 1,
            "other": 1,
            "limb0": self.limbs[0][1],
        }
        for limb, (_, width) in enumerate(self.limbs[1:], 1):
            fields |= {f"carry{limb}": 1, f"limb{limb}": width}
        return data.StructLayout(fields)

    @property
    def bits(self) -> int:
        """Width of the whole."""
        return self.layout.size

    def bits_of(self, form: FloatFormat) -> int:
        """Low bits of the whole that a sum of one format needs; the others are left unread."""
        needed = self.limbs_of(form)
        return self.bits if needed == len(self.limbs) else self.layout[f"carry{needed}"].offset
