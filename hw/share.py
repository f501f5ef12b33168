"""Modules that are elaborated and written once, however often they are placed.

Amaranth elaborates every instance anew. A switch places thousands of equal queues, so a parent
says ``m.submodules.queue = place(queue)`` and uses ``queue``'s ports: while a
:class:`ModuleLibrary` is open (as :mod:`dysharp.hw.generate` does), the first queue of a kind
becomes a module definition and every queue an ``Instance`` of it. Outside of a library, as in
Amaranth's own simulator, ``place`` returns the component itself.

A component that is placed has a ``module_name``: a name that a person can read, with every
constructor parameter that its hardware depends on. What differs from instance to instance, such as
a port's number, is an input that the parent ties.
"""

import re
from contextvars import ContextVar
from typing import Any

from amaranth.back import rtlil  # pyright: ignore[reportAttributeAccessIssue]
from amaranth.hdl import ClockSignal, Elaboratable, Fragment, Instance, ResetSignal, Value, _ir
from amaranth.lib import wiring

__all__ = ["ModuleLibrary", "place", "ports_of"]

_open_library: "ContextVar[ModuleLibrary | None]" = ContextVar("module library", default=None)


def ports_of(component: wiring.Component) -> dict[str, tuple[Value, wiring.Flow]]:
    """Ports of a component by flattened name, each with its value and direction."""
    return {
        "__".join(map(str, path)): (Value.cast(value), member.flow)
        for path, member, value in component.signature.flatten(component)
    }


class ModuleLibrary:
    """Definitions of placed modules, each elaborated once.

    Use as a context manager; :func:`place` finds the library that is open.

    Attributes
    ----------
    rtlil : RTLIL text by module name, dependencies first
    """

    def __init__(self):
        self.rtlil: dict[str, str] = {}
        self._ports: dict[str, dict] = {}
        self._clocked: dict[str, bool] = {}

    def __enter__(self) -> "ModuleLibrary":
        self._token = _open_library.set(self)
        return self

    def __exit__(self, *exc_info):
        _open_library.reset(self._token)

    def define(
        self, component: Elaboratable, name: str, ports: dict[str, tuple[Value, wiring.Flow]]
    ) -> None:
        """Elaborate ``component`` as module ``name`` with the given ports."""
        text = _module_text(component, name, ports)
        self._clocked[name] = re.search(r"^  wire.* input \d+\s+\\clk$", text, re.M) is not None
        self.rtlil[name] = text

    def instance(self, component: wiring.Component) -> Instance:
        """An instance of ``component``'s module, connected to its own ports."""
        name = component.module_name  # pyright: ignore[reportAttributeAccessIssue]
        ports = ports_of(component)
        shape = {port: (len(value), flow) for port, (value, flow) in ports.items()}
        if name not in self._ports:
            self._ports[name] = shape
            self.define(component, name, ports)
        elif self._ports[name] == shape:
            vars(component)["_MustUse__used"] = True  # its module stands already
        else:
            raise ValueError(
                f"Module name must tell {type(component).__qualname__}s with "
                f"different ports apart, not {name!r} for both"
            )
        links = {
            ("i_" if flow == wiring.In else "o_") + port: value
            for port, (value, flow) in ports.items()
        }
        if self._clocked[name]:
            links |= {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        return Instance(name, **links)


def place(component: wiring.Component) -> Any:
    """The submodule to add for ``component``: an instance of a shared module, or itself.

    Parameters
    ----------
    component : a component with a ``module_name``
    """
    library = _open_library.get()
    return component if library is None else library.instance(component)


def _module_text(
    component: Elaboratable, name: str, ports: dict[str, tuple[Value, wiring.Flow]]
) -> str:
    ways = {wiring.In: _ir.PortDirection.Input, wiring.Out: _ir.PortDirection.Output}
    directed = {port: (value, ways[flow]) for port, (value, flow) in ports.items()}
    text, _ = rtlil.convert_fragment(Fragment.get(component, None), directed, name, emit_src=False)
    text = text.replace("attribute \\top 1\n", "")
    return re.sub(
        r"^(module|  cell) (\\[\w.$]+)",
        lambda match: f"{match[1]} {match[2].replace('.', '__')}",
        text,
        flags=re.M,
    )
