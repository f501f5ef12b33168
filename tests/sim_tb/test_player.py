"""The fast player: its golden model against the scalar ones, and whether each check bites."""

import re
from dataclasses import replace

import numpy as np
import pytest

from dysharp.cli import main
from dysharp.hw.config import Config, load_preset
from dysharp.hw.errors import UserError
from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.model.trace import make_trace
from dysharp.sim_tb.mutation import Mutant, run_mutant
from dysharp.sim_tb.parser.env import Frame, parse
from dysharp.sim_tb.player import play as play_module
from dysharp.sim_tb.player.damaged import frames_of, parse_frames
from dysharp.sim_tb.player.intact import request_heads
from dysharp.sim_tb.player.judge import judge
from dysharp.sim_tb.player.part import Is
from dysharp.sim_tb.player.play import play
from dysharp.sim_tb.player.requests import Played, Requests
from dysharp.sim_tb.player.script import Op, Script, write_script
from dysharp.sim_tb.player.soak import Soak, make_soak
from dysharp.sim_tb.player.sums import check_sums
from dysharp.sim_tb.player.trace import arrival_log, combined, from_trace, trace_objects
from dysharp.sim_tb.route.model import Fabric, ObjectSpec


@pytest.fixture(scope="module")
def config() -> Config:
    return load_preset("tiny")


def word(flit: np.ndarray) -> int:
    return int(flit[0]) | int(flit[1]) << 64


def run(config: Config, soak: Soak, **options) -> Played:
    return play(config, soak.requests, objects=soak.objects, changes=soak.changes, **options)


@pytest.mark.parametrize("links", [1, 2])
@pytest.mark.parametrize("seed", [1, 2])
def test_judge_is_the_scalar_model(links, seed):
    """Status, ports, entries and order of every replica, for requests of every kind."""
    config = load_preset("tiny", links=links)
    soak = make_soak(config, 400, seed=seed, malformed=0.3, changes=0)
    requests = replace(soak.requests, flip=None, cut=None)
    fabric = Fabric.of(config.to_dict())
    fabric.objects = list(soak.objects)
    verdict = judge(fabric, requests)
    head_at, heads = request_heads(requests)
    for row in range(len(requests)):
        flits = [word(flit) for flit in heads[head_at[row] : head_at[row + 1]]]
        stored = int(requests.flits[row]) if requests.sends_data[row] else 0
        packet = Packet.decode(flits + [0] * stored)
        decision = fabric.decide(packet, int(requests.port[row]) // links)
        assert verdict.status[row] == decision.status.value, requests.describe(row)
        replicas = range(verdict.replica_at[row], verdict.replica_at[row + 1])
        assert [verdict.port[k] for k in replicas] == sorted(decision.ports)
        if decision.session:
            assert verdict.count[row] == decision.session["count"]
        if decision.session.get("flits"):
            assert verdict.attr[row] == decision.session["attr"]
        for replica in replicas if packet.targets else ():
            gpu = verdict.port[replica] // links
            wanted = [t for t in packet.targets if t >> decision.split == gpu]
            assert requests.targets[verdict.order[verdict.place == replica]].tolist() == wanted


def test_parse_is_the_scalar_model(config):
    """What the parser hands on, drops and answers, for frames damaged in every way."""
    soak = make_soak(config, 1500, seed=3, malformed=1.0, changes=0)
    requests = soak.requests.take(np.flatnonzero(soak.requests.damaged))
    frames = frames_of(requests)
    parsed = parse_frames(frames, chunk_bytes=config.chunk_bytes)
    for row in range(len(requests)):
        length = int(frames.length[row])
        flits = [word(flit) for flit in frames.flits[row, :length]]
        last = {length - 1} if frames.marked[row] else set()
        wanted = parse(Frame(flits, last), responses=False, chunk_bytes=config.chunk_bytes)
        assert parsed.passes[row] == bool(wanted.flits)
        assert parsed.dropped[row] == wanted.dropped
        assert parsed.error[row] == (wanted.error is not None)
        if wanted.flits:
            assert parsed.fields["len"][row] + 1 == len(wanted.flits)
            assert parsed.poison[row] == bool(wanted.flits[-1][-1])
            handed = [word(flit) for flit in frames.flits[row, 1 : len(wanted.flits)]]
            assert handed == [flit for flit, *_ in wanted.flits[1:]]
        elif wanted.error:
            for name in ("tx", "maddr", "stage", "count"):
                assert parsed.fields[name][row] == wanted.error[name]
    assert {True, False} == set(parsed.passes.tolist()) == set(parsed.error.tolist())


WRONG = {
    "port": ({"port": [0, 0]}, "Array stream must be of 2 rows"),
    "reserved": ({"cmd": [9]}, "cmd must be a request's"),
    "response": ({"cmd": [Cmd.MM_ACK.value]}, "cmd must be a request's"),
    "unaligned": ({"addr": [(1 << 44) + 8]}, "addr must be a multiple of 16"),
    "pool": ({"payload": [1]}, "payload must point into the 8 flits, not 1"),
    "list": ({"target_offsets": [0, 2]}, "target_offsets must rise from 0 to 1"),
    "tag": ({"flip": [[1 << 50, 0]]}, "flip must leave the tag alone"),
    "answers": ({"answers": [0]}, "Answers must be given with answer_offsets"),
}


@pytest.mark.parametrize("name", WRONG)
def test_requests_are_checked(name):
    changes, said = WRONG[name]
    right = {
        "port": [0],
        "stream": [0],
        "cmd": [Cmd.MM_ST.value],
        "addr": [1 << 44],
        "flits": [8],
        "pool": np.zeros((8, 2)),
        "target_offsets": [0, 1],
        "targets": [3],
    }
    Requests(**right)
    with pytest.raises(UserError, match=said):
        Requests(**right | changes)


def test_rows_are_taken_and_joined(config):
    """Any rows in any order, and back."""
    requests = make_soak(config, 50).requests
    halves = [requests.take(np.arange(25)), requests.take(np.arange(25, 50))]
    whole = Requests.concatenate(halves)
    assert [whole.describe(row) for row in range(50)] == [
        requests.describe(row) for row in range(50)
    ]
    stored = np.flatnonzero(requests.sends_data)
    assert (whole.pool[whole.payload[stored]] == requests.pool[requests.payload[stored]]).all()


@pytest.mark.parametrize(
    "options",
    [
        {"stalls": 0.2, "latency": (0, 60), "faults": 0.05},
        {"window": 2, "loads": 4, "stores": 6, "latency": 20},
        {"stalls": 0.1, "resets": (700, 2000)},
    ],
    ids=["stalls", "windows", "resets"],
)
def test_soak(config, options):
    """Requests of every kind, 20 % of them wrong, while an object changes twice."""
    played = run(config, make_soak(config, 2500), **options)
    assert played.passed, "\n".join(played.mismatches)
    assert played.checked > 4000


def test_soak_verb(capsys):
    """One line of figures, and the line that repeats the run."""
    assert main(["soak", "--packets", "300", "--seed", "5", "--resets", "1"]) == 0
    first, again = capsys.readouterr().out.splitlines()
    assert first.startswith("tiny: 300 requests, ") and " 0 wrong" in first
    assert again.split("again: ")[1].startswith("dysharp soak --preset tiny --packets 300 --seed 5")


@pytest.mark.nightly
@pytest.mark.parametrize("links", [1, 2])
@pytest.mark.parametrize("depth", [32, 40])
def test_long_soak(depth, links):
    """10^6 requests with stalls, resets and object changes, at minimum and default depths."""
    config = load_preset("tiny", links=links, request_depth=depth, response_depth=depth)
    soak = make_soak(config, 1_000_000, changes=8)
    played = run(config, soak, stalls=0.1, latency=(0, 60), faults=0.02, resets=(100_000, 500_000))
    assert played.passed, "\n".join(played.mismatches)


def test_runs_repeat(config):
    """The same seed gives the same cycles; another one does not."""
    soak = make_soak(config, 300)
    runs = [run(config, soak, stalls=0.3, seed=seed) for seed in (1, 1, 2)]
    assert (runs[0].sent == runs[1].sent).all() and (runs[0].bins == runs[1].bins).all()
    assert (runs[0].sent != runs[2].sent).any()


def test_permutation_fills_the_links(config):
    """Each port writes to one other without a pause: one flit a cycle, and the bins say so."""
    rows, ports = 200, config.ports
    port = np.repeat(np.arange(ports), rows)
    number = np.arange(len(port), dtype=np.uint64)
    goal = ((port + 1) % ports).astype(np.uint64)
    requests = Requests(
        port=port,
        stream=np.zeros(len(port)),
        cmd=np.full(len(port), Cmd.WRP.value),
        addr=(goal << np.uint64(config.gpu_address_bit)) + number * np.uint64(128),
        flits=np.full(len(port), 8),
        pool=np.arange(16).reshape(8, 2),
    )
    played = play(config, requests, bin_cycles=100)
    assert played.passed, played.mismatches
    assert (played.flits == 9 * rows).all() and (played.utilisation() == 1).all()
    assert (played.bins.sum(axis=0) == played.flits).all()


# Whether checks bite: the switch is right, so the expectation is made wrong.


def small(config: Config) -> tuple[Requests, list[ObjectSpec]]:
    """Stores, loads and reads of each port, to all GPUs, and one that is refused."""
    rows = 12
    port = np.repeat(np.arange(config.ports), rows)
    kind = np.tile(np.arange(rows) % 3, config.ports)
    cmd = np.array([Cmd.MM_ST.value, Cmd.MM_LDR.value, Cmd.RD.value])[kind]
    chunk = np.arange(len(port)) * 128
    count = np.where(kind < 2, config.gpus, 0)
    targets = np.tile(np.arange(config.gpus) * 4, int((kind < 2).sum()))
    targets[-1] = 3  # no such slot
    rng = np.random.default_rng(1)
    requests = Requests(
        port=port,
        stream=np.zeros(len(port)),
        cmd=cmd,
        addr=np.where(kind < 2, 1 << 44, 1 << config.gpu_address_bit) + chunk,
        flits=np.full(len(port), 8),
        pool=rng.integers(0, 1 << 64, (64, 2), np.uint64),
        target_offsets=np.concatenate([[0], np.cumsum(count)]),
        targets=targets,
        stage=kind == 1,
        payload=kind * 8,
    )
    members = set(range(config.gpus))
    return requests, [ObjectSpec(1 << 44, 1 << 20, members, members, 2, 3)]


def lost(script: Script, fields: dict) -> None:
    """The last row, a read, has a second replica, which never comes."""
    fields["replica_at"] = fields["replica_at"].copy()
    fields["replica_at"][-1] += 1
    fields["replica_port"] = np.append(fields["replica_port"], np.uint16(1))
    fields["replica_row"] = np.append(fields["replica_row"], fields["replica_row"].max())
    fields["replica_head_at"] = np.append(
        fields["replica_head_at"], fields["replica_head_at"][-1] + 1
    )
    none = np.zeros((1, 2), np.uint64)
    fields["replica_heads"] = np.append(fields["replica_heads"], none, axis=0)
    for name in ("reply_at", "reply_flits", "reply_poison"):
        fields[name] = np.append(fields[name], fields[name][-1:])
    fields["reply"] = np.append(fields["reply"], none, axis=0)
    fields["replica_row"][-1] = len(fields["port"]) - 1


def silent(script: Script, fields: dict) -> None:
    """The requests are never let go."""
    fields["steps"] = fields["steps"][fields["steps"][:, 0] != Op.RELEASE]


def doubled(script: Script, fields: dict) -> None:
    """One replica is not expected: it is as if it had come twice."""
    gone = int(fields["replica_port"][0])
    fields["replica_port"] = fields["replica_port"].copy()
    fields["replica_port"][0] = (gone + 1) % 4


def reordered(script: Script, fields: dict) -> None:
    """The first two stores of a port are expected the other way round, headers and all."""
    fields["replica_heads"] = fields["replica_heads"].copy()
    at = script.part.replica_head_at
    first, second = (at[script.part.replica_at[row]] for row in (0, 3))
    heads = fields["replica_heads"]
    heads[[first, second]] = heads[[second, first]]


def wrong_list(script: Script, fields: dict) -> None:
    """A target of a replica is another."""
    fields["replica_heads"] = fields["replica_heads"].copy()
    fields["replica_heads"][1, 0] ^= np.uint64(1)


def wrong_data(script: Script, fields: dict) -> None:
    """A read's answer is another."""
    fields["answer_at"] = np.where(fields["is"] & Is.ORDERED.value, fields["answer_at"] + 1, -1)


def wrong_status(script: Script, fields: dict) -> None:
    """A refusal says why."""
    assert script.part.status[-2] == Status.UNKNOWN_TARGET.value
    fields["answer"] = fields["answer"].copy()
    fields["answer"][-2, 1] ^= np.uint64(1 << 56)


def wrong_poison(script: Script, fields: dict) -> None:
    """A replica is to be marked."""
    fields["is"] = fields["is"].copy()
    fields["is"][0] |= Is.PASSES_POISON.value


def wrong_counter(script: Script, fields: dict) -> None:
    script.expected["replicas"] += 1


BITES = {
    lost: "before its time; row 47",
    silent: "nothing moved for too long",
    doubled: "nothing explains|is another|nothing moved",
    reordered: "a flit is another.*maddr",
    wrong_list: "a flit is another",
    wrong_data: "tx_rsp: a flit is another",
    wrong_status: "status: expected",
    wrong_poison: "poison mark",
    wrong_counter: "counter replicas must be",
}


@pytest.mark.parametrize("change", BITES, ids=lambda change: change.__name__)
def test_check_bites(config, monkeypatch, change):
    """A switch that did so would be found out; the report names the row, cycle and seed."""
    requests, objects = small(config)

    def wrong(*arguments, **options) -> Script:
        script = write_script(*arguments, **options)
        change(script, script.arrays)
        return script

    monkeypatch.setattr(play_module, "write_script", wrong)
    played = play(config, requests, objects=objects, limit=2000)
    text = "\n".join(played.mismatches)
    assert not played.passed and "seed 1" in text
    assert re.search(BITES[change], text), text


def test_small_passes(config):
    """What the checks that bite change is right as it stands."""
    requests, objects = small(config)
    played = play(config, requests, objects=objects, limit=2000)
    assert played.passed, "\n".join(played.mismatches)
    assert played.counters["error_unknown_target"] == 1


def test_watchdog_outlasts_the_gpus(config):
    """GPUs that take longer than the watchdog waits would be a false alarm."""
    requests, objects = small(config)
    with pytest.raises(UserError, match="Limit must be above the latency"):
        play(config, requests, objects=objects, latency=500, limit=300)


@pytest.mark.parametrize("order", ["arrival", "rank", "exact"])
def test_sums_bite(order):
    """1e8 + 1 - 1e8 + 1 in f32 has another sum in each order, and another sum is refused."""
    config = load_preset("tiny", order=order)
    values = np.array([1e8, 1, -1e8, 1], np.float32)
    pool = np.repeat(values, 4).view(np.uint64).reshape(-1, 2)
    sums = {"arrival": 1.0, "rank": 1.0, "exact": 2.0}
    for source, wanted in (((0, 1, 2, 3), sums[order]), ((0, 2, 1, 3), 2.0)):
        if order == "rank":
            wanted = 1.0
        for value in (0.0, 1.0, 2.0):
            found = list(
                check_sums(
                    config,
                    rows=np.array([0]),
                    attr=np.array([9], np.uint8),
                    replica_at=np.array([0, 4]),
                    replica_port=np.arange(4),
                    source=np.array(source),
                    operands=np.arange(4),
                    pool=pool,
                    result_at=np.array([0, 1]),
                    results=np.full(4, value, np.float32).view(np.uint64).reshape(1, 2),
                )
            )
            assert bool(found) == (value != wanted), (source, value)


@pytest.mark.parametrize("stage", [0, 1, None])
def test_trace(config, stage):
    """The batch of a trace: what Combine brings is what the golden model says, bit for bit."""
    trace = make_trace(config, "deepseek-v3", tokens=3, hidden=200, seed=4)
    requests = from_trace(trace, stage, streams=2)
    played = play(config, requests, objects=trace_objects(trace), loads=16)
    assert played.passed, "\n".join(played.mismatches)
    protocol = trace.protocol()
    flits = sum(protocol.packet_flits(one) for one in ((0, 1) if stage is None else (stage,)))
    assert played.counters["rx_req_flits"] == flits
    if stage != 0:
        golden = protocol.combine(protocol.token_order(), log=arrival_log(requests, played))
        assert (combined(trace, requests, played) == golden.values).all()


MUTANTS = {
    "a reduction's ERR has another status": (
        "switch/error_answer.py",
        "Value.cast(address.attr).eq(Value.cast(answer.status))",
        "Value.cast(address.attr).eq(Value.cast(answer.status) ^ 1)",
    ),
    "the last port gets no replica of a list": (
        "switch/replicate.py",
        "self.push.push.eq(Mux(within, Mux(moves, active, 0), chosen))",
        "self.push.push.eq(Mux(within, Mux(moves, active, 0), chosen)[:-1])",
    ),
    "the second id of a flit is another": (
        "switch/prune.py",
        "output.eq(self.ids[k])",
        "output.eq(self.ids[k] ^ (k == 1))",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", MUTANTS)
def test_broken_switch_is_caught(name):
    """A switch that is wrong in one place fails the test that the right one passes."""
    file, before, after = MUTANTS[name]
    test = "tests/sim_tb/test_player.py::test_small_passes"
    assert "AssertionError" in run_mutant(Mutant(name, file, before, after, test))
