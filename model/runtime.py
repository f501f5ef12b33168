"""The runtime: multicast objects under the names that CUDA's users know.

The life of an object is CUDA's: create, add every device, bind memory on each, use, unbind,
release. What a driver would write into switch and GPUs goes to a backend
(:mod:`dysharp.model.backend`) as 32-bit register writes in the order in which the hardware must
see them.

Source: CUDA driver API, multicast object management; the DySHARP paper for the names
``cuDyMulticast...`` and the parameters ``bsize``, ``stage``, ``hsize``, ``ntoken`` and ``nactive``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NoReturn

from dysharp.hw.al_table import AL_ENTRY_BYTES
from dysharp.hw.config import Config
from dysharp.hw.packet import FLIT_BYTES
from dysharp.hw.register_map import RegisterMap
from dysharp.hw.registers import maps_of
from dysharp.model.backend import SWITCH, Backend, Device
from dysharp.model.cuda import (
    ELEMENT_BYTES,
    CudaError,
    CUDymulticastObjectProp,
    CUdymulticastStage,
    CUresult,
)
from dysharp.model.layout import DEFAULT_BASE, PAGE, row_stride
from dysharp.model.numerics import ALL_DTYPES, supports

__all__ = ["MULTIMEM_BASE", "Binding", "Runtime"]

MULTIMEM_BASE = DEFAULT_BASE
"""Where the first object is put in the multimem address space."""
ADDRESS_BITS = 48


@dataclass(frozen=True)
class Binding:
    """Memory of one device that belongs to an object.

    Attributes
    ----------
    al_base : address of the AL table, ``4 * slots * rows`` bytes
    vbase : address of the packed rows, by stage
    capacity : rows of each local expert
    row0 : first row of each local expert
    end : first address behind it
    """

    al_base: int
    vbase: tuple[int, int]
    capacity: tuple[int, ...]
    row0: tuple[int, ...]
    end: int


@dataclass
class _Object:
    """What the driver remembers of an object."""

    index: int
    prop: CUDymulticastObjectProp
    stride: int
    devices: list[int] = field(default_factory=list)
    bindings: dict[int, Binding] = field(default_factory=dict)
    ntoken: int = 0
    base: int = 0

    @property
    def rows(self) -> int:
        return self.ntoken * self.prop.numDevices

    @property
    def size(self) -> int:
        return self.rows << self.stride

    @property
    def complete(self) -> bool:
        return len(self.devices) == self.prop.numDevices


class Runtime:
    """The driver of one switch and its GPUs.

    A call that breaks a rule raises :class:`~dysharp.model.cuda.CudaError` and changes nothing.
    CUDA lets a bind wait until the last device is added; this runtime has one thread, so such a
    call is ``CUDA_ERROR_ILLEGAL_STATE``.

    Parameters
    ----------
    config : what was built
    backend : where accesses go
    """

    def __init__(self, config: Config, backend: Backend):
        self.config, self.backend = config, backend
        self._switch, self._gpu = maps_of(config)
        self._objects: dict[int, _Object] = {}
        self._next_handle = 1

    def registers(self, device: Device) -> RegisterMap:
        """The register map of a device."""
        return self._switch if device == SWITCH else self._gpu

    def cuDyMulticastCreate(self, prop: CUDymulticastObjectProp) -> int:
        """Create an object without devices; its handle.

        Raises
        ------
        CudaError
            ``INVALID_VALUE`` for properties that are wrong in themselves, ``NOT_SUPPORTED`` for
            more than was built or a type that was not, ``OUT_OF_MEMORY`` if all entries of the
            object table are in use.
        """
        call = "cuDyMulticastCreate"
        stride = self._check(call, prop)
        used = {found.index for found in self._objects.values()}
        free = [index for index in range(self.config.objects) if index not in used]
        if not free:
            rule = f"objects must be at most {self.config.objects} at a time"
            raise CudaError(CUresult.CUDA_ERROR_OUT_OF_MEMORY, call, rule)
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self._objects[handle] = _Object(free[0], prop, stride)
        return handle

    def cuDyMulticastAddDevice(self, handle: int, device: int) -> int:
        """Add a device for the life of the object; its rank, which counts the calls from 0.

        Raises
        ------
        CudaError
            ``INVALID_VALUE`` for an unknown handle, a device that is in, or one too many;
            ``INVALID_DEVICE`` for a device that does not exist.
        """
        call = "cuDyMulticastAddDevice"
        found = self._find(call, handle)
        if not 0 <= device < self.config.gpus:
            rule = f"device must be below {self.config.gpus}, not {device!r}"
            raise CudaError(CUresult.CUDA_ERROR_INVALID_DEVICE, call, rule)
        if device in found.devices:
            _invalid(call, f"device must be one that is not in the object yet, not {device}")
        if found.complete:
            _invalid(call, f"devices must be at most numDevices = {found.prop.numDevices}")
        found.devices.append(device)
        return len(found.devices) - 1

    def cuDyMulticastBindAddr(
        self,
        handle: int,
        device: int,
        memptr: int,
        *,
        ntoken: int,
        nactive: Sequence[int],
        vbase: tuple[int, int] | None = None,
        flags: int = 0,
    ) -> Binding:
        """Bind memory of a device; with the last device the object becomes usable.

        The memory holds the AL table and then, on pages of their own, the packed rows of each
        stage; the AL table is zeroed unless the object is preloaded.

        Parameters
        ----------
        handle, device : what is bound
        memptr : address of the memory, a multiple of 4096
        ntoken : the most tokens of any device, the same for all
        nactive : rows of each local expert, at most ``slots`` of them; the rest has none
        vbase : addresses of the packed rows, if they are not to follow the AL table
        flags : must be 0

        Raises
        ------
        CudaError
            ``ILLEGAL_STATE`` before all devices are added, ``INVALID_DEVICE`` for a device that
            is not in the object, ``INVALID_VALUE`` for the rest.
        """
        call = "cuDyMulticastBindAddr"
        found = self._find(call, handle)
        prop = found.prop
        if not found.complete:
            rule = f"all {prop.numDevices} devices must be added first, not {len(found.devices)}"
            raise CudaError(CUresult.CUDA_ERROR_ILLEGAL_STATE, call, rule)
        self._find_device(call, found, device)
        if device in found.bindings:
            _invalid(call, f"device must be unbound first, not bind {device} again")
        if flags:
            _invalid(call, f"flags must be 0, not {flags!r}")
        if ntoken < 1 or (found.bindings and ntoken != found.ntoken):
            same = f"the {found.ntoken} of the others" if found.bindings else "at least 1"
            _invalid(call, f"ntoken must be {same}, not {ntoken!r}")
        if len(nactive) > prop.slots or min(nactive, default=0) < 0:
            _invalid(call, f"nactive must be at most {prop.slots} numbers from 0 on")
        if memptr % PAGE or any(address % FLIT_BYTES for address in vbase or ()):
            _invalid(call, f"memptr must be a multiple of {PAGE}, and vbase of {FLIT_BYTES}")
        rows = ntoken * prop.numDevices
        capacity = (*map(int, nactive), *[0] * (prop.slots - len(nactive)))
        binding = _lay_out(memptr, rows, capacity, prop.block, vbase)
        if binding.end > 1 << ADDRESS_BITS:
            _invalid(call, f"memory must end below 2**{ADDRESS_BITS}, not at {binding.end:#x}")
        base = found.base if found.bindings else self._place(call, found, rows)
        try:
            writes = self._gpu_writes(found, base, rows, binding)
        except ValueError as error:
            _invalid(call, str(error))
        found.ntoken, found.base = ntoken, base
        found.bindings[device] = binding
        if not prop.preloaded:
            self.backend.clear(device, binding.al_base, AL_ENTRY_BYTES * prop.slots * rows)
        for address, value in writes:
            self.backend.write32(device, address, value)
        if len(found.bindings) == prop.numDevices:
            for address, value in self._switch_writes(found):
                self.backend.write32(SWITCH, address, value)
        return binding

    def cuDyMulticastUnbind(self, handle: int, device: int) -> None:
        """Take a device's memory out again; the object is not usable until it is bound anew.

        The caller waits for its operations on the object to end first, as with CUDA.

        Raises
        ------
        CudaError
            ``INVALID_DEVICE`` for a device that is not in the object, ``INVALID_VALUE`` for an
            unknown handle or a device that is not bound.
        """
        call = "cuDyMulticastUnbind"
        found = self._find(call, handle)
        self._find_device(call, found, device)
        if device not in found.bindings:
            _invalid(call, f"device must be bound, not {device}")
        if len(found.bindings) == found.prop.numDevices:
            for write in self._switch.window("objects").writes(found.index, "control", valid=0):
                self.backend.write32(SWITCH, *write)
        del found.bindings[device]
        for write in self._invalidate(found.index):
            self.backend.write32(device, *write)

    def cuMemRelease(self, handle: int) -> None:
        """Unbind what is bound and forget the object; its entry is free again."""
        found = self._find("cuMemRelease", handle)
        for device in list(found.bindings):
            self.cuDyMulticastUnbind(handle, device)
        del self._objects[handle]

    def index(self, handle: int) -> int:
        """Entry of the object in every object table."""
        return self._find("index", handle).index

    def address(self, handle: int, device: int, token: int, offset: int = 0) -> int:
        """Multimem address of a byte of a device's token: what a kernel gives to an instruction.

        Raises
        ------
        CudaError
            ``ILLEGAL_STATE`` before the first bind, which decides where the object stands.
        """
        found = self._find("address", handle)
        self._find_device("address", found, device)
        if not found.bindings:
            rule = "memory must be bound first"
            raise CudaError(CUresult.CUDA_ERROR_ILLEGAL_STATE, "address", rule)
        row = found.devices.index(device) * found.ntoken + token
        return found.base + (row << found.stride) + offset

    def _check(self, call: str, prop: CUDymulticastObjectProp) -> int:
        """Hold properties against the rules; log2 of the bytes between two rows."""
        if prop.flags or prop.handleTypes:
            _invalid(call, "flags and handleTypes must be 0")
        if not 0 < prop.stage <= CUdymulticastStage.BOTH:
            _invalid(call, f"stage must be DISPATCH, COMBINE or both, not {prop.stage!r}")
        if prop.numDevices < 1 or prop.slots < 1 or prop.acc not in (0, 1):
            _invalid(call, "numDevices and slots must be at least 1, and acc 0 or 1")
        self._check_reduction(call, prop)
        used = [size for size in prop.block if size]
        if len(used) != prop.stage.bit_count() or any(size % FLIT_BYTES for size in used):
            _invalid(call, f"bsize must be positive multiples of {FLIT_BYTES}, not {prop.bsize!r}")
        combined = prop.hsize * ELEMENT_BYTES[prop.element]
        if min(used) < 0 or (prop.block[1] and not 0 <= combined <= prop.block[1]):
            _invalid(call, f"bsize must hold hsize = {prop.hsize} elements, not {prop.bsize!r}")
        if prop.group is not None and not 0 < len(set(prop.group)) == len(prop.group):
            _invalid(call, f"group must be some devices, each once, not {prop.group!r}")
        stride = row_stride(max(used), self.config.chunk_bytes)
        if prop.base is not None and prop.base % (1 << stride):
            _invalid(call, f"base must be a multiple of {1 << stride:#x}, not {prop.base:#x}")
        limits = {
            "numDevices": (prop.numDevices, self.config.gpus),
            "slots": (prop.slots, self.config.gpu.slots),
            "bsize": (max(used), self._gpu.window("objects")["bsize0"].mask),
        }
        for name, (value, limit) in limits.items():
            if value > limit:
                rule = f"{name} must be at most {limit} in this build, not {value}"
                raise CudaError(CUresult.CUDA_ERROR_NOT_SUPPORTED, call, rule)
        return stride

    def _check_reduction(self, call: str, prop: CUDymulticastObjectProp) -> None:
        """Hold dtype, op and acc against the table of reductions and against the build."""
        name = f"{prop.element.name} {prop.op.name} acc={prop.acc}"
        if not supports(prop.attr, ALL_DTYPES):
            _invalid(call, f"dtype, op and acc must be a reduction that there is, not {name}")
        built = self.config.arithmetic.dtypes
        if CUdymulticastStage.COMBINE in prop.stage and not supports(prop.attr, built):
            known = ", ".join(dtype.name for dtype in built)
            rule = f"dtype must be one of this build's {known}, not {prop.element.name}"
            raise CudaError(CUresult.CUDA_ERROR_NOT_SUPPORTED, call, rule)

    def _find(self, call: str, handle: int) -> _Object:
        if handle not in self._objects:
            _invalid(call, f"handle must be one of a living object, not {handle!r}")
        return self._objects[handle]

    def _find_device(self, call: str, found: _Object, device: int) -> None:
        if device not in found.devices:
            rule = f"device must be one of {found.devices}, not {device!r}"
            raise CudaError(CUresult.CUDA_ERROR_INVALID_DEVICE, call, rule)

    def _place(self, call: str, found: _Object, rows: int) -> int:
        """Where the object goes in the multimem address space: the lowest gap that fits."""
        size = rows << found.stride
        taken = sorted(
            (other.base, other.base + other.size)
            for other in self._objects.values()
            if other.bindings
        )
        base = MULTIMEM_BASE if found.prop.base is None else found.prop.base
        for low, high in taken:
            if base < high and low < base + size:
                if found.prop.base is not None:
                    _invalid(call, f"base must be outside of other objects, not {base:#x}")
                base = _round_up(high, 1 << found.stride)
        if base + size > 1 << ADDRESS_BITS:
            _invalid(call, f"object must end below 2**{ADDRESS_BITS}, not at {base + size:#x}")
        return base

    def _gpu_writes(
        self, found: _Object, base: int, rows: int, binding: Binding
    ) -> list[tuple[int, int]]:
        """Register writes for one GPU: entry invalid, AL-TLB flushed, tables, entry valid."""
        table, prop = self._gpu.window("objects"), found.prop
        experts, first = self._gpu.window("experts"), found.index * self.config.gpu.slots
        writes = self._invalidate(found.index)
        for slot, (row0, rows_) in enumerate(zip(binding.row0, binding.capacity, strict=True)):
            writes += experts.writes(first + slot, "row0", row0=row0)
            writes += experts.writes(first + slot, "capacity", capacity=rows_)
        layout = {"stride": found.stride, "preloaded": int(prop.preloaded), **_ids(prop)}
        fields = {
            "base": {"base": base},
            "rows": {"rows": rows},
            "layout": layout,
            "bsize0": {"bsize0": prop.block[0]},
            "bsize1": {"bsize1": prop.block[1]},
            "vbase0": {"vbase0": binding.vbase[0]},
            "vbase1": {"vbase1": binding.vbase[1]},
            "al_base": {"al_base": binding.al_base},
            "size": {"size": rows << found.stride},
            "control": {"valid": 1},
        }
        for name, values in fields.items():
            writes += table.writes(found.index, name, **values)
        return writes

    def _invalidate(self, index: int) -> list[tuple[int, int]]:
        """Register writes that take an entry out of a Hub and what the AL-TLB knows of it."""
        flush = self._gpu["tlb_flush"]
        (command,) = flush.split(object=index, by_object=1)
        writes = self._gpu.window("objects").writes(index, "control", valid=0)
        return [*writes, (flush.offset, command)]

    def _switch_writes(self, found: _Object) -> list[tuple[int, int]]:
        """Register writes for the switch, the entry's valid bit last."""
        table, prop = self._switch.window("objects"), found.prop
        members = sum(1 << device for device in found.devices)
        group = members
        if prop.group is not None:
            group = sum(1 << device for device in prop.group)
        fields = {
            "base": {"base": found.base},
            "size": {"size": found.size},
            "members": {"members": members},
            "group": {"group": group & members},
            "route": _ids(prop),
            "control": {"valid": 1},
        }
        writes = table.writes(found.index, "control", valid=0)
        for name, values in fields.items():
            writes += table.writes(found.index, name, **values)
        return writes


def _lay_out(
    memptr: int,
    rows: int,
    capacity: tuple[int, ...],
    block: tuple[int, int],
    vbase: tuple[int, int] | None,
) -> Binding:
    """AL table, then the rows of each stage, each from a page on."""
    total = sum(capacity)
    al_end = memptr + AL_ENTRY_BYTES * len(capacity) * rows
    if vbase is None:
        dispatch = _round_up(al_end, PAGE)
        vbase = dispatch, _round_up(dispatch + total * block[0], PAGE)
    ends = [address + total * size for address, size in zip(vbase, block, strict=True)]
    row0 = tuple(accumulate(capacity[:-1], initial=0))
    return Binding(memptr, vbase, capacity, row0, max(al_end, *ends))


def _ids(prop: CUDymulticastObjectProp) -> dict[str, int]:
    """The fields that switch and Hub share: how ids are read, and what attr 0 means."""
    return {"split": prop.split, "attr": prop.attr, "slots": prop.slots}


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _invalid(call: str, rule: str) -> NoReturn:
    raise CudaError(CUresult.CUDA_ERROR_INVALID_VALUE, call, rule)
