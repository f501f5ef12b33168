"""The windows of the token tracker in the GPU's register map."""

from typing import Any

from amaranth.hdl import Value
from amaranth.lib import data
from amaranth.utils import ceil_log2

from dysharp.hw.gpu.hub_records import LIDX_BITS, OBJECT_BITS, SLOT_BITS
from dysharp.hw.register_map import Field, Register, Window

__all__ = [
    "COUNT_BITS",
    "DACC_BITS",
    "FLITS_BITS",
    "TILE_ROW_BITS",
    "TILE_TOKENS",
    "fields_of",
    "notice_window",
    "share_window",
    "tile_window",
    "token_window",
    "tracker_windows",
]

COUNT_BITS = 8
FLITS_BITS = 16
TILE_TOKENS = 128
"""Tokens of one expert that make up a tile, and a row of GEMM-1's input."""
TILE_ROW_BITS = LIDX_BITS - ceil_log2(TILE_TOKENS)
DACC_BITS = FLITS_BITS + ceil_log2(TILE_TOKENS) + 1


def fields_of(register: Register, word: Value) -> Any:
    """The fields of a register of one word, in a value of 32 bits."""
    layout: Any = register.shape
    return data.View(layout, word[: register.width])


def token_window(*, entries: int) -> Window:
    """Registers of the OR table; the entry of a token is its number modulo ``entries``."""
    return Window(
        "tokens",
        0x100000,
        entries,
        (
            Register("token", 0x0, (Field("token", 0, 32, "the token's number"),), "Whose entry."),
            Register(
                "follow",
                0x4,
                (
                    Field("object", 0, OBJECT_BITS, "the token's object"),
                    Field("threshold", 8, COUNT_BITS, "distinct experts of the token, at least 1"),
                ),
                "A write follows the token written last, from nReady 0 on.",
            ),
            Register(
                "readiness",
                0x8,
                (
                    Field("valid", 0, 1, "the entry follows a token"),
                    Field("ready", 1, 1, "nReady has reached the threshold: Combine may begin"),
                    Field("n_ready", 8, COUNT_BITS, "experts that have notified"),
                ),
                "How far the token is; read only.",
            ),
        ),
        "OR table of the token tracker; entry = token modulo the entries.",
    )


def tile_window(*, entries: int) -> Window:
    """Registers of the TS table; see :meth:`TileTable.entry_of` for the entry of a tile."""
    return Window(
        "tiles",
        0x200000,
        entries,
        (
            Register(
                "tile",
                0x0,
                (
                    Field("valid", 0, 1, "the entry holds a tile; any write frees it"),
                    Field("ready", 1, 1, "all its tokens are in memory: GEMM-1 may take the row"),
                    Field("object", 4, OBJECT_BITS, "its object"),
                    Field("slot", 8, SLOT_BITS, "its local expert"),
                ),
                "Which tile, and whether it is whole.",
            ),
            Register("row", 0x4, (Field("row", 0, TILE_ROW_BITS, "LIdx / 128"),), "Read only."),
            Register(
                "dacc", 0x8, (Field("dacc", 0, DACC_BITS, "DATA flits in memory"),), "Read only."
            ),
        ),
        "TS table of the token tracker.",
    )


def notice_window() -> Window:
    """Registers that send a NOTIFY."""
    return Window(
        "notices",
        0x300000,
        1,
        (
            Register("token", 0x0, (Field("token", 0, 32, "number at its source"),), "Whose."),
            Register(
                "send",
                0x4,
                (
                    Field("gpu", 0, 7, "the token's source"),
                    Field("object", 8, OBJECT_BITS, "the token's object"),
                ),
                "A write sends a NOTIFY for the token written last; lost if ``room`` is 0.",
            ),
            Register("room", 0x8, (Field("room", 0, 5, "NOTIFYs that fit"),), "Read only."),
        ),
        "Sends NOTIFY packets.",
    )


def share_window(*, objects: int, slots: int) -> Window:
    """What each local expert is to receive; entry = object * ``slots`` + slot."""
    return Window(
        "shares",
        0x400000,
        objects * slots,
        (
            Register(
                "token_flits",
                0x0,
                (Field("token_flits", 0, FLITS_BITS, "DATA flits of a token's block"),),
                "Written first; takes an announcement back.",
            ),
            Register(
                "announced",
                0x4,
                (Field("announced", 0, LIDX_BITS, "tokens that the expert receives, exact"),),
                "Closes the last tile; may be written when its tokens are there already.",
            ),
        ),
        "Tokens that each local expert is to receive; entry = object * slots + slot.",
        readable=False,
    )


def tracker_windows(
    *, objects: int, slots: int, ts_entries: int, or_entries: int
) -> tuple[Window, ...]:
    """The tracker's windows, by ascending address."""
    return (
        token_window(entries=or_entries),
        tile_window(entries=ts_entries),
        notice_window(),
        share_window(objects=objects, slots=slots),
    )
