"""What stands in for an expert: a known scaling, so that every output bit can be predicted."""

import numpy as np
from numpy.typing import NDArray

from dysharp.model.floats import BF16, F32, convert, multiply
from dysharp.model.numerics_array import bf16_to_f32_array, f32_to_bf16_array

__all__ = ["expert_scale", "expert_output", "expert_output_scalar", "telling_weights"]


def expert_scale(experts: int) -> NDArray[np.float32]:
    """A factor for each logical expert, f32 [experts]: all different, between 1 and 2.

    None is a power of two, so each multiplication must round. A row that the wrong expert has
    worked on is seen in almost every element.
    """
    return (1 + (np.arange(experts) + 1) / (experts + 2)).astype(np.float32)


def expert_output_scalar(value: int, factor: int) -> int:
    """One element: bf16 in, times an f32 ``factor`` rounded in f32, rounded to bf16."""
    return convert(multiply(convert(value, BF16, F32), factor, F32), F32, BF16)


def expert_output(values: NDArray[np.uint16], factor: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rows [N, hidden] of bf16 bit patterns, each times its f32 factor [N]."""
    with np.errstate(invalid="ignore", over="ignore"):
        product = bf16_to_f32_array(values) * np.asarray(factor, np.float32)[:, None]
    return f32_to_bf16_array(product)


def telling_weights(
    rng: np.random.Generator, topk_idx: NDArray[np.integer], experts: int
) -> NDArray[np.float32]:
    """Gate weights [T, K] whose sums tell in which order they were taken.

    Weights of one sign and of like size do not: a few bf16 numbers add up exactly in f32. With
    these, two experts of a token give 2**26 and -2**26 times their input and the others plus or
    minus 1 or 3 times, so that of the small outputs only those survive that are added outside of
    the large two, as in ``[1e8, 1, -1e8, 1]``.
    """
    gain = rng.choice(np.array([-3.0, -1.0, 1.0, 3.0]), topk_idx.shape)
    if topk_idx.shape[1] > 1:
        # Of the entries that name an expert, two at random; a row with fewer has nothing to tell.
        key = np.where(topk_idx < 0, 2.0, rng.random(topk_idx.shape))
        large = np.argsort(key, axis=1)[:, :2]
        np.put_along_axis(gain, large, np.array([2.0**26, -(2.0**26)]), axis=1)
    return (gain / expert_scale(experts)[np.maximum(topk_idx, 0)]).astype(np.float32)
