"""Closed forms against the published figures, counted traffic against closed forms and packets."""

import numpy as np
import pytest

from dysharp.hw.errors import UserError
from dysharp.hw.packet import Cmd, Packet
from dysharp.model.answers import replicas
from dysharp.model.closed_forms import (
    deepep_flits,
    distinct_gpus,
    dysharp_flits,
    ideal_rows,
    ideal_speedup,
    payload_efficiency,
    remote_gpus,
    rows_saved,
    static_useless,
)
from dysharp.model.layout import link_of
from dysharp.model.placement import Placement
from dysharp.model.policies import DuplicateId, OwnGpu, Policies
from dysharp.model.protocol import Protocol
from dysharp.model.routing import Routing, uniform
from dysharp.model.traffic import Direction, Scheme, compare_traffic, count_traffic

BYPASS = Policies(own_gpu=OwnGpu.LOCAL_BYPASS)


def test_reach_and_static_groups():
    assert distinct_gpus(256, 8, 32) == pytest.approx(7.2668, abs=5e-5)
    assert remote_gpus(256, 8, 32) == pytest.approx(7.0397, abs=5e-5)
    assert static_useless(remote_gpus(256, 8, 32), 32) == pytest.approx(3.4036, abs=5e-5)


@pytest.mark.parametrize(
    ("top_k", "saved", "speedup"), [(8, 0.429, 1.75), (16, 0.460, 1.85), (32, 0.476, 1.91)]
)
def test_rows(top_k, saved, speedup):
    d = remote_gpus(256, top_k, 32)
    assert rows_saved(d) == pytest.approx(saved, abs=5e-4)
    assert ideal_rows(d) == pytest.approx(speedup, abs=5e-3)


def test_flits_in_expectation():
    """DeepEP-normal's 20d against 12d + 10 down and 10d + 12 up; 1.60 with 256-byte chunks."""
    d = remote_gpus(256, 8, 32)
    assert deepep_flits(d, 8) == pytest.approx(20 * d)
    assert dysharp_flits(d, 8) == pytest.approx((10 * d + 12, 12 * d + 10))
    assert ideal_speedup(d, 8) == pytest.approx(1.49, abs=5e-3)
    assert deepep_flits(d, 16) / (20 * d + 18) == ideal_speedup(d, 16)
    assert ideal_speedup(d, 16) == pytest.approx(1.60, abs=5e-3)


def test_payload_efficiency():
    """8 targets, 8 data flits: 72/90 without a list, 72/104 with addresses, 72/99 on our wire."""
    assert payload_efficiency(8, 8, "none") == 72 / 90
    assert payload_efficiency(8, 8, "explicit") == 72 / 104
    assert payload_efficiency(8, 8, "wire") == 72 / 99
    with pytest.raises(ValueError, match="none, explicit or wire"):
        payload_efficiency(8, 8, "other")


@pytest.mark.parametrize(("chunk_bytes", "speedup"), [(128, 1.49), (256, 1.60)])
def test_sampled_uniform_routing(chunk_bytes, speedup):
    """20,000 tokens, E 256, K 8, G 32, own-GPU targets off the links, as ``d`` assumes."""
    routing = uniform(experts=256, top_k=8, tokens=(625,) * 32, seed=7)
    placement = Placement.contiguous(experts=256, gpus=32)
    found = compare_traffic(
        routing, placement, block_bytes=2 * chunk_bytes, policies=BYPASS, chunk_bytes=chunk_bytes
    )
    assert found.remote == pytest.approx(7.0397, abs=0.02)
    assert found.ideal_rows == pytest.approx(1.75, abs=0.005)
    # Totals are the closed forms' means; the busiest of 32 links is a little above its mean.
    chunks, d = 2 * len(routing.topk_idx), found.remote
    assert found.deepep_flits == pytest.approx(2 * deepep_flits(d, chunk_bytes // 16) * chunks)
    assert found.dysharp_flits == pytest.approx(sum(dysharp_flits(d, chunk_bytes // 16)) * chunks)
    assert found.ideal_speedup == pytest.approx(speedup, abs=0.03)


def test_sampled_limits_approach_the_closed_form():
    """Averaged over the links the down direction is 12d + 10 exactly, up 10d + 12."""
    routing = uniform(experts=256, top_k=8, tokens=(100,) * 32, seed=9)
    placement = Placement.contiguous(experts=256, gpus=32)
    traffic = count_traffic(Scheme.DYSHARP, routing, placement, block_bytes=128, policies=BYPASS)
    d = compare_traffic(routing, placement, block_bytes=128, policies=BYPASS).remote
    mean = traffic.flits.sum(axis=(0, 3)).mean(axis=1) / 100
    assert mean.tolist() == pytest.approx([10 * d + 12, 12 * d + 10])
    assert traffic.busiest()[0] is Direction.DOWN
    assert traffic.limit() < traffic.limit(fused=False)
    assert traffic.stage_limit(0) + traffic.stage_limit(1) == traffic.limit(fused=False)


def messy(policies=None, *, links=1, hidden=200, chunk_bytes=128) -> Protocol:
    """Ragged, with -1 entries, repeated ids, lists of more than 8 and a short last chunk."""
    rng = np.random.default_rng(4)
    index = rng.integers(-1, 12, (13, 20)).astype(np.int32)
    index[3], index[4, 1:] = -1, -1
    routing = Routing(index, np.ones(index.shape, np.float32), (6, 0, 4, 3), 12)
    return Protocol(
        routing,
        np.zeros((13, hidden), np.uint16),
        Placement.contiguous(experts=12, gpus=4),
        policies=policies,
        links=links,
        chunk_bytes=chunk_bytes,
    )


@pytest.mark.parametrize("links", [1, 2, 4])
@pytest.mark.parametrize("chunk_bytes", [128, 256])
@pytest.mark.parametrize("duplicate", [DuplicateId.COUNT_TWICE, DuplicateId.COUNT_ONCE])
def test_counts_are_those_of_the_packets(links, chunk_bytes, duplicate):
    """Build every packet on every link and count its flits."""
    policies = Policies(duplicate=duplicate)
    protocol = messy(policies, links=links, chunk_bytes=chunk_bytes)
    flits = np.zeros((2, 2, 4, links), int)
    commands: dict[Cmd, int] = {}

    def put(packet: Packet, direction: Direction, gpu: int) -> None:
        link = link_of(packet.maddr, links=links, chunk_bytes=chunk_bytes)
        flits[packet.stage, direction.value, gpu, link] += len(packet.encode())
        commands[packet.cmd] = commands.get(packet.cmd, 0) + packet.flits

    for gpu in range(4):
        for instruction in protocol.instructions(gpu, 0) + protocol.instructions(gpu, 1):
            packet = protocol.packet(instruction)
            if packet is None:
                continue
            cmd = Cmd.MM_RSP if instruction.stage else Cmd.MM_ACK
            data = (0,) * (instruction.flits if instruction.stage else 0)
            answer = Packet.multimem(cmd, maddr=packet.maddr, stage=packet.stage, data=data)
            put(packet, Direction.UP, gpu)
            put(answer, Direction.DOWN, gpu)
            for replica in replicas(packet, protocol.placement.split).items():
                put(replica[1], Direction.DOWN, replica[0])
                put(answer, Direction.UP, replica[0])
    traffic = count_traffic(
        Scheme.DYSHARP,
        protocol.routing,
        protocol.placement,
        block_bytes=400,
        links=links,
        policies=policies,
        chunk_bytes=chunk_bytes,
    )
    assert np.array_equal(traffic.flits, flits) and traffic.by_command == commands


def test_deepep_counts():
    """Two tokens by hand: 200 elements are 3 chunks of 8 flits and one of 1, 29 with headers."""
    index = np.array([[0, 1, 3], [2, 2, -1]], np.int32)
    routing = Routing(index, np.ones((2, 3), np.float32), (1, 1), 4)
    placement = Placement.contiguous(experts=4, gpus=2)
    own = count_traffic(Scheme.DEEPEP_NORMAL, routing, placement, block_bytes=400)
    # Three copies: 0 -> 0, 0 -> 1 and 1 -> 1; up and down of (GPU 0, GPU 1).
    assert own.flits[0, :, :, 0].tolist() == [[2 * 29 + 4, 29 + 4 * 2], [29 + 8, 2 * 29 + 4]]
    assert own.flits[1, :, :, 0].tolist() == [[29 + 4 * 2, 2 * 29 + 4], [2 * 29 + 4, 29 + 8]]
    away = count_traffic(Scheme.DEEPEP_NORMAL, routing, placement, block_bytes=400, policies=BYPASS)
    assert away.flits[:, :, :, 0].tolist() == [[[29, 4], [4, 29]], [[4, 29], [29, 4]]]
    assert own.by_command == {Cmd.WR: 12 * 29, Cmd.WR_ACK: 12 * 4}


def test_own_gpu_targets_cost_both_schemes():
    """Through the switch a token costs its distinct GPUs, its own included."""
    routing = uniform(experts=256, top_k=8, tokens=(50,) * 32, seed=3)
    placement = Placement.contiguous(experts=256, gpus=32)
    through = compare_traffic(routing, placement, block_bytes=128)
    local = compare_traffic(routing, placement, block_bytes=128, policies=BYPASS)
    assert through.remote == local.remote and through.deepep_flits > local.deepep_flits
    assert 0.36 < local.saved < 0.38 and through.saved > local.saved


def test_nothing_and_errors():
    routing = Routing(np.full((3, 2), -1, np.int32), np.ones((3, 2), np.float32), (2, 1), 4)
    placement = Placement.contiguous(experts=4, gpus=2)
    found = compare_traffic(routing, placement, block_bytes=128)
    assert (found.deepep_flits, found.saved, found.ideal_speedup) == (0, 0.0, 1.0)
    with pytest.raises(UserError, match="multiple of 16 bytes, not 100"):
        compare_traffic(routing, placement, block_bytes=100)
