"""Values that are kept for a cycle."""

from typing import Any

from amaranth import Module, Signal

__all__ = ["delayed"]


def delayed(m: Module, value: Any, name: str) -> Any:
    """The value of the cycle before, of the same shape; 0 after reset."""
    later = Signal.like(value, name=name)
    m.d.sync += later.eq(value)
    return later
