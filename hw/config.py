"""The reader of configurations: presets, YAML files and overrides.

A configuration comes from a preset by name, from a YAML file, or from a constructor; any field can
be overridden. Every way ends in the same checks. The rule of a field stands beside the field, and
the YAML is read as nodes, so a message can name file, line, field, value and rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import yaml

from dysharp.hw.errors import ConfigError, UserError
from dysharp.hw.parameters import ORDERS, Config, GpuConfig, SwitchConfig
from dysharp.hw.rules import suggest

__all__ = [
    "ORDERS",
    "Config",
    "GpuConfig",
    "SwitchConfig",
    "load",
    "load_preset",
    "preset_names",
]

_PRESET_DIR = Path(__file__).parent.parent / "configs"


class _Raw(NamedTuple):
    """A value as written, and where."""

    value: Any
    source: str
    line: int | None


_SECTIONS: dict[str, type] = {"switch": SwitchConfig, "gpu": GpuConfig}


def _paths() -> dict[str, type]:
    """Dotted name and type of every field."""
    found: dict[str, type] = {}
    for name, kind in get_type_hints(Config).items():
        if name in _SECTIONS:
            found |= {f"{name}.{leaf}": type_ for leaf, type_ in get_type_hints(kind).items()}
        else:
            found[name] = kind
    return found


_FIELDS = _paths()


def _unknown(path: str, source: str, line: int | None, value: object = None) -> ConfigError:
    leaf = path.rpartition(".")[2]
    same_leaf = [known for known in _FIELDS if known.rpartition(".")[2] == leaf]
    if path in _SECTIONS:
        hint = f"give one of its fields, such as {path}.{fields(_SECTIONS[path])[0].name}"
    elif same_leaf:
        hint = f"did you mean {same_leaf[0]}?"
    else:
        hint = suggest(path, [*_FIELDS, *_SECTIONS]) or "fields: " + ", ".join(_FIELDS)
    return ConfigError(
        path, value, "Field must be one that exists", source=source, line=line, hint=hint
    )


def _scalar(path: str, node: yaml.Node, source: str, line: int | None) -> _Raw:
    """Turn a YAML node into the int, the str or the bool that the field wants."""
    kind = _FIELDS[path]
    try:
        value = yaml.SafeLoader("").construct_document(node)  # pyright: ignore[reportUnknownMemberType]
    except yaml.constructor.ConstructorError:
        raise ConfigError(
            path, None, f"Value must be plain, not tagged {node.tag!r}", source=source, line=line
        ) from None
    except (yaml.YAMLError, ValueError):
        value = getattr(node, "value", None)
    if type(value) is not kind:
        wanted = {int: "an integer", str: "a word", bool: "on or off"}[kind]
        raise ConfigError(
            path,
            value,
            f"Value must be {wanted}, not {value!r}",
            source=source,
            line=line,
        )
    return _Raw(value, source, line)


def _read_mapping(
    node: yaml.Node, prefix: str, source: str, found: dict[str, _Raw], lines: dict[str, int]
) -> None:
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(
            prefix.rstrip("."),
            getattr(node, "value", None),
            "Configuration must be a mapping of field: value",
            source=source,
            line=node.start_mark.line + 1,
        )
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(
                prefix.rstrip("."), None, "Field must be a plain name", source=source, line=line
            )
        path = prefix + key.value
        if path in lines:
            raise ConfigError(
                path,
                getattr(value, "value", None),
                f"Field must be given once, not again after line {lines[path]}",
                source=source,
                line=line,
            )
        lines[path] = line
        if path in _SECTIONS:
            _read_mapping(value, f"{path}.", source, found, lines)
        elif path in _FIELDS:
            found[path] = _scalar(path, value, source, line)
        else:
            raise _unknown(path, source, line, getattr(value, "value", None))


def _read_override(text: str, found: dict[str, _Raw]) -> None:
    path, equals, written = text.partition("=")
    path, source = path.strip(), f"--set {text}"
    if not equals:
        raise ConfigError("", text, "Override must be field=value", source=source)
    if path not in _FIELDS:
        raise _unknown(path, source, None, written)
    try:
        node = yaml.compose(written, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        node = None
    if node is None:
        raise ConfigError(path, written, f"Value must be given, not {written!r}", source=source)
    found[path] = _scalar(path, node, source, None)


def _build(found: dict[str, _Raw], source: str, lines: dict[str, int]) -> Config:
    """Make the dataclasses; a broken rule is told with the place of its field."""
    for section in _SECTIONS:
        if section in lines or any(path.startswith(f"{section}.") for path in found):
            continue
        raise ConfigError(section, None, "Section must be given", source=source)
    try:
        parts: dict[str, Any] = {}
        for section, kind in _SECTIONS.items():
            parts[section] = kind(**_arguments(kind, f"{section}.", found, source, lines))
        return Config(**_arguments(Config, "", found, source, lines), **parts)
    except ConfigError as error:
        if error.source:
            raise
        where = found.get(error.field, _Raw(None, source, None))
        raise ConfigError(
            error.field,
            error.value,
            error.rule,
            source=where.source,
            line=where.line,
            hint=error.hint,
        ) from None


def _arguments(
    kind: type, prefix: str, found: dict[str, _Raw], source: str, lines: dict[str, int]
) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for field in fields(kind):
        path = prefix + field.name
        if path in found:
            arguments[field.name] = found[path].value
        elif path in _FIELDS and field.default is dataclasses.MISSING:
            raise ConfigError(
                path, None, "Field must be given", source=source, line=lines.get(prefix[:-1])
            )
    return arguments


def preset_names() -> list[str]:
    """Names of the presets, short ones first."""
    return sorted((path.stem for path in _PRESET_DIR.glob("*.yaml")), key=lambda n: (len(n), n))


def _locate(path_or_preset: str | Path) -> Path:
    text = str(path_or_preset)
    if isinstance(path_or_preset, Path) or "/" in text or text.endswith((".yaml", ".yml")):
        return Path(text)
    if text in preset_names():
        return _PRESET_DIR / f"{text}.yaml"
    hint = suggest(text, preset_names())
    raise ConfigError(
        "preset",
        text,
        f"Preset must be one of {', '.join(preset_names())}, or the path of a YAML file, "
        f"not {text!r}",
        hint=hint,
    )


def load(path_or_preset: str | Path, overrides: Iterable[str] = ()) -> Config:
    """Read a configuration.

    Parameters
    ----------
    path_or_preset : str or Path
        The name of a preset, or the path of a YAML file.
    overrides : iterable of str
        ``field=value`` each, such as ``switch.sessions=16``; a later one wins.

    Raises
    ------
    ConfigError
        For a typo, a wrong type, a broken rule or an impossible combination. The message names
        file, line, field, value and rule.
    UserError
        For a file that cannot be read.
    """
    path = _locate(path_or_preset)
    source = path.name if path.parent == _PRESET_DIR else str(path)
    found: dict[str, _Raw] = {}
    lines: dict[str, int] = {}
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "unreadable"
        raise ConfigError(
            "",
            None,
            f"File must be YAML: {problem}",
            source=source,
            line=None if mark is None else mark.line + 1,
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise UserError(f"{source}: configuration cannot be read: {reason}") from None
    if node is None:
        raise ConfigError("", None, "File must hold a configuration, not nothing", source=source)
    _read_mapping(node, "", source, found, lines)
    for override in overrides:
        _read_override(override, found)
    return _build(found, source, lines)


def load_preset(name: str, **changes: int | str | bool) -> Config:
    """Read a preset and change some fields, each by its own last name.

    ``load_preset("nvl8", sessions=16)`` is ``load("nvl8", ["switch.sessions=16"])``.
    """
    leaves = {path.rpartition(".")[2]: path for path in _FIELDS}
    for leaf in changes:
        if leaf not in leaves:
            raise _unknown(leaf, "", None, changes[leaf])
    return load(name, [f"{leaves[leaf]}={value}" for leaf, value in changes.items()])
