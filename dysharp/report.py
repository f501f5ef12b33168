"""The demo's report: JSON, Markdown, a picture and a summary of a few lines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dysharp.hw import generate

__all__ = ["KEYS", "draw", "render", "summary", "tool_versions", "write"]

KEYS: dict[str, tuple[str, ...]] = {
    "preset": (),
    "seed": (),
    "tools": (),
    "trace": ("tokens", "packets", "flits"),
    "check": ("values", "mismatches"),
    "cycles": ("dispatch", "combine"),
    "utilisation": ("dispatch", "combine"),
    "traffic": ("deepep_flits", "dysharp_flits", "saved"),
    "area": ("total_ge", "memory_bits", "blocks"),
}
"""The keys of report.json, and the keys below each."""


def tool_versions() -> dict[str, str | None]:
    """Versions of what made a report, and the commit it was made from (None outside of git)."""
    return {**generate.tool_versions(), "commit": _commit()}


def _commit() -> str | None:
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def check_keys(report: Mapping[str, Any]) -> None:
    """Hold a report against :data:`KEYS`; another shape is a fault of the program."""
    if list(report) != list(KEYS):
        raise ValueError(f"Report must have the keys {list(KEYS)}, not {list(report)}")
    for key, below in KEYS.items():
        if below and tuple(report[key]) != below:
            raise ValueError(f"Report's {key} must have the keys {below}, not {list(report[key])}")


def summary(report: Mapping[str, Any]) -> str:
    """A few plain lines for the terminal."""
    trace, check, cycles = report["trace"], report["check"], report["cycles"]
    used, traffic, area = report["utilisation"], report["traffic"], report["area"]
    verdict = "all equal" if not check["mismatches"] else f"{check['mismatches']:,} MISMATCHES"
    return "\n".join(
        [
            f"batch        {trace['tokens']:,} tokens, {trace['packets']:,} packets, "
            f"{trace['flits']:,} flits on {report['preset']}",
            f"check        {check['values']:,} values against the golden model: {verdict}",
            f"cycles       dispatch {cycles['dispatch']:,}, combine {cycles['combine']:,}",
            f"busiest link dispatch {used['dispatch']:.1%}, combine {used['combine']:.1%} in use",
            f"traffic      {traffic['dysharp_flits']:,} flits in place of DeepEP's "
            f"{traffic['deepep_flits']:,}: {traffic['saved']:.1%} saved",
            f"area         {area['total_ge']:,.0f} gate equivalents, "
            f"{area['memory_bits']:,} bits of memory",
        ]
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def render(report: Mapping[str, Any], *, title: str, picture: str | None = None) -> str:
    """The report in Markdown.

    Parameters
    ----------
    report : mapping
        As of :data:`KEYS`.
    title : str
        What was run.
    picture : str, optional
        A picture's path, relative to the report.
    """
    trace, check, cycles = report["trace"], report["check"], report["cycles"]
    used, traffic, area = report["utilisation"], report["traffic"], report["area"]
    parts = [
        f"# {title}",
        f"Preset {report['preset']}, seed {report['seed']}.",
        "## Check",
        f"{check['values']:,} memory words and result values were compared bit for bit with the "
        f"golden model. Mismatches: **{check['mismatches']:,}**.",
        "## Run",
        _table(
            ("", "Dispatch", "Combine"),
            [
                ("cycles", f"{cycles['dispatch']:,}", f"{cycles['combine']:,}"),
                (
                    "use of the busiest link",
                    f"{used['dispatch']:.1%}",
                    f"{used['combine']:.1%}",
                ),
            ],
        ),
        f"{trace['tokens']:,} tokens in {trace['packets']:,} packets of {trace['flits']:,} flits. "
        "The use of a link is the flits that must cross it, headers, lists, requests and answers "
        "included, over the cycles from its first flit to its last.",
        "## Traffic",
        _table(
            ("scheme", "flits on all links", "against DeepEP"),
            [
                ("DeepEP, one copy a GPU", f"{traffic['deepep_flits']:,}", ""),
                ("DySHARP", f"{traffic['dysharp_flits']:,}", f"-{traffic['saved']:.1%}"),
            ],
        ),
        "## Area",
        "Gate equivalents: 1 is a NAND2 of the library. Memories are counted apart, in bits.",
        _table(
            ("block", "GE", "memory bits"),
            [
                (name, f"{block['ge']:,.0f}", f"{block['memory_bits']:,}")
                for name, block in area["blocks"].items()
            ]
            + [("**total**", f"**{area['total_ge']:,.0f}**", f"**{area['memory_bits']:,}**")],
        ),
        "## Tools",
        _table(
            ("tool", "version"),
            [(tool, version or "unknown") for tool, version in report["tools"].items()],
        ),
    ]
    if picture is not None:
        parts.insert(2, f"![traffic, links and area]({picture})")
    return "\n\n".join(parts) + "\n"


def draw(report: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Draw traffic, use of the links and area into one picture; the suffix names the format."""
    from matplotlib.figure import Figure

    traffic, used, blocks = report["traffic"], report["utilisation"], report["area"]["blocks"]
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1.6))
    bars = left.bar(
        ["DeepEP", "DySHARP"],
        [traffic["deepep_flits"], traffic["dysharp_flits"]],
        color=["0.7", "tab:green"],
    )
    left.bar_label(bars, fmt="{:,.0f}")
    left.set_title("flits on all links")
    bars = middle.bar(
        ["Dispatch", "Combine"],
        [100 * used["dispatch"], 100 * used["combine"]],
        color=["tab:blue", "tab:orange"],
    )
    middle.bar_label(bars, fmt="%.1f %%")
    middle.set_ylim(0, 108)
    middle.set_title("use of the busiest link")
    ranked = sorted(blocks.items(), key=lambda item: item[1]["ge"])[-10:]
    bars = right.barh([name for name, _ in ranked], [block["ge"] / 1e3 for _, block in ranked])
    right.bar_label(bars, fmt="{:,.0f}", padding=3)
    right.set_title("area, thousand gate equivalents")
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.12)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)


def write(report: Mapping[str, Any], folder: Path, *, title: str) -> None:
    """Write report.json, report.md and report.png."""
    check_keys(report)
    (folder / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    draw(report, folder / "report.png", title=title)
    (folder / "report.md").write_text(
        render(report, title=title, picture="report.png"), encoding="utf-8"
    )
