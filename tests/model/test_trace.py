"""Traces: made from a seed, written, read back, and refused when something is wrong."""

import json

import numpy as np
import pytest

from dysharp.hw.config import load_preset
from dysharp.hw.errors import UserError
from dysharp.model.models import MODELS, get_model
from dysharp.model.policies import Accumulation, Overflow, PlacementKind, Policies, SlotOrder
from dysharp.model.trace import default_policies, make_trace, read_trace, write_trace
from dysharp.model.traffic import Scheme, compare_with_deepep, count_traffic

NVL8 = load_preset("nvl8")
DSV3 = get_model("DeepSeek-V3")


def rewrite(path, change):
    """Change the arrays of a trace file, or its header, behind its back."""
    with np.load(path) as file:
        arrays = {name: file[name].copy() for name in file.files}
    header = json.loads(arrays["header"].tobytes())
    change(arrays, header)
    if "header" in arrays:
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)


def test_there_and_back(tmp_path):
    trace = make_trace(NVL8, DSV3, 3, 5, hidden=64, payload="bits")
    write_trace(trace, tmp_path / "a.npz")
    again = read_trace(tmp_path / "a.npz")
    assert again.header() == trace.header() and again.config == NVL8
    for name, array in trace.arrays().items():
        assert np.array_equal(array, again.arrays()[name]), name
    write_trace(make_trace(NVL8, DSV3, 3, 5, hidden=64, payload="bits"), tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    other = make_trace(NVL8, DSV3, 3, 6, hidden=64, payload="bits")
    assert other.header()["checksums"]["payload"] != trace.header()["checksums"]["payload"]


def test_figures_and_saving(tmp_path):
    """Of 24 tokens, each sends one chunk of 8 flits: a header and a TX flit twice, data once."""
    trace = make_trace(NVL8, "deepseek-v3", 3, hidden=64)
    assert (trace.tokens, trace.packets, trace.flits) == (24, 48, 24 * (10 + 2))
    path = trace.save(tmp_path / "t.npz")
    assert read_trace(path).header() == trace.header()
    with pytest.raises(UserError, match="did you mean DeepSeek-V3"):
        make_trace(NVL8, "deepseek", 3)


def test_policies_follow_the_configuration():
    assert default_policies(NVL8).accumulation is Accumulation.GPU_LIST_THEN_ARRIVAL
    rank = default_policies(load_preset("nvl8", order="rank"))
    assert rank.accumulation is Accumulation.GPU_LIST_THEN_PORT_RANK
    exact = default_policies(load_preset("nvl8", order="exact"))
    assert exact.accumulation is Accumulation.GPU_LIST_THEN_EXACT


def test_a_trace_under_another_configuration():
    """What was made for one order is summed in the order of the hardware that it runs on."""
    drop = Policies(overflow=Overflow.DROP_AND_COUNT)
    trace = make_trace(NVL8, get_model("Mixtral-8x7B"), 2, hidden=64, policies=drop)
    other = trace.under(load_preset("nvl8", order="exact"))
    assert other.config.switch.order == "exact" and other.payload is trace.payload
    assert other.policies.accumulation is Accumulation.GPU_LIST_THEN_EXACT
    assert other.policies.overflow is Overflow.DROP_AND_COUNT


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_model_on_eight_gpus(model):
    trace = make_trace(NVL8, model, 2, hidden=64, policies=Policies(slots=SlotOrder.TOKEN_ORDER))
    protocol = trace.protocol()
    results = protocol.combine(protocol.token_order())
    assert results.values.any() and not results.status.any()
    found = trace.traffic()
    assert found.dysharp_flits > 0 and 0 < found.ideal_speedup < 2


def test_deepep_file(tmp_path):
    """-1 entries, a whole row of them, a repeated id, an empty rank; then only some tokens."""
    index = np.full((10, 4), -1, np.int64)
    index[:9] = np.arange(36).reshape(9, 4)
    index[1, 2:] = -1
    index[2] = 7
    np.savez(tmp_path / "r.npz", topk_idx=index, tokens_per_gpu=[4, 0, 1, 1, 1, 1, 1, 1])
    model = get_model("gpt-oss-120b")
    trace = make_trace(NVL8, model, routing=str(tmp_path / "r.npz"), hidden=64, weights="telling")
    assert trace.routing.tokens == (4, 0, 1, 1, 1, 1, 1, 1) and trace.source == "r.npz"
    some = make_trace(NVL8, model, 2, routing=str(tmp_path / "r.npz"), hidden=64)
    assert some.routing.tokens == (2, 0, 1, 1, 1, 1, 1, 1)
    assert np.array_equal(some.routing.topk_idx[:3], index[[0, 1, 4]])
    assert trace.protocol().counts.tolist() == [4, 2, 4, 4, 4, 4, 4, 4, 4, 0]


def test_a_file_longer_than_asked_for_says_so(tmp_path):
    np.save(tmp_path / "r.npy", np.zeros((80, 2), np.int8))
    trace = make_trace(NVL8, DSV3, 3, routing=tmp_path / "r.npy", hidden=64)
    assert trace.routing.tokens == (3,) * 8
    assert trace.source == "r.npy, the first 3 tokens of each GPU"
    assert make_trace(NVL8, DSV3, routing=tmp_path / "r.npy", hidden=64).source == "r.npy"


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_default_tokens_fill_a_link(model):
    """50,000 flits on the busiest link in each stage, and not many more."""
    trace = make_trace(NVL8, model)
    traffic = count_traffic(
        Scheme.DYSHARP, trace.routing, trace.placement, block_bytes=trace.block_bytes
    )
    assert 50_000 <= min(traffic.stage_limit(0), traffic.stage_limit(1)) < 90_000
    assert trace.source == "auto" and str(trace.model) == model.name


def test_report_keys():
    trace = make_trace(NVL8, DSV3, 2, hidden=64)
    found = compare_with_deepep(NVL8, trace)
    assert list(found) == ["deepep_flits", "dysharp_flits", "saved"]
    assert (
        found["saved"]
        == trace.traffic().saved
        == 1 - found["dysharp_flits"] / found["deepep_flits"]
    )


def test_placement_map():
    phy2log = [5, 6, 5, 7, 3, 4, 3, 4, 0, 1, 7, 2, 0, 1, 1, 1]
    trace = make_trace(NVL8, get_model("Mixtral-8x7B"), 2, phy2log=phy2log, hidden=64)
    assert trace.policies.placement is PlacementKind.PHY2LOG and trace.placement.slots == 2
    assert trace.protocol().counts.tolist() == [2] * 16


def test_make_errors(tmp_path):
    for options, message in (
        ({"tokens": [1, 2]}, "for each of 8 GPUs"),
        ({"tokens": -1}, "0 or more"),
        ({"routing": "zipf"}, "Routing must be auto"),
        ({"payload": "zeros"}, "Payload must be"),
        ({"weights": "some"}, "Weights must be"),
        ({"routing": str(tmp_path / "absent.npy")}, "absent.npy: Routing file must exist"),
    ):
        with pytest.raises(UserError, match=message):
            make_trace(NVL8, DSV3, **{"tokens": 1, **options})
    with pytest.raises(UserError, match="give a placement map"):
        make_trace(load_preset("nvl32"), get_model("Mixtral-8x7B"), 1)
    with pytest.raises(UserError, match=r"at most gpu.slots = \d+, not 96"):
        make_trace(load_preset("tiny"), get_model("Kimi-K2"), 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, h: h.update(schema=9), "Trace schema must be 1, not 9"),
        (lambda a, h: a.pop("payload"), "must hold the array payload"),
        (lambda a, h: a.pop("header"), "must have a header"),
        (lambda a, h: a["payload"].__setitem__((0, 0), 1), "array payload must have the checksum"),
        (lambda a, h: a.update(topk_idx=a["topk_idx"].astype(np.int64)), "topk_idx must have the"),
        (lambda a, h: h.pop("model"), "header must be complete: 'model'"),
        (
            lambda a, h: h["policies"].update(slots="dice"),
            "slots must be token_order or first_touch",
        ),
        (lambda a, h: h["config"].update(gpus=-1), "GPUs"),
    ],
)
def test_read_errors(tmp_path, change, message):
    path = tmp_path / "t.npz"
    write_trace(make_trace(NVL8, DSV3, 1, hidden=64), path)
    rewrite(path, change)
    with pytest.raises(UserError, match=message) as caught:
        read_trace(path)
    assert "t.npz: " in str(caught.value)


def test_unreadable(tmp_path):
    with pytest.raises(UserError, match="absent.npz: Trace must exist"):
        read_trace(tmp_path / "absent.npz")
    (tmp_path / "junk.npz").write_bytes(b"junk")
    with pytest.raises(UserError, match="must be a readable .npz"):
        read_trace(tmp_path / "junk.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(UserError, match="must be a readable .npz"):
        read_trace(tmp_path / "one.npy")
    with pytest.raises(UserError, match="cannot be written"):
        write_trace(make_trace(NVL8, DSV3, 1, hidden=64), tmp_path / "no" / "t.npz")
