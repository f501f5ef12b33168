"""Which experts each token goes to: generators, and the importer of DeepEP's ``topk_idx``."""

import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import MAX_TARGETS
from dysharp.model.models import Model

__all__ = [
    "Routing",
    "GENERATORS",
    "generate",
    "uniform",
    "group_limited",
    "normal",
    "power_law",
    "load_routing",
    "split_evenly",
]

MAX_TOP_K = MAX_TARGETS - MAX_TARGETS % 8
"""Longest list of a token: 120 ids fit any packet."""


@dataclass(frozen=True, eq=False)
class Routing:
    """A batch's routing: one row a token, the tokens of GPU 0 first, then GPU 1's and so on.

    Parameters
    ----------
    topk_idx : int32 [T, K], logical experts in the gate's order; -1 is none
    topk_weights : f32 [T, K], gate weights; what stands beside a -1 is not used
    tokens : rows of each GPU, T in all; a GPU may have none
    experts : logical experts

    Raises
    ------
    UserError
        If the shapes do not fit each other or an index is out of range.
    """

    topk_idx: NDArray[np.int32]
    topk_weights: NDArray[np.float32]
    tokens: tuple[int, ...]
    experts: int

    def __post_init__(self):
        index = np.asarray(self.topk_idx)
        if index.ndim != 2 or not 1 <= index.shape[1] <= MAX_TOP_K:
            raise UserError(
                f"topk_idx must be [tokens, K] with K 1 to {MAX_TOP_K}, not {list(index.shape)}"
            )
        if not np.issubdtype(index.dtype, np.integer):
            raise UserError(f"topk_idx must be of an integer type, not {index.dtype}")
        wrong = np.argwhere((index < -1) | (index >= self.experts))
        if len(wrong):
            row, k = (int(v) for v in wrong[0])
            raise UserError(
                f"topk_idx[{row},{k}] must be -1 or 0 to {self.experts - 1}, not {index[row, k]}"
            )
        weights = np.asarray(self.topk_weights)
        if weights.shape != index.shape or not np.issubdtype(weights.dtype, np.floating):
            raise UserError(
                f"topk_weights must be floats {list(index.shape)} like topk_idx, "
                f"not {weights.dtype} {list(weights.shape)}"
            )
        if min(self.tokens, default=-1) < 0 or sum(self.tokens) != len(index):
            raise UserError(
                f"Tokens of the GPUs must be 0 or more and sum to {len(index)} rows, "
                f"not {list(self.tokens)}"
            )
        object.__setattr__(self, "topk_idx", index.astype(np.int32))
        object.__setattr__(self, "topk_weights", weights.astype(np.float32))
        object.__setattr__(self, "tokens", tuple(int(n) for n in self.tokens))

    @property
    def gpus(self) -> int:
        """GPUs that hold tokens."""
        return len(self.tokens)

    @property
    def top_k(self) -> int:
        """Columns of a row."""
        return self.topk_idx.shape[1]

    @property
    def ntoken(self) -> int:
        """Most tokens of any GPU, at least 1: the row pitch of the algebraic index."""
        return max(1, *self.tokens)

    @property
    def source(self) -> NDArray[np.int64]:
        """GPU that each row starts from, [T]."""
        return np.repeat(np.arange(self.gpus), self.tokens)

    @property
    def aidx(self) -> NDArray[np.int64]:
        """Algebraic index of each row, [T]: GPU rank * ntoken + token."""
        first = np.cumsum([0, *self.tokens[:-1]])
        source = self.source
        return source * self.ntoken + np.arange(len(source)) - first[source]


def split_evenly(rows: int, gpus: int) -> tuple[int, ...]:
    """Rows of each GPU, the first ones one more if they do not divide."""
    return tuple(rows // gpus + (gpu < rows % gpus) for gpu in range(gpus))


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Positive weights that sum to 1 in each row."""
    raw = rng.random(shape) + 0.05
    return (raw / raw.sum(axis=1, keepdims=True)).astype(np.float32)


def _choose(
    rng: np.random.Generator, rows: int, share: NDArray[np.float64], top_k: int
) -> NDArray[np.int32]:
    """Draw ``top_k`` distinct experts a row, with the shares as odds (Gumbel top-k)."""
    with np.errstate(divide="ignore"):
        odds = np.log(share)
    # An expert of share 0 is taken only when the others are used up.
    keys = np.maximum(odds, -1e6) + rng.gumbel(size=(rows, len(share)))
    return np.argsort(-keys, axis=1)[:, :top_k].astype(np.int32)


def _check(experts: int, top_k: int) -> None:
    if not 1 <= top_k <= experts:
        raise UserError(f"Top-k must be 1 to {experts} experts, not {top_k}")


def uniform(*, experts: int, top_k: int, tokens: Sequence[int], seed: int) -> Routing:
    """Every set of ``top_k`` experts alike."""
    return normal(experts=experts, top_k=top_k, tokens=tokens, seed=seed, std=0.0)


def normal(
    *,
    experts: int,
    top_k: int,
    tokens: Sequence[int],
    seed: int,
    std: float = 0.032,
    reference: int = 8,
) -> Routing:
    """Training: the experts' shares of the tokens are normally distributed.

    ``std`` is that of the shares when there are ``reference`` experts of mean share 1/8, and scales
    with the mean share: 0.032 is a spread of 26 % of the mean for any number of experts. (Taken as
    it stands, it would be eight times the mean share of 256 experts.) Negative shares become 0.
    """
    _check(experts, top_k)
    rng = np.random.default_rng(seed)
    share = np.maximum(rng.normal(1.0, std * reference, experts), 0.0) / experts
    chosen = _choose(rng, sum(tokens), share, top_k)
    return Routing(chosen, _weights(rng, chosen.shape), tuple(tokens), experts)


def power_law(
    *, experts: int, top_k: int, tokens: Sequence[int], seed: int, alpha: float = 1.5
) -> Routing:
    """Inference: the n-th most popular expert has a share in proportion to ``n ** -alpha``."""
    _check(experts, top_k)
    rng = np.random.default_rng(seed)
    share = rng.permutation(np.arange(1, experts + 1) ** -float(alpha))
    chosen = _choose(rng, sum(tokens), share / share.sum(), top_k)
    return Routing(chosen, _weights(rng, chosen.shape), tuple(tokens), experts)


def group_limited(
    *,
    experts: int,
    top_k: int,
    tokens: Sequence[int],
    seed: int,
    groups: int = 8,
    top_groups: int = 4,
    scaling: float = 2.5,
    random_groups: bool = False,
) -> Routing:
    """DeepSeek-V3's gate on random logits: a token keeps to its best groups of experts.

    A group's score is the sum of its two best sigmoid scores; the best ``top_groups`` groups stay;
    the ``top_k`` best experts in them are chosen. Weights are their scores, made to sum to 1 and
    multiplied with ``scaling``. ``random_groups`` draws the groups instead of scoring them: then
    any choice inside the limit is alike, as closed forms assume (6.60 of 32 GPUs at 256 experts,
    top 8, 8/4); scoring groups by their best members reaches a few more (6.85).
    """
    _check(experts, top_k)
    if groups < 1 or experts % groups:
        raise UserError(f"Expert groups must divide {experts} experts, not {groups}")
    if not 1 <= top_groups <= groups or top_k > experts // groups * top_groups:
        raise UserError(
            f"Top groups must be 1 to {groups} and hold {top_k} experts, not {top_groups}"
        )
    rng = np.random.default_rng(seed)
    score = 1 / (1 + np.exp(-rng.normal(size=(sum(tokens), experts))))
    grouped = score.reshape(len(score), groups, -1)
    best = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
    if random_groups:
        best = rng.random(best.shape)
    keep = np.argsort(-best, axis=1)[:, :top_groups]
    mask = np.zeros(best.shape, bool)
    np.put_along_axis(mask, keep, True, axis=1)
    masked = np.where(mask[:, :, None], grouped, -1.0).reshape(score.shape)
    chosen = np.argsort(-masked, axis=1)[:, :top_k].astype(np.int32)
    raw = np.take_along_axis(score, chosen, axis=1)
    weights = raw / raw.sum(axis=1, keepdims=True) * scaling
    return Routing(chosen, weights.astype(np.float32), tuple(tokens), experts)


GENERATORS: dict[str, Callable[..., Routing]] = {
    "uniform": uniform,
    "gate": group_limited,
    "normal": normal,
    "power_law": power_law,
}
"""Generators by name; ``gate`` is the group-limited one."""


def generate(name: str, *, model: Model, tokens: Sequence[int], seed: int, **options) -> Routing:
    """Routing for a model by a generator's name.

    ``auto`` is ``gate`` for a model whose gate has groups, else ``uniform``.

    Raises
    ------
    UserError
        If there is no such generator, or it has no such option.
    """
    if name == "auto":
        name = "gate" if model.groups > 1 else "uniform"
    if name not in GENERATORS:
        raise UserError(
            f"Routing must be auto, {', '.join(GENERATORS)} or a .npy/.npz file, not {name!r}"
        )
    if name == "gate":
        options = {"groups": model.groups, "top_groups": model.top_groups, **options}
    try:
        return GENERATORS[name](
            experts=model.experts, top_k=model.top_k, tokens=tokens, seed=seed, **options
        )
    except TypeError as error:
        raise UserError(f"Routing {name} has no such option: {error}") from None


def load_routing(path: str | Path, *, experts: int, gpus: int) -> Routing:
    """Read a DeepEP routing: ``topk_idx`` [T, K] of any integer type, -1 for none.

    Parameters
    ----------
    path : a ``.npy`` file with ``topk_idx`` alone, or a ``.npz`` file with ``topk_idx`` and, if
        wanted, ``topk_weights`` (floats [T, K]) and ``tokens_per_gpu`` (integers [gpus], the rows
        of each GPU in order). Weights not given are 1/K; rows not given are split evenly
    experts : logical experts of the model
    gpus : GPUs of the system

    Raises
    ------
    UserError
        Naming file, field, value and rule.
    """
    path = Path(path)
    try:
        arrays = _read_arrays(path)
        index = arrays["topk_idx"]
        if index.ndim != 2:
            raise UserError(f"topk_idx must be [tokens, K], not of shape {list(index.shape)}")
        if not np.issubdtype(index.dtype, np.integer):
            raise UserError(f"topk_idx must be of an integer type, not {index.dtype}")
        tokens = arrays.get("tokens_per_gpu")
        if tokens is None:
            tokens = split_evenly(len(index), gpus)
        elif tokens.shape != (gpus,) or not np.issubdtype(tokens.dtype, np.integer):
            raise UserError(
                f"tokens_per_gpu must be {gpus} integers, one a GPU, "
                f"not {tokens.dtype} {list(tokens.shape)}"
            )
        weights = arrays.get("topk_weights")
        if weights is None:
            weights = np.full(index.shape, 1 / max(1, index.shape[1]), np.float32)
        elif not np.issubdtype(weights.dtype, np.floating):
            raise UserError(f"topk_weights must be floats, not {weights.dtype}")
        if not np.isfinite(weights[index >= 0] if weights.shape == index.shape else 0).all():
            raise UserError("topk_weights must be finite where topk_idx names an expert")
        return Routing(index, weights, tuple(int(n) for n in tokens), experts)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _read_arrays(path: Path) -> dict[str, NDArray]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"topk_idx": loaded}
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
    except FileNotFoundError:
        raise UserError("Routing file must exist") from None
    except IsADirectoryError:
        raise UserError("Routing file must be a file, not a folder") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = "pickled objects are refused" if "pickle" in str(error) else str(error)
        raise UserError(f"Routing file must be a readable .npy or .npz: {reason}") from None
    if "topk_idx" not in arrays:
        raise UserError(
            f"Routing file must hold topk_idx, not only {', '.join(arrays) or 'nothing'}"
        )
    return arrays
