"""What a user would take otherwise: other people's designs, measured as ours are.

All figures were taken with :data:`METHOD` in :data:`LIBRARY`. FO4 delays are abc's, on the netlist
that it mapped for delay.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

__all__ = ["ADDERS", "DESIGNS", "FO4_PS", "LIBRARY", "METHOD", "Peer", "as_dict"]

LIBRARY = "osu018_stdcells"
FO4_PS = 97.4
"""Delay of an inverter that drives four of its kind, in :data:`LIBRARY`, in picoseconds."""
METHOD = (
    "area: synth -flatten; dfflibmap; abc -liberty; stat -liberty. "
    "Delay: abc -liberty -constr (driving cell INVX4, load 0.05 pF) -D 1; FO4 = 97.4 ps"
)

_HARDFLOAT = "https://github.com/ucb-bar/berkeley-hardfloat"
_FPNEW = "https://github.com/openhwgroup/cvfpu"
_TINY_SWITCH = "https://github.com/ikryukov/tiny-switch"
_CVA6 = "https://github.com/openhwgroup/cva6"
_FLOONOC = "https://github.com/pulp-platform/FlooNoC"


@dataclass(frozen=True)
class Peer:
    """A design of somebody else.

    Attributes
    ----------
    name : what it is
    ge : gate equivalents, NAND2X1 being one
    fo4 : delay in inverters that drive four of their kind; None where it was not measured
    source : where it is
    correct : it rounds to nearest even and follows IEEE 754 on every pair of operands
    note : what must be known to compare
    """

    name: str
    ge: int
    fo4: int | None
    source: str
    correct: bool = True
    note: str = ""


ADDERS: Mapping[str, tuple[Peer, ...]] = {
    "bf16": (
        Peer(
            "HardFloat",
            1165,
            80,
            _HARDFLOAT,
            note="with its alignment mended: as published, 1.0 + 2^-126 gives 0x3f81",
        ),
        Peer("FPnew, add", 1472, 120, _FPNEW),
        Peer("FPnew, full FMA", 2459, 140, _FPNEW, note="multiplies too"),
        Peer(
            "tiny-switch",
            727,
            63,
            _TINY_SWITCH,
            correct=False,
            note="truncates: 5.27 % of all pairs are wrong; 7c40 + 7f7f gives NaN",
        ),
    ),
    "f16": (
        Peer("HardFloat", 1360, 80, _HARDFLOAT),
        Peer("FPnew, add", 1706, 123, _FPNEW),
    ),
    "f32": (
        Peer("HardFloat", 2885, 127, _HARDFLOAT),
        Peer("FPnew, add", 4015, 169, _FPNEW),
    ),
    "e5m2": (Peer("HardFloat", 488, 51, _HARDFLOAT, note="mended"),),
    "e4m3": (
        Peer("HardFloat", 553, 55, _HARDFLOAT, note="mended; with infinities, unlike OCP's e4m3"),
    ),
}
"""Combinational adders by format, the best correct one first."""

DESIGNS: tuple[Peer, ...] = (
    Peer(
        "tiny-switch, 4 ports",
        4132,
        87,
        _TINY_SWITCH,
        correct=False,
        note="one bf16 operation in flight, 14 cycles each: 904 GE an operand bit a cycle",
    ),
    Peer("cva6 TLB, 16 entries", 23029, 25, _CVA6, note="a CAM: 1439 GE an entry"),
    Peer("FlooNoC router, 5 ports", 356_000, 35, _FLOONOC),
    Peer("FlooNoC router, 5 ports, multicast", 374_000, None, _FLOONOC),
    Peer(
        "FlooNoC router, 5 ports, all collectives",
        453_000,
        None,
        _FLOONOC,
        note="reduces two inputs a router; the floating-point unit is outside",
    ),
)
"""Whole designs. None is an ALU of a flit a cycle: there is no peer to the ALU as a whole."""


def as_dict() -> dict:
    """Everything as plain values, for JSON."""
    return {
        "library": LIBRARY,
        "method": METHOD,
        "adders": {form: [asdict(peer) for peer in peers] for form, peers in ADDERS.items()},
        "designs": [asdict(peer) for peer in DESIGNS],
    }
