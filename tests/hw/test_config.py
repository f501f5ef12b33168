"""Presets, checks and the messages of the configuration reader."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from dysharp.hw.config import Config, GpuConfig, load, load_preset, preset_names
from dysharp.hw.errors import ConfigError, UserError

PRESETS = {
    # name: ports, GPUs, sessions, AL-TLB, MultimemQ, TS and OR
    "tiny": (4, 4, 16, 16, 4, 16),
    "nvl8": (8, 8, 64, 128, 32, 128),
    "nvl32": (32, 32, 256, 512, 32, 1024),
    "paper": (64, 32, 256, 512, 32, 1024),
    "nvl72": (72, 72, 256, 512, 32, 1024),
}


def write(folder: Path, old: str, new: str) -> Path:
    """The preset tiny with one piece of text exchanged."""
    text = (Path(__file__).parents[2] / "configs" / "tiny.yaml").read_text()
    assert old in text
    path = folder / "mine.yaml"
    path.write_text(text.replace(old, new))
    return path


def test_preset_names() -> None:
    assert sorted(preset_names()) == sorted(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_hold_the_table(name: str) -> None:
    config = load_preset(name)
    assert config.name == name
    assert (
        config.ports,
        config.gpus,
        config.switch.sessions,
        config.gpu.tlb_entries,
        config.gpu.multimemq_entries,
        config.gpu.ts_entries,
    ) == PRESETS[name]
    assert config.gpu.or_entries == config.gpu.ts_entries
    assert config.chunk_flits == 8
    assert json.loads(json.dumps(config.to_dict()))["gpu"]["slots"] == 64


def test_config_is_frozen_and_hashable() -> None:
    config = load_preset("tiny")
    assert hash(config) == hash(load("tiny"))
    with pytest.raises(FrozenInstanceError):
        config.gpus = 8  # pyright: ignore[reportAttributeAccessIssue]


def test_overrides() -> None:
    config = load("nvl8", ["switch.sessions=16", "gpus=4", "switch.order=exact", "gpu.slots=0x20"])
    assert (config.switch.sessions, config.gpus, config.switch.order) == (16, 4, "exact")
    assert config.gpu.slots == 32
    assert load_preset("nvl8", sessions=16).switch.sessions == 16
    assert load("nvl8", ["gpus=4", "gpus=2"]).gpus == 2


def test_a_file_is_read_like_a_preset(tmp_path: Path) -> None:
    assert load(write(tmp_path, "gpus: 4", "gpus: 3")) == load("tiny", ["gpus=3"])


def test_fields_with_a_default_may_be_left_out(tmp_path: Path) -> None:
    assert load(write(tmp_path, "  order: arrival\n", "")) == load("tiny")


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "said"),
    [
        ("sessions: 16", "sesions: 16", 13, "switch.sesions", "did you mean switch.sessions?"),
        ("gpus: 4", "gpus: four", 3, "gpus", "Value must be an integer, not 'four'"),
        ("gpus: 4", "gpus: true", 3, "gpus", "Value must be an integer, not True"),
        ("gpus: 4", "gpus: 4.0", 3, "gpus", "Value must be an integer, not 4.0"),
        ("gpus: 4", "gpus: [4]", 3, "gpus", "Value must be an integer, not [4]"),
        ("gpus: 4", "gpus:", 3, "gpus", "Value must be an integer, not None"),
        ("gpus: 4", "gpus: 73", 3, "gpus", "GPUs must be an integer from 2 to 72, not 73"),
        ("gpus: 4", "gpus: 4\ngpus: 4", 4, "gpus", "not again after line 3"),
        ("links: 1", "links: 3", 4, "links", "Links must be a power of two from 1 to 32, not 3"),
        ("links: 1", "links: 32", 4, "links", "Ports must be from 2 to 72, not 128"),
        ("_bytes: 128", "_bytes: 64", 5, "chunk_bytes", "must be one of 128, 256, not 64"),
        ("inferred", "infered", 8, "memory", "did you mean inferred?"),
        (
            "quest_depth: 40",
            "quest_depth: 31",
            11,
            "switch.request_depth",
            "from 32 to 1024, not 31",
        ),
        ("sessions: 16", "sessions: 257", 13, "switch.sessions", "from 1 to 256, not 257"),
        ("width: 128", "width: 192", 18, "gpu.memory_width", "power of two from 128 to 1024"),
        ("tlb_ways: 2", "tlb_ways: 3", 20, "gpu.tlb_ways", "divisor of the 16 entries, not 3"),
        ("entries: 16\n  tlb", "entries: 24\n  tlb", 20, "gpu.tlb_ways", "power of two of sets"),
        ("  tlb_entries: 16\n", "", 16, "gpu.tlb_entries", "Field must be given"),
        ("switch:\n", "swich:\n", 10, "swich", "did you mean switch?"),
        ("gpu:\n", "gpu: 3\nother:\n", 16, "gpu", "must be a mapping"),
        ("name: tiny", "name: 3-x", 2, "name", "Name must be a plain identifier, not '3-x'"),
        ("gpus: 4", "gpus: {4", 4, "", "File must be YAML"),
    ],
)
def test_a_mistake_names_its_place(
    tmp_path: Path, old: str, new: str, line: int, field: str, said: str
) -> None:
    path = write(tmp_path, old, new)
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: "), message
    assert caught.value.field == field
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("sessions=4", "--set sessions=4: sessions: Field must be one that exists "
         "(did you mean switch.sessions?)"),
        ("gpus", "--set gpus: Override must be field=value"),
        ("gpus=", "Value must be given"),
        ("gpus=[", "Value must be given"),
        ("gpus=999", "--set gpus=999: gpus: GPUs must be an integer from 2 to 72, not 999"),
        ("gpu=4", "give one of its fields, such as gpu.slots"),
        ("switch.order=arival", "did you mean arrival?"),
        ("dtypes=bf16,f23", "not 'f23' (did you mean f32?)"),
        ("dtypes=all,bf16", "not 'all,bf16' (did you mean all?)"),
        ("dtypes=all,f64", "Types must be all alone, or named one by one, not 'all,f64' "
         "(did you mean all+f64?)"),
        ("gpu.slots=1000", "Slots must be a power of two from 1 to 1024, not 1000"),
    ],
)  # fmt: skip
def test_a_bad_override_names_itself(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=r"^--set ") as caught:
        load("tiny", [override])
    assert said in str(caught.value)


def test_expert_ids_must_fit_16_bits() -> None:
    with pytest.raises(ConfigError, match="Expert ids must be at most 65535, not 73728"):
        load("nvl72", ["gpu.slots=1024"])


def test_unknown_preset_and_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"Preset must be one of nvl8, tiny, .*did you mean nvl8"):
        load("nvl9")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        load(tmp_path)
    (binary := tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(UserError, match="not a text file"):
        load(binary)
    (empty := tmp_path / "empty.yaml").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="File must hold a configuration"):
        load(empty)


def test_constructors_check() -> None:
    config = load_preset("tiny")
    with pytest.raises(ConfigError, match=r"^gpu.tlb_ways: AL-TLB ways must be"):
        replace(config.gpu, tlb_ways=3)
    with pytest.raises(ConfigError, match=r"^gpus: GPUs must be an integer from 2 to 72, not True"):
        replace(config, gpus=True)
    with pytest.raises(ConfigError, match="must be a SwitchConfig"):
        Config(name="x", gpus=2, switch=None, gpu=config.gpu)  # pyright: ignore[reportArgumentType]
    assert replace(config.gpu, tlb_entries=48, tlb_ways=12).tlb_sets == 4
    assert isinstance(config.gpu, GpuConfig)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("? [1, 2]\n: 3\n", "mine.yaml:1: Field must be a plain name"),
        ("name: !!python/object:os.system x\n", "mine.yaml:1: name: Value must be plain"),
    ],
)
def test_yaml_that_is_more_than_plain(tmp_path, text, told):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert told in str(caught.value)
