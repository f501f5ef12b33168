"""Control and status registers as plain data.

The hardware (:class:`dysharp.hw.csr.CsrBank`), the runtime's address arithmetic and
``docs/registers.md`` are made from a :class:`RegisterMap`, so a bit position and an address are
each written once; the two maps of the project stand in :mod:`dysharp.hw.registers`.
"""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from amaranth import unsigned
from amaranth.hdl import ShapeLike
from amaranth.lib import data
from amaranth.lib.wiring import In, Out, Signature
from amaranth.utils import ceil_log2

__all__ = [
    "WORD_BITS",
    "WORD_BYTES",
    "Access",
    "Field",
    "Register",
    "RegisterMap",
    "Window",
    "window_port",
]

WORD_BITS = 32
WORD_BYTES = WORD_BITS // 8


class Access(Enum):
    """What a register is, seen from the bus. The text is what the documentation prints."""

    CONSTANT = "read, fixed"
    STATUS = "read"
    CONTROL = "read and write"
    COMMAND = "write, acts once"
    STICKY = "read, write 1 to clear"
    COUNTER = "read, any write clears"
    FIRST = "read, any write re-arms"

    @property
    def readable(self) -> bool:
        """Reads are answered, not refused."""
        return self is not Access.COMMAND

    @property
    def writable(self) -> bool:
        """Writes are taken, not refused."""
        return self not in (Access.CONSTANT, Access.STATUS)


@dataclass(frozen=True)
class Field:
    """Some bits of a register.

    Parameters
    ----------
    name : name in hardware, runtime and documentation
    lsb : lowest bit, counted from the register's first word
    width : bits
    doc : meaning, with unit
    """

    name: str
    lsb: int
    width: int
    doc: str

    def __post_init__(self):
        if self.lsb < 0 or self.width < 1:
            raise ValueError(
                f"Field {self.name} must have bits from 0 on, not {self.width} from {self.lsb}"
            )


@dataclass(frozen=True)
class Register:
    """One or more consecutive 32-bit words with one meaning.

    Parameters
    ----------
    name : name in hardware, runtime and documentation
    offset : byte address in the map, or in the entry of a window
    access : what it is; registers of a window follow their window and leave this alone
    fields : its bits, ascending
    doc : meaning
    value : what a ``CONSTANT`` reads
    step_bits : bits of what a ``COUNTER`` adds in one cycle
    """

    name: str
    offset: int
    fields: tuple[Field, ...]
    doc: str
    access: Access = Access.CONTROL
    value: int = 0
    step_bits: int = 1

    def __post_init__(self):
        if self.offset % WORD_BYTES:
            raise ValueError(
                f"Offset of {self.name} must be a multiple of {WORD_BYTES}, not {self.offset:#x}"
            )
        for low, high in pairwise(self.fields):
            if low.lsb + low.width > high.lsb:
                raise ValueError(
                    f"Fields of {self.name} must be ascending and apart, "
                    f"not {low.name} beside {high.name}"
                )

    @property
    def width(self) -> int:
        """Bits up to the highest field."""
        return self.fields[-1].lsb + self.fields[-1].width

    @property
    def words(self) -> int:
        """32-bit words that it occupies."""
        return -(-self.width // WORD_BITS)

    @property
    def word(self) -> int:
        """First word, counted from the start of the map or of the window's entry."""
        return self.offset // WORD_BYTES

    @property
    def shape(self) -> ShapeLike:
        """Shape in hardware: a plain number for one field of the register's own name."""
        if len(self.fields) == 1 and self.fields[0].name == self.name:
            return unsigned(self.width)
        return data.FlexibleLayout(
            self.width, {field.name: data.Field(field.width, field.lsb) for field in self.fields}
        )

    @property
    def mask(self) -> int:
        """The bits that exist."""
        return sum(((1 << field.width) - 1) << field.lsb for field in self.fields)

    def pack(self, **values: int) -> int:
        """Number that holds these fields; fields left out are 0.

        Raises
        ------
        ValueError
            For a field that does not exist or a value that does not fit.
        """
        number = 0
        for field in self.fields:
            value = int(values.pop(field.name, 0))
            if not 0 <= value < 1 << field.width:
                raise ValueError(
                    f"{self.name}.{field.name} must fit {field.width} bits, not {value!r}"
                )
            number |= value << field.lsb
        if values:
            raise ValueError(f"{self.name} must have the field, not {next(iter(values))!r}")
        return number

    def unpack(self, number: int) -> dict[str, int]:
        """Fields of a number that was read."""
        return {field.name: number >> field.lsb & (1 << field.width) - 1 for field in self.fields}

    def split(self, **values: int) -> list[int]:
        """Words of :meth:`pack`, lowest first."""
        number = self.pack(**values)
        return [number >> WORD_BITS * word & (1 << WORD_BITS) - 1 for word in range(self.words)]


@dataclass(frozen=True)
class Window:
    """A table that lives in another block and is reached word by word.

    Entries stand a power of two of words apart, so index and word are bits of the address. An
    entry is consistent only if its owner looks at nothing before the register that is written
    last (``valid`` by custom).

    Parameters
    ----------
    name : name of the port in hardware
    base : byte address of entry 0, a multiple of the window's size
    entries : entries
    registers : words of an entry
    doc : meaning
    readable : reads reach the table; else they are refused
    """

    name: str
    base: int
    entries: int
    registers: tuple[Register, ...]
    doc: str
    readable: bool = True

    def __post_init__(self):
        _check_registers(self.name, self.registers)
        if self.base % self.span:
            raise ValueError(
                f"Base of {self.name} must be a multiple of {self.span:#x}, not {self.base:#x}"
            )

    def __getitem__(self, name: str) -> Register:
        return _find(self.name, self.registers, name)

    @property
    def word_bits(self) -> int:
        """Address bits of a word in an entry."""
        return ceil_log2(max(register.word + register.words for register in self.registers))

    @property
    def index_bits(self) -> int:
        """Address bits of an entry."""
        return ceil_log2(self.entries)

    @property
    def stride(self) -> int:
        """Bytes from entry to entry."""
        return WORD_BYTES << self.word_bits

    @property
    def span(self) -> int:
        """Bytes of address space, a power of two."""
        return self.stride << self.index_bits

    @property
    def layout(self) -> data.FlexibleLayout:
        """A whole entry, word 0 lowest, with every register by name."""
        return data.FlexibleLayout(
            WORD_BITS << self.word_bits,
            {
                register.name: data.Field(register.shape, register.word * WORD_BITS)
                for register in self.registers
            },
        )

    @property
    def port(self) -> Signature:
        """The window's port; see :func:`window_port`."""
        return window_port(index_bits=max(1, self.index_bits), word_bits=self.word_bits)

    def __contains__(self, address: int) -> bool:
        return self.base <= address < self.base + self.span

    def address(self, index: int, register: str) -> int:
        """Byte address of a register's first word in entry ``index``."""
        if not 0 <= index < self.entries:
            raise ValueError(f"Entry of {self.name} must be below {self.entries}, not {index!r}")
        return self.base + index * self.stride + self[register].offset

    def writes(self, index: int, register: str, **values: int) -> list[tuple[int, int]]:
        """Address and value of each word to write, so that a register holds these fields."""
        first = self.address(index, register)
        words = self[register].split(**values)
        return [(first + WORD_BYTES * word, value) for word, value in enumerate(words)]


@dataclass(frozen=True)
class RegisterMap:
    """All that one AXI4-Lite port reaches.

    Parameters
    ----------
    name : block, with what its hardware depends on; names the module
    registers : registers by ascending address
    windows : tables of other blocks, above the registers
    doc : meaning
    """

    name: str
    registers: tuple[Register, ...]
    windows: tuple[Window, ...]
    doc: str

    def __post_init__(self):
        _check_registers(self.name, self.registers)
        ends = [("registers", 0, self.register_span)]
        ends += [(window.name, window.base, window.base + window.span) for window in self.windows]
        for low, high in pairwise(ends):
            if low[2] > high[1]:
                raise ValueError(
                    f"Parts of {self.name} must be ascending and apart, "
                    f"not {low[0]} up to {low[2]:#x} and {high[0]} from {high[1]:#x}"
                )
        names = {window.name for window in self.windows}
        if len(names) != len(self.windows) or names & {r.name for r in self.registers}:
            raise ValueError(f"Windows of {self.name} must have names of their own, not {names!r}")

    def __getitem__(self, name: str) -> Register:
        return _find(self.name, self.registers, name)

    def window(self, name: str) -> Window:
        """A window by name."""
        return next(window for window in self.windows if window.name == name)

    @property
    def register_span(self) -> int:
        """Bytes of address space that the registers take, a power of two."""
        last = self.registers[-1]
        return WORD_BYTES << ceil_log2(last.word + last.words)

    @property
    def addr_width(self) -> int:
        """Address bits of the bus."""
        return ceil_log2(max([self.register_span, *(w.base + w.span for w in self.windows)]))


def window_port(*, index_bits: int, word_bits: int) -> Signature:
    """How a :class:`CsrBank` reaches a table, as the bank sees it; a table's owner says ``In``.

    Members
    -------
    write_en : Out, ``write_data`` goes to this entry and word in this cycle; always taken
    index : Out, entry
    word : Out, 32-bit word of the entry
    write_data : Out(32)
    read_data : In(32), the word at ``index`` and ``word``, in the same cycle or in the next one:
        the bank holds both for two cycles of a read and samples at the end of the second.
        Without ``write_en`` nothing may change.
    """
    return Signature(
        {
            "write_en": Out(1),
            "index": Out(index_bits),
            "word": Out(word_bits),
            "write_data": Out(WORD_BITS),
            "read_data": In(WORD_BITS),
        }
    )


def _find(owner: str, registers: tuple[Register, ...], name: str) -> Register:
    for register in registers:
        if register.name == name:
            return register
    raise KeyError(f"{owner} must have the register, not {name!r}")


def _check_registers(owner: str, registers: tuple[Register, ...]) -> None:
    names = [register.name for register in registers]
    if len(set(names)) != len(names):
        raise ValueError(f"Registers of {owner} must have names of their own, not {names!r}")
    for low, high in pairwise(registers):
        if low.word + low.words > high.word:
            raise ValueError(
                f"Registers of {owner} must be ascending and apart, "
                f"not {low.name} beside {high.name}"
            )
