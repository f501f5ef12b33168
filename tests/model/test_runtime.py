"""The runtime's order of calls, its errors, and every register that it writes."""

import dataclasses
import re
from contextlib import contextmanager

import numpy as np
import pytest

from dysharp.hw.config import Config, load_preset
from dysharp.hw.packet import Dtype, Op
from dysharp.hw.register_map import Window
from dysharp.hw.registers import maps_of
from dysharp.model.backend import SWITCH, Recorder
from dysharp.model.cuda import (
    ELEMENT_BYTES,
    CudaError,
    CUDymulticastObjectProp,
    CUdymulticastStage,
    CUresult,
    cudaDataType,
)
from dysharp.model.layout import lay_out
from dysharp.model.runtime import MULTIMEM_BASE, Runtime

TINY = load_preset("tiny")
PROP = CUDymulticastObjectProp(numDevices=4, bsize=384, slots=3, hsize=192)


class Hardware(Recorder):
    """Register files that remember what was written, and in which order entries became valid."""

    def __init__(self, config: Config):
        super().__init__()
        self.switch, self.gpu = maps_of(config)
        self.words: dict[tuple, int] = {}
        self.flushes: list[tuple] = []

    def write32(self, device, address, value):
        registers = self.switch if device == SWITCH else self.gpu
        if device != SWITCH and address == registers["tlb_flush"].offset:
            self.flushes.append((device, registers["tlb_flush"].unpack(value)))
        else:
            assert any(address in window for window in registers.windows), hex(address)
            valid = self.words.get((device, address & ~0x3F | 0x3C), 0)
            table = registers.window("objects")
            if address in table and address & 0x3F != 0x3C:
                assert not valid, "an entry in use is never changed"
        self.words[device, address] = value
        super().write32(device, address, value)

    def entry(self, device, window: Window, index: int) -> dict[str, int | dict[str, int]]:
        """Registers of an entry by name."""
        found = {}
        for register in window.registers:
            first = window.address(index, register.name)
            words = [self.words.get((device, first + 4 * k), 0) for k in range(register.words)]
            number = sum(word << 32 * k for k, word in enumerate(words))
            fields = register.unpack(number)
            found[register.name] = fields.get(register.name, fields)
        return found


def make(config: Config = TINY, prop: CUDymulticastObjectProp = PROP, devices=None):
    """A runtime with one object whose devices are all added."""
    hardware = Hardware(config)
    runtime = Runtime(config, hardware)
    handle = runtime.cuDyMulticastCreate(prop)
    for device in range(prop.numDevices) if devices is None else devices:
        runtime.cuDyMulticastAddDevice(handle, device)
    return runtime, hardware, handle


@contextmanager
def fails(result: CUresult, match: str):
    """The call must raise this result, with these words."""
    with pytest.raises(CudaError, match=match) as info:
        yield
    assert info.value.result is result


def test_entries_after_the_last_bind():
    runtime, hardware, handle = make()
    capacity = [(5, 0, 7), (1, 2, 3), (4,), ()]
    bindings = [
        runtime.cuDyMulticastBindAddr(handle, device, 0x20000, ntoken=10, nactive=rows)
        for device, rows in enumerate(capacity)
    ]
    switch = hardware.entry(SWITCH, hardware.switch.window("objects"), 0)
    assert switch == {
        "base": MULTIMEM_BASE,
        "size": 40 * 512,
        "members": 0b1111,
        "group": 0b1111,
        "route": {"split": 2, "attr": PROP.attr, "slots": 3},
        "control": {"valid": 1},
    }
    gpu = hardware.entry(0, hardware.gpu.window("objects"), 0)
    assert gpu == {
        "base": MULTIMEM_BASE,
        "rows": 40,
        "layout": {"stride": 9, "attr": PROP.attr, "slots": 3, "split": 2, "preloaded": 0},
        "bsize0": 384,
        "bsize1": 384,
        "vbase0": 0x21000,
        "vbase1": 0x23000,
        "al_base": 0x20000,
        "size": 40 * 512,
        "control": {"valid": 1},
    }
    experts = hardware.gpu.window("experts")
    assert [hardware.entry(0, experts, slot) for slot in range(3)] == [
        {"row0": 0, "capacity": 5},
        {"row0": 5, "capacity": 0},
        {"row0": 5, "capacity": 7},
    ]
    assert bindings[3].capacity == (0, 0, 0)
    assert hardware.clears == [(device, 0x20000, 4 * 3 * 40) for device in range(4)]


def test_switch_becomes_valid_after_every_hub():
    runtime, hardware, handle = make()
    for device in (2, 0, 3, 1):
        assert not any(device == SWITCH for device, _, _ in hardware.writes)
        runtime.cuDyMulticastBindAddr(handle, device, 0, ntoken=1, nactive=(1, 1, 1))
    device, address, value = hardware.writes[-1]
    assert (device, value) == (SWITCH, 1)
    assert address == hardware.switch.window("objects").address(0, "control")


def test_addresses_are_those_of_the_models_layout():
    """The golden model lays memory out with the same arithmetic."""
    config = load_preset("nvl8")
    capacity = np.arange(8 * 5).reshape(8, 5)
    layouts = lay_out(ntoken=33, gpus=8, split=3, capacity=capacity, top_k=8, bsize=(7168, 14336))
    prop = CUDymulticastObjectProp(numDevices=8, bsize=(7168, 14336), slots=5, hsize=7168)
    runtime, hardware, handle = make(config, prop)
    for layout in layouts:
        binding = runtime.cuDyMulticastBindAddr(
            handle, layout.gpu, layout.al_base, ntoken=layout.ntoken, nactive=layout.capacity
        )
        assert binding.vbase == layout.vbase
        assert binding.row0 == layout.row0
        assert binding.end == layout.end
        table = hardware.entry(layout.gpu, hardware.gpu.window("objects"), 0)
        assert table["layout"]["stride"] == layout.stride  # type: ignore[index]
        for token in (0, 32):
            aidx = layout.gpu * layout.ntoken + token
            assert runtime.address(handle, layout.gpu, token, 160) == layout.maddr(aidx, 160)


def test_rank_follows_the_order_of_adding():
    runtime, _, handle = make(devices=(3, 1, 0, 2))
    for device in range(4):
        runtime.cuDyMulticastBindAddr(handle, device, 0, ntoken=10, nactive=())
    assert runtime.address(handle, 3, 0) == MULTIMEM_BASE
    assert runtime.address(handle, 0, 4, 16) == MULTIMEM_BASE + 24 * 512 + 16


def test_a_team_of_some_devices_and_a_group_of_fewer():
    prop = dataclasses.replace(PROP, numDevices=2, group=(3,))
    runtime, hardware, handle = make(prop=prop, devices=(3, 1))
    for device in (1, 3):
        runtime.cuDyMulticastBindAddr(handle, device, 0, ntoken=10, nactive=(10,))
    entry = hardware.entry(SWITCH, hardware.switch.window("objects"), 0)
    assert (entry["members"], entry["group"]) == (0b1010, 0b1000)


def test_members_beyond_64_bits():
    prop = dataclasses.replace(PROP, numDevices=72)
    runtime, hardware, handle = make(load_preset("nvl72"), prop)
    for device in range(72):
        runtime.cuDyMulticastBindAddr(handle, device, 0, ntoken=1, nactive=())
    entry = hardware.entry(SWITCH, hardware.switch.window("objects"), 0)
    assert entry["members"] == (1 << 72) - 1


def test_stage_that_is_not_served_has_no_bytes():
    prop = dataclasses.replace(PROP, stage=CUdymulticastStage.DISPATCH)
    runtime, hardware, handle = make(prop=prop)
    runtime.cuDyMulticastBindAddr(handle, 0, 0, ntoken=1, nactive=(1,))
    entry = hardware.entry(0, hardware.gpu.window("objects"), 0)
    assert (entry["bsize0"], entry["bsize1"]) == (384, 0)


def test_preloaded_table_is_left_alone():
    runtime, hardware, handle = make(prop=dataclasses.replace(PROP, preloaded=True))
    runtime.cuDyMulticastBindAddr(handle, 0, 0, ntoken=1, nactive=(1,))
    assert not hardware.clears
    entry = hardware.entry(0, hardware.gpu.window("objects"), 0)
    assert entry["layout"]["preloaded"] == 1  # type: ignore[index]


def test_unbind_takes_the_switch_out_first_and_a_rebind_brings_it_back():
    runtime, hardware, handle = make()
    for device in range(4):
        runtime.cuDyMulticastBindAddr(handle, device, 0, ntoken=1, nactive=(1,))
    hardware.take()
    runtime.cuDyMulticastUnbind(handle, 2)
    writes = hardware.take()
    objects = hardware.switch.window("objects").address(0, "control")
    flush = hardware.gpu["tlb_flush"].offset
    assert writes == [(SWITCH, objects, 0), (2, objects, 0), (2, flush, 0x100)]
    runtime.cuDyMulticastBindAddr(handle, 2, 0x4000, ntoken=1, nactive=(2,))
    assert hardware.take()[-1] == (SWITCH, objects, 1)


def test_objects_get_entries_and_ranges_of_their_own():
    runtime, hardware, first = make()
    second = runtime.cuDyMulticastCreate(dataclasses.replace(PROP, bsize=4096))
    for device in range(4):
        runtime.cuDyMulticastAddDevice(second, device)
    for handle in (first, second):
        for device in range(4):
            runtime.cuDyMulticastBindAddr(handle, device, 0, ntoken=9, nactive=())
    table = hardware.switch.window("objects")
    entries = [hardware.entry(SWITCH, table, index) for index in range(2)]
    assert entries[0]["base"] == MULTIMEM_BASE
    assert entries[1]["base"] == MULTIMEM_BASE + 5 * 4096, "18432 bytes, rounded up to a row"
    runtime.cuMemRelease(first)
    assert hardware.entry(SWITCH, table, 0)["control"] == {"valid": 0}
    assert runtime.index(runtime.cuDyMulticastCreate(PROP)) == 0
    with fails(CUresult.CUDA_ERROR_INVALID_VALUE, "living object"):
        runtime.cuDyMulticastAddDevice(first, 0)


def test_order_of_calls():
    runtime = Runtime(TINY, Recorder())
    handle = runtime.cuDyMulticastCreate(PROP)
    runtime.cuDyMulticastAddDevice(handle, 0)
    with fails(CUresult.CUDA_ERROR_ILLEGAL_STATE, "all 4 devices must be added first, not 1"):
        runtime.cuDyMulticastBindAddr(handle, 0, 0, ntoken=1, nactive=())
    with fails(CUresult.CUDA_ERROR_INVALID_VALUE, "not in the object yet, not 0"):
        runtime.cuDyMulticastAddDevice(handle, 0)
    with fails(CUresult.CUDA_ERROR_INVALID_DEVICE, "below 4, not 4"):
        runtime.cuDyMulticastAddDevice(handle, 4)
    for device in (1, 2, 3):
        runtime.cuDyMulticastAddDevice(handle, device)
    with fails(CUresult.CUDA_ERROR_ILLEGAL_STATE, "must be bound first"):
        runtime.address(handle, 0, 0)
    with fails(CUresult.CUDA_ERROR_INVALID_VALUE, "device must be bound, not 1"):
        runtime.cuDyMulticastUnbind(handle, 1)
    runtime.cuDyMulticastBindAddr(handle, 1, 0, ntoken=1, nactive=())
    with fails(CUresult.CUDA_ERROR_INVALID_VALUE, "unbound first"):
        runtime.cuDyMulticastBindAddr(handle, 1, 0, ntoken=1, nactive=())
    with fails(CUresult.CUDA_ERROR_INVALID_VALUE, "ntoken must be the 1 of the others, not 2"):
        runtime.cuDyMulticastBindAddr(handle, 0, 0, ntoken=2, nactive=())


def test_one_device_too_many_and_one_that_is_no_member():
    prop = dataclasses.replace(PROP, numDevices=2)
    runtime, _, handle = make(prop=prop)
    with fails(CUresult.CUDA_ERROR_INVALID_VALUE, "at most numDevices = 2"):
        runtime.cuDyMulticastAddDevice(handle, 2)
    with fails(CUresult.CUDA_ERROR_INVALID_DEVICE, r"one of \[0, 1\], not 3"):
        runtime.cuDyMulticastBindAddr(handle, 3, 0, ntoken=1, nactive=())


def test_table_full():
    runtime = Runtime(load_preset("tiny", objects=2), Recorder())
    runtime.cuDyMulticastCreate(PROP)
    runtime.cuDyMulticastCreate(PROP)
    with fails(CUresult.CUDA_ERROR_OUT_OF_MEMORY, "at most 2 at a time"):
        runtime.cuDyMulticastCreate(PROP)


@pytest.mark.parametrize(
    ("change", "result", "match"),
    [
        ({"flags": 1}, CUresult.CUDA_ERROR_INVALID_VALUE, "flags"),
        ({"handleTypes": 1}, CUresult.CUDA_ERROR_INVALID_VALUE, "handleTypes"),
        ({"bsize": 100}, CUresult.CUDA_ERROR_INVALID_VALUE, "multiples of 16, not 100"),
        ({"bsize": 0}, CUresult.CUDA_ERROR_INVALID_VALUE, "positive"),
        ({"bsize": -16}, CUresult.CUDA_ERROR_INVALID_VALUE, "must hold hsize"),
        ({"hsize": 193}, CUresult.CUDA_ERROR_INVALID_VALUE, "hold hsize = 193"),
        ({"dtype": Dtype.F32, "acc": 0}, CUresult.CUDA_ERROR_INVALID_VALUE, "hold hsize"),
        ({"stage": 0}, CUresult.CUDA_ERROR_INVALID_VALUE, "stage must be"),
        ({"numDevices": 0}, CUresult.CUDA_ERROR_INVALID_VALUE, "at least 1"),
        ({"numDevices": 5}, CUresult.CUDA_ERROR_NOT_SUPPORTED, "at most 4 in this build"),
        ({"slots": 65}, CUresult.CUDA_ERROR_NOT_SUPPORTED, "at most 64 in this build"),
        ({"bsize": 1 << 20}, CUresult.CUDA_ERROR_NOT_SUPPORTED, "bsize must be at most"),
        ({"dtype": Dtype.F32}, CUresult.CUDA_ERROR_INVALID_VALUE, "not F32 ADD acc=1"),
        ({"dtype": Dtype.NONE}, CUresult.CUDA_ERROR_INVALID_VALUE, "not NONE ADD acc=1"),
        ({"op": Op.XOR}, CUresult.CUDA_ERROR_INVALID_VALUE, "not BF16 XOR acc=1"),
        (
            {"dtype": Dtype.F64, "acc": 0, "hsize": 48},
            CUresult.CUDA_ERROR_NOT_SUPPORTED,
            "BF16, F32, not F64",
        ),
        ({"group": ()}, CUresult.CUDA_ERROR_INVALID_VALUE, "group must be"),
        ({"group": (1, 1)}, CUresult.CUDA_ERROR_INVALID_VALUE, "group must be"),
        ({"base": 256}, CUresult.CUDA_ERROR_INVALID_VALUE, "multiple of 0x200"),
    ],
)
def test_properties(change, result, match):
    runtime = Runtime(TINY, Recorder())
    with fails(result, match):
        runtime.cuDyMulticastCreate(dataclasses.replace(PROP, **change))


@pytest.mark.parametrize("kind", cudaDataType, ids=lambda kind: kind.name)
def test_cuda_names_a_type_of_the_wire(kind):
    """CUDA_R_<bits><letter>[_<name>]: letter and width are those of the wire's type."""
    match = re.fullmatch(r"CUDA_R_(\d+)(BF|F|I|U)(?:_(\w+))?", kind.name)
    assert match
    width, letter, name = match.groups()
    assert kind.dtype.name == (name or f"{letter.replace('I', 'S')}{width}")
    assert ELEMENT_BYTES[kind.dtype] * 8 == int(width)


def test_a_build_without_a_type_refuses_it_for_combine():
    """Dispatch moves any bytes. Switch and Hubs learn the attr of a type given by CUDA's name."""
    config = load_preset("tiny", dtypes="e5m2,u32")
    prop = dataclasses.replace(PROP, dtype=cudaDataType.CUDA_R_8F_E5M2)
    for op, acc in ((Op.ADD, 1), (Op.MIN, 0)):
        runtime, hardware, handle = make(config, dataclasses.replace(prop, op=op, acc=acc))
        for device in range(4):
            runtime.cuDyMulticastBindAddr(handle, device, 0x10000, ntoken=1, nactive=())
        attr = 12 | op.value << 4 | acc << 7
        route = hardware.entry(SWITCH, hardware.switch.window("objects"), 0)["route"]
        layout = hardware.entry(0, hardware.gpu.window("objects"), 0)["layout"]
        assert isinstance(route, dict) and isinstance(layout, dict)
        assert route["attr"] == layout["attr"] == attr
    with fails(CUresult.CUDA_ERROR_NOT_SUPPORTED, "U32, E5M2, not BF16"):
        Runtime(config, Recorder()).cuDyMulticastCreate(PROP)
    stores = dataclasses.replace(PROP, stage=CUdymulticastStage.DISPATCH)
    Runtime(config, Recorder()).cuDyMulticastCreate(stores)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"flags": 1}, "flags must be 0"),
        ({"ntoken": 0}, "ntoken must be at least 1, not 0"),
        ({"nactive": (1, 1, 1, 1)}, "at most 3 numbers"),
        ({"nactive": (-1,)}, "from 0 on"),
        ({"memptr": 16}, "multiple of 4096"),
        ({"vbase": (0, 8)}, "vbase of 16"),
        ({"memptr": (1 << 48) - 4096}, "end below"),
        ({"ntoken": 1 << 23}, "rows.rows must fit 24 bits"),
        ({"nactive": (1 << 24,)}, "capacity.capacity must fit 24 bits"),
    ],
)
def test_a_bind_that_is_refused_changes_nothing(arguments, match):
    runtime, hardware, handle = make()
    good = {"memptr": 0x1000, "ntoken": 10, "nactive": (1,)}
    with fails(CUresult.CUDA_ERROR_INVALID_VALUE, match):
        runtime.cuDyMulticastBindAddr(handle, 0, **(good | arguments))
    assert not hardware.writes and not hardware.clears
    runtime.cuDyMulticastBindAddr(handle, 0, **good)


def test_fixed_base_must_be_free():
    prop = dataclasses.replace(PROP, base=MULTIMEM_BASE)
    runtime, _, first = make(prop=prop)
    runtime.cuDyMulticastBindAddr(first, 0, 0, ntoken=1, nactive=())
    second = runtime.cuDyMulticastCreate(prop)
    for device in range(4):
        runtime.cuDyMulticastAddDevice(second, device)
    with fails(CUresult.CUDA_ERROR_INVALID_VALUE, "outside of other objects"):
        runtime.cuDyMulticastBindAddr(second, 0, 0, ntoken=1, nactive=())
