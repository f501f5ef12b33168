"""The whole ALU and its rounder: every type and operation, one flit a cycle, against the model."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from amaranth import Module, Mux, Signal
from amaranth.hdl import Assert, Elaboratable, Value
from amaranth.lib.wiring import Component, In, Out

from dysharp.hw.alu.alu import ReductionAlu
from dysharp.hw.alu.reductions import (
    ALL_DTYPES,
    DEFAULT_DEPTH,
    DEFAULT_DTYPES,
    MAX_DEPTH,
    Reduction,
    supported,
)
from dysharp.hw.alu.result_rounder import ResultRounder
from dysharp.hw.generate import count_instances, elaborate, run_yosys
from dysharp.hw.packet import FLIT_BITS, Dtype
from dysharp.hw.share import place
from dysharp.model import numerics
from dysharp.sim_tb.formal import prove


class AluCheck(Component):
    """ALU with its result as its next accumulators, and rounder; ``o`` is the rounded result.

    So the flits of every ``latency``-th cycle belong to one reduction, as many at once as the ALU
    has stages.
    """

    attr: In(8)
    load: In(1)
    operand: In(FLIT_BITS)
    o: Out(FLIT_BITS)

    def __init__(self, **options):
        self.alu = ReductionAlu(**options)
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        alu, rounder = self.alu, ResultRounder(dtypes=self.alu.dtypes)
        m.submodules.alu = place(alu)
        m.submodules.rounder = place(rounder)
        attr = self.attr
        for _ in range(alu.latency):
            now, attr = attr, Signal(8)
            m.d.sync += attr.eq(now)
        m.d.comb += [
            alu.attr.eq(self.attr),
            alu.load.eq(self.load),
            alu.operand.eq(self.operand),
            alu.accumulator.eq(alu.result),
            rounder.attr.eq(attr),
            rounder.accumulator.eq(alu.result),
            self.o.eq(rounder.o),
        ]
        return m


@dataclass(frozen=True)
class Flit:
    """What goes in with one flit."""

    row: Reduction
    load: bool
    operand: int


class Player:
    """An :class:`AluCheck` and what its results should be.

    Parameters
    ----------
    build : of a check's player
    options : as for :class:`ReductionAlu`
    """

    def __init__(self, build: Callable[[Component], Any], **options):
        check = AluCheck(**options)
        self.player = build(check)
        self.latency, self.dtypes = check.alu.latency, check.alu.dtypes
        self.ftz = check.alu.arithmetic.ftz

    def play(self, flits: list[Flit]) -> list[int]:
        """The rounded result of each flit."""
        records = [(numerics.attr_bits(*flit.row), flit.load, 0, flit.operand) for flit in flits]
        return self.player.play(records, self.latency)

    def check(self, flits: list[Flit], seed: object = None) -> None:
        """Each result is the model's, so it came after just :attr:`latency` cycles."""
        sums: list[list[int]] = [[] for _ in range(self.latency)]
        wrong = []
        for cycle, (flit, got) in enumerate(zip(flits, self.play(flits), strict=True)):
            dtype, op, acc = flit.row
            row = numerics.reduction(dtype, op, acc, ftz=self.ftz)
            loaded = list(map(row.load, numerics.elements(flit.operand, dtype)))
            before = sums[cycle % self.latency]
            now = loaded if flit.load else list(map(row.combine, before, loaded))
            sums[cycle % self.latency] = now
            wanted = numerics.flit(list(map(row.result, now)), dtype)
            if got != wanted:
                wrong.append(
                    f"cycle {cycle}, {dtype.name} {op.name} acc {acc} load {flit.load}: "
                    f"{flit.operand:032x} gave {got:032x}, not {wanted:032x}"
                )
        assert not wrong, "\n".join([f"seed {seed}, {len(wrong)} wrong", *wrong[:5]])


@pytest.fixture(scope="module")
def player(flit_player) -> Callable[..., Player]:
    """Builds a player; the same one for the same arguments."""
    built: dict[str, Player] = {}

    def build(**options) -> Player:
        name = repr(sorted(options.items()))
        if name not in built:
            built[name] = Player(flit_player, **options)
        return built[name]

    return build


def operand(rng: random.Random, dtype: Dtype) -> int:
    """A flit; in some, numbers that lie near each other, or patterns near a limit."""
    bits = numerics.FORMATS[dtype].bits
    kind = rng.random()
    near = rng.getrandbits(bits)
    limits = [edge + step for edge in (0, 1 << bits - 1) for step in (0, 1, 2, 7, 8)]
    limits += [near & ~((1 << bits // 2) - 1), ~near & (1 << bits // 2) - 1]
    limits += [(0xFFFF << 16 >> cut) % (1 << bits) << max(bits - 16, 0) for cut in range(1, 12)]
    if kind < 0.4:
        return rng.getrandbits(FLIT_BITS)
    choose: Callable[[], int]
    if kind < 0.7:
        choose = partial(_near, rng, near, bits)
    else:
        choose = partial(rng.choice, limits)
    return numerics.flit([choose() % (1 << bits) for _ in range(FLIT_BITS // bits)], dtype)


def _near(rng: random.Random, number: int, bits: int) -> int:
    return number ^ rng.getrandbits(rng.randrange(1, bits)) ^ rng.getrandbits(1) << bits - 1


def traffic(rng: random.Random, rows: Iterable[Reduction], latency: int, cycles: int) -> list[Flit]:
    """Reductions of one to six flits, as many at once as the ALU has stages, rows at random."""
    choices = list(rows)
    flits: list[Flit] = []
    for cycle in range(cycles):
        before = flits[cycle - latency] if cycle >= latency else None
        load = before is None or rng.random() < 0.25
        row = rng.choice(choices) if load or before is None else before.row
        flits.append(Flit(row, load, operand(rng, row.dtype)))
    return flits


@pytest.mark.parametrize("seed", range(3))
def test_every_row_in_every_cycle(player, seed):
    """Type, operation and accumulation change with every flit; all rows but f64's."""
    rng = random.Random(seed)
    alu = player()
    flits = traffic(rng, supported(DEFAULT_DTYPES), alu.latency, 3000)
    assert {flit.row for flit in flits} == set(supported(DEFAULT_DTYPES))
    alu.check(flits, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("row", supported(DEFAULT_DTYPES), ids=lambda row: f"{row}")
def test_every_row_at_length(player, row):
    """Each row by itself, ten thousand flits."""
    alu = player()
    alu.check(traffic(random.Random(9), [row], alu.latency, 10_000), row)


BUILDS = {
    "bf16": {"dtypes": (Dtype.BF16,)},
    "f32": {"dtypes": (Dtype.F32,)},
    "ftz": {"dtypes": (Dtype.F16, Dtype.BF16, Dtype.F32), "ftz": True},
    "f64": {"dtypes": (Dtype.F32, Dtype.F64)},
    "all_f64": {"dtypes": ALL_DTYPES, "depth": 2},
    "fp8": {"dtypes": (Dtype.E4M3, Dtype.E5M2), "depth": 1},
    "e5m2": {"dtypes": (Dtype.E5M2,)},
    "integers": {"dtypes": (Dtype.U32, Dtype.S32, Dtype.U64, Dtype.S64)},
    "bits": {"dtypes": (Dtype.B32, Dtype.B64)},
    "s64": {"dtypes": (Dtype.S64,)},
    **{f"depth{d}": {"dtypes": (Dtype.U32, Dtype.BF16), "depth": d}
       for d in range(1, MAX_DEPTH + 1)},
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("name", BUILDS)
def test_builds(player, name):
    """Builds of fewer types, f64, flushed subnormals, every depth."""
    alu = player(**BUILDS[name])
    assert alu.latency == BUILDS[name].get("depth", DEFAULT_DEPTH)
    flits = traffic(random.Random(name), supported(alu.dtypes), alu.latency, 800)
    assert {flit.row for flit in flits} == set(supported(alu.dtypes))
    alu.check(flits, name)


def modules(**options) -> Counter[str]:
    """How often each module occurs below an ALU."""
    text, _ = elaborate(ReductionAlu(**options), "top")
    found = count_instances(text, "top")
    return Counter({name: n for name, n in found.items() if not name.startswith("top")})


def test_a_bf16_build_has_nothing_else():
    """Eight adders and a unit for min and max: no integers, no converter, no fp8 lane."""
    found = modules(dtypes=(Dtype.BF16,), depth=3)
    assert sorted(found.values()) == [1, 8]
    assert all("bf16" in name for name in found)
    assert not [name for name in found for other in ("f16", "e4m3", "u32")
                if other in name.replace("bf16", "")]  # fmt: skip


def test_only_what_the_types_need():
    """Adders by what is added, one flit-wide unit for all that is compared, one for integers."""

    def count(dtypes, kind):
        return sum(n for name, n in modules(dtypes=dtypes).items() if name.startswith(kind))

    assert count((Dtype.F32,), "adder") == 4
    assert count((Dtype.E5M2,), "adder") == 16
    assert count((Dtype.F64,), "adder") == 2
    assert count((Dtype.B32,), "adder") == count((Dtype.F32,), "min_max") == 0
    assert count((Dtype.B32,), "integer") == count((Dtype.U64,), "min_max") == 1
    assert count((Dtype.F16,), "convert") == 8
    assert count((Dtype.E4M3, Dtype.E5M2), "convert") == 16


def gates(folder: Path, **options) -> int:
    """Two-input gates and flip-flops, before any mapping to a library."""
    text, _ = elaborate(ReductionAlu(**options), "alu")
    (folder / "alu.il").write_text(text)
    run_yosys(
        "read_rtlil alu.il; hierarchy -top alu; proc; flatten; opt; wreduce; alumacc; opt; "
        "techmap; opt; tee -q -o alu.json stat -json",
        folder=folder,
    )
    return json.loads((folder / "alu.json").read_text())["design"]["num_cells"]


def test_bf16_pays_for_bf16(tmp_path):
    """Half of all types at most: what is left are eight adders of f32's width."""
    assert gates(tmp_path, dtypes=(Dtype.BF16,)) < gates(tmp_path) / 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtypes": ()},
        {"dtypes": (Dtype.BF16, Dtype.F16)},
        {"dtypes": (Dtype.F16, Dtype.F16)},
        {"depth": 0},
        {"depth": MAX_DEPTH + 1},
    ],
)
def test_types_and_depth_are_checked(wrong):
    with pytest.raises(ValueError, match=r"(Types|Depth) must be"):
        ReductionAlu(**wrong)


class TwoHistories(Elaboratable):
    """Two ALUs that see anything, but the same in some cycles: those give the same results.

    Parameters
    ----------
    dtypes, depth : of the ALUs
    bits : of the result that are compared
    """

    def __init__(self, *, dtypes: tuple[Dtype, ...], depth: int, bits: int):
        self.one, self.two = (ReductionAlu(dtypes=dtypes, depth=depth) for _ in range(2))
        self.bits = bits
        self.differs = Signal()
        self.ports = [self.differs]

    def elaborate(self, platform):
        m = Module()
        m.submodules.one, m.submodules.two = self.one, self.two
        for name in ("attr", "load", "operand", "accumulator"):
            one, two = (Value.cast(getattr(alu, name)) for alu in (self.one, self.two))
            both, other = (Signal(len(one), name=f"{name}_{kind}") for kind in ("both", "other"))
            self.ports += [both, other]
            m.d.comb += [one.eq(both), two.eq(Mux(self.differs, other, both))]
        differs = self.differs
        for stage in range(self.one.latency):
            later = Signal(init=1, name=f"differs{stage + 1}")
            m.d.sync += later.eq(differs)
            differs = later
        results = [alu.result[: self.bits] for alu in (self.one, self.two)]
        m.d.comb += Assert(differs | (results[0] == results[1]))  # pyright: ignore[reportCallIssue]
        return m


@pytest.mark.parametrize(("dtypes", "bits"), [((Dtype.B32,), FLIT_BITS), ((Dtype.E5M2,), 16)])
def test_latency_is_constant(dtypes, bits):
    """Results depend on the inputs ``latency`` cycles ago alone, whatever came before or after."""
    harness = TwoHistories(dtypes=dtypes, depth=2, bits=bits)
    prove(harness, harness.ports, name=f"alu_{dtypes[0].name.lower()}", depth=4, induction=True)
