"""The AL table's entry in a GPU's memory, as hardware, runtime and model share it."""

from amaranth.lib import data

__all__ = ["AL_ENTRY_BYTES", "AlEntry"]

AL_ENTRY_BYTES = 4


class AlEntry(data.Struct):
    """Where a local expert keeps a token; all zero before its first touch.

    The entry of a slot and an algebraic index stands at
    ``al_base + AL_ENTRY_BYTES * (slot * rows + aidx)``, lowest byte first.

    Members
    -------
    lidx : layout index, the token's row at the expert
    valid : the token has a row
    """

    lidx: 31
    valid: 1
