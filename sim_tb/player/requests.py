"""Requests as arrays: what the fast player sends, and what comes of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dysharp.hw.errors import UserError
from dysharp.hw.packet import (
    CMD_RULES,
    MAX_BE_DATA_FLITS,
    MAX_DATA_FLITS,
    MAX_FLITS,
    Cmd,
    Header,
    tx_flits,
)
from dysharp.sim_tb.player.wire import place_of

__all__ = ["DOWN", "UP", "Played", "Requests", "gather", "ragged"]

UP, DOWN = 0, 1
"""The two directions of a link, GPU to switch and switch to GPU; they index :class:`Played`."""

_TYPES: dict[str, Any] = {
    "port": np.uint16,
    "stream": np.uint32,
    "cmd": np.uint8,
    "addr": np.uint64,
    "stage": np.uint8,
    "attr": np.uint8,
    "flits": np.uint8,
    "target_offsets": np.int64,
    "targets": np.uint16,
    "payload": np.int64,
    "byte_enable": np.int64,
    "extension": np.int64,
    "group": np.uint16,
    "answer_offsets": np.int64,
    "answers": np.int64,
    "answer_status": np.uint8,
    "result": np.int64,
    "poison": np.uint8,
    "cut": np.int8,
}


def ragged(lengths: NDArray[Any]) -> NDArray[np.int64]:
    """Where rows of such lengths start, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def gather(offsets: NDArray[np.int64], rows: NDArray[Any]) -> NDArray[np.int64]:
    """Places of all elements of some rows of a ragged array, row after row."""
    length = np.diff(offsets)[rows]
    first = offsets[:-1][rows] - ragged(length)[:-1]
    return np.repeat(first, length) + np.arange(length.sum())


@dataclass(frozen=True, eq=False)
class Requests:
    """Well-formed requests, a row each; a stream's rows are sent in their order.

    Where ``answers`` is None, the player answers each replica itself: a load with DATA flits from
    anywhere in ``pool``, all else with an acknowledgement.

    Parameters
    ----------
    port : uint16 [n], where a request enters the switch
    stream : uint32 [n], of the port; streams of a port take turns packet by packet, and each has
        a window of its own
    cmd : uint8 [n], a request command
    addr : uint64 [n], plain address, or multimem address (48 bits) of a multimem command; bits 3:0
        zero where DATA flits are stored or wanted, since ``flits`` says how many
    flits : uint8 [n], DATA flits sent or wanted, 0 for a NOTIFY
    pool : uint64 [p, 2], flits that rows refer to; bits 63:0 of a flit first
    target_offsets, targets : int64 [n + 1], uint16 [t]: row i's list is
        ``targets[target_offsets[i]:target_offsets[i + 1]]``; empty for the preset group
    stage, attr : uint8 [n], of multimem commands; 0 by default
    payload : int64 [n], place in ``pool`` of the first of the DATA flits; 0 by default, of no
        meaning for what sends none
    byte_enable : int64 [n], place in ``pool`` of the BE flit; -1 (default) for none
    extension : int64 [n], place in ``pool`` of the AE flit; -1 (default) for none
    group : uint16 [n], a number that register writes in mid-run can wait for; 0 by default
    answer_offsets, answers : int64 [n + 1], int64 [a]: for each replica, ports ascending, the place
        in ``pool`` of the DATA flits that it is answered with; -1 for an answer without any
    answer_status : uint8 [a], 0 (default) or the status of an ERR in place of each of those answers
    result : int64 [n], place in ``pool`` of the DATA flits expected of a load; -1 (default) for the
        sum of its answers in the order in which the switch added them
    poison : uint8 [n], 1 for a request whose last flit is marked as poison; 0 by default
    flip : uint64 [n, 2], bits of the header that are wrong when it is sent, but none of the tag;
        0 by default
    cut : int8 [n], flits that are missing at the packet's end, negative for so many too many;
        0 by default

    Raises
    ------
    UserError
        For an array of a wrong length, and for a row that is no well-formed request.
    """

    port: NDArray[Any]
    stream: NDArray[Any]
    cmd: NDArray[Any]
    addr: NDArray[Any]
    flits: NDArray[Any]
    pool: NDArray[Any]
    target_offsets: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    targets: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    stage: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    attr: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    payload: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    byte_enable: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    extension: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    group: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    answer_offsets: NDArray[Any] | None = None
    answers: NDArray[Any] | None = None
    answer_status: NDArray[Any] | None = None
    result: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    poison: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    flip: NDArray[Any] = field(default=None)  # type: ignore[assignment]
    cut: NDArray[Any] = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        rows = len(self.port)
        defaults: dict[str, Any] = {
            "target_offsets": np.zeros(rows + 1, np.int64),
            "targets": np.zeros(0, np.uint16),
            **{
                name: np.zeros(rows)
                for name in ("stage", "attr", "payload", "group", "poison", "cut")
            },
            **{name: np.full(rows, -1) for name in ("byte_enable", "extension", "result")},
        }
        if self.answers is not None:
            defaults["answer_status"] = np.zeros(len(self.answers))
        for name, kind in _TYPES.items():
            value = getattr(self, name)
            value = defaults.get(name) if value is None else value
            if value is not None:
                object.__setattr__(self, name, np.ascontiguousarray(value, kind))
        pool = np.ascontiguousarray(self.pool, np.uint64)
        flip = np.zeros((rows, 2), np.uint64) if self.flip is None else self.flip
        object.__setattr__(self, "pool", pool)
        object.__setattr__(self, "flip", np.ascontiguousarray(flip, np.uint64))
        if pool.ndim != 2 or pool.shape[1] != 2:
            raise UserError(f"Pool must be [flits, 2], not {list(pool.shape)}")
        self._check_lengths(rows)
        self._check_rows()

    def _check_lengths(self, rows: int) -> None:
        if self.flip.shape != (rows, 2):
            raise UserError(f"Array flip must be [{rows}, 2], not {list(self.flip.shape)}")
        others = ("targets", "answers", "answer_status", "target_offsets", "answer_offsets")
        per_row = [name for name in _TYPES if name not in others]
        for name in per_row:
            if getattr(self, name).shape != (rows,):
                raise UserError(
                    f"Array {name} must be of {rows} rows, not {list(getattr(self, name).shape)}"
                )
        if (self.answers is None) != (self.answer_offsets is None):
            raise UserError("Answers must be given with answer_offsets, not alone")
        for offsets, values in (("target_offsets", "targets"), ("answer_offsets", "answers")):
            start = getattr(self, offsets)
            if start is None:
                continue
            total = len(getattr(self, values))
            if (
                len(start) != rows + 1
                or start[0]
                or start[-1] != total
                or (np.diff(start) < 0).any()
            ):
                raise UserError(f"Array {offsets} must rise from 0 to {total} in {rows + 1} steps")
        if self.answer_status is not None and self.answers is not None:
            if len(self.answer_status) != len(self.answers):
                raise UserError(f"Array answer_status must be of {len(self.answers)} answers")

    def _check_rows(self) -> None:
        known = np.isin(
            self.cmd, [cmd.value for cmd, rule in CMD_RULES.items() if not rule.response]
        )
        self._require(known & (self.cmd != Cmd.NOP.value), "cmd", "be a request's")
        moves = self.sends_data | self.wants_data
        self._require((self.flits > 0) == moves, "flits", "be above 0 just where DATA is moved")
        self._require(self.flits <= MAX_DATA_FLITS, "flits", f"be at most {MAX_DATA_FLITS}")
        self._require(~moves | (self.addr % 16 == 0), "addr", "be a multiple of 16")
        self._require(~self.multimem | (self.addr < 1 << 48), "addr", "be below 2**48")
        self._require(self.multimem | (self.counts == 0), "targets", "be none of a plain address")
        self._require(self.stage <= 1, "stage", "be 0 or 1")
        small = self.sends_data & (self.flits <= MAX_BE_DATA_FLITS)
        self._require(small | (self.byte_enable < 0), "byte_enable", "be of a short store's")
        with_ae = self.extension >= 0
        self._require(~(with_ae & self.multimem), "extension", "be of a plain address")
        length = 1 + with_ae + tx_flits(self.counts) + (self.byte_enable >= 0)
        length += np.where(self.sends_data, self.flits, 0)
        self._require(length <= MAX_FLITS, "targets", f"leave the packet at {MAX_FLITS} flits")
        place, width = place_of(Header, "tag")
        tag = np.uint64(((1 << width) - 1) << place)
        self._require(self.flip[:, 0] & tag == 0, "flip", "leave the tag alone")
        sent = length - self.cut
        self._require((sent > 0) & (sent <= 2 * MAX_FLITS), "cut", "leave 1 to 64 flits")
        self._in_pool("payload", self.payload, np.where(self.sends_data, self.flits, 0))
        self._in_pool("byte_enable", self.byte_enable, (self.byte_enable >= 0).astype(np.int64))
        self._in_pool("extension", self.extension, with_ae.astype(np.int64))
        self._in_pool("result", self.result, np.where(self.result >= 0, self.flits, 0))
        if self.answers is not None:
            wanted = np.where(self.wants_data, self.flits, 0).astype(np.int64)
            wanted = np.repeat(wanted, np.diff(self.answer_offsets))  # type: ignore[arg-type]
            self._in_pool("answers", self.answers, np.where(self.answers >= 0, wanted, 0))

    def _require(self, good: NDArray[np.bool_], name: str, rule: str) -> None:
        if not good.all():
            row = int(np.argmin(good))
            value = getattr(self, "counts" if name == "targets" else name)[row]
            raise UserError(f"Row {row}: {name} must {rule}, not {value} ({self.describe(row)})")

    def _in_pool(self, name: str, first: NDArray[np.int64], count: NDArray[Any]) -> None:
        good = (count == 0) | ((first >= 0) & (first + count <= len(self.pool)))
        if not good.all():
            value = first[int(np.argmin(good))]
            raise UserError(f"Array {name} must point into the {len(self.pool)} flits, not {value}")

    def __len__(self) -> int:
        return len(self.port)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Entries of each row's list."""
        return np.diff(self.target_offsets)

    def _rule(self, name: str) -> NDArray[np.bool_]:
        table = np.zeros(256, bool)
        for cmd, rule in CMD_RULES.items():
            table[cmd.value] = bool(getattr(rule, name))
        return table[self.cmd]

    @property
    def multimem(self) -> NDArray[np.bool_]:
        """Rows with a multimem address."""
        return self._rule("multimem")

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Rows that get an answer: all but the posted ones."""
        return self._rule("answered")

    @property
    def sends_data(self) -> NDArray[np.bool_]:
        """Rows with DATA flits."""
        return self._rule("data")

    @property
    def wants_data(self) -> NDArray[np.bool_]:
        """Loads."""
        return self._rule("wants_data")

    @property
    def damaged(self) -> NDArray[np.bool_]:
        """Rows that are sent with a wrong header or a wrong length."""
        return (self.cut != 0) | self.flip.any(axis=1)

    def take(self, rows: NDArray[np.int64]) -> Requests:
        """Some of the rows, in the order given; the pool stays as it is."""
        found: dict[str, Any] = {"pool": self.pool}
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in ("pool", "targets", "answers", "answer_status") or value is None:
                continue
            if not one.name.endswith("_offsets"):
                found[one.name] = value[rows]
                continue
            place = gather(value, rows)
            found[one.name] = ragged(np.diff(value)[rows])
            names = ("targets",) if one.name == "target_offsets" else ("answers", "answer_status")
            found |= {name: getattr(self, name)[place] for name in names}
        return Requests(**found)

    def describe(self, row: int) -> str:
        """A row in words, for messages."""
        first, last = self.target_offsets[row : row + 2]
        cmd = int(self.cmd[row])
        name = next((c.name for c in CMD_RULES if c.value == cmd), str(cmd))
        targets = " ".join(f"{target:#06x}" for target in self.targets[first:last])
        return (
            f"p{self.port[row]} stream {self.stream[row]} {name} addr {int(self.addr[row]):#x} "
            f"stage {self.stage[row]} attr {self.attr[row]:#04x} flits {self.flits[row]} "
            f"[{targets}]"
        )

    @classmethod
    def concatenate(cls, parts: Iterable[Requests]) -> Requests:
        """Rows of all parts, one after the other; pools are joined.

        Parameters
        ----------
        parts : with answers either all of them or none
        """
        parts = list(parts)
        if not parts or len({part.answers is None for part in parts}) > 1:
            raise UserError("Parts must be at least one, with answers all of them or none")
        bases = np.cumsum([0, *(len(part.pool) for part in parts[:-1])])
        joined: dict[str, Any] = {}
        for one in fields(cls):
            values = [getattr(part, one.name) for part in parts]
            if values[0] is None:
                continue
            if one.name in ("payload", "byte_enable", "extension", "answers", "result"):
                values = [np.where(v >= 0, v + b, v) for v, b in zip(values, bases, strict=True)]
            if one.name.endswith("_offsets"):
                starts = np.cumsum([0, *(v[-1] for v in values)])
                values = [v[:-1] + s for v, s in zip(values, starts[:-1], strict=True)]
                values.append(starts[-1:])
            joined[one.name] = np.concatenate(values)
        return cls(**joined)


@dataclass(frozen=True, eq=False)
class Played:
    """What came of a run; links are indexed [port, direction], :data:`UP` or :data:`DOWN`.

    Parameters
    ----------
    cycles : from the release of the first request to the last flit
    first, last : int64 [ports, 2], cycles of the first and last flit on each link, both streams
        together; -1 if there was none
    flits : int64 [ports, 2], flits that each link carried
    bins : uint32 [bins, ports, 2], the same over time
    bin_cycles : cycles of a bin
    latency : int64 [n], cycles from a request's header in to its answer's header out, -1 if posted
    sent : int64 [n], cycle in which a request's header went in
    checked : packets compared, replicas and answers
    results : uint64 [r, 2], DATA flits of the answers to loads, row after row
    result_offsets : int64 [n + 1], where each row's stand
    log : int64 [m, 3], (row, port, cycle) of each contribution in the order of accumulation
    counters : registers of the switch after the run, by name
    mismatches : what was wrong, each in words with cycle and seed; empty if nothing was
    seed : of all that was random
    seconds : the simulation's time on one core, without the build
    """

    cycles: int
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    flits: NDArray[np.int64]
    bins: NDArray[np.uint32]
    bin_cycles: int
    latency: NDArray[np.int64]
    sent: NDArray[np.int64]
    checked: int
    results: NDArray[np.uint64]
    result_offsets: NDArray[np.int64]
    log: NDArray[np.int64]
    counters: dict[str, int]
    mismatches: tuple[str, ...]
    seed: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Nothing was wrong."""
        return not self.mismatches

    @property
    def flits_per_second(self) -> float:
        """Simulated flits, over all links and directions, a second of a core."""
        return float(self.flits.sum() / self.seconds) if self.seconds else 0.0

    def utilisation(self) -> NDArray[np.float64]:
        """Flits a cycle of each link between its first and last flit, [ports, 2]."""
        span = np.where(self.flits > 0, self.last - self.first + 1, 1)
        return self.flits / span
