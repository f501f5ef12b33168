"""Running a checker over its space: divided between processes, and put together again."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dysharp.hw.alu.float_format import FloatFormat
from dysharp.hw.errors import UserError
from dysharp.sim_tb.native.build import build_checker
from dysharp.sim_tb.native.targets import LANES, Target

__all__ = ["Mismatch", "Outcome", "answers", "check", "cores", "number"]

_MOST_SHOWN = 10


@dataclass(frozen=True)
class Mismatch:
    """A wrong result, as bit patterns; ``b`` is None for a unit with one operand."""

    a: int
    b: int | None
    got: int
    wanted: int


@dataclass(frozen=True)
class Outcome:
    """What a run found.

    Parameters
    ----------
    target : Target
    mode : str
        ``whole``, ``sample`` or ``directed``.
    checked, wrong : int
        Pairs or inputs.
    mismatches : tuple of Mismatch
        The first few of the wrong ones.
    check_sum : tuple of int or None
        Sum and xor of the mixed words, of whole spaces that another machine's adder was asked for.
    seed : int
    seconds : float
        Without the build.
    """

    target: Target
    mode: str
    checked: int
    wrong: int
    mismatches: tuple[Mismatch, ...]
    check_sum: tuple[int, int] | None
    seed: int
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether nothing was wrong, and the check sum, if there is one, is the H200's."""
        return not self.wrong and (self.check_sum is None or self.check_sum == self.target.h200)

    @property
    def repeat(self) -> str:
        """The command that does the same again."""
        words = ["dysharp", "exhaust", self.target.name]
        if self.mode != "whole":
            words += ["--seed", str(self.seed), "--count", str(self.checked)]
        return " ".join(words)

    def lines(self) -> list[str]:
        """The outcome in words."""
        target = self.target
        kind = {"whole": "all", "sample": "sampled", "directed": "directed random"}[self.mode]
        rate = self.checked / self.seconds / 1e6
        lines = [
            f"{target.name}: {self.checked:,} {target.noun} ({kind}), {self.wrong:,} wrong, "
            f"{self.seconds:.1f} s, {rate:.0f} M/s"
        ]
        for mismatch in self.mismatches:
            source, result = target.source, target.result
            operands = [_shown(mismatch.a, source)]
            if mismatch.b is not None:
                operands.append(_shown(mismatch.b, source))
            lines.append(
                f"  {source.name} {', '.join(operands)}: got {_shown(mismatch.got, result)}, "
                f"wanted {_shown(mismatch.wanted, result)}"
            )
        if self.check_sum is not None:
            same = "the same as" if self.check_sum == target.h200 else "not"
            theirs = " ".join(f"{word:016x}" for word in target.h200 or ())
            ours = " ".join(f"{word:016x}" for word in self.check_sum)
            lines.append(f"  check sum {ours}, {same} an H200's {theirs}")
        return [*lines, f"  again: {self.repeat}"]

    def to_dict(self) -> dict[str, Any]:
        """The outcome for JSON; bit patterns are in hex."""
        found: dict[str, Any] = {
            "target": self.target.name,
            "space": self.mode,
            "checked": self.checked,
            "wrong": self.wrong,
            "passed": self.passed,
            "seconds": round(self.seconds, 3),
            "seed": self.seed,
            "mismatches": [
                {key: None if bits is None else f"{bits:x}" for key, bits in vars(m).items()}
                for m in self.mismatches
            ],
            "check_sum": None,
            "repeat": self.repeat,
        }
        if self.check_sum is not None:
            words = (*self.check_sum, *(self.target.h200 or ()))
            keys = ("sum", "xor", "h200_sum", "h200_xor")
            found["check_sum"] = {k: f"{w:016x}" for k, w in zip(keys, words, strict=True)}
        return found


def number(bits: int, form: FloatFormat) -> float:
    """The number that a bit pattern stands for; for people to read, not for the check."""
    magnitude = bits & (1 << form.bits - 1) - 1
    sign = -1.0 if bits >> form.bits - 1 else 1.0
    if magnitude == form.infinity:
        return sign * float("inf")
    if magnitude > form.largest:
        return float("nan")
    field, fraction = divmod(magnitude, 1 << form.mantissa_bits)
    significand = fraction + (1 << form.mantissa_bits if field else 0)
    bias = (1 << form.exponent_bits - 1) - 1
    return sign * significand * 2.0 ** (max(field, 1) - bias - form.mantissa_bits)


def _shown(bits: int, form: FloatFormat) -> str:
    digits = 17 if form.bits == 64 else 9
    return f"{bits:0{form.bits // 4}x} ({number(bits, form):.{digits}g})"


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux has it
        return os.cpu_count() or 1


def check(
    target: Target,
    *,
    count: int | None = None,
    seed: int = 1,
    jobs: int | None = None,
    progress: Callable[[int], None] = lambda checked: None,
) -> Outcome:
    """Run a target's unit over its space.

    Parameters
    ----------
    target : Target
    count : int or None
        About how many pairs or inputs; by default the whole space, or as many random ones as the
        target says. Fewer than the whole space are a sample: half of them spread over the space,
        half directed random.
    seed : int
        Of what is random. The same operands come whatever ``jobs`` is.
    jobs : int or None
        Processes; by default as many as there are cores.
    progress : callable
        Called now and then with the number of operands or pairs checked so far.

    Raises
    ------
    UserError
        If the checker cannot be built, or dies.
    """
    program = build_checker(target)
    mode, blocks = target.plan(count)
    jobs = max(1, min(jobs or cores(), blocks))
    start = time.perf_counter()
    text = _run(program, mode, blocks, seed, jobs, lambda done: progress(done * LANES))
    seconds = time.perf_counter() - start

    checked = wrong = total = exclusive = 0
    mismatches = []
    for words in text:
        if words[0] == "total":
            checked += int(words[1])
            wrong += int(words[2])
            total = (total + int(words[3], 16)) % 2**64
            exclusive ^= int(words[4], 16)
        elif words[0] == "wrong":
            a, b, got, wanted = (int(word, 16) for word in words[1:])
            mismatches.append(Mismatch(a, b if len(target.operands) == 2 else None, got, wanted))
    if checked != blocks * LANES:
        raise UserError(f"{program} checked {checked} {target.noun} of {blocks * LANES}")
    mismatches.sort(key=lambda mismatch: (mismatch.a, mismatch.b or 0))
    asked = mode == "whole" and target.h200 is not None
    return Outcome(
        target,
        mode,
        checked,
        wrong,
        tuple(mismatches[:_MOST_SHOWN]),
        (total, exclusive) if asked else None,
        seed,
        seconds,
    )


def answers(target: Target, operands: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """What the unit gives for each pair of operands, and what the oracle wants.

    Parameters
    ----------
    target : Target
    operands : iterable of pairs of bit patterns
        A unit with one operand does not look at the second.
    """
    text = "".join(f"{a:x} {b:x}\n" for a, b in operands)
    program = build_checker(target)
    done = subprocess.run([program, "answer"], input=text, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise UserError(f"{program} ended with status {done.returncode}")
    lines = (line.split() for line in done.stdout.splitlines())
    return [(int(got, 16), int(wanted, 16)) for got, wanted in lines]


def _run(
    program: Path, mode: str, blocks: int, seed: int, jobs: int, progress: Callable[[int], None]
) -> list[list[str]]:
    """What all processes print, line by line in words. They share one pipe: a line is one write."""
    bounds = [blocks * job // jobs for job in range(jobs + 1)]
    read_end, write_end = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    printed, done = [], 0
    try:
        with open(read_end) as lines:
            for first, last in zip(bounds, bounds[1:], strict=False):
                command = [program, mode, str(first), str(last), str(seed)]
                processes.append(subprocess.Popen(command, stdout=write_end))
            os.close(write_end)
            for line in lines:
                words = line.split()
                if words[0] == "done":
                    done += int(words[1])
                    progress(done)
                else:
                    printed.append(words)
        for process in processes:
            if process.wait() not in (0, 1):
                raise UserError(f"{program} ended with status {process.returncode}")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return printed
