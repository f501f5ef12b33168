"""The testplan as data: what each block must do, and the test that shows it.

``docs/testplan.md`` is rendered from it, and a test holds that every named test exists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Item", "load", "render"]

_FOLDER = Path(__file__).parent / "plans"


@dataclass(frozen=True, order=True)
class Item:
    """One line of the plan.

    Parameters
    ----------
    block : str
        The box in the picture.
    item : str
        What must hold, as a sentence.
    test : str
        ``tests/...py::test_name`` (pytest), or ``sim_tb/...py::name`` (a cocotb test).
    stage : str
        ``ci`` or ``nightly``.
    """

    block: str
    item: str
    test: str
    stage: str = "ci"


def load(folder: Path = _FOLDER) -> list[Item]:
    """All items; each block has its file ``plans/<block>.json``: a list of objects.

    Raises
    ------
    ValueError
        Naming the file and the entry that is not right.
    """
    items = []
    for path in sorted(folder.glob("*.json")):
        for number, entry in enumerate(json.loads(path.read_text())):
            try:
                item = Item(block=path.stem, **entry)
            except TypeError as error:
                raise ValueError(f"{path.name}, entry {number}: {error}") from None
            if item.stage not in ("ci", "nightly"):
                raise ValueError(
                    f"{path.name}, entry {number}: Stage must be ci or nightly, not {item.stage!r}"
                )
            items.append(item)
    return items


def render(items: Iterable[Item]) -> str:
    """The plan as Markdown."""
    lines = [
        "# Testplan",
        "",
        "Rendered from `sim_tb/plans/*.json` by `python -m dysharp.sim_tb.testplan`.",
    ]
    block = None
    for item in items:
        if item.block != block:
            block = item.block
            lines += ["", f"## {block}", "", "| what must hold | test | runs in |", "|---|---|---|"]
        lines.append(f"| {item.item} | `{item.test}` | {item.stage} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path("docs/testplan.md").write_text(render(load()))
