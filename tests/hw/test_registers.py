"""The two register maps; ``tests/test_docs.py`` holds the page that is made from them."""

import pytest
from amaranth.hdl import Fragment

from dysharp.hw.config import load_preset, preset_names
from dysharp.hw.csr import CsrBank
from dysharp.hw.registers import DESIGN, maps_of


@pytest.mark.parametrize("preset", preset_names())
def test_maps_hold_the_configuration(preset):
    config = load_preset(preset)
    switch, gpu = maps_of(config)
    size = switch["size"].unpack(switch["size"].value)
    assert size["gpus"] == config.gpus
    assert 1 << size["chunk"] == config.chunk_bytes
    assert gpu["tlb"].value == config.gpu.tlb_entries
    for registers in (switch, gpu):
        assert registers["identity"].value & 0xFFFF == DESIGN
        Fragment.get(CsrBank(registers=registers), None)


def test_addresses_do_not_depend_on_the_preset():
    """Software finds a register before it knows what was built."""
    small, large = maps_of(load_preset("tiny")), maps_of(load_preset("nvl72"))
    for one, other in zip(small, large, strict=True):
        assert [(r.name, r.offset) for r in one.registers] == [
            (r.name, r.offset) for r in other.registers
        ]
        assert [w.base for w in one.windows] == [w.base for w in other.windows]
