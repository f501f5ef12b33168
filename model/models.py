"""Mixture-of-experts models that people run: the numbers that shape their traffic."""

import difflib
from dataclasses import dataclass

from dysharp.hw.errors import UserError

__all__ = ["Model", "MODELS", "get_model"]


@dataclass(frozen=True)
class Model:
    """One model's mixture-of-experts layers.

    Parameters
    ----------
    name : the name its authors use
    hidden : elements of a token's activation, what Dispatch and Combine move
    moe_hidden : elements between GEMM-1 and GEMM-2 of one expert
    experts : routed experts
    top_k : experts chosen for a token
    shared : experts that every token visits; they never travel
    groups, top_groups : expert groups, and how many of them a token may use; 1 and 1 if the gate
        knows no groups
    layers : mixture-of-experts layers
    aliases : other names it is found by
    """

    name: str
    hidden: int
    moe_hidden: int
    experts: int
    top_k: int
    shared: int
    groups: int
    top_groups: int
    layers: int
    aliases: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


MODELS: tuple[Model, ...] = (
    Model("DeepSeek-V3", 7168, 2048, 256, 8, 1, 8, 4, 58, ("DeepSeek-R1", "dsv3")),
    Model("DeepSeek-V2", 5120, 1536, 160, 6, 2, 8, 3, 59, ("dsv2",)),
    Model("Qwen3-30B-A3B", 2048, 768, 128, 8, 0, 1, 1, 48, ("Qwen3-30B",)),
    Model("Qwen3-235B-A22B", 4096, 1536, 128, 8, 0, 1, 1, 94, ("Qwen3-235B",)),
    Model("Mixtral-8x7B", 4096, 14336, 8, 2, 0, 1, 1, 32),
    Model("Mixtral-8x22B", 6144, 16384, 8, 2, 0, 1, 1, 56),
    Model("Llama-4-Scout", 5120, 8192, 16, 1, 1, 1, 1, 48, ("Scout",)),
    Model("Llama-4-Maverick", 5120, 8192, 128, 1, 1, 1, 1, 24, ("Maverick",)),
    Model("gpt-oss-120b", 2880, 2880, 128, 4, 0, 1, 1, 36),
    Model("gpt-oss-20b", 2880, 2880, 32, 4, 0, 1, 1, 24),
    Model("Kimi-K2", 7168, 2048, 384, 8, 1, 1, 1, 60),
    Model("GLM-4.5", 5120, 1536, 160, 8, 1, 1, 1, 89),
    Model("GLM-4.5-Air", 4096, 1408, 128, 8, 1, 1, 1, 45),
    Model("OLMoE-1B-7B", 2048, 1024, 64, 8, 0, 1, 1, 16, ("OLMoE",)),
)
"""All models, from their published configurations."""

_BY_NAME = {name.lower(): model for model in MODELS for name in (model.name, *model.aliases)}


def get_model(name: str) -> Model:
    """The model of a name or alias, whatever its case.

    Raises
    ------
    UserError
        If there is none; the message suggests the nearest names.
    """
    found = _BY_NAME.get(name.strip().lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(name.lower(), _BY_NAME, n=3, cutoff=0.5)
    near = list(dict.fromkeys(_BY_NAME[key].name for key in near))
    hint = f"did you mean {' or '.join(near)}?" if near else "no name is near it."
    known = ", ".join(model.name for model in MODELS)
    raise UserError(f"Model must be a known name, not {name!r}: {hint} Known: {known}")
