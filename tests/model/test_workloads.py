"""Workloads: each limit against the packets that the requests make, and against closed forms."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dysharp.hw.config import Config, load_preset
from dysharp.hw.errors import UserError
from dysharp.hw.packet import Cmd, Packet
from dysharp.model.closed_forms import deepep_flits, dysharp_flits, remote_gpus
from dysharp.model.layout import link_of
from dysharp.model.placement import Placement
from dysharp.model.policies import OwnGpu, Policies
from dysharp.model.routing import Routing, uniform
from dysharp.model.traffic import Direction
from dysharp.model.workloads import (
    Workload,
    all_gather,
    batch,
    deepep,
    incast,
    permutation,
    reduce_scatter,
    uniform_unicast,
)


def messy(gpus: int, seed: int) -> Routing:
    """Ragged, with -1 entries, repeated ids and lists of more than 8."""
    rng = np.random.default_rng(seed)
    tokens = tuple(int(n) for n in rng.integers(0, 5, gpus - 1)) + (2,)
    index = rng.integers(-1, 3 * gpus, (sum(tokens), 11)).astype(np.int32)
    index[-1] = -1
    return Routing(index, np.ones(index.shape, np.float32), tokens, 3 * gpus)


def count_packets(config: Config, load: Workload, split: int) -> np.ndarray:
    """Flits [direction, GPU, link] of every request, replica and answer, one packet at a time."""
    flits = np.zeros((2, config.gpus, config.links), np.int64)

    def put(direction: Direction, port: int, packet: Packet) -> None:
        flits[direction.value, port // config.links, port % config.links] += packet.flits

    for k in range(len(load)):
        cmd, port, addr = Cmd(int(load.cmd[k])), int(load.port[k]), int(load.addr[k])
        data, link = (0,) * int(load.flits[k]), int(load.port[k]) % config.links
        assert link_of(addr, links=config.links, chunk_bytes=config.chunk_bytes) == link
        if cmd is Cmd.WR:
            target = (addr >> config.gpu_address_bit) * config.links + link
            request, answer = Packet.unicast(cmd, addr=addr, data=data), Packet(Cmd.WR_ACK)
            for direction, at, packet in (
                (Direction.UP, port, request),
                (Direction.DOWN, target, request),
                (Direction.UP, target, answer),
                (Direction.DOWN, port, answer),
            ):
                put(direction, at, packet)
            continue
        ids = tuple(load.targets[load.first[k] : load.first[k + 1]].tolist())
        sends = data if cmd is Cmd.MM_ST else ()
        answer = (
            Packet.multimem(Cmd.MM_ACK, maddr=addr)
            if sends
            else Packet.multimem(Cmd.MM_RSP, maddr=addr, data=data)
        )
        put(Direction.UP, port, Packet.multimem(cmd, maddr=addr, targets=ids, data=sends))
        for gpu in range(config.gpus):
            mine = tuple(v for v in ids if v >> split == gpu)
            if mine or not ids:
                at = gpu * config.links + link
                put(Direction.DOWN, at, Packet.multimem(cmd, maddr=addr, targets=mine, data=sends))
                put(Direction.UP, at, answer)
        put(Direction.DOWN, port, answer)
    return flits


def check_order(load: Workload) -> None:
    """Requests stand stream by stream, and none twice."""
    keys = load.port * 1000 + load.stream
    assert (np.diff(keys) >= 0).all()
    assert max(Counter(zip(load.port, load.cmd, load.addr, strict=True)).values()) == 1


@settings(deadline=None, max_examples=25)
@given(
    gpus=st.sampled_from((2, 3, 5)),
    links=st.sampled_from((1, 2, 4)),
    chunk_bytes=st.sampled_from((128, 256)),
    hidden_flits=st.integers(1, 40),
    streams=st.integers(1, 3),
    stages=st.sampled_from(((0,), (1,), (0, 1))),
    seed=st.integers(0, 99),
)
def test_a_batchs_traffic_is_that_of_its_packets(
    gpus, links, chunk_bytes, hidden_flits, streams, stages, seed
):
    config = load_preset("nvl8", gpus=gpus, links=links, chunk_bytes=chunk_bytes)
    routing, placement = messy(gpus, seed), Placement.contiguous(experts=3 * gpus, gpus=gpus)
    for make in (batch, deepep):
        load = make(
            config,
            routing,
            placement,
            block_bytes=16 * hidden_flits,
            streams=streams,
            stages=stages,
        )
        check_order(load)
        counted = count_packets(config, load, placement.split)
        assert (load.traffic.flits.sum(axis=0) == counted).all()
        assert load.limit == counted.max()
        assert set(load.stage.tolist()) <= set(stages)


@pytest.mark.parametrize("links", [1, 2])
def test_other_workloads_traffic_is_that_of_their_packets(links):
    config = load_preset("nvl8", gpus=4, links=links)
    for load in (
        all_gather(config, chunks=5, streams=2),
        reduce_scatter(config, chunks=5, streams=2),
        uniform_unicast(config, chunks=3, streams=2, seed=1),
        permutation(config, chunks=6, streams=1, seed=1),
        incast(config, chunks=4, streams=1),
    ):
        check_order(load)
        assert (load.traffic.flits.sum(axis=0) == count_packets(config, load, 3)).all()


def test_closed_forms_of_the_other_workloads():
    """All-gather: G stores down and one collapsed ack; reduce-scatter mirrors it; unicast: 10 a
    write and its ack, in each direction."""
    config = load_preset("nvl8")
    gpus, chunks = config.gpus, 7
    assert all_gather(config, chunks=chunks, streams=1).limit == chunks * (9 * gpus + 1)
    assert reduce_scatter(config, chunks=chunks, streams=1).limit == chunks * (9 * gpus + 1)
    unicast = uniform_unicast(config, chunks=chunks, streams=1, seed=2).traffic.flits
    assert (unicast[0] == 10 * chunks * (gpus - 1)).all() and not unicast[1].any()
    assert (permutation(config, chunks=chunks, streams=1, seed=2).traffic.flits[0] == 10 * 7).all()
    assert incast(config, chunks=chunks, streams=1).limit == 9 * (gpus - 1) * chunks


def test_permutation_and_uniform_reach_other_gpus_alike():
    config = load_preset("nvl8")
    load = permutation(config, chunks=2, streams=1, seed=3)
    pairs = set(zip(load.port.tolist(), (load.addr >> 40).tolist(), strict=True))
    assert len(pairs) == config.gpus and all(a != b for a, b in pairs)
    load = uniform_unicast(config, chunks=2, streams=1, seed=3)
    pairs = Counter(zip(load.port.tolist(), (load.addr >> 40).tolist(), strict=True))
    assert set(pairs.values()) == {2} and len(pairs) == config.gpus * (config.gpus - 1)


@pytest.mark.parametrize("chunk_bytes", [128, 256])
def test_limits_of_a_uniform_batch_approach_the_closed_forms(chunk_bytes):
    """Averaged over links, with the source's own GPU a destination like any other: DeepEP 20 D,
    fused 12 D + 10 at 128-byte chunks."""
    config = load_preset("nvl32", chunk_bytes=chunk_bytes)
    routing = uniform(experts=256, top_k=8, tokens=(60,) * 32, seed=5)
    placement = Placement.contiguous(experts=256, gpus=32)
    data = chunk_bytes // 16
    fused, unicast = (
        make(config, routing, placement, block_bytes=chunk_bytes, streams=4)
        for make in (batch, deepep)
    )
    distinct = len(unicast) / 2 / len(routing.topk_idx)
    assert distinct == pytest.approx(remote_gpus(256, 8, 32) * 32 / 31, rel=0.01)
    up, down = dysharp_flits(distinct, data)
    assert fused.traffic.flits.sum(axis=(0, 3)).mean(axis=1) / 60 == pytest.approx([up, down])
    both = unicast.traffic.flits.sum(axis=(0, 3)).mean(axis=1) / 60
    assert both == pytest.approx([deepep_flits(distinct, data)] * 2)


def test_streams_take_tokens_in_turn():
    """Token t of a source is in stream t mod 3, its chunks in order, Combine's streams behind."""
    config = load_preset("nvl8")
    routing = uniform(experts=32, top_k=4, tokens=(5,) * 8, seed=1)
    placement = Placement.contiguous(experts=32, gpus=8)
    load = batch(config, routing, placement, block_bytes=512, streams=3)
    row = (load.addr - (1 << 44) >> 9) % 5
    assert (load.stream == row % 3 + 3 * load.stage).all()
    same = (np.diff(load.stream) == 0) & (np.diff(load.port) == 0)
    assert (np.diff(load.addr)[same] > 0).all()
    split = deepep(config, routing, placement, block_bytes=512, streams=2, stages=(0,))
    row, taker = (split.addr & (1 << 40) - 1) >> 9, split.addr >> 40
    assert (split.stream == row % 5 % 2 * config.gpus + taker).all(), "a stream a destination"
    assert np.unique(split.stream).size == 2 * config.gpus


def test_own_targets_off_the_links_make_no_packets():
    config = load_preset("nvl8")
    routing = uniform(experts=32, top_k=4, tokens=(1,) * 8, seed=1)
    placement = Placement.contiguous(experts=32, gpus=8)
    policies = Policies(own_gpu=OwnGpu.LOCAL_BYPASS)
    for make in (batch, deepep):
        with pytest.raises(UserError, match="own_gpu must be through_switch"):
            make(config, routing, placement, block_bytes=512, streams=1, policies=policies)
