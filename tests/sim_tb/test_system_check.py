"""The system bench's own arithmetic: what it compares, counts and measures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dysharp.model.combine import Combined
from dysharp.model.placement import Placement
from dysharp.model.protocol import Protocol
from dysharp.model.routing import uniform
from dysharp.sim_tb.agents.memory import NAN_FILL, SparseMemory
from dysharp.sim_tb.system.check import Check
from dysharp.sim_tb.system.links import LinkCounter
from dysharp.sim_tb.system.sm import StageResult

FILL = int.from_bytes(NAN_FILL, "little")
HIDDEN = 128


@pytest.fixture
def protocol() -> Protocol:
    routing = uniform(experts=8, top_k=2, tokens=(2, 1, 0, 2), seed=3)
    payload = np.random.default_rng(3).integers(0, 1 << 14, (5, HIDDEN)).astype(np.uint16)
    return Protocol(routing, payload, Placement.contiguous(experts=8, gpus=4))


def memories(protocol: Protocol) -> list[SparseMemory]:
    """As the hardware leaves them if it takes tokens in order."""
    slots = protocol.token_order()
    found = []
    for gpu in range(4):
        memory = SparseMemory()
        for region in protocol.regions(slots, gpu, fill=FILL):
            memory.write_bytes(region.address, region.data.tobytes())
        found.append(memory)
    return found


def test_equal_memories_count_every_word(protocol):
    check = Check()
    images = memories(protocol)
    slots = check.slots(protocol, images)
    assert slots is not None
    for gpu, memory in enumerate(images):
        check.memory(gpu, memory, protocol.regions(slots, gpu, fill=FILL), when="now")
    assert check.mismatches == 0
    pages = sum(len(memory.pages) for memory in images)
    tables = sum(layout.slots * layout.rows for layout in protocol.layouts)
    assert check.values == pages * 2048 + tables


def test_a_wrong_word_is_named(protocol):
    check = Check()
    images = memories(protocol)
    slots = protocol.token_order()
    gpu = next(g for g, layout in enumerate(protocol.layouts) if layout.memory_rows)
    address = protocol.layouts[gpu].vbase[0] + 6
    images[gpu].write_bytes(address, b"\x34\x12")
    images[gpu].write_bytes(0x7777000, b"\x00\x00")
    check.memory(gpu, images[gpu], protocol.regions(slots, gpu, fill=FILL), when="now")
    assert check.mismatches == 2
    assert f"GPU {gpu} memory {address:#x} (dispatch + 0x6): expected" in check.shown[0]
    assert "got 0x1234" in check.shown[0]
    assert "outside of every buffer" in check.shown[1]


def test_an_impossible_al_table_is_a_mismatch(protocol):
    check = Check()
    images = memories(protocol)
    gpu = next(g for g, layout in enumerate(protocol.layouts) if layout.memory_rows)
    layout = protocol.layouts[gpu]
    table = images[gpu].read_array(layout.al_base, layout.slots * layout.rows, "<u4")
    table[np.flatnonzero(table)[0]] += 1
    images[gpu].write_array(layout.al_base, table)
    assert check.slots(protocol, images) is None
    assert check.mismatches == 1 and "LIdx" in check.shown[0]


def test_results_are_compared_bit_by_bit(protocol):
    golden = protocol.combine(protocol.token_order(), log=_log(protocol))
    instructions = protocol.instructions(0, 1)
    values = np.array([protocol.chunk(golden.values, one) for one in instructions])
    count = len(instructions)
    result = StageResult(
        instructions, np.zeros(count, int), values, np.array([one.flits for one in instructions])
    )
    check = Check()
    check.answers(protocol, result, golden.status)
    check.results(protocol, result, golden)
    assert check.values == count + values.size and check.mismatches == 0
    values[1, 5] ^= 1
    result.faults[0] = 4
    check.answers(protocol, result, golden.status)
    check.results(protocol, result, golden)
    assert check.mismatches == 2
    assert "expected fault 0, got 4" in check.shown[0] and "element 5 expected" in check.shown[1]


def _log(protocol: Protocol) -> np.ndarray:
    """Contributions in ascending port, as far as the batch's policy wants a log at all."""
    entries = []
    for gpu in range(4):
        for one in protocol.instructions(gpu, 1):
            ports = sorted({target >> protocol.placement.split for target in one.targets})
            entries += [(one.maddr, 1, port) for port in ports]
    return np.array(entries)


def test_faulted_loads_must_not_bring_data(protocol):
    instructions = protocol.instructions(0, 1)[:1]
    golden = Combined(np.zeros((5, HIDDEN), np.uint16), np.full(5, 4), np.ones(5, np.int64))
    result = StageResult(instructions, np.array([4]), np.zeros((1, 64), np.uint16), np.array([8]))
    check = Check()
    check.results(protocol, result, golden)
    assert check.mismatches == 1 and "expected 0 beats of data, got 8" in check.shown[0]


def counter(ports: int, cycles: list[int]) -> LinkCounter:
    values = iter(cycles)
    bench: Any = SimpleNamespace(
        cycle=0,
        wire=lambda name: SimpleNamespace(width=4 * ports, read=lambda: next(values)),
        add=lambda agent: None,
    )
    links = LinkCounter(bench, ports)
    for number in range(len(cycles)):
        bench.cycle = 10 + number
        links.step()
    return links


def test_utilisation_is_that_of_the_fullest_link():
    # Port 0 up: requests in 4 of 5 cycles; port 1 down: 3 flits, two of them in one cycle.
    links = counter(2, [0b0001, 0b0001, 0b0000, 0b1100_0001, 0b0100_0010, 0])
    assert links.measure() == {"p0_up": (4, 10, 14), "p1_down": (3, 13, 14)}
    assert links.utilisation() == {"link": "p0_up", "flits": 4, "cycles": 5, "utilisation": 0.8}
    assert not list(links.problems())


def test_two_flits_a_cycle_are_reported():
    links = counter(1, [0b0011] * 3)
    assert list(links.problems()) == ["link p0_up: 6 flits in 3 cycles"]
