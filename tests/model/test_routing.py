"""Models, generators, the importer, placement and policies."""

import numpy as np
import pytest

from dysharp.hw.errors import UserError
from dysharp.model.models import MODELS, get_model
from dysharp.model.placement import Placement
from dysharp.model.policies import Accumulation, PlacementKind, Policies
from dysharp.model.routing import (
    Routing,
    generate,
    group_limited,
    load_routing,
    normal,
    power_law,
    split_evenly,
    uniform,
)


def reach(placement: Placement, routing: Routing) -> np.ndarray:
    """Which GPUs each token reaches, [T, gpus]."""
    ids = placement.physical(routing.topk_idx)
    table = np.zeros((len(ids), placement.gpus), bool)
    row, k = np.nonzero(ids >= 0)
    table[row, ids[row, k] >> placement.split] = True
    return table


def test_models():
    assert get_model("deepseek-v3").hidden == 7168
    assert get_model("DEEPSEEK-R1") is get_model("DeepSeek-V3")
    assert all(model.experts % model.groups == 0 for model in MODELS)
    assert get_model("gpt-oss-120b").hidden * 2 == 45 * 128
    with pytest.raises(UserError, match=r"not 'deepseek-v4': did you mean DeepSeek-V3"):
        get_model("deepseek-v4")


def test_uniform_reaches_as_many_gpus_as_the_closed_form():
    """7.2668 distinct GPUs, 7.0397 remote ones, at E 256, K 8, G 32."""
    routing = uniform(experts=256, top_k=8, tokens=(625,) * 32, seed=1)
    table = reach(Placement.contiguous(experts=256, gpus=32), routing)
    assert table.sum(1).mean() == pytest.approx(7.2668, abs=0.02)
    table[np.arange(len(table)), routing.source] = False
    assert table.sum(1).mean() == pytest.approx(7.0397, abs=0.02)
    assert (np.sort(routing.topk_idx, 1)[:, 1:] != np.sort(routing.topk_idx, 1)[:, :-1]).all()


def test_group_limited_reach():
    """6.60 distinct GPUs of 32 if groups are alike, and never more than four groups."""
    placement = Placement.contiguous(experts=256, gpus=32)
    shape = {"experts": 256, "top_k": 8, "tokens": (625,) * 32, "seed": 1}
    table = reach(placement, group_limited(**shape, random_groups=True))
    assert table.sum(1).mean() == pytest.approx(6.60, abs=0.02)
    routing = group_limited(**shape)
    assert reach(placement, routing).sum(1).mean() == pytest.approx(6.85, abs=0.02)
    assert max(len(set(row)) for row in (routing.topk_idx // 32).tolist()) <= 4


def test_skews():
    flat, skewed = (
        power_law(experts=64, top_k=4, tokens=(500,), seed=3, alpha=a) for a in (0.0, 2.0)
    )
    top = [np.bincount(r.topk_idx.ravel(), minlength=64).max() for r in (flat, skewed)]
    assert top[0] < 60 and top[1] > 480
    counts = np.bincount(normal(experts=64, top_k=1, tokens=(64000,), seed=3).topk_idx.ravel())
    assert counts.std() / counts.mean() == pytest.approx(0.256, rel=0.25)


def test_generators_repeat_with_a_seed_and_differ_without():
    first, again, other = (
        generate("auto", model=get_model("DeepSeek-V3"), tokens=(3, 0, 5), seed=s)
        for s in (1, 1, 2)
    )
    assert np.array_equal(first.topk_idx, again.topk_idx)
    assert not np.array_equal(first.topk_idx, other.topk_idx)
    assert first.ntoken == 5 and first.aidx.tolist() == [0, 1, 2, 10, 11, 12, 13, 14]
    with pytest.raises(UserError, match="Routing must be auto, uniform"):
        generate("zipf", model=get_model("dsv3"), tokens=(1,), seed=0)
    with pytest.raises(UserError, match="no such option"):
        generate("uniform", model=get_model("dsv3"), tokens=(1,), seed=0, alpha=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_import_npy(tmp_path, dtype):
    index = np.array([[0, 3], [1, 1], [2, 0]], dtype)
    if np.issubdtype(dtype, np.signedinteger):
        index[2] = -1
    np.save(tmp_path / "r.npy", index)
    routing = load_routing(tmp_path / "r.npy", experts=4, gpus=2)
    assert np.array_equal(routing.topk_idx, index) and routing.tokens == (2, 1)
    assert (routing.topk_weights == 0.5).all()


def test_import_npz(tmp_path):
    np.savez(
        tmp_path / "r.npz",
        topk_idx=np.array([[0, 3], [1, -1]]),
        topk_weights=np.array([[0.25, 0.75], [1.0, np.nan]]),
        tokens_per_gpu=[0, 2],
    )
    routing = load_routing(tmp_path / "r.npz", experts=4, gpus=2)
    assert routing.tokens == (0, 2) and routing.topk_weights[0, 1] == 0.75
    assert routing.source.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"topk_idx": np.zeros((2, 2))}, "topk_idx must be of an integer type, not float64"),
        ({"topk_idx": np.zeros(4, int)}, r"topk_idx must be \[tokens, K\], not of shape \[4\]"),
        ({"topk_idx": np.zeros((2, 121), int)}, "K 1 to 120"),
        ({"topk_idx": np.array([[0, 1], [2, 4]])}, r"topk_idx\[1,1\] must be -1 or 0 to 3, not 4"),
        ({"topk_idx": np.array([[-2, 1]])}, r"topk_idx\[0,0\] .* not -2"),
        ({"topk_idx": np.array([[0, 2**40]])}, "not 1099511627776"),
        ({"indices": np.zeros((2, 2), int)}, "must hold topk_idx, not only indices"),
        (
            {"topk_idx": np.zeros((2, 2), int), "topk_weights": np.zeros((2, 1))},
            "topk_weights must be",
        ),
        ({"topk_idx": np.zeros((2, 2), int), "topk_weights": np.full((2, 2), np.nan)}, "finite"),
        ({"topk_idx": np.zeros((2, 2), int), "tokens_per_gpu": [1, 2]}, "sum to 2 rows"),
        ({"topk_idx": np.zeros((2, 2), int), "tokens_per_gpu": [2]}, "2 integers, one a GPU"),
    ],
)
def test_import_errors(tmp_path, arrays, message):
    np.savez(tmp_path / "r.npz", **arrays)
    with pytest.raises(UserError, match=message) as caught:
        load_routing(tmp_path / "r.npz", experts=4, gpus=2)
    assert "r.npz: " in str(caught.value)


def test_import_unreadable(tmp_path):
    with pytest.raises(UserError, match=r"absent.npy: Routing file must exist"):
        load_routing(tmp_path / "absent.npy", experts=4, gpus=2)
    for name, content in (("a.npy", b""), ("b.npz", b"PK\x03\x04junk"), ("c.npy", b"hello")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=rf"{name}: Routing file must be a readable"):
            load_routing(tmp_path / name, experts=4, gpus=2)
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(UserError, match="pickled objects are refused"):
        load_routing(tmp_path / "o.npy", experts=4, gpus=2)
    with pytest.raises(UserError, match="readable"):
        load_routing(tmp_path, experts=4, gpus=2)


def test_split_evenly():
    assert split_evenly(10, 4) == (3, 3, 2, 2) and split_evenly(1, 3) == (1, 0, 0)


def test_contiguous_placement():
    placement = Placement.contiguous(experts=12, gpus=4)
    assert (placement.slots, placement.split) == (3, 2)
    ids = placement.physical(np.array([[0, 5, 11, -1]]))
    assert ids.tolist() == [[0, 1 << 2 | 2, 3 << 2 | 2, -1]]
    assert placement.logical(ids).tolist() == [[0, 5, 11, -1]]
    assert Placement.contiguous(experts=8, gpus=8).split == 0
    with pytest.raises(UserError, match="not 8 experts on 32 GPUs; give a placement map"):
        Placement.contiguous(experts=8, gpus=32)


def test_phy2log_placement():
    """EPLB's published example: 12 experts with replicas in 16 slots on 8 GPUs."""
    phy2log = [5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1]
    placement = Placement.from_phy2log(phy2log, experts=12, gpus=8)
    assert placement.kind is PlacementKind.PHY2LOG and placement.slots == 2
    # Expert 5 stands on GPU 0 slot 0 and GPU 1 slot 0, and rows take them in turn.
    assert placement.physical(np.array([[5], [5], [5]])).ravel().tolist() == [0, 2, 0]
    everywhere = np.arange(12).reshape(1, -1)
    assert np.array_equal(placement.logical(placement.physical(everywhere)), everywhere)
    assert Placement.from_phy2log([[0, 1], [2, -1]], experts=3, gpus=2).slots == 2
    with pytest.raises(UserError, match="1 have no slot, the first is 2"):
        Placement.from_phy2log([0, 1, 1, 0], experts=3, gpus=2)
    with pytest.raises(UserError, match="GPU 1 slot 0 must be an expert 0 to 1 or -1, not 7"):
        Placement.from_phy2log([0, 1, 7, 0], experts=2, gpus=2)
    with pytest.raises(UserError, match="same number of slots"):
        Placement.from_phy2log([0, 1, 1], experts=2, gpus=2)


def test_policies():
    policies = Policies()
    assert Policies.from_dict(policies.to_dict()) == policies
    assert policies.to_dict()["duplicate"] == "count_twice"
    with pytest.raises(
        UserError,
        match="accumulation = bf16_truncate is not implemented; choose "
        "gpu_list_then_port_rank or gpu_list_then_arrival or",
    ):
        Policies(accumulation=Accumulation.BF16_TRUNCATE)
    with pytest.raises(UserError, match="slots must be token_order or first_touch, not 'random'"):
        Policies.from_dict({"slots": "random"})
    with pytest.raises(UserError, match="Policy must be one of duplicate"):
        Policies.from_dict({"colour": "red"})
