"""Functional coverage: which of the cases that matter a run has met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from itertools import product

__all__ = ["Coverage"]


class Coverage:
    """Named groups of bins.

    A test declares the bins it means to meet, samples while it runs, and fails at the end if one
    was missed: a random test that no longer reaches its corner is noticed.
    """

    def __init__(self):
        self._groups: dict[str, dict[Hashable, int]] = {}

    def group(self, name: str, *axes: Iterable[Hashable]) -> None:
        """Declare a group; with several axes its bins are their cross product, as tuples."""
        bins = list(axes[0]) if len(axes) == 1 else list(product(*axes))
        self._groups[name] = dict.fromkeys(bins, 0)

    def sample(self, name: str, value: Hashable) -> None:
        """Count ``value``; one that is no bin of the group is not an error and not counted."""
        bins = self._groups[name]
        if value in bins:
            bins[value] += 1

    def missed(self) -> dict[str, list[Hashable]]:
        """Bins never met, by group."""
        return {
            name: empty
            for name, bins in self._groups.items()
            if (empty := [value for value, count in bins.items() if not count])
        }

    def summary(self) -> dict[str, tuple[int, int]]:
        """Bins met and bins declared, by group."""
        return {
            name: (sum(map(bool, bins.values())), len(bins)) for name, bins in self._groups.items()
        }

    def counts(self, name: str) -> Counter:
        """Hits of each bin of a group."""
        return Counter(self._groups[name])

    def check(self) -> None:
        """Fail with the missed bins by name."""
        if missed := self.missed():
            text = "; ".join(
                f"{name}: {', '.join(map(str, bins[:8]))}"
                + (f" and {len(bins) - 8} more" if len(bins) > 8 else "")
                for name, bins in missed.items()
            )
            raise AssertionError(f"coverage missed {text}")
