"""Dataclass fields that carry their own rule, and the check that holds them to it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dysharp.hw.errors import ConfigError

__all__ = ["check_fields", "is_power_of_two", "rule_text", "ruled_field", "suggest"]


def ruled_field(
    noun: str,
    doc: str,
    *,
    low: int | None = None,
    high: int | None = None,
    power_of_two: bool = False,
    choices: Sequence[Any] | None = None,
    words: str = "",
    default: Any = dataclasses.MISSING,
) -> Any:
    """A dataclass field with the rule that guards it.

    The rule is a range of integers, a list of ``choices``, or, told by ``words``, a word whose
    meaning the dataclass itself checks.
    """
    rule = {
        "noun": noun,
        "doc": doc,
        "low": low,
        "high": high,
        "power_of_two": power_of_two,
        "choices": choices,
        "words": words,
    }
    return dataclasses.field(default=default, metadata=rule, kw_only=True)


def rule_text(rule: Mapping[str, Any]) -> str:
    if rule["words"]:
        return rule["words"]
    if rule["choices"] == (False, True):
        return "on or off"
    if rule["choices"] is not None:
        return "one of " + ", ".join(map(str, rule["choices"]))
    kind = "a power of two" if rule["power_of_two"] else "an integer"
    if rule["high"] is None:
        return f"{kind} of at least {rule['low']}"
    return f"{kind} from {rule['low']} to {rule['high']}"


def suggest(word: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else ""


def is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def check_fields(config: Any, prefix: str) -> None:
    """Hold each field of a dataclass against its own rule."""
    for field in dataclasses.fields(config):
        rule, value = field.metadata, getattr(config, field.name)
        if "noun" not in rule:
            continue
        if rule["words"]:
            good = type(value) is str
        elif rule["choices"] is not None:
            good = any(
                value == choice and type(value) is type(choice) for choice in rule["choices"]
            )
        else:
            good = (
                type(value) is int
                and (rule["low"] is None or value >= rule["low"])
                and (rule["high"] is None or value <= rule["high"])
                and (not rule["power_of_two"] or is_power_of_two(value))
            )
        if not good:
            hint = suggest(value, map(str, rule["choices"])) if rule["choices"] else ""
            raise ConfigError(
                prefix + field.name,
                value,
                f"{rule['noun']} must be {rule_text(rule)}, not {value!r}",
                hint=hint,
            )
