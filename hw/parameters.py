"""The parameters of the hardware: frozen dataclasses, each field with the rule that guards it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from dysharp.hw.alu.reductions import DEFAULT_DEPTH, MAX_DEPTH, Arithmetic, parse_dtypes
from dysharp.hw.errors import ConfigError
from dysharp.hw.packet import CHUNK_BYTES, FLIT_BYTES, MAX_FLITS
from dysharp.hw.rules import check_fields, is_power_of_two, ruled_field

__all__ = ["LIMIT_BITS", "ORDERS", "Config", "GpuConfig", "SwitchConfig"]

LIMIT_BITS = 32
"""Bits of the registers that say, in cycles, how long a switch waits for something."""

ORDERS = ("arrival", "rank", "exact")
"""The orders in which a switch accumulates."""


@dataclass(frozen=True)
class SwitchConfig:
    """One switch plane.

    Raises
    ------
    ConfigError
        For a field that breaks its rule.
    """

    request_depth: int = ruled_field(
        "Request depth",
        "flits in each queue of requests in the crossbar; the longest packet must fit",
        low=MAX_FLITS,
        high=1024,
        default=40,
    )
    response_depth: int = ruled_field(
        "Response depth",
        "flits in each queue of responses in the crossbar; the longest packet must fit",
        low=MAX_FLITS,
        high=1024,
        default=40,
    )
    sessions: int = ruled_field("Sessions", "reductions in flight at each port", low=1, high=256)
    order: str = ruled_field(
        "Order",
        "the order in which contributions are accumulated",
        choices=ORDERS,
        default="arrival",
    )

    def __post_init__(self) -> None:
        check_fields(self, "switch.")


@dataclass(frozen=True)
class GpuConfig:
    """What one GPU has on the network's side.

    Raises
    ------
    ConfigError
        For a field that breaks its rule, and for an AL-TLB whose sets are no power of two.
    """

    slots: int = ruled_field(
        "Slots",
        "most local experts of a GPU; an expert's id is {GPU, slot}",
        low=1,
        high=1024,
        power_of_two=True,
        default=64,
    )
    memory_width: int = ruled_field(
        "Memory width", "bits of the AXI4 data bus", low=128, high=1024, power_of_two=True
    )
    tlb_entries: int = ruled_field("AL-TLB entries", "entries of the AL-TLB", low=1, high=65536)
    tlb_ways: int = ruled_field("AL-TLB ways", "entries that share a set", low=1, high=65536)
    multimemq_entries: int = ruled_field(
        "MultimemQ entries", "instructions that wait for their packet", low=1, high=256
    )
    outstanding: int = ruled_field(
        "Outstanding operations",
        "packets sent that wait for their answer; their number is the tag's local part",
        low=1,
        high=4096,
        default=64,
    )
    hub_contexts: int = ruled_field(
        "Hub contexts", "requests that the Hub has in flight", low=1, high=256, default=16
    )
    ts_entries: int = ruled_field(
        "TS entries", "tiles that the token tracker follows", low=2, high=65536, power_of_two=True
    )
    or_entries: int = ruled_field(
        "OR entries", "tokens whose readiness is followed", low=2, high=65536, power_of_two=True
    )

    @property
    def tlb_sets(self) -> int:
        """Sets of the AL-TLB."""
        return self.tlb_entries // self.tlb_ways

    def __post_init__(self) -> None:
        check_fields(self, "gpu.")
        if self.tlb_entries % self.tlb_ways:
            raise ConfigError(
                "gpu.tlb_ways",
                self.tlb_ways,
                f"AL-TLB ways must be a divisor of the {self.tlb_entries} entries, "
                f"not {self.tlb_ways!r}",
            )
        if not is_power_of_two(self.tlb_sets):
            raise ConfigError(
                "gpu.tlb_ways",
                self.tlb_ways,
                f"AL-TLB ways must be such that {self.tlb_entries} entries make a power of two "
                f"of sets, not {self.tlb_ways!r} ({self.tlb_sets} sets)",
            )


@dataclass(frozen=True)
class Config:
    """Everything that shapes the hardware.

    Members
    -------
    switch : SwitchConfig
    gpu : GpuConfig

    Raises
    ------
    ConfigError
        For a field that breaks its rule, a type that there is not, more than 72 ports, or expert
        ids beyond 16 bits.

    Source
    ------
    The five presets are those of the DySHARP paper's systems and of today's machines; nvl32 and
    paper have the paper's table sizes.
    """

    name: str = dataclasses.field(kw_only=True)
    gpus: int = ruled_field("GPUs", "GPUs round the switch", low=2, high=72)
    links: int = ruled_field(
        "Links", "ports of a GPU on one switch", low=1, high=32, power_of_two=True, default=1
    )
    chunk_bytes: int = ruled_field(
        "Chunk bytes", "bytes that one packet carries at most", choices=CHUNK_BYTES, default=128
    )
    objects: int = ruled_field(
        "Objects", "entries of the object tables", low=1, high=16, power_of_two=True, default=16
    )
    gpu_address_bit: int = ruled_field(
        "GPU address bit",
        "lowest of the seven bits of a plain address that name its GPU",
        low=16,
        high=41,
        default=40,
    )
    dtypes: str = ruled_field(
        "Types",
        "types that the switch and the GPUs reduce",
        words="all, all+f64, or a list such as bf16,f32",
        default="all",
    )
    ftz: bool = ruled_field(
        "FTZ",
        "whether f32 additions take and give zero for subnormals, as red and atom do",
        choices=(False, True),
        default=False,
    )
    alu_depth: int = ruled_field(
        "ALU depth",
        "pipeline stages of an addition",
        low=1,
        high=MAX_DEPTH,
        default=DEFAULT_DEPTH,
    )
    memory: str = ruled_field(
        "Memory",
        "what a memory becomes in the generated RTL",
        choices=("inferred", "flipflops", "macro"),
        default="inferred",
    )
    switch: SwitchConfig = dataclasses.field(kw_only=True)
    gpu: GpuConfig = dataclasses.field(kw_only=True)

    @property
    def ports(self) -> int:
        """Ports of the switch; port = GPU * links + h."""
        return self.gpus * self.links

    @property
    def chunk_flits(self) -> int:
        """DATA flits of a whole chunk."""
        return self.chunk_bytes // FLIT_BYTES

    @property
    def arithmetic(self) -> Arithmetic:
        """What every reduction of this build computes."""
        return Arithmetic(dtypes=parse_dtypes(self.dtypes), ftz=self.ftz, depth=self.alu_depth)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values, for JSON; nested as in the YAML."""
        return dataclasses.asdict(self)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise ConfigError(
                "name", self.name, f"Name must be a plain identifier, not {self.name!r}"
            )
        for field, kind in (("switch", SwitchConfig), ("gpu", GpuConfig)):
            if not isinstance(value := getattr(self, field), kind):
                raise ConfigError(field, value, f"{field} must be a {kind.__name__}, not {value!r}")
        check_fields(self, "")
        parse_dtypes(self.dtypes)
        if not 2 <= self.ports <= 72:
            raise ConfigError(
                "links",
                self.links,
                f"Ports must be from 2 to 72, not {self.ports!r} "
                f"({self.gpus} GPUs with {self.links} links)",
            )
        if self.gpus * self.gpu.slots > 65535:
            raise ConfigError(
                "gpu.slots",
                self.gpu.slots,
                f"Expert ids must be at most 65535, not {self.gpus * self.gpu.slots!r} "
                f"({self.gpus} GPUs with {self.gpu.slots} slots)",
            )
