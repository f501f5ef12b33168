"""The bench's figures as text, the peers' beside them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["ORDER_COLUMNS", "render"]

ORDER_COLUMNS = {
    "ge": "GE",
    "memory_bits": "memory bits",
    "bits_a_flit": "bits a flit",
    "sessions_in_64_kb": "sessions in 64 KB",
    "answer_cycles": "cycles to the answer",
}
"""Figures of an order: area and memory of a port's reduction unit; memory for each flit, and the
sessions of which the paper's 64 KB has room; cycles from the last contribution to the answer, when
all ports contribute a whole chunk to one session."""


def render(result: Mapping[str, Any]) -> str:
    """Three tables: adders, ALU, orders.

    Parameters
    ----------
    result : what :func:`dysharp.synth.bench.bench_alu` returns
    """
    alu, nand2 = result["alu"], result["nand2"]
    speed = "not measured" if alu["ghz"] is None else f"{alu['ghz']:.3f} GHz ({alu['corner']})"
    parts = [
        _table(
            ("adder", "GE", "FO4", "peer", "GE", "FO4"),
            _adder_rows(result["adders"], result["peers"]["adders"]),
        ),
        f"ALU: {_figure(alu['ge'])} GE, {speed}, {alu['depth']} stages, "
        f"{alu['flits_per_cycle']:g} flits a cycle",
        _table(
            ("order", *ORDER_COLUMNS.values()),
            (
                (order, *(_figure(row[key]) for key in ORDER_COLUMNS))
                for order, row in result["orders"].items()
            ),
        ),
        _table(
            ("elsewhere", "GE", "FO4", ""),
            (
                (peer["name"], _figure(peer["ge"]), _figure(peer["fo4"]), peer["note"])
                for peer in result["peers"]["designs"]
            ),
        ),
        f"Gate equivalents: 1 = {nand2['cell']} of {result['library']}. A dash was not measured.",
    ]
    return "\n\n".join(parts)


def _adder_rows(
    adders: Mapping[str, Any], peers: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Iterable[tuple[str, ...]]:
    """A row a peer; ours stand beside the first, and a wrong one is marked."""
    for form, ours in adders.items():
        own = (form, *(_figure(ours[key]) for key in ("ge", "fo4")))
        for peer in peers[form]:
            name = peer["name"] if peer["correct"] else f"{peer['name']} (wrong sums)"
            yield (*own, name, _figure(peer["ge"]), _figure(peer["fo4"]))
            own = ("",) * len(own)


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 200 else f"{value:g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if _is_number(head[column]) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _is_number(title: str) -> bool:
    return title not in ("adder", "peer", "order", "elsewhere", "")
