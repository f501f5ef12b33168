"""The adders: every pair of fp8, directed pairs of the rest, the traps by name, proofs."""

import subprocess
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from amaranth import Const, Module, Signal
from amaranth.hdl import Assert, Elaboratable
from amaranth.lib.wiring import Component, In, Out
from amaranth.sim import Simulator

from dysharp.hw.alu.adder import FloatAdder
from dysharp.hw.alu.converter import FloatConverter
from dysharp.hw.alu.float_format import BF16, E4M3, E5M2, F16, F32, F32_FTZ, F64, FloatFormat
from dysharp.hw.generate import elaborate, run_yosys
from dysharp.sim_tb.formal import prove
from dysharp.sim_tb.gates import Gates
from dysharp.sim_tb.tools import find_simulator

FORMATS = (F32, F32_FTZ, F16, BF16, E4M3, E5M2)
ALL = (*FORMATS, F64)
SEED = 3

FLOAT = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f32_ftz": np.float32,
    "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
RECORD = np.dtype([("a", "<u8"), ("b", "<u8"), ("format", "<u4"), ("load", "<u4")])


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """Records through an adder; each adder is verilated once."""

    @cache
    def program(adder: FloatAdder) -> Path:
        folder = tmp_path_factory.mktemp(adder.module_name)
        text, _ = elaborate(adder, "adder")
        (folder / "adder.il").write_text(text)
        run_yosys(
            "read_rtlil adder.il; hierarchy -auto-top; flatten; proc; opt; rename -top adder; "
            "write_verilog adder.v",
            folder=folder,
        )
        build = f"-DDEPTH={adder.depth} -DFORMATS={len(adder.formats)} -DLOADS={int(adder.loads)}"
        command = ["verilator", "--cc", "--exe", "--build", "-Wno-fatal", "--top-module", "adder"]
        command += ["-CFLAGS", f"-O1 {build}", "adder.v", "-o", "player"]
        done = subprocess.run(
            [*command, str(Path(__file__).with_name("adder_player.cpp"))],
            cwd=folder,
            env=find_simulator().environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return folder / "obj_dir" / "player"

    def run(adder: FloatAdder, records: np.ndarray) -> np.ndarray:
        done = subprocess.run([program(adder)], input=records.tobytes(), capture_output=True)
        return np.frombuffer(done.stdout, "<u8")

    return run


def expected(form: FloatFormat, records: np.ndarray) -> np.ndarray:
    """By numpy's and ml_dtypes' sums; saturation, flushing and the canonical NaN applied here."""
    uint = np.dtype(f"u{form.bits // 8}")
    value = np.dtype(FLOAT[form.name])
    sign = uint.type(1 << form.bits - 1)
    magnitude = uint.type((1 << form.bits - 1) - 1)

    def flush(bits):
        tiny = (bits & magnitude) < (1 << form.mantissa_bits)
        return np.where(tiny, bits & sign, bits) if form.ftz else bits

    a, b = (flush(records[key].astype(uint)) for key in "ab")
    with np.errstate(all="ignore"):
        if form.saturates:
            exact = a.view(value).astype(np.float32) + b.view(value).astype(np.float32)
            largest = np.array(form.largest, uint).view(value).astype(np.float32)
            total = np.clip(exact, -largest, largest).astype(value)
        else:
            total = a.view(value) + b.view(value)
        bits = np.where(np.isnan(total), uint.type(form.nan), flush(total.view(uint)))
        loaded = np.where(np.isnan(b.view(value)), uint.type(form.nan), b)
    return np.where(records["load"] == 1, loaded, bits).astype(np.uint64)


def directed(form: FloatFormat, count: int, rng: np.random.Generator) -> np.ndarray:
    """Pairs with every gap of exponents, cancellation, subnormals, the largest numbers, NaNs."""
    places, top = form.mantissa_bits, form.max_exponent

    def mantissas():
        """Few ones at either end make ties, carries and long runs; one in six is anything."""
        ones = (1 << places) - 1
        one = np.uint64(1) << rng.integers(0, places, count, dtype=np.uint64)
        choices = [one * np.uint64(0), one, np.uint64(ones) & ~(one - np.uint64(1)),
                   one - np.uint64(1), np.uint64(ones) ^ one,
                   rng.integers(0, ones, count, dtype=np.uint64, endpoint=True)]  # fmt: skip
        return np.choose(rng.integers(0, 6, count), choices)

    kind = rng.integers(0, 5, count)
    small, large = rng.integers(0, 4, count), top - rng.integers(0, 3, count)
    first = np.select([kind == 1, kind == 2], [small, large], rng.integers(0, top + 1, count))
    near = np.clip(first + rng.integers(-places - 5, places + 6, count), 0, top)
    second = np.where(kind == 3, rng.integers(0, top + 1, count), near)
    records = np.zeros(count, RECORD)
    for key, exponent in (("a", first), ("b", second)):
        signs = rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(form.bits - 1)
        records[key] = signs | exponent.astype(np.uint64) << np.uint64(places) | mantissas()
    close = (records["a"] ^ np.uint64(1 << form.bits - 1)) + rng.integers(
        0, 9, count, dtype=np.uint64
    )
    mask = np.uint64((1 << form.bits) - 1)
    records["b"] = np.where(kind == 4, close - np.uint64(4), records["b"]) & mask
    return records


def every_pair(form: FloatFormat) -> np.ndarray:
    records = np.zeros(1 << 2 * form.bits, RECORD)
    numbers = np.arange(1 << form.bits, dtype=np.uint64)
    records["a"], records["b"] = np.repeat(numbers, len(numbers)), np.tile(numbers, len(numbers))
    return records


def compare(form: FloatFormat, records: np.ndarray, sums: np.ndarray) -> None:
    assert len(records) == len(sums)
    wanted = expected(form, records)
    wrong = np.flatnonzero(wanted != sums)
    shown = [
        f"{form.name} load {records['load'][k]}: {records['a'][k]:#x} + {records['b'][k]:#x} = "
        f"{sums[k]:#x}, not {wanted[k]:#x}"
        for k in wrong[:8]
    ]
    assert not len(wrong), f"{len(wrong)} of {len(sums)} wrong, seed {SEED}\n" + "\n".join(shown)


@pytest.mark.parametrize("form", [E4M3, E5M2], ids=lambda form: form.name)
def test_every_pair_of_fp8(play, form):
    records = every_pair(form)
    compare(form, records, play(FloatAdder(formats=(form,)), records))


@pytest.mark.nightly
@pytest.mark.parametrize("form", [BF16, F16, F32, F64], ids=lambda form: form.name)
def test_directed_pairs(play, form):
    records = directed(form, 200_000, np.random.default_rng(SEED))
    compare(form, records, play(FloatAdder(formats=(form,)), records))


class Held(Component):
    """Sums by an adder whose formats stand in wider ones, as the ALU has it.

    Parameters
    ----------
    own : format of operands and sum, which the adder rounds to
    formats : of the adder
    """

    o: Signal
    """Out."""
    stays: Signal
    """Out, the sum is a number of the type before any conversion."""

    def __init__(self, own: FloatFormat, formats: tuple[FloatFormat, ...]):
        self.own, self.formats = own, formats
        super().__init__(
            {"a": In(own.bits), "b": In(own.bits), "o": Out(own.bits), "stays": Out(1)}
        )

    def elaborate(self, platform):
        m = Module()
        form = next(form for form in self.formats if form.name.startswith(f"{self.own.name}_in"))
        m.submodules.adder = adder = FloatAdder(formats=self.formats, loads=True)
        for name in "ab":
            m.submodules[name] = wider = FloatConverter(source=self.own, target=form.container)
            m.d.comb += [wider.i.eq(getattr(self, name)), getattr(adder, name).eq(wider.o)]
        m.submodules.back = back = FloatConverter(source=form.container, target=self.own)
        m.submodules.again = again = FloatConverter(source=self.own, target=form.container)
        m.d.comb += [
            adder.format.eq(self.formats.index(form)),
            back.i.eq(adder.o),
            again.i.eq(back.o),
            self.o.eq(back.o),
            self.stays.eq(again.o == adder.o),
        ]
        return m


@pytest.mark.parametrize("own", [BF16, F16, E4M3, E5M2], ids=lambda form: form.name)
def test_sums_that_stand_in_a_wider_format(own):
    """Rounded to the type itself, and already numbers of it: accumulation 0 of the ALU."""
    held = (F16.held_in(F32), F32, BF16.held_in(F32), E4M3.held_in(F16), F16, E5M2.held_in(F16))
    records = (
        every_pair(own) if own.bits == 8 else directed(own, 1 << 20, np.random.default_rng(SEED))
    )
    sums = Gates(Held(own, held))(a=records["a"], b=records["b"])
    compare(own, records, sums["o"])
    assert sums["stays"].all()


@pytest.mark.parametrize(
    "depth", [3, *(pytest.param(d, marks=pytest.mark.nightly) for d in (0, 5))]
)
def test_formats_and_loads_change_every_cycle(play, depth):
    """Also with anything in the bits above a narrow number."""
    adder = FloatAdder(formats=FORMATS, depth=depth, loads=True)
    rng = np.random.default_rng(SEED)
    parts = [directed(form, 20_000, rng) for form in FORMATS]
    for index, part in enumerate(parts):
        part["format"] = index
    records = rng.permutation(np.concatenate(parts))
    records["load"] = rng.integers(0, 2, len(records))
    widths = np.array([form.bits for form in FORMATS], np.uint64)[records["format"]]
    dirty = records.copy()
    for key in "ab":
        above = rng.integers(0, 1 << 32, len(records), dtype=np.uint64) >> widths << widths
        dirty[key] |= above
    sums = play(adder, dirty)
    assert len(sums) == len(records)
    for index, form in enumerate(FORMATS):
        chosen = records["format"] == index
        compare(form, records[chosen], sums[chosen])


def add(form: FloatFormat, *pairs: tuple[int, int]) -> list[int]:
    """Sums by Amaranth's simulator."""
    adder = FloatAdder(formats=(form,))
    simulator, sums = Simulator(adder), []

    async def process(ctx):
        for a, b in pairs:
            ctx.set(adder.a, a)
            ctx.set(adder.b, b)
            await ctx.delay(1e-9)
            sums.append(ctx.get(adder.o))

    simulator.add_testbench(process)
    simulator.run()
    return sums


def power(form: FloatFormat, exponent: int) -> int:
    return exponent << form.mantissa_bits


each_format = pytest.mark.parametrize("form", ALL, ids=lambda form: form.name)


@each_format
def test_one_and_every_smaller_power(form):
    """1.0 + 2^-n down to the smallest normal: once 1.0 + 2^-126 became 0x3f81 elsewhere."""
    bias = form.max_exponent >> 1
    one, places = power(form, bias), form.mantissa_bits
    sums = add(form, *[(one, power(form, bias - n)) for n in range(1, bias)])
    assert sums[:places] == [one + (1 << places - n) for n in range(1, places + 1)][: bias - 1]
    assert all(total == one for total in sums[places:])


@each_format
def test_ties_go_to_even(form):
    """Half of the last place: down from an even number, up from an odd one."""
    bias, places = form.max_exponent >> 1, form.mantissa_bits
    one = power(form, bias)
    half = power(form, bias - places - 1) if places + 1 < bias else 1 << bias - 2
    assert add(form, (one, half), (one + 1, half)) == [one, one + 2]


@each_format
def test_subnormals_round_up_into_the_normals(form):
    largest, smallest = power(form, 1) - 1, 1
    assert add(form, (largest, smallest)) == [0 if form.ftz else power(form, 1)]


@each_format
def test_signs_of_zero(form):
    plus, minus, number = 0, 1 << form.bits - 1, power(form, 2)
    pairs = [(plus, plus), (plus, minus), (minus, plus), (minus, minus), (number, number | minus)]
    assert add(form, *pairs) == [plus, plus, plus, minus, plus]


@each_format
def test_nan_on_either_side(form):
    """Quiet, signalling, of either sign: the canonical one comes out."""
    if form.infinity is None:
        nans = [form.nan, form.nan | 1 << form.bits - 1]
    else:
        signalling, quiet = form.infinity + 1, form.infinity | 1 << form.mantissa_bits - 1
        nans = [bits | sign << form.bits - 1 for bits in (signalling, quiet) for sign in (0, 1)]
    pairs = [pair for nan in nans for pair in ((nan, power(form, 2)), (power(form, 2), nan))]
    assert add(form, *pairs, (nans[0], nans[-1])) == [form.nan] * (len(pairs) + 1)


@each_format
def test_beyond_the_largest_number(form):
    minus = 1 << form.bits - 1
    largest, half = form.largest, form.largest - (1 << form.mantissa_bits)
    sums = add(form, (largest, largest), (largest | minus, largest | minus), (half, half))
    assert sums == [form.overflow, form.overflow | minus, largest]
    if form.infinity is not None:
        infinite = form.infinity
        pairs = [(infinite, infinite), (infinite, 1 | minus), (infinite, infinite | minus)]
        assert add(form, *pairs) == [form.overflow, form.overflow, form.nan]


def test_bf16_infinity_is_not_nan():
    """7c40 + 7f7f is 7f80; it was a NaN elsewhere."""
    assert add(BF16, (0x7C40, 0x7F7F)) == [0x7F80]


class Commutes(Elaboratable):
    """``a + b`` and ``b + a`` are the same bits."""

    def __init__(self, form: FloatFormat):
        self.form = form
        self.ports = [Signal(form.bits, name="a"), Signal(form.bits, name="b")]

    def elaborate(self, platform):
        m = Module()
        one, other = FloatAdder(formats=(self.form,)), FloatAdder(formats=(self.form,))
        m.submodules.one, m.submodules.other = one, other
        a, b = self.ports
        m.d.comb += [one.a.eq(a), one.b.eq(b), other.a.eq(b), other.b.eq(a)]
        m.d.comb += Assert(one.o == other.o)  # pyright: ignore[reportCallIssue]
        return m


class SameLater(Elaboratable):
    """A pipelined adder is the combinational one, ``depth`` cycles later, whatever came before."""

    def __init__(self, form: FloatFormat, depth: int):
        self.piped = FloatAdder(formats=(form,), depth=depth, loads=True)
        self.plain = FloatAdder(formats=(form,), loads=True)
        self.ports = [self.piped.a, self.piped.b, self.piped.load]

    def elaborate(self, platform):
        m = Module()
        m.submodules.piped, m.submodules.plain = self.piped, self.plain
        later, filled = self.plain.o, Const(1, 1)
        for stage in range(self.piped.depth):
            now, later = later, Signal.like(self.plain.o, name=f"sum{stage}")
            was, filled = filled, Signal(name=f"filled{stage}")
            m.d.sync += [later.eq(now), filled.eq(was)]
        m.d.comb += [
            self.plain.a.eq(self.piped.a),
            self.plain.b.eq(self.piped.b),
            self.plain.load.eq(self.piped.load),
            Assert(~filled | (self.piped.o == later)),  # pyright: ignore[reportCallIssue]
        ]
        return m


@pytest.mark.parametrize("form", [E4M3, E5M2], ids=lambda form: form.name)
def test_addition_commutes(form):
    harness = Commutes(form)
    prove(harness, harness.ports, name=f"adder_commutes_{form.name}", depth=1)


@pytest.mark.parametrize("depth", range(1, 6))
def test_depth_changes_nothing_but_the_latency(depth):
    """Registers hold ``depth`` cycles and no more, so as many steps from reset are all there is."""
    harness = SameLater(E5M2, depth)
    assert harness.piped.latency == depth
    prove(harness, harness.ports, name=f"adder_depth_{depth}", depth=depth + 1)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match=r"Formats must be one or more, each once, not \[\]"):
        FloatAdder(formats=())
    with pytest.raises(ValueError, match="each once, not .'f16', 'f16'."):
        FloatAdder(formats=(F16, F16))
    with pytest.raises(ValueError, match="Depth must be 0 to 5, not 6"):
        FloatAdder(formats=(F16,), depth=6)


def test_formats_are_checked():
    with pytest.raises(ValueError, match="must be at least 2 and 1, not 1 and 3"):
        FloatFormat("x", exponent_bits=1, mantissa_bits=3, nan=0xF)
    with pytest.raises(ValueError, match="Canonical NaN must be a NaN of the format, not 0x78"):
        FloatFormat("x", exponent_bits=4, mantissa_bits=3, nan=0x78)
    with pytest.raises(ValueError, match="must saturate if it has no infinities"):
        FloatFormat("x", exponent_bits=4, mantissa_bits=3, nan=0x7F, infinities=False)


def test_names_tell_every_parameter():
    adders = [
        FloatAdder(formats=formats, depth=depth, loads=loads)
        for formats in ((F16,), (F16, E4M3), (E4M3, F16))
        for depth in (0, 2)
        for loads in (False, True)
    ]
    assert len({adder.module_name for adder in adders}) == len(adders)
