"""The object table of a run, set up through the runtime."""

from __future__ import annotations

from collections.abc import Sequence

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.registers import maps_of
from dysharp.model.backend import SWITCH, Recorder
from dysharp.model.cuda import CUDymulticastObjectProp
from dysharp.model.layout import PAGE
from dysharp.model.numerics import row_of
from dysharp.model.runtime import Runtime
from dysharp.sim_tb.route.model import ObjectSpec

__all__ = ["object_writes"]


_BLOCK = 1 << 14
"""Largest block that an object is cut into."""


def object_writes(config: Config, objects: Sequence[ObjectSpec]) -> list[list[tuple[int, int]]]:
    """Register writes of the switch that make the runtime's objects these ones, object by object.

    Parameters
    ----------
    config : what was built
    objects : each as the runtime can make it: ``split`` as small as ``slots`` allow, ``size`` so
        many rows of a power of two of bytes for each member. An empty ``group`` is written past
        the runtime, which knows none

    Raises
    ------
    UserError
        For an object that the runtime would not make so.
    """
    recorder = Recorder()
    runtime = Runtime(config, recorder)
    window = maps_of(config)[0].window("objects")
    found: list[list[tuple[int, int]]] = []
    for index, entry in enumerate(objects):
        members = sorted(entry.members)
        share = entry.size // max(1, len(members))
        block = min(share & -share, _BLOCK)
        dtype, op, acc = row_of(entry.attr)
        prop = CUDymulticastObjectProp(
            len(members),
            bsize=block,
            slots=entry.slots,
            dtype=dtype,
            op=op,
            acc=acc,
            group=tuple(sorted(entry.group)) or None,
            base=entry.base,
        )
        if prop.split != entry.split or share * len(members) != entry.size:
            raise UserError(f"Object {index} must be one that the runtime makes, not {entry}")
        handle = runtime.cuDyMulticastCreate(prop)
        for gpu in members:
            runtime.cuDyMulticastAddDevice(handle, gpu)
        for gpu in members:
            runtime.cuDyMulticastBindAddr(handle, gpu, PAGE, ntoken=share // block, nactive=[])
        writes = recorder.take()
        found.append([(address, value) for device, address, value in writes if device == SWITCH])
        if not entry.group:
            found[-1] += window.writes(index, "group", group=0)
    return found
