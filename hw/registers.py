"""The register maps of a switch and of a GPU, each declared once.

Addresses do not depend on the preset, but for the number of entries in a window. Fields have the
width of the largest preset; hardware that needs fewer bits ignores the upper ones and reads 0.
"""

from dysharp.hw.csr import Field, Register, Window

__all__ = ["gpu_experts", "gpu_objects", "switch_objects"]


def _number(name: str, offset: int, width: int, doc: str) -> Register:
    return Register(name, offset, (Field(name, 0, width, doc),), doc)


_ATTR_DOC = "default {acc 1, op 3, dtype 4} of a packet whose attr is 0"
_VALID = Register(
    "control",
    0x3C,
    (Field("valid", 0, 1, "the entry is in use; written last, and first cleared"),),
    "Control of the entry.",
)


def switch_objects(*, objects: int) -> Window:
    """The switch's object table, one entry an object."""
    return Window(
        "objects",
        0x1000,
        objects,
        (
            _number("base", 0x00, 48, "first multimem address of the object"),
            _number("size", 0x08, 48, "bytes of its address range"),
            _number("members", 0x10, 72, "GPUs that belong to it, a bit a GPU"),
            _number("group", 0x20, 72, "GPUs that an empty list means, a bit a GPU"),
            Register(
                "route",
                0x30,
                (
                    Field("split", 0, 4, "bit at which an id is cut into {GPU, slot}"),
                    Field("attr", 8, 8, _ATTR_DOC),
                    Field("slots", 16, 11, "slots in use on every GPU"),
                ),
                "How target ids are read.",
            ),
            _VALID,
        ),
        "Object table: address range, members and how target ids are read.",
    )


def gpu_objects(*, objects: int) -> Window:
    """The Hub's object table, one entry an object."""
    return Window(
        "objects",
        0x1000,
        objects,
        (
            _number("base", 0x00, 48, "first multimem address of the object"),
            _number("rows", 0x08, 24, "algebraic rows: tokens a GPU times GPUs"),
            Register(
                "layout",
                0x0C,
                (
                    Field("stride", 0, 5, "log2 of the bytes from row to row of addresses"),
                    Field("attr", 8, 8, _ATTR_DOC),
                    Field("slots", 16, 11, "local slots in use"),
                    Field("preloaded", 31, 1, "the AL table is given: a store allocates nothing"),
                ),
                "How addresses are read.",
            ),
            _number("bsize0", 0x10, 20, "bytes of a token's block in stage 0, a multiple of 16"),
            _number("bsize1", 0x14, 20, "bytes of a token's block in stage 1, a multiple of 16"),
            _number("vbase0", 0x18, 48, "memory address of the stage 0 buffer"),
            _number("vbase1", 0x20, 48, "memory address of the stage 1 buffer"),
            _number("al_base", 0x28, 48, "memory address of the AL table"),
            _VALID,
        ),
        "Object table of the Hub: address range, buffers and AL table.",
    )


def gpu_experts(*, objects: int, slots: int) -> Window:
    """Rows of each local expert, entry = object * ``slots`` + slot; ``slots`` as built."""
    return Window(
        "experts",
        0x40000,
        objects * slots,
        (
            _number("row0", 0x0, 28, "first row of the slot in the buffers"),
            _number("capacity", 0x4, 24, "rows of the slot; a write restarts its LIdx at 0"),
        ),
        "Rows of each local expert: entry = object * slots + slot, slots as built.",
        readable=False,
    )
