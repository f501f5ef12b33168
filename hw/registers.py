"""The register maps of a switch and of a GPU, each declared once.

Addresses do not depend on the preset, but for the number of entries in a window. Fields have the
width of the largest preset; hardware that needs fewer bits ignores the upper ones and reads 0.
The tables of ``docs/registers.md`` are made from here.
"""

from collections.abc import Iterable

from amaranth.hdl import Shape
from amaranth.lib import data, enum
from amaranth.utils import bits_for

from dysharp.hw.alu.reductions import Arithmetic
from dysharp.hw.axi import ADDR_BITS
from dysharp.hw.config import Config
from dysharp.hw.gpu.hub_records import (
    AIDX_BITS,
    BSIZE_BITS,
    LIDX_BITS,
    OBJECT_BITS,
    ROW_BITS,
    SLOT_BITS,
)
from dysharp.hw.gpu.tracker_windows import tracker_windows
from dysharp.hw.packet import MAX_DATA_FLITS, Cmd, Header, Status, Tag
from dysharp.hw.parameters import LIMIT_BITS, ORDERS
from dysharp.hw.register_map import Access, Field, Register, RegisterMap, Window
from dysharp.hw.switch.session import TICKS

__all__ = [
    "DESIGN",
    "REVISION",
    "Block",
    "gpu_experts",
    "gpu_objects",
    "gpu_registers",
    "least_timeout",
    "maps_of",
    "switch_objects",
    "switch_registers",
]

DESIGN = 0x4459
"""What every identity register starts with: ``DY``."""
REVISION = 2
"""Counts changes of the maps that software must know of."""


class Block(enum.Enum, shape=8):
    """Who answers."""

    SWITCH = 1
    GPU = 2


SWITCH_ERRORS = (
    Status.MALFORMED,
    Status.UNKNOWN_OBJECT,
    Status.TIMEOUT,
    Status.UNSUPPORTED,
    Status.POISONED,
    Status.UNKNOWN_TARGET,
    Status.NOT_A_MEMBER,
    Status.NEVER_RESERVABLE,
)
"""What a switch can find wrong."""

GPU_ERRORS = (
    Status.MALFORMED,
    Status.UNKNOWN_OBJECT,
    Status.UNMAPPED_INDEX,
    Status.UNSUPPORTED,
    Status.POISONED,
    Status.UNKNOWN_TARGET,
    Status.QUOTA_EXCEEDED,
)
"""What a Hub can find wrong."""

_COUNTERS = 0x80


def _number(
    name: str, offset: int, width: int, doc: str, access: Access = Access.CONTROL, **options: int
) -> Register:
    return Register(name, offset, (Field(name, 0, width, doc),), doc, access, **options)


def _constant(name: str, offset: int, doc: str, fields: Iterable[tuple[Field, int]]) -> Register:
    pairs = list(fields)
    blank = Register(name, offset, tuple(field for field, _ in pairs), doc, Access.CONSTANT)
    return Register(
        name,
        offset,
        blank.fields,
        doc,
        Access.CONSTANT,
        value=blank.pack(**{field.name: value for field, value in pairs}),
    )


def _identity(block: Block) -> Register:
    return _constant(
        "identity",
        0x00,
        "Who this is.",
        [
            (Field("design", 0, 16, f"{DESIGN:#06x}"), DESIGN),
            (Field("block", 16, 8, "1 switch, 2 GPU"), block.value),
            (Field("revision", 24, 8, "revision of the register map"), REVISION),
        ],
    )


def _arithmetic(arithmetic: Arithmetic) -> Register:
    mask = sum(1 << dtype.value for dtype in arithmetic.dtypes)
    return _constant(
        "arithmetic",
        0x30,
        "What was built to reduce with.",
        [
            (Field("dtypes", 0, 16, "a bit for each type, at its number in attr"), mask),
            (Field("ftz", 16, 1, "f32 additions flush subnormals"), int(arithmetic.ftz)),
            (Field("depth", 24, 4, "pipeline stages of an addition"), arithmetic.depth),
        ],
    )


def _width(layout: type[data.Struct], field: str) -> int:
    return data.Layout.cast(layout)[field].width


def _error_log(errors: Iterable[Status]) -> tuple[Register, Register]:
    return (
        Register(
            "errors",
            0x20,
            tuple(
                Field(status.name.lower(), status.value, 1, f"status {status.value} was found")
                for status in errors
            ),
            "Which errors have been found since they were cleared.",
            Access.STICKY,
        ),
        Register(
            "first_error",
            0x24,
            (
                Field("valid", 0, 1, "an error is held"),
                Field("status", 8, Shape.cast(Status).width, "its status"),
                Field("port", 16, _width(Tag, "port"), "port at which it was found"),
                Field("cmd", 24, Shape.cast(Cmd).width, "command of the packet"),
                Field("addr", 32, _width(Header, "addr"), "addr field of the packet"),
            ),
            "The first error since the register was re-armed.",
            Access.FIRST,
        ),
    )


def _counters(
    errors: Iterable[Status],
    error_step: int,
    events: Iterable[tuple[str, int, int, str]],
) -> tuple[Register, ...]:
    """Counters from ``_COUNTERS`` on; an event is name, most in a cycle, bits, meaning."""
    rows = [
        (f"error_{status.name.lower()}", error_step, 32, f"packets found in error {status.value}")
        for status in errors
    ]
    registers, offset = [], _COUNTERS
    for name, most, width, doc in [*rows, *events]:
        registers.append(
            _number(name, offset, width, doc, Access.COUNTER, step_bits=bits_for(most))
        )
        offset += 4 * registers[-1].words
    return tuple(registers)


def _link_events(links: int) -> list[tuple[str, int, int, str]]:
    """What is counted of a block's links, for :func:`_counters`."""
    return [
        ("rx_req_flits", links, 32, "flits that came in as requests"),
        ("rx_rsp_flits", links, 32, "flits that came in as responses"),
        ("tx_req_flits", links, 32, "flits that left as requests"),
        ("tx_rsp_flits", links, 32, "flits that left as responses"),
        ("rx_stalls", 2 * links, 32, "stream and cycle pairs: a flit waits to come in"),
        ("tx_stalls", 2 * links, 32, "stream and cycle pairs: a flit waits to leave"),
    ]


_ATTR = Field("attr", 8, 8, "default {acc 1, op 3, dtype 4} of a packet whose attr is 0")
_SLOTS = Field("slots", 16, SLOT_BITS + 1, "slots in use on every GPU")
_VALID = Register(
    "control",
    0x3C,
    (Field("valid", 0, 1, "the entry is in use; set last, cleared first"),),
    "Control of the entry.",
)


def least_timeout(*, sessions: int) -> int:
    """The fewest cycles that a session may be given: its end is seen in time beside all others.

    Each end takes a cycle between two contributions, so all of them take as many of the longest.
    """
    return max(TICKS, sessions * (MAX_DATA_FLITS + 4))


def switch_objects(*, objects: int) -> Window:
    """The switch's object table, one entry an object."""
    return Window(
        "objects",
        0x1000,
        objects,
        (
            _number("base", 0x00, ADDR_BITS, "first multimem address of the object"),
            _number("size", 0x08, ADDR_BITS, "bytes of its address range"),
            _number("members", 0x10, 72, "GPUs that belong to it, a bit a GPU"),
            _number("group", 0x20, 72, "GPUs that an empty list means, a bit a GPU"),
            Register(
                "route",
                0x30,
                (
                    Field("split", 0, 4, "an id is {GPU, slot}, slot in the bits below"),
                    _ATTR,
                    _SLOTS,
                ),
                "How target ids are read.",
            ),
            _VALID,
        ),
        "Address range, members and target ids of an object; entry = object.",
    )


def switch_registers(
    *,
    gpus: int,
    links: int,
    chunk_bytes: int,
    objects: int,
    sessions: int,
    arithmetic: Arithmetic,
    order: str,
) -> RegisterMap:
    """What a switch's control port reaches.

    Parameters
    ----------
    gpus, links : GPUs, and ports of each
    chunk_bytes : bytes of a chunk
    objects : entries of the object table
    sessions : reductions in flight at each port
    arithmetic : types that can be reduced, and how
    order : the order in which contributions are accumulated
    """
    ports = gpus * links
    return RegisterMap(
        f"switch_{gpus}x{links}_c{chunk_bytes}_o{objects}_s{sessions}_{arithmetic.name}_{order}",
        (
            _identity(Block.SWITCH),
            _constant(
                "size",
                0x04,
                "What was built.",
                [
                    (Field("gpus", 0, 7, "GPUs"), gpus),
                    (Field("links", 8, 6, "ports of a GPU"), links),
                    (Field("objects", 16, 5, "entries of the object table"), objects),
                    (
                        Field("chunk", 24, 4, "log2 of the bytes of a chunk"),
                        bits_for(chunk_bytes) - 1,
                    ),
                ],
            ),
            _constant(
                "reduction",
                0x08,
                "What was built in each port's reduction unit.",
                [
                    (Field("sessions", 0, 9, "reductions in flight"), sessions),
                    (Field("order", 16, 2, "0 arrival, 1 rank, 2 exact"), ORDERS.index(order)),
                ],
            ),
            _number(
                "session_timeout",
                0x0C,
                LIMIT_BITS,
                f"cycles after which a session is answered without its missing answers, in steps "
                f"of {TICKS}; at least {least_timeout(sessions=sessions)}; 0: never",
            ),
            _number(
                "stall_limit",
                0x10,
                LIMIT_BITS,
                "cycles after which a packet that stops in the middle is cut short; 0: never",
            ),
            _number(
                "drop_limit",
                0x14,
                LIMIT_BITS,
                "cycles after which an output whose flit is not taken fails; 0: never",
            ),
            Register(
                "free_retired",
                0x18,
                (
                    Field("port", 0, _width(Tag, "port"), "the port whose sessions are freed"),
                    Field("free", 8, 1, "do it"),
                ),
                "Frees the retired sessions of a port, whose missing answers will never come.",
                Access.COMMAND,
            ),
            _number("retired", 0x1C, 16, "sessions that are retired now", Access.STATUS),
            *_error_log(SWITCH_ERRORS),
            _arithmetic(arithmetic),
            _number(
                "failed",
                0x34,
                72,
                "ports that owe an answer or take no flit, a bit a port; none is sent a request",
                Access.STICKY,
            ),
            *_counters(
                SWITCH_ERRORS,
                6 * ports,
                [
                    ("dropped", 4 * ports, 32, "posted and response packets dropped for an error"),
                    ("stray", ports, 32, "contributions that no session expected"),
                    *_link_events(ports),
                    ("replicas", ports * ports, 32, "requests written to an output's queue"),
                    ("contributions", ports, 32, "responses accumulated"),
                    ("results", ports, 32, "answers sent for a session"),
                    ("session_waits", ports, 32, "port and cycle pairs: a request waits for one"),
                    ("session_cycles", ports * sessions, 64, "session and cycle pairs in use"),
                    ("timeouts", ports, 32, "sessions answered without their missing answers"),
                    ("drained", 2 * ports, 32, "flits dropped at outputs that failed"),
                ],
            ),
        ),
        (switch_objects(objects=objects),),
        "One switch plane.",
    )


_BLOCK = "bytes of a token's block"


def gpu_objects(*, objects: int) -> Window:
    """The Hub's object table, one entry an object."""
    return Window(
        "objects",
        0x1000,
        objects,
        (
            _number("base", 0x00, ADDR_BITS, "first multimem address of the object"),
            _number("rows", 0x08, AIDX_BITS, "algebraic rows: tokens a GPU times GPUs"),
            Register(
                "layout",
                0x0C,
                (
                    Field("stride", 0, 5, "log2 of the bytes from row to row of addresses"),
                    _ATTR,
                    _SLOTS,
                    Field("split", 27, 4, "an id is {GPU, slot}, slot in the bits below"),
                    Field("preloaded", 31, 1, "the AL table is given: a store allocates nothing"),
                ),
                "How addresses and ids are read.",
            ),
            _number(
                "bsize0", 0x10, BSIZE_BITS, "bytes of a token's block in stage 0, a multiple of 16"
            ),
            _number(
                "bsize1", 0x14, BSIZE_BITS, "bytes of a token's block in stage 1, a multiple of 16"
            ),
            _number("vbase0", 0x18, ADDR_BITS, "memory address of the stage 0 buffer"),
            _number("vbase1", 0x20, ADDR_BITS, "memory address of the stage 1 buffer"),
            _number("al_base", 0x28, ADDR_BITS, "memory address of the AL table"),
            _number("size", 0x30, ADDR_BITS, "bytes of its address range, as in the switch"),
            _VALID,
        ),
        "Address range, buffers and AL table of an object; entry = object.",
    )


def gpu_experts(*, objects: int, slots: int) -> Window:
    """Rows of each local expert, entry = object * ``slots`` + slot; ``slots`` as built."""
    return Window(
        "experts",
        0x40000,
        objects * slots,
        (
            _number("row0", 0x0, ROW_BITS, "first row of the slot in the buffers"),
            _number("capacity", 0x4, LIDX_BITS, "rows of the slot; a write restarts its LIdx at 0"),
        ),
        "Rows of each local expert; entry = object * slots + slot, with slots as built.",
        readable=False,
    )


def gpu_registers(
    *,
    objects: int,
    slots: int,
    links: int,
    memory_width: int,
    tlb_entries: int,
    tlb_ways: int,
    multimemq_entries: int,
    outstanding: int,
    ts_entries: int,
    or_entries: int,
    arithmetic: Arithmetic,
) -> RegisterMap:
    """What the control port of a GPU's network side reaches.

    Parameters
    ----------
    objects : entries of the object table
    slots : local experts that an object can have
    links : ports of the GPU
    memory_width : bits of the AXI4 data bus
    tlb_entries, tlb_ways : shape of the AL-TLB
    multimemq_entries : instructions that wait for their packet
    outstanding : packets that wait for their answer
    ts_entries, or_entries : tiles and tokens that the token tracker follows
    arithmetic : types that can be reduced, and how
    """
    return RegisterMap(
        f"gpu_o{objects}x{slots}_l{links}_w{memory_width}_t{tlb_entries}x{tlb_ways}"
        f"_q{multimemq_entries}_n{outstanding}_k{ts_entries}x{or_entries}_{arithmetic.name}",
        (
            _identity(Block.GPU),
            _constant(
                "size",
                0x04,
                "What was built.",
                [
                    (Field("objects", 0, 5, "entries of the object table"), objects),
                    (Field("slots", 8, 11, "local experts that an object can have"), slots),
                    (Field("links", 24, 6, "ports of the GPU"), links),
                ],
            ),
            _constant(
                "queues",
                0x08,
                "What was built for operations.",
                [
                    (Field("multimemq", 0, 9, "entries of the MultimemQ"), multimemq_entries),
                    (Field("outstanding", 16, 13, "packets that wait for answers"), outstanding),
                ],
            ),
            _constant(
                "tlb",
                0x0C,
                "What was built as AL-TLB.",
                [(Field("entries", 0, 17, "entries"), tlb_entries)],
            ),
            _constant(
                "tlb_ways",
                0x10,
                "Associativity of the AL-TLB.",
                [(Field("tlb_ways", 0, 17, "entries that share a set"), tlb_ways)],
            ),
            _constant(
                "memory",
                0x14,
                "The memory side.",
                [(Field("width", 0, 11, "bits of a beat"), memory_width)],
            ),
            Register(
                "tlb_flush",
                0x18,
                (
                    Field("object", 0, OBJECT_BITS, "the object that is flushed"),
                    Field("by_object", 8, 1, "forget the entries of that object"),
                    Field("whole", 9, 1, "forget all entries"),
                ),
                "Empties the AL-TLB.",
                Access.COMMAND,
            ),
            Register(
                "tracker",
                0x1C,
                (Field("clearing", 0, 1, "its windows must not be written yet"),),
                "The token tracker clears its tables after reset.",
                Access.STATUS,
            ),
            *_error_log(GPU_ERRORS),
            _arithmetic(arithmetic),
            *_counters(
                GPU_ERRORS,
                links + 1,  # each link's parser, and the Hub's answer
                [
                    ("dropped", 3, 32, "posted and response packets dropped for an error"),
                    *_link_events(links),
                    ("tlb_hits", 1, 32, "lookups that the AL-TLB answered"),
                    ("tlb_misses", 1, 32, "lookups that it did not"),
                    ("tlb_walks", 1, 32, "reads of the AL table"),
                    ("first_touches", 1, 32, "LIdx given to an expert's new token"),
                    ("stores", 1, 32, "multimem stores answered or done"),
                    ("load_reduces", 1, 32, "multimem load-reduces answered"),
                    ("memory_reads", 1, 32, "beats read from memory"),
                    ("memory_writes", 1, 32, "beats written to memory"),
                    ("queue_full", 1, 32, "cycles in which an instruction waits for an entry"),
                    ("instructions", 1, 32, "instructions taken"),
                    ("results", 1, 32, "instructions completed"),
                    ("faults", 1, 32, "instructions completed with a fault"),
                ],
            ),
        ),
        (
            gpu_objects(objects=objects),
            gpu_experts(objects=objects, slots=slots),
            *tracker_windows(
                objects=objects, slots=slots, ts_entries=ts_entries, or_entries=or_entries
            ),
        ),
        "The network side of one GPU.",
    )


def maps_of(config: Config) -> tuple[RegisterMap, RegisterMap]:
    """The maps of the switch and of each GPU for a configuration."""
    gpu = config.gpu
    return (
        switch_registers(
            gpus=config.gpus,
            links=config.links,
            chunk_bytes=config.chunk_bytes,
            objects=config.objects,
            sessions=config.switch.sessions,
            arithmetic=config.arithmetic,
            order=config.switch.order,
        ),
        gpu_registers(
            objects=config.objects,
            slots=gpu.slots,
            links=config.links,
            memory_width=gpu.memory_width,
            tlb_entries=gpu.tlb_entries,
            tlb_ways=gpu.tlb_ways,
            multimemq_entries=gpu.multimemq_entries,
            outstanding=gpu.outstanding,
            ts_entries=gpu.ts_entries,
            or_entries=gpu.or_entries,
            arithmetic=config.arithmetic,
        ),
    )
