"""The flit, and the stream that carries flits between all blocks."""

from amaranth.lib import data, stream

from dysharp.hw.packet import FLIT_BITS

__all__ = ["Flit", "FlitStream"]


class Flit(data.Struct):
    """One flit on a stream.

    Members
    -------
    data : 128 bits of a packet, bit 0 first
    last : the packet's last flit (AXI4-Stream ``tlast``)
    poison : the packet's content is not to be trusted (``tuser``); counts on the last flit only
    """

    data: FLIT_BITS
    last: 1
    poison: 1


FlitStream = stream.Signature(Flit)
"""A stream of flits; ``tdata``, ``tvalid``, ``tready``, ``tlast``, ``tuser`` at a generated top."""
