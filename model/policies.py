"""What the golden model may be told to do differently: one enum a question, named in each trace.

Every enum lists all the answers that have a name; :data:`IMPLEMENTED` says which of them the model
computes. Choosing another one is a :class:`~dysharp.hw.errors.UserError`, never another result.
"""

from dataclasses import dataclass, fields
from enum import Enum

from dysharp.hw.errors import UserError

__all__ = [
    "DuplicateId",
    "WeightAt",
    "Accumulation",
    "SlotOrder",
    "Overflow",
    "PlacementKind",
    "OwnGpu",
    "IMPLEMENTED",
    "Policies",
]


class DuplicateId(Enum):
    """An expert that stands in a token's list more than once."""

    COUNT_TWICE = "count_twice"
    """The hardware's: it contributes each time it stands there."""
    COUNT_ONCE = "count_once"
    """The source strikes out repetitions when it writes the list."""
    ERROR = "error"


class WeightAt(Enum):
    """Where the gate weight is multiplied in."""

    EXPERT_EPILOGUE = "expert_epilogue"
    """The paper's: by the expert, before Combine."""
    NONE = "none"
    SOURCE_FP32_K_ORDER = "source_fp32_k_order"


class Accumulation(Enum):
    """Order and roundings of Combine's sum."""

    GPU_LIST_THEN_PORT_RANK = "gpu_list_then_port_rank"
    """Each GPU adds its part of the list in order in f32 and rounds once to the wire's type; the
    switch adds the GPUs' answers in f32 by ascending port and rounds once."""
    GPU_LIST_THEN_ARRIVAL = "gpu_list_then_arrival"
    """The same with the switch's order as it was: from the reduction units' log."""
    GPU_LIST_THEN_EXACT = "gpu_list_then_exact"
    """The same, but the switch keeps every bit of the GPUs' answers' sum and rounds once."""
    EXACT_THEN_ROUND = "exact_then_round"
    """Every bit of the whole sum is kept, through both levels, and rounded once."""
    FP32_K_ORDER = "fp32_k_order"
    """The whole list in order in f32, as if one GPU had all of it, rounded once."""
    PER_LEVEL_BF16 = "per_level_bf16"
    """As by ascending port, but each sum in either level is rounded to bf16 (acc 0)."""
    BF16_TRUNCATE = "bf16_truncate"


class SlotOrder(Enum):
    """Which row of its expert a token gets at its destination."""

    TOKEN_ORDER = "token_order"
    """Ascending algebraic index: a pure function of the routing (a preloaded AL table)."""
    FIRST_TOUCH = "first_touch"
    """The order in which stores arrived: read from the RTL's AL tables and checked."""


class Overflow(Enum):
    """More tokens for an expert than its capacity."""

    ERROR = "error"
    DROP_AND_COUNT = "drop_and_count"
    """The hardware's: ERR 8 to the source for each packet, nothing stored, counted."""


class PlacementKind(Enum):
    """Which physical slot holds which logical expert."""

    CONTIGUOUS = "contiguous"
    PHY2LOG = "phy2log"
    """An explicit table, such as EPLB's."""
    SWAP_LIST = "swap_list"


class OwnGpu(Enum):
    """Targets on the source's own GPU; the same for all schemes that are compared."""

    THROUGH_SWITCH = "through_switch"
    LOCAL_BYPASS = "local_bypass"
    """They never reach a link. In traffic counts only."""


IMPLEMENTED: frozenset[Enum] = frozenset(
    {
        *DuplicateId,
        WeightAt.EXPERT_EPILOGUE,
        WeightAt.NONE,
        *(each for each in Accumulation if each is not Accumulation.BF16_TRUNCATE),
        *SlotOrder,
        *Overflow,
        PlacementKind.CONTIGUOUS,
        PlacementKind.PHY2LOG,
        *OwnGpu,
    }
)
"""The answers that the model computes."""


@dataclass(frozen=True)
class Policies:
    """One answer to each question; the defaults are what the hardware does.

    Raises
    ------
    UserError
        If an answer has a name but is not implemented.
    """

    duplicate: DuplicateId = DuplicateId.COUNT_TWICE
    weights: WeightAt = WeightAt.EXPERT_EPILOGUE
    accumulation: Accumulation = Accumulation.GPU_LIST_THEN_PORT_RANK
    slots: SlotOrder = SlotOrder.FIRST_TOUCH
    overflow: Overflow = Overflow.ERROR
    placement: PlacementKind = PlacementKind.CONTIGUOUS
    own_gpu: OwnGpu = OwnGpu.THROUGH_SWITCH

    def __post_init__(self):
        for name, value in self.to_dict().items():
            if getattr(self, name) not in IMPLEMENTED:
                raise UserError(
                    f"Policy {name} = {value} is not implemented; choose "
                    f"{_choices(type(getattr(self, name)), implemented=True)}"
                )

    def to_dict(self) -> dict[str, str]:
        """Names and values as text, for a trace's header."""
        return {item.name: getattr(self, item.name).value for item in fields(self)}

    @classmethod
    def from_dict(cls, values: dict[str, str]) -> "Policies":
        """The inverse of :meth:`to_dict`; what is not named keeps its default.

        Raises
        ------
        UserError
            If a question or an answer is unknown, or an answer not implemented.
        """
        kinds = {item.name: type(item.default) for item in fields(cls)}
        chosen = {}
        for name, value in values.items():
            if name not in kinds:
                raise UserError(f"Policy must be one of {', '.join(kinds)}, not {name!r}")
            try:
                chosen[name] = kinds[name](value)
            except ValueError:
                raise UserError(
                    f"Policy {name} must be {_choices(kinds[name])}, not {value!r}"
                ) from None
        return cls(**chosen)


def _choices(kind: type[Enum], *, implemented: bool = False) -> str:
    names = [item.value for item in kind if not implemented or item in IMPLEMENTED]
    return " or ".join(names)
