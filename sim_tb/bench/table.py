"""The switch's figures as text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["headline", "render"]

_TITLES = {
    "dispatch": "Dispatch",
    "combine": "Combine",
    "fused": "both at once",
    "allgather": "static all-gather",
    "reduce_scatter": "static reduce-scatter",
    "unicast_uniform": "unicast, uniform",
    "permutation": "unicast, permutation",
}


def headline(result: Mapping[str, Any]) -> Iterable[tuple[str, str, str, str]]:
    """Rows (what, measured, aimed at, note) of utilisation, speedup and fairness.

    Parameters
    ----------
    result : what :func:`~dysharp.sim_tb.bench.switch.bench_switch` returns
    """
    targets = result["targets"]
    for name in ("dispatch", "combine", "fused"):
        for routing, figures in result["routings"].items():
            note = f"routing {routing}"
            if name == "fused":
                note += (
                    f"; busiest link up {figures['fused_up']:.3f} of at most "
                    f"{figures['fused_up_ideal']:.3f}, down {figures['fused_down']:.3f} of "
                    f"{figures['fused_down_ideal']:.3f}"
                )
            yield _TITLES[name], f"{figures[name]:.3f}", f"{targets[name]:g}", note
    for name in ("allgather", "reduce_scatter", "unicast_uniform", "permutation"):
        yield _TITLES[name], f"{result[name]:.3f}", f"{targets[name]:g}", ""
    for order, run in result["orders"].items():
        if order == "rank":
            shown = "-" if "refused" in run else f"{run['utilisation']:.3f}"
            yield "Combine, order rank", shown, "-", run.get("refused", "")
    for chunk, by_routing in result["chunks"].items():
        for routing, figures in by_routing.items():
            yield (
                f"speedup over DeepEP-normal, chunks of {chunk}",
                f"{figures['speedup']:.3f}",
                f"{0.95 * figures['ideal']:.3f}",
                f"routing {routing}; ideal {figures['ideal']:.3f}, in rows alone "
                f"{figures['ideal_rows']:.3f}",
            )
    yield "service among saturated inputs, max/min", f"{result['fairness']:.3f}", "1.05", ""


def render(result: Mapping[str, Any]) -> str:
    """All figures as plain text.

    Parameters
    ----------
    result : what :func:`~dysharp.sim_tb.bench.switch.bench_switch` returns
    """
    latency = result["latency"]
    parts = [
        f"{result['preset']}, chunks of {result['chunk']} bytes, {result['model']}: utilisation of "
        "the limiting link",
        _table(("", "measured", "aim", ""), headline(result)),
        f"idle: static {latency['static']} cycles header to header, dynamic {latency['dynamic']}, "
        f"last contribution to answer {latency['reduce']}",
        f"simulated: {result['flits_per_second']:,} flits a second",
        _table(
            ("elsewhere", "", ""),
            ((peer["name"], peer["figure"], peer["how"]) for peer in result["peers"]),
        ),
    ]
    if result.get("depths"):
        names = [name for name in result["depths"][0] if name != "depth"]
        rows = (
            (str(row["depth"]), *(f"{row[name]:.3f}" for name in names)) for row in result["depths"]
        )
        parts.append(_table(("flits a queue", *(_TITLES[name] for name in names)), rows))
    return "\n\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
