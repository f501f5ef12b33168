"""Which Hubs and AL-TLBs can be built, and what is said of the others."""

from __future__ import annotations

import pytest

from dysharp.hw.generate import elaborate
from dysharp.hw.gpu.al_tlb import AlTlb
from dysharp.hw.gpu.hub import Hub


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"links": 0}, "Links must be in 1..32, not 0"),
        ({"chunk_bytes": 100}, "Chunk bytes must be 128 or 256, not 100"),
        ({"slots": 3}, "Slots must be a power of two in 1..1024, not 3"),
        ({"objects": 32}, "Objects must be a power of two in 1..16, not 32"),
        ({"gpu_address_bit": 50}, "GPU address bit must be in 16..41, not 50"),
        ({"memory_width": 64}, "Memory width must be 128, 256, 512 or 1024, not 64"),
        ({"contexts": 1}, "Contexts must be in 2..256, not 1"),
        ({"tlb_entries": 7, "tlb_ways": 2}, "Ways must be a divisor of the 7 entries, not 2"),
    ],
)
def test_a_hub_that_cannot_be(wrong, message):
    with pytest.raises(ValueError, match=message):
        Hub(**wrong)


def test_a_tlb_that_cannot_be():
    with pytest.raises(ValueError, match="Sets must be a power of two, not 3"):
        AlTlb(entries=12, ways=4)


@pytest.mark.parametrize("memory", ["inferred", "flipflops", "macro"])
def test_the_smallest_hub(memory):
    hub = Hub(
        objects=1, slots=1, tlb_entries=1, tlb_ways=1, contexts=2, memory_width=128
    )  # fmt: skip
    assert "module \\smallest" in elaborate(hub, "smallest", memory=memory)[0]


def test_the_largest_hub():
    hub = Hub(
        links=32, slots=1024, memory_width=1024, chunk_bytes=256, tlb_ways=8, contexts=64
    )  # fmt: skip
    text, modules = elaborate(hub, "largest")
    assert "module \\largest" in text
    assert sum(name.startswith("parser_req") for name in modules) == 1
