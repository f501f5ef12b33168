"""Errors that a user can mend: they are printed as one plain message, never as a traceback."""

from __future__ import annotations

__all__ = ["ConfigError", "UserError"]


class UserError(Exception):
    """What the user asked for cannot be done, and the message says what to do about it.

    The command line prints the message and exits with status 2. Code that is used as a library
    sees an ordinary exception.
    """


class ConfigError(UserError, ValueError):
    """A field of a configuration breaks a rule.

    Parameters
    ----------
    field : str
        Dotted name of the field, such as ``gpu.tlb_ways``; may be empty for the file as a whole.
    value : object
        The value as read.
    rule : str
        The rule it breaks, as a sentence.
    source : str
        The file, or the option of the command line, that gave the value; empty for a constructor.
    line : int or None
        Line in the file, counted from 1.
    hint : str
        What was probably meant; may be empty.
    """

    def __init__(
        self,
        field: str,
        value: object,
        rule: str,
        *,
        source: str = "",
        line: int | None = None,
        hint: str = "",
    ):
        self.field = field
        self.value = value
        self.rule = rule
        self.source = source
        self.line = line
        self.hint = hint
        super().__init__(str(self))

    def __str__(self) -> str:
        place = self.source if self.line is None else f"{self.source}:{self.line}"
        parts = [part for part in (place, self.field, self.rule) if part]
        return ": ".join(parts) + (f" ({self.hint})" if self.hint else "")
