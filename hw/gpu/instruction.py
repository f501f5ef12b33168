"""What an SM hands to the MultimemQ, and what it gets back."""

from amaranth.hdl import Value
from amaranth.lib import data

from dysharp.hw.axi import ADDR_BITS
from dysharp.hw.packet import CMD_RULES, FLIT_BITS, Cmd, Status

__all__ = ["MULTIMEM_OPS", "Instruction", "Result"]

MULTIMEM_OPS = tuple(cmd for cmd, rule in CMD_RULES.items() if rule.targets)
"""The commands that can be instructions: those that carry a target list."""


def _one_of(op: Value, cmds) -> Value:
    hit = Value.cast(0)
    for cmd in cmds:
        hit = hit | (op == cmd.value)
    return hit


class Instruction(data.Struct):
    """One multimem instruction.

    Members
    -------
    op : ``Cmd.MM_ST``, ``MM_STP``, ``MM_LDR`` or ``MM_RED``; anything else is refused
    static : the object's preset group instead of a list (NVLS); ``count`` and ``list_addr`` unused
    attr : type, operation and accumulation, 0 for the object's default
    maddr : multimem byte address, 16-byte aligned
    stage : 0 Dispatch, 1 Combine
    count : entries of the list in memory, those that are 0xFFFF included
    list_addr : byte address of the list, contiguous 16-bit ids, 2-byte aligned
    flits : DATA flits given (stores, MM_RED) or wanted (MM_LDR), 1 to a chunk's
    id : the SM's own, comes back with the result

    Source
    ------
    PTX ``multimem.st``, ``.ld_reduce`` and ``.red`` with the paper's target list.
    """

    op: Cmd.as_shape()
    static: 1
    attr: 8
    maddr: 48
    stage: 1
    count: 7
    list_addr: ADDR_BITS
    flits: 5
    id: 16

    @property
    def known(self) -> Value:
        """The operation is a multimem operation."""
        return _one_of(self.op, MULTIMEM_OPS)

    @property
    def gives_data(self) -> Value:
        """DATA flits of this instruction follow on the data stream."""
        ops = [cmd for cmd in MULTIMEM_OPS if CMD_RULES[cmd].max_data]
        return _one_of(self.op, ops) & (self.flits != 0)

    @property
    def loads(self) -> Value:
        """DATA flits are wanted back."""
        return self.op == Cmd.MM_LDR.value

    @property
    def answered(self) -> Value:
        """One answer comes back from the switch."""
        return _one_of(self.op, [cmd for cmd in MULTIMEM_OPS if CMD_RULES[cmd].answered])


class Result(data.Struct):
    """One beat of an instruction's result: a beat a DATA flit, or one beat without data.

    Members
    -------
    id : the instruction's
    fault : 0, or the status of what went wrong; a faulted instruction has one beat and no data
    data : 16 bytes of a load, byte 0 in bits 7:0
    has_data : ``data`` means something
    last : the instruction is complete
    """

    id: 16
    fault: Status
    data: FLIT_BITS
    has_data: 1
    last: 1
