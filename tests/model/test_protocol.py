"""The golden model against a slow one written from the rules, and its speed."""

import itertools
import time
from typing import Any

import numpy as np
import pytest

from dysharp.hw.errors import UserError
from dysharp.hw.packet import Cmd, Packet
from dysharp.model.answers import Answers, replicas
from dysharp.model.combine import ArrivalMismatch
from dysharp.model.experts import expert_output, expert_output_scalar, expert_scale, telling_weights
from dysharp.model.floats import F32, multiply
from dysharp.model.layout import AL_VALID
from dysharp.model.models import get_model
from dysharp.model.numerics import reduce_exact, reduce_list
from dysharp.model.numerics_array import f32_to_bf16_array
from dysharp.model.placement import Placement
from dysharp.model.policies import (
    Accumulation,
    DuplicateId,
    Overflow,
    OwnGpu,
    Policies,
    WeightAt,
)
from dysharp.model.protocol import Protocol
from dysharp.model.routing import Routing, generate
from dysharp.model.slots import SlotMismatch

ARRIVAL = Policies(accumulation=Accumulation.GPU_LIST_THEN_ARRIVAL)
DROP = Policies(overflow=Overflow.DROP_AND_COUNT)


def batch(
    seed=1, *, tokens=(3, 0, 4, 2), experts=8, top_k=4, hidden=72, plain=False, **options
) -> Protocol:
    """A small batch: 4 GPUs, ragged, -1 entries and rows, a repeated id, every bit pattern.

    ``plain`` gives numbers and weights whose sums depend on their order.
    """
    rng = np.random.default_rng(seed)
    rows = sum(tokens)
    index = rng.integers(-1, experts, (rows, top_k)).astype(np.int32)
    index[0] = -1
    index[1, 1] = index[1, 0] = 2
    weights = rng.random((rows, top_k)).astype(np.float32)
    payload = rng.integers(0, 1 << 16, (rows, hidden)).astype(np.uint16)
    if plain:
        payload = f32_to_bf16_array(rng.normal(size=payload.shape).astype(np.float32))
        weights = telling_weights(rng, index, experts)
    return Protocol(
        Routing(index, weights, tokens, experts),
        payload,
        Placement.contiguous(experts=experts, gpus=len(tokens)),
        **options,
    )


def bits(value) -> int:
    return int(np.float32(value).view(np.uint32))


def memories(protocol: Protocol, slots, fill=0xFF) -> list[dict[int, int]]:
    """Each GPU's memory as bytes by address, as the regions say."""
    found = []
    for gpu in range(protocol.placement.gpus):
        memory: dict[int, int] = {}
        for region in protocol.regions(slots, gpu, fill=fill << 8 | fill):
            for k, byte in enumerate(region.data.tolist()):
                assert region.address + k not in memory, "regions overlap"
                memory[region.address + k] = byte
        found.append(memory)
    return found


def read(memory: dict[int, int], address: int, size: int) -> int:
    return int.from_bytes(bytes(memory[address + k] for k in range(size)), "little")


@pytest.mark.parametrize("seed", range(4))
def test_one_element_at_a_time(seed):
    """Follow every packet of a batch through memory by the formulas of the object's layout."""
    protocol = batch(seed)
    slots = protocol.token_order()
    memory = memories(protocol, slots)
    results = protocol.combine(slots)
    routing, scale = protocol.routing, expert_scale(8)
    for gpu in range(4):
        loads = protocol.instructions(gpu, 1)
        for store, load in zip(protocol.instructions(gpu, 0), loads, strict=True):
            ids = [read(memory[gpu], store.list_address + 2 * k, 2) for k in range(store.count)]
            assert tuple(v for v in ids if v != 0xFFFF) == store.targets == load.targets
            packet, request = protocol.packet(store, local=5), protocol.packet(load)
            if packet is None or request is None:
                assert not store.targets and request is None
                assert not protocol.chunk(results.values, load).any()
                continue
            assert Packet.decode(packet.encode()) == packet and packet.tag_local == 5
            assert (packet.cmd, request.cmd) == (Cmd.MM_ST, Cmd.MM_LDR)
            assert request.maddr & 15 == store.flits - 1 and request.maddr & ~15 == packet.maddr
            partials: dict[int, list[list[int]]] = {}
            for target in packet.targets:
                layout = protocol.layouts[target >> 1]
                aidx = packet.maddr - layout.base >> layout.stride
                offset = packet.maddr - layout.maddr(aidx)
                assert aidx == gpu * 4 + store.token
                entry = read(memory[target >> 1], layout.al_address(target & 1, aidx), 4)
                assert entry & AL_VALID
                where = (target & 1, entry & AL_VALID - 1, offset)
                row, output = [], []
                for word in range(len(packet.data)):
                    stored = layout.address(0, *where) + 16 * word
                    assert read(memory[target >> 1], stored, 16) == packet.data[word]
                    made = layout.address(1, *where) + 16 * word
                    output += [read(memory[target >> 1], made + 2 * k, 2) for k in range(8)]
                    row += [packet.data[word] >> 16 * k & 0xFFFF for k in range(8)]
                k = protocol.lists[store.row].tolist().index(target)
                weight = routing.topk_weights[store.row, k]
                factor = multiply(bits(scale[target]), bits(weight), F32)
                assert output == [expert_output_scalar(v, factor) for v in row]
                partials.setdefault(target >> 1, []).append(output)
            answers = [
                [reduce_list(v) for v in zip(*partials[g], strict=True)] for g in sorted(partials)
            ]
            expected = [reduce_list(v) for v in zip(*answers, strict=True)]
            assert protocol.chunk(results.values, load).tolist() == expected


def test_order_of_sums():
    """List order inside a GPU, ascending rank in the switch, on sums that tell the order."""
    protocol = batch(tokens=(10, 10, 10), experts=96, top_k=10, hidden=16, plain=True)
    values = protocol.combine(protocol.token_order()).values
    other = {"list": 0, "rank": 0}
    for row, ids in enumerate(protocol.lists.tolist()):
        outputs: dict[int, list[list[int]]] = {}
        for k, target in enumerate(ids):
            if target >= 0:
                made = expert_output(
                    protocol.payload[row : row + 1], protocol.factor[row, k : k + 1]
                )
                outputs.setdefault(target >> 5, []).append(made[0].tolist())
        ranks = [outputs[gpu] for gpu in sorted(outputs)]

        def total(groups):
            answers = [[reduce_list(v) for v in zip(*group, strict=True)] for group in groups]
            return [reduce_list(v) for v in zip(*answers, strict=True)]

        if ranks:
            assert total(ranks) == values[row].tolist()
            other["list"] += total([group[::-1] for group in ranks]) != values[row].tolist()
            other["rank"] += total(ranks[::-1]) != values[row].tolist()
    assert min(other.values()) > 3


def test_minus_zero_survives():
    """Sums are loaded, not added to +0: a batch of -0 comes back as -0, rows without targets +0."""
    negative = batch(tokens=(6, 6, 6, 6))
    protocol = Protocol(
        negative.routing, np.full_like(negative.payload, 0x8000), negative.placement
    )
    values = protocol.combine(protocol.token_order()).values
    assert (values == np.where(protocol.counts > 0, 0x8000, 0)[:, None]).all()
    assert protocol.counts.min() == 0 and len(set(protocol.counts.tolist())) > 3


def test_image_holds_nothing_else():
    """Rows nobody wrote keep what was there; the AL table is 0 but for the tokens that came."""
    protocol = batch(capacity=6)
    slots = protocol.token_order()
    for gpu in range(4):
        row, _ = protocol.row_of(slots, gpu)
        image = protocol.dispatched(slots, gpu, fill=0x7FC1)
        assert (image[row < 0] == 0x7FC1).all() and (row < 0).any()
        table = protocol.al_table(slots, gpu)
        assert (table != 0).sum() == (row >= 0).sum() == protocol.announced[gpu].sum()
        assert protocol.row_factor(slots, gpu)[row < 0].tolist() == [1.0] * int((row < 0).sum())


def test_answers():
    protocol = batch()
    slots = protocol.token_order()
    assert protocol.counts[0] == 0 and protocol.counts[1] == protocol.distinct[1] + 1
    assert not protocol.store_status(slots).any() and not protocol.refusals(slots).any()
    results = protocol.combine(slots)
    assert not results.status.any() and not results.values[0].any()
    assert "row 1: GPU 0 AIdx 1 targets (GPU.slot) [1.0 1.0" in protocol.describe(1)


def test_answers_add_up():
    """The source's answer is the sum of the GPUs': counts, statuses, and data by ascending rank."""
    for options in ({}, {"capacity": 2, "policies": DROP}):
        protocol = batch(**options)
        slots = protocol.token_order()
        answers = Answers(protocol, slots, protocol.combine(slots))
        seen = set()
        for gpu, stage in itertools.product(range(4), range(2)):
            for instruction in protocol.instructions(gpu, stage):
                packet = protocol.packet(instruction)
                whole = answers.source(instruction, port=gpu, local=9)
                if packet is None or whole is None:
                    assert packet is whole is None
                    continue
                parts = [
                    answers.gpu(instruction, g) for g in replicas(packet, protocol.placement.split)
                ]
                assert sum(p.count for p in parts if p) == whole.count == packet.count
                assert (whole.maddr, whole.tag_port, whole.tag_local) == (packet.maddr, gpu, 9)
                failed = [p.status for p in parts if p and p.cmd is Cmd.ERR]
                assert (whole.cmd is Cmd.ERR) == bool(failed)
                seen.add(whole.cmd)
                if failed:
                    assert whole.status in failed and not whole.data
                elif stage:
                    assert len(whole.data) == instruction.flits
                    flits = zip(*(p.data for p in parts if p), strict=True)
                    for flit, column in zip(whole.data, flits, strict=True):
                        assert flit == sum(
                            reduce_list([v >> 16 * k & 0xFFFF for v in column]) << 16 * k
                            for k in range(8)
                        )
                absent = set(range(4)) - set(replicas(packet, protocol.placement.split))
                assert all(answers.gpu(instruction, g) is None for g in absent)
        assert seen == {Cmd.MM_ACK, Cmd.MM_RSP} | ({Cmd.ERR} if options else set())


def test_memory_before():
    protocol = batch()
    slots = protocol.token_order()
    for gpu in range(4):
        before, after = protocol.regions(None, gpu), protocol.regions(slots, gpu)
        for was, is_ in zip(before, after, strict=True):
            assert (was.name, was.address, len(was.data)) == (is_.name, is_.address, len(is_.data))
        assert np.array_equal(before[0].data, after[0].data) and not before[1].data.any()


def test_duplicate_policies():
    twice, once = batch(), batch(policies=Policies(duplicate=DuplicateId.COUNT_ONCE))
    assert twice.counts[1] == once.counts[1] + 1 and once.distinct[1] == twice.distinct[1]
    results = [p.combine(p.token_order()).values for p in (twice, once)]
    assert not np.array_equal(results[0][1], results[1][1])
    with pytest.raises(UserError, match=r"Experts of row 1 must be distinct, not expert 2 again"):
        batch(policies=Policies(duplicate=DuplicateId.ERROR))


def test_weight_policy():
    plain = batch(policies=Policies(weights=WeightAt.NONE))
    assert plain.factor[1, 0] == expert_scale(8)[2]


def shuffled_tables(protocol, seed=0):
    """AL tables as some other order of first touches would have left them."""
    rng, tables = np.random.default_rng(seed), []
    for layout in protocol.layouts:
        table = protocol.al_table(protocol.token_order(), layout.gpu)
        for slot in range(layout.slots):
            used = np.flatnonzero(table[slot])
            table[slot, used] = rng.permutation(table[slot, used])
        tables.append(table)
    return tables


def test_first_touch_moves_rows_and_no_result():
    protocol = batch(tokens=(6, 6, 6, 6))
    order = protocol.token_order()
    touched = protocol.first_touch(shuffled_tables(protocol))
    assert not np.array_equal(order.lidx, touched.lidx)
    assert any(
        not np.array_equal(protocol.dispatched(order, g), protocol.dispatched(touched, g))
        for g in range(4)
    )
    assert np.array_equal(protocol.combine(order).values, protocol.combine(touched).values)
    for gpu in range(4):
        assert np.array_equal(protocol.al_table(touched, gpu), shuffled_tables(protocol)[gpu])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("missing", "must have LIdx 0 to"),
        ("twice", "once each"),
        ("stray", "no token of it"),
        ("gap", "once each"),
        ("leftover", "must be 0"),
    ],
)
def test_first_touch_mismatches(fault, message):
    protocol = batch(tokens=(6, 6, 6, 6))
    tables = shuffled_tables(protocol)
    slot, aidx = (int(v) for v in np.argwhere(tables[1])[0])
    free = int(np.flatnonzero(tables[1][slot] == 0)[0])
    if fault == "missing":
        tables[1][slot, aidx] = 0
    elif fault == "twice":
        tables[1][slot] = np.where(tables[1][slot], AL_VALID, 0)
    elif fault == "gap":
        tables[1][slot] = np.where(tables[1][slot], tables[1][slot] + 1, 0)
    else:
        tables[1][slot, free] = AL_VALID if fault == "stray" else 3
    with pytest.raises(SlotMismatch, match=message):
        protocol.first_touch(tables)


def test_overflow():
    """A full expert refuses a token in both stages; the token's other entries are stored."""
    with pytest.raises(UserError, match=r"must be at most its capacity 2, not \d+; raise the"):
        batch(capacity=2).token_order()
    protocol = batch(capacity=2, policies=DROP)
    slots = protocol.token_order()
    refused = slots.refused.any(axis=1)
    assert refused.any() and not refused.all()
    assert protocol.store_status(slots).tolist() == np.where(refused, 8, 0).tolist()
    assert protocol.combine(slots).status.tolist() == np.where(refused, 4, 0).tolist()
    assert protocol.refusals(slots).sum() == slots.refused.sum() * protocol.chunks
    # Other tokens may be the lucky ones, as long as every expert is full.
    tables = [protocol.al_table(slots, g) for g in range(4)]
    full = next((g, e) for g in range(4) for e in range(2) if protocol.announced[g, e] > 2)
    target, table = full[0] << 1 | full[1], tables[full[0]][full[1]]
    lost = next(
        int(protocol.routing.aidx[r])
        for r, k in np.argwhere(slots.refused)
        if protocol.lists[r, k] == target
    )
    lucky = int(np.flatnonzero(table)[0])
    table[lost], table[lucky] = table[lucky], 0
    touched = protocol.first_touch(tables)
    assert touched.refused.sum() > 0 and not np.array_equal(touched.refused, slots.refused)


def arrival_log(protocol, rng=None):
    """Contributions in ascending rank for each chunk, or in a random order."""
    log = []
    for gpu in range(protocol.placement.gpus):
        for load in protocol.instructions(gpu, 1):
            ports = sorted({t >> protocol.placement.split for t in load.targets})
            ports = rng.permutation(ports).tolist() if rng else ports
            log += [(load.maddr | load.flits - 1, 1, port) for port in ports]
    return np.array(log)


def test_arrival():
    # Four experts a GPU of one slot each, so that each result is a sum of up to four answers.
    rank = batch(experts=4, tokens=(25, 25, 25, 25), plain=True)
    arrival = batch(experts=4, tokens=(25, 25, 25, 25), plain=True, policies=ARRIVAL)
    slots = rank.token_order()
    expected = rank.combine(slots).values
    assert np.array_equal(arrival.combine(slots, log=arrival_log(arrival)).values, expected)
    rng = np.random.default_rng(2)
    log = arrival_log(arrival, rng)
    log = np.concatenate([log, [(arrival.layouts[0].base, 0, 3)]])
    got = arrival.combine(slots, log=log).values
    assert not np.array_equal(got, expected)
    for load in arrival.instructions(2, 1):
        ports = [p for m, s, p in log.tolist() if s and m & ~15 == load.maddr]
        outputs = {}
        for k, target in enumerate(arrival.lists[load.row].tolist()):
            if target >= 0:
                made = expert_output(
                    arrival.payload[load.row : load.row + 1], arrival.factor[load.row, k : k + 1]
                )
                outputs.setdefault(target, []).append(arrival.chunk(made, load, row=0).tolist())
        answers = [[reduce_list(v) for v in zip(*outputs[p], strict=True)] for p in ports]
        if answers:
            sums = [reduce_list(v) for v in zip(*answers, strict=True)]
            assert arrival.chunk(got, load).tolist() == sums


def test_arrival_mismatches():
    protocol = batch(policies=ARRIVAL)
    slots, log = protocol.token_order(), arrival_log(protocol)
    with pytest.raises(UserError, match="needs the log"):
        protocol.combine(slots)
    with pytest.raises(ArrivalMismatch, match="must be"):
        protocol.combine(slots, log=log[1:])
    with pytest.raises(ArrivalMismatch, match="port 3 to maddr 0x000000000010"):
        protocol.combine(slots, log=np.concatenate([log, [(16, 1, 3)]]))
    pair = next(i for i in range(len(log) - 1) if log[i, 0] == log[i + 1, 0])
    log[pair + 1, 2] = log[pair, 2]
    with pytest.raises(ArrivalMismatch, match="once from each GPU"):
        protocol.combine(slots, log=log)


def two_levels(inner, outer):
    """Each GPU's entries by ``inner``, the GPUs' answers by ascending rank by ``outer``."""

    def total(entries):
        gpus = sorted({gpu for gpu, _ in entries})
        return outer([inner([value for at, value in entries if at == gpu]) for gpu in gpus])

    return total


def one_level(function):
    return lambda entries: function([value for _, value in entries])


def each_step(values):
    return reduce_list(values, acc=0)


SUMS = {
    Accumulation.GPU_LIST_THEN_PORT_RANK: two_levels(reduce_list, reduce_list),
    Accumulation.GPU_LIST_THEN_EXACT: two_levels(reduce_list, reduce_exact),
    Accumulation.EXACT_THEN_ROUND: one_level(reduce_exact),
    Accumulation.FP32_K_ORDER: one_level(reduce_list),
    Accumulation.PER_LEVEL_BF16: two_levels(each_step, each_step),
}


@pytest.mark.parametrize("plain", [True, False], ids=["telling", "bits"])
@pytest.mark.parametrize("accumulation", SUMS, ids=lambda each: each.value)
def test_accumulation(accumulation, plain):
    """Every element by the scalar specification, from entries in the order of the list."""
    protocol = batch(tokens=(6, 6, 6, 6), plain=plain, policies=Policies(accumulation=accumulation))
    values = protocol.combine(protocol.token_order()).values
    for row, targets in enumerate(protocol.lists.tolist()):
        entries = [(target >> 1, k) for k, target in enumerate(targets) if target >= 0]
        payload = protocol.payload[row : row + 1]
        made = [
            expert_output(payload, protocol.factor[row, k : k + 1])[0].tolist() for _, k in entries
        ]
        for element in range(0, protocol.hidden, 7):
            column = [(gpu, made[n][element]) for n, (gpu, _) in enumerate(entries)]
            expected = SUMS[accumulation](column) if column else 0
            assert values[row, element] == expected, (row, element)


def test_accumulations_differ():
    """Telling weights tell each of them from the others."""
    results = []
    for accumulation in SUMS:
        policies = Policies(accumulation=accumulation)
        protocol = batch(tokens=(40, 40, 40, 40), plain=True, policies=policies)
        results.append(protocol.combine(protocol.token_order()).values.tobytes())
    assert len(set(results)) == len(SUMS)


def test_packet_flits():
    protocol = batch()
    for stage in (0, 1):
        packets = [protocol.packet(i) for g in range(4) for i in protocol.instructions(g, stage)]
        assert sum(p.flits for p in packets if p) == protocol.packet_flits(stage)


def test_a_result_does_not_depend_on_the_rest_of_the_batch():
    protocol = batch(tokens=(4, 4, 4, 4))
    alone = Protocol(
        Routing(
            protocol.routing.topk_idx[5:6], protocol.routing.topk_weights[5:6], (0, 1, 0, 0), 8
        ),
        protocol.payload[5:6],
        protocol.placement,
    )
    assert np.array_equal(
        alone.combine(alone.token_order()).values[0],
        protocol.combine(protocol.token_order()).values[5],
    )


def test_nothing_at_all():
    empty = Protocol(
        Routing(np.zeros((0, 4), np.int32), np.zeros((0, 4), np.float32), (0, 0), 4),
        np.zeros((0, 64), np.uint16),
        Placement.contiguous(experts=4, gpus=2),
    )
    slots = empty.token_order()
    assert empty.combine(slots).values.shape == (0, 64) and not empty.instructions(0, 0)
    assert empty.first_touch([empty.al_table(slots, g) for g in range(2)]).lidx.size == 0


def test_errors():
    routing = generate("uniform", model=get_model("Mixtral-8x7B"), tokens=(2, 2), seed=0)
    placement = Placement.contiguous(experts=8, gpus=2)
    payload = np.zeros((4, 64), np.uint16)
    cases: list[tuple[tuple, dict[str, Any], str]] = [
        ((routing, payload[:3], placement), {}, r"Payload must be \[4 rows, hidden\]"),
        ((routing, payload[:, :60], placement), {}, "multiple of 16 bytes, not 120"),
        ((routing, payload, Placement.contiguous(experts=8, gpus=4)), {}, "Placement must be for"),
        ((routing, payload, placement), {"base": 64}, "Object base must be a multiple of 0x80"),
        ((routing, payload, placement), {"base": (1 << 48) - 128}, "must end below"),
        ((routing, payload, placement), {"capacity": -1}, "Capacity must be 0 or more, not -1"),
        (
            (routing, payload, placement),
            {"policies": Policies(own_gpu=OwnGpu.LOCAL_BYPASS)},
            "own_gpu must be through_switch",
        ),
    ]
    for parts, options, message in cases:
        with pytest.raises(UserError, match=message):
            Protocol(*parts, **options)


@pytest.mark.parametrize("policies", [Policies(), ARRIVAL])
def test_deepseek_v3_is_quick(policies):
    """Hidden 7168, 8 GPUs, 16 tokens each: a golden run must not be what a demo waits for."""
    rng = np.random.default_rng(0)
    model = get_model("DeepSeek-V3")
    payload = rng.integers(0, 1 << 16, (128, model.hidden)).astype(np.uint16)
    start = time.process_time()
    routing = generate("auto", model=model, tokens=(16,) * 8, seed=0)
    protocol = Protocol(
        routing, payload, Placement.contiguous(experts=256, gpus=8), policies=policies
    )
    slots = protocol.token_order()
    log = arrival_log(protocol) if policies is ARRIVAL else None
    protocol.combine(slots, log=log)
    for gpu in range(8):
        protocol.regions(slots, gpu)
    assert time.process_time() - start < 2
