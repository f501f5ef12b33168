"""Playing requests on a switch: the one function that a bench or a test calls."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.config import Config
from dysharp.hw.errors import UserError
from dysharp.hw.packet import Packet, PacketError
from dysharp.hw.register_map import Access
from dysharp.hw.registers import maps_of
from dysharp.sim_tb.player.arrays import read_arrays, write_arrays
from dysharp.sim_tb.player.build import build_player
from dysharp.sim_tb.player.objects import object_writes
from dysharp.sim_tb.player.part import Is
from dysharp.sim_tb.player.requests import Played, Requests
from dysharp.sim_tb.player.script import Op, Script, write_script
from dysharp.sim_tb.player.sums import check_sums
from dysharp.sim_tb.route.model import Fabric, ObjectSpec
from dysharp.sim_tb.scoreboard import difference

__all__ = ["Change", "play"]

_MOST = 10
"""Mismatches after which a run is given up."""
_SETTLE = 200
"""Cycles in which nothing more may come after the last answer, before counters are read."""


@dataclass(frozen=True)
class Change:
    """A change of the object table while other traffic goes on.

    Parameters
    ----------
    after : group of requests that must be done first; none of the others uses what changes
    objects : the table from then on
    group : requests that are held until the change is made
    """

    after: int
    objects: Sequence[ObjectSpec]
    group: int


def play(
    config: Config,
    requests: Requests,
    *,
    objects: Sequence[ObjectSpec] = (),
    window: int = 0,
    loads: int = 0,
    stores: int = 0,
    latency: int | tuple[int, int] = 0,
    stalls: float = 0.0,
    resets: Sequence[int] = (),
    changes: Sequence[Change] = (),
    faults: float = 0.0,
    seed: int = 1,
    limit: int = 20_000,
    bin_cycles: int = 1000,
    program: Path | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Played:
    """Send requests through the switch of a configuration, answer its replicas, check everything.

    Every replica and answer is compared flit by flit with what the model of the switch says, in
    the order of its (source, destination, class); every request must be answered once; counters
    must agree. Sums are checked in the order in which the switch says that it took them.

    Parameters
    ----------
    config : the configuration; its switch is built, or found
    requests : what is sent
    objects : the object table, entry by entry, set up through the runtime over the registers
    window : most unanswered requests of a stream; 0 for any number
    loads, stores : most unanswered loads, and other requests, of a port; 0 for any number. Tags
        bound all of them together to 4096
    latency : cycles that a GPU takes to answer, from the last flit of a replica to the first one of
        its answer; a pair is drawn from, ends included
    stalls : chance that an interface stalls in a cycle
    resets : cycles in which the switch is reset; all requests are then sent anew
    changes : of the object table in mid-run
    faults : chance that a GPU answers ERR where ``requests`` leave answers to the player, and that
        an answer is poisoned
    seed : of everything random
    limit : cycles without any flit after which the run has hung
    bin_cycles : cycles of a bin of :attr:`Played.bins`
    program : a player that was built already, in place of the configuration's
    progress : called now and then with the number of requests that are done

    Returns
    -------
    Played
        :attr:`Played.mismatches` says what was wrong; a hang is a mismatch too.

    Raises
    ------
    UserError
        If a parameter does not fit, or the simulation cannot be built.
    """
    low, high = (latency, latency) if isinstance(latency, int) else latency
    _check(config, requests, window, loads, stores, low, high, stalls, faults, limit, bin_cycles)
    counters = _counters(config)
    fabrics, steps = _program(config, requests, objects, changes)
    steps += [(Op.READ, address, 0) for _, address in counters] + [(Op.END, 0, 0)]
    script = write_script(fabrics, requests, steps=steps, resets=resets, seed=seed, faults=faults)
    options = {
        "window": window,
        "loads": loads,
        "stores": stores,
        "latency_low": low,
        "latency_high": high,
        "stalls": round(stalls * 2**32),
        "seed": seed,
        "limit": limit,
        "bin": bin_cycles,
        "most": _MOST,
    }
    found = _run(program or build_player(config), script, options, progress)
    return _judge(config, requests, script, found, counters, seed, bin_cycles)


def _program(
    config: Config,
    requests: Requests,
    objects: Sequence[ObjectSpec],
    changes: Sequence[Change],
) -> tuple[dict[int, Fabric], list[tuple[int, int, int]]]:
    """The switch as groups find it, and the register program up to the last answer."""
    fabrics: dict[int, Fabric] = {}
    tables = {0: objects} | {change.group: change.objects for change in changes}
    for group, table in tables.items():
        fabrics[group] = Fabric.of(config.to_dict())
        fabrics[group].objects = list(table)
    writes = object_writes(config, objects)
    steps: list[tuple[int, int, int]] = [(Op.WRITE, *write) for each in writes for write in each]
    held = {change.group for change in changes}
    free = set(np.unique(requests.group).tolist()) - held
    steps += [(Op.RELEASE, group, 0) for group in sorted(free)]
    for change in changes:
        steps.append((Op.WAIT, change.after, 0))
        after = object_writes(config, change.objects)
        for old, new in zip(writes, after, strict=True):
            steps += [(Op.WRITE, *write) for write in new if old != new]
        steps.append((Op.RELEASE, change.group, 0))
        writes = after
    return fabrics, [*steps, (Op.WAIT_ALL, 0, 0), (Op.SLEEP, _SETTLE, 0)]


def _check(
    config: Config,
    requests: Requests,
    window: int,
    loads: int,
    stores: int,
    low: int,
    high: int,
    stalls: float,
    faults: float,
    limit: int,
    bin_cycles: int,
) -> None:
    if len(requests) and requests.port.max() >= config.ports:
        raise UserError(f"Port must be below {config.ports}, not {requests.port.max()}")
    bounds = {"Window": window, "Loads": loads, "Stores": stores, "Latency": low}
    for name, value in bounds.items():
        if value < 0:
            raise UserError(f"{name} must be 0 or more, not {value}")
    if high < low:
        raise UserError(f"Latency must be a rising pair, not {low, high}")
    if not 0 <= stalls < 1:
        raise UserError(f"Stalls must be a chance below 1, not {stalls}")
    if not 0 <= faults < 1:
        raise UserError(f"Faults must be a chance below 1, not {faults}")
    if limit <= high:
        raise UserError(f"Limit must be above the latency of {high} cycles, not {limit}")
    if bin_cycles < 1:
        raise UserError(f"Bin must be at least one cycle, not {bin_cycles}")


def _counters(config: Config) -> list[tuple[str, int]]:
    """Name and address of every counter of one word, and of the error bits."""
    return [
        (register.name, register.offset)
        for register in maps_of(config)[0].registers
        if register.access in (Access.COUNTER, Access.STICKY) and register.words == 1
    ]


def _run(
    program: Path, script: Script, options: dict[str, int], progress: Callable[[int], None]
) -> dict[str, NDArray[Any]]:
    with tempfile.TemporaryDirectory(prefix="player-") as folder:
        source, result = Path(folder) / "script", Path(folder) / "result"
        write_arrays(source, script.arrays)
        words = [str(program), str(source), str(result)]
        words += [f"{name}={value}" for name, value in options.items()]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            try:
                for line in running.stdout:
                    progress(int(line.split()[1]))
            except BaseException:
                running.kill()
                raise
        if running.returncode:
            raise UserError(f"{program} ended with status {running.returncode}")
        return read_arrays(result)


def _judge(
    config: Config,
    requests: Requests,
    script: Script,
    found: dict[str, NDArray[Any]],
    counters: list[tuple[str, int]],
    seed: int,
    bin_cycles: int,
) -> Played:
    start, cycle, checked, done, nanoseconds = (int(v) for v in found["summary"])
    part, arrays = script.part, script.arrays
    ports, rows = config.ports, len(requests)
    signed = {
        name: found[name].view(np.int64)
        for name in ("first", "last", "flits", "stream_flits", "sent", "latency")
    }
    mismatches = [
        _describe(requests, script, record, seed) for record in found["mismatches"].reshape(-1, 11)
    ]
    results = found["results"].reshape(-1, 2)
    logged = found["logged"].astype(np.int64)
    session = arrays["is"] & Is.SESSION.value > 0
    loads = session & (np.diff(arrays["result_at"]) > 0) & (signed["latency"] >= 0)
    loads &= (logged == np.diff(arrays["replica_at"])) & (arrays["answer_at"] < 0)
    if not mismatches:
        for row, what in check_sums(
            config,
            rows=np.flatnonzero(loads),
            attr=part.attr,
            replica_at=arrays["replica_at"],
            replica_port=arrays["replica_port"].astype(np.int64),
            source=found["log_source"],
            operands=arrays["reply_at"],
            pool=arrays["pool"],
            result_at=arrays["result_at"],
            results=results,
        ):
            mismatches.append(f"row {row}: {what} ({requests.describe(row)}), seed {seed}")
            if len(mismatches) == _MOST:
                break
    names = [name for name, _ in counters]
    read = dict(zip(names, (int(v) for v in found["reads"]), strict=False))
    if not mismatches:
        streams = ("rx_req", "rx_rsp", "tx_req", "tx_rsp")
        wanted = script.expected | {
            f"{name}_flits": int(count)
            for name, count in zip(streams, signed["stream_flits"], strict=True)
        }
        mismatches += [
            f"counter {name} must be {wanted[name]}, not {value}, seed {seed}"
            for name, value in read.items()
            if name in wanted and value != wanted[name]
        ]
        if done != rows:
            mismatches.append(f"{done} of {rows} requests were done, seed {seed}")
    port_of_log = np.repeat(np.arange(rows), np.diff(arrays["replica_at"]))
    counted = np.arange(len(port_of_log)) - arrays["replica_at"][port_of_log] < logged[port_of_log]
    log = np.stack([port_of_log, found["log_source"], found["log_cycle"]], axis=1)[counted]
    last = signed["last"].reshape(ports, 2)
    return Played(
        cycles=int(last.max()) - start + 1 if last.max() >= 0 else 0,
        first=signed["first"].reshape(ports, 2),
        last=last,
        flits=signed["flits"].reshape(ports, 2),
        bins=found["bins"].reshape(-1, ports, 2),
        bin_cycles=bin_cycles,
        latency=signed["latency"],
        sent=signed["sent"],
        checked=checked,
        results=results,
        result_offsets=arrays["result_at"],
        log=log[np.argsort(log[:, 2], kind="stable")].astype(np.int64),
        counters=read,
        mismatches=tuple(mismatches),
        seed=seed,
        seconds=nanoseconds / 1e9,
    )


_KINDS = (
    "a packet that nothing explains",
    "a flit is another",
    "the packet has another length",
    "the poison mark is wrong",
    "out of order, or before its time",
    "valid fell, a flit changed while it waited, or two were shown in a cycle",
    "the log of contributions is wrong",
    "nothing moved for too long; this has not come",
    "a register access was refused",
)


def _describe(requests: Requests, script: Script, record: NDArray[np.uint64], seed: int) -> str:
    """A mismatch in words: what, where, when, and the fields that differ."""
    kind, cycle, port, responses, row, replica, flit = (int(v) for v in record[:7].view(np.int64))
    wanted, got = (int(low) | int(high) << 64 for low, high in record[7:].reshape(2, 2))
    stream = f"p{port}_tx_{'rsp' if responses else 'req'}"
    text = f"cycle {cycle} {stream}: {_KINDS[kind]}"
    if row >= 0 and _KINDS[kind] != _KINDS[-1]:
        text += f"; row {row}: {requests.describe(row)}"
    if wanted or got:
        text += f"; flit {flit}: " + _differences(wanted, got, header=flit == 0)
    return f"{text}, seed {seed}"


def _differences(wanted: int, got: int, *, header: bool) -> str:
    if not wanted:
        return f"{got:#034x}"
    if header:
        try:
            packets = [_header(flit) for flit in (wanted, got)]
            return "; ".join(difference(*packets)) or f"{wanted:#034x}, got {got:#034x}"
        except (PacketError, ValueError):
            pass
    return f"expected {wanted:#034x}, got {got:#034x}"


def _header(flit: int) -> Packet:
    """A packet that stands for a header: its length is not looked at."""
    length = 31 << 25
    return Packet.decode([flit & ~length | length, *[0] * 31])
