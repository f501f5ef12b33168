"""Whole batches on the RTL of the whole system, every word against the golden model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dysharp.hw.config import load_preset
from dysharp.hw.errors import UserError
from dysharp.model.models import get_model
from dysharp.model.trace import make_trace
from dysharp.sim_tb.system import run_system

MODELS = ("DeepSeek-V3", "Qwen3-30B-A3B", "Mixtral-8x7B", "Llama-4-Maverick", "gpt-oss-120b")
LATENCIES = {"0": 0, "1": 1, "random": (0, 400)}
REDUCED = 200
"""Elements of a token in short runs: three chunks and a last one of a single flit."""


def check(
    preset: str,
    model: str,
    *,
    build: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **trace: Any,
):
    """Run a batch and fail on any mismatch, with the first ones in words."""
    config = load_preset(preset, **(build or {}))
    batch = make_trace(config, get_model(model), **trace)
    result = run_system(config, batch, **(run or {}))
    counts = result["check"]
    assert counts["values"] > 0
    assert counts["mismatches"] == 0, "\n".join([f"{counts}", *result["shown"], result["path"]])
    return result


@pytest.mark.parametrize("model", MODELS)
def test_models(model):
    check("tiny", model, tokens=3, seed=1, hidden=REDUCED)


@pytest.mark.parametrize("latency", LATENCIES.values(), ids=LATENCIES)
def test_memory_latency_changes_no_result(latency):
    check("tiny", "Qwen3-30B-A3B", tokens=4, seed=2, hidden=REDUCED, run={"latency": latency})


@pytest.mark.parametrize("stalls", [0.1, 0.5])
def test_stalls_change_no_result(stalls):
    check(
        "tiny",
        "DeepSeek-V3",
        tokens=3,
        seed=3,
        hidden=REDUCED,
        run={"stalls": stalls, "latency": (0, 40)},
    )


def test_any_bits_come_through():
    """NaN, infinities and subnormals; weights under which the order of sums shows."""
    check(
        "tiny", "gpt-oss-120b", tokens=4, seed=4, hidden=REDUCED, payload="bits", weights="telling"
    )


@pytest.mark.parametrize("order", ["rank"])
def test_orders_that_do_not_depend_on_arrival(order):
    """The sums that a batch alone decides, under weights by which another order would show."""
    check(
        "tiny",
        "Qwen3-30B-A3B",
        build={"order": order},
        tokens=4,
        seed=8,
        hidden=REDUCED,
        weights="telling",
        run={"stalls": 0.2, "latency": (0, 40)},
    )


@pytest.fixture
def topk_file(tmp_path) -> Path:
    """Entries and whole rows of -1, the same id twice, an empty rank, a rank that gets nothing."""
    rng = np.random.default_rng(5)
    experts = np.arange(96)  # of 128: GPU 3 of 4 receives nothing
    index = np.stack([rng.permutation(experts)[:8] for _ in range(9)]).astype(np.int64)
    index[0, 3] = -1
    index[1] = -1
    index[2, 5] = index[2, 1]
    index[3, 1:] = index[3, 0]
    index[4, ::2] = -1
    path = tmp_path / "topk_idx.npz"
    np.savez(path, topk_idx=index, tokens_per_gpu=np.array([4, 0, 3, 2]))
    return path


@pytest.mark.parametrize("stalls", [0.0, 0.3])
def test_routing_file_with_gaps_and_repeats(topk_file, stalls):
    check(
        "tiny",
        "Qwen3-30B-A3B",
        seed=5,
        hidden=REDUCED,
        routing=str(topk_file),
        run={"stalls": stalls},
    )


def test_all_tokens_to_one_expert(tmp_path):
    path = tmp_path / "hot.npy"
    np.save(path, np.full((8, 1), 77, np.int16))
    check("tiny", "Llama-4-Maverick", seed=6, hidden=REDUCED, routing=str(path))


def test_trace_of_another_system_is_refused():
    batch = make_trace(load_preset("tiny"), get_model("Mixtral-8x7B"), tokens=1, hidden=64)
    with pytest.raises(UserError, match="Trace must be for 8 GPUs"):
        run_system(load_preset("nvl8"), batch)


@pytest.mark.slow
def test_two_links_a_gpu():
    """Everything about a chunk meets on one link of each GPU; both links carry chunks."""
    run = {"stalls": 0.2, "latency": (0, 40)}
    check("tiny", "Qwen3-30B-A3B", build={"links": 2}, tokens=3, seed=7, hidden=REDUCED, run=run)


@pytest.mark.slow
def test_eight_gpus():
    result = check("nvl8", "DeepSeek-V3", build={"dtypes": "bf16"}, tokens=1, seed=1, hidden=1024)
    assert set(result["cycles"]) == set(result["utilisation"]) == {"dispatch", "combine"}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("preset", ["tiny", "nvl8"])
def test_matrix(preset, model, seed):
    tokens = 2 if preset == "tiny" else 1
    latency = (0, 1, (0, 40))[seed % 3]
    check(
        preset,
        model,
        tokens=tokens,
        seed=seed,
        run={"seed": seed, "latency": latency, "stalls": 0.1 * (seed % 2), "optimize": True},
    )


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("preset", ["tiny", "nvl8"])
def test_routing_file_matrix(preset, seed, tmp_path):
    gpus = load_preset(preset).gpus
    rng = np.random.default_rng(seed)
    index = np.stack([rng.permutation(128)[:8] for _ in range(3 * gpus)])
    index[rng.random(index.shape) < 0.2] = -1
    index[1] = -1
    index[2, 7] = index[2, 0]
    tokens = np.bincount(rng.integers(1, gpus, 3 * gpus), minlength=gpus)
    path = tmp_path / "topk_idx.npz"
    np.savez(path, topk_idx=index, tokens_per_gpu=tokens)
    check(
        preset,
        "Qwen3-30B-A3B",
        seed=seed,
        routing=str(path),
        run={"seed": seed, "latency": (0, 40), "stalls": 0.2, "optimize": True},
    )
