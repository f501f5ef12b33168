"""What carries the runtime's accesses to the hardware."""

from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["SWITCH", "Backend", "Device", "Recorder"]

Device = int | str
SWITCH = "switch"
"""The switch as a device; a GPU is its number."""


class Backend(Protocol):
    """What carries the runtime's accesses to the hardware."""

    def write32(self, device: Device, address: int, value: int) -> None:
        """Write a register."""
        ...

    def clear(self, device: int, address: int, count: int) -> None:
        """Zero ``count`` bytes of a GPU's memory."""
        ...


@dataclass
class Recorder:
    """A backend that only takes notes.

    Attributes
    ----------
    writes : device, address and value of each register write, in order
    clears : device, address and bytes of each range of memory that must be zero by now
    """

    writes: list[tuple[Device, int, int]] = field(default_factory=list)
    clears: list[tuple[int, int, int]] = field(default_factory=list)

    def write32(self, device: Device, address: int, value: int) -> None:
        """Note a register write."""
        self.writes.append((device, address, value))

    def clear(self, device: int, address: int, count: int) -> None:
        """Note a range to be zeroed."""
        self.clears.append((device, address, count))

    def take(self) -> list[tuple[Device, int, int]]:
        """The register writes since the last call."""
        taken, self.writes = self.writes, []
        return taken
