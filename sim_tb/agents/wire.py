"""Fast reading and writing of one port.

cocotb's public ``handle.value`` builds a logic array for each read, about 5 us for 128 bits. A
bench reads some hundred ports a cycle, so this goes to the simulator's object directly: 0.15 us for
a bit, 1 us for 128 bits. Only this file touches cocotb's private parts.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["Unconnected", "Wire"]

_DEPOSIT = 0
# Direct writes take effect after the running edge only where the simulator has inertial writes.
_DIRECT_WRITES = os.environ.get("COCOTB_TRUST_INERTIAL_WRITES", "") == "1"


class Wire:
    """One port of the design.

    Parameters
    ----------
    handle
        cocotb's handle.

    Attributes
    ----------
    width : int
        In bits.
    value : int
        What was last written through this object; -1 before the first write.
    """

    __slots__ = ("handle", "mask", "read", "value", "width", "_set_bits", "_set_int")

    def __init__(self, handle: Any):
        self.handle = handle
        self.width = 1 if handle.__class__.__name__ == "LogicObject" else len(handle)
        self.mask = (1 << self.width) - 1
        self.value = -1
        raw = handle._handle
        self._set_int = raw.set_signal_val_int
        self._set_bits = raw.set_signal_val_binstr
        get_long, get_bits = raw.get_signal_val_long, raw.get_signal_val_binstr
        if self.width < 32:
            # A bit that is X reads as 0, as VPI has it.
            self.read = get_long
        else:

            def read_wide() -> int:
                text = get_bits()
                try:
                    return int(text, 2)
                except ValueError:
                    return int("".join("1" if bit == "1" else "0" for bit in text), 2)

            self.read = read_wide

    def write(self, value: int) -> None:
        """Drive ``value`` from after the present edge on; does nothing if it is driven already."""
        if value == self.value:
            return
        self.value = value
        if not _DIRECT_WRITES:
            self.handle.value = value
        elif self.width < 32:
            self._set_int(_DEPOSIT, value)
        else:
            self._set_bits(_DEPOSIT, f"{value:0{self.width}b}")


class Unconnected:
    """Stands for a port that the design does not have: reads as a fixed value, ignores writes."""

    __slots__ = ("fixed", "value", "width")

    def __init__(self, fixed: int = 0, width: int = 0):
        self.fixed = fixed
        self.width = width
        self.value = 0

    def read(self) -> int:
        """The fixed value."""
        return self.fixed

    def write(self, value: int) -> None:
        """Remember ``value``, drive nothing."""
        self.value = value
