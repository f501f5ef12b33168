"""The oracle of exact sums is right."""

import random
from fractions import Fraction

import ml_dtypes
import numpy as np

from dysharp.sim_tb.exact_sums import FORMATS


def test_fractions_round_like_numpy():
    """The fractions agree with numpy and ml_dtypes on numbers and on the middles between them."""
    types = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e5m2": ml_dtypes.float8_e5m2,
             "e4m3": ml_dtypes.float8_e4m3fn}  # fmt: skip
    for name, kind in types.items():
        form = FORMATS[name]
        for bits in range(0, form.sign, 1 if form.bits == 8 else 23):
            if form.is_nan(bits) or form.is_infinite(bits):
                continue
            unsigned = np.uint16 if form.bits == 16 else np.uint8
            value = form.value(bits)
            assert float(np.array(bits, unsigned).view(kind)) == value
            if bits < form.largest:
                middle = float((value + form.value(bits + 1)) / 2)
                assert np.array(middle).astype(kind).view(unsigned) == form.nearest(
                    Fraction(middle)
                )
    rng = random.Random(1)
    for name, kind in (("f64", np.float64), ("f32", np.float32)):
        for _ in range(500):
            value = Fraction(rng.getrandbits(80) | 1) * Fraction(2) ** rng.randint(-200, 40)
            wanted = np.array(float(value)).astype(kind)
            if kind is np.float64:
                assert FORMATS[name].nearest(value) == wanted.view(np.uint64)
            else:
                rounded = Fraction(float(value))  # what numpy is given
                assert FORMATS[name].nearest(rounded) == wanted.view(np.uint32)
