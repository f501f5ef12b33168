"""The bench's pictures: use of the links over time, and over the depth of the queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["LINES", "draw_depths", "draw_timeline", "sequential"]

LINES = {
    "limiting": ("limiting link", "black"),
    "down": ("all links down, mean", "tab:blue"),
    "up": ("all links up, mean", "tab:orange"),
}
"""What is drawn of each run, with its colour."""


def sequential(timeline: Mapping[str, Any]) -> dict[str, Any]:
    """Dispatch, and Combine after it, as one run."""
    first, second = timeline["dispatch"], timeline["combine"]
    return {"bin_cycles": first["bin_cycles"]} | {
        line: [*first[line], *second[line]] for line in LINES
    }


def draw_timeline(result: Mapping[str, Any], stem: Path) -> list[Path]:
    """Draw the stages one after the other above both at once, on one axis of time.

    Parameters
    ----------
    result : what :func:`~dysharp.sim_tb.bench.switch.bench_switch` returns
    stem : path of the picture without suffix; an .svg and a .png are written
    """
    from matplotlib.figure import Figure

    timeline = result["timeline"]
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True, sharey=True)
    shown = {
        "Dispatch, then Combine": sequential(timeline),
        "both at once": timeline["fused"],
    }
    for panel, (title, run) in zip(axes, shown.items(), strict=True):
        for line, (label, colour) in LINES.items():
            values = run[line]
            edges = [run["bin_cycles"] * k / 1e3 for k in range(len(values) + 1)]
            panel.stairs(values, edges, label=label, color=colour)
        panel.set_title(title, loc="left")
        panel.set_ylabel("flits a cycle")
    axes[0].set_ylim(0, 1.05)
    axes[0].legend(loc="lower right", ncols=len(LINES), fontsize="small")
    axes[1].set_xlabel("thousand cycles")
    figure.suptitle(f"Use of the links, {result['preset']}, {result['model']}")
    return _save(figure, stem)


def draw_depths(
    curves: Mapping[str, Sequence[Mapping[str, Any]]], names: Sequence[str], stem: Path
) -> list[Path]:
    """Draw utilisation over queue depth.

    Parameters
    ----------
    curves : for each preset what :func:`~dysharp.sim_tb.bench.depths.depth_curve` returns
    names : the workloads
    stem : path of the picture without suffix
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5 * len(curves), 4), layout="constrained")
    panels = figure.subplots(1, len(curves), sharey=True, squeeze=False)[0]
    for panel, (preset, rows) in zip(panels, curves.items(), strict=True):
        depths = [row["depth"] for row in rows]
        for name in names:
            panel.plot(depths, [row[name] for row in rows], "o-", label=name)
        panel.set_xscale("log", base=2)
        panel.set_xticks(depths, [str(depth) for depth in depths])
        panel.set_title(preset, loc="left")
        panel.set_xlabel("flits in a queue")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("utilisation of the limiting link")
    panels[-1].legend(fontsize="small")
    return _save(figure, stem)


def _save(figure: Any, stem: Path) -> list[Path]:
    paths = [stem.with_suffix(suffix) for suffix in (".svg", ".png")]
    for path in paths:
        figure.savefig(path, dpi=130, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths
