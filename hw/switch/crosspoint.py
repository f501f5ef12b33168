"""One output of the buffered crossbar: a queue for every input and class, and their readers."""

from amaranth import Array, Cat, Module, Mux, Signal
from amaranth.lib import data, stream
from amaranth.lib.coding import Encoder
from amaranth.lib.wiring import Component, In, Out, Signature

from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.link.fifo import Fifo
from dysharp.hw.link.flit import Flit, FlitStream
from dysharp.hw.packet import MAX_FLITS, Header
from dysharp.hw.share import place

__all__ = ["MIN_QUEUE_DEPTH", "Broadcast", "Lane", "Contribution", "QueueReader", "Column"]

MIN_QUEUE_DEPTH = MAX_FLITS + 1
"""The longest packet, and the one flit that may be on its way while room is judged."""


def Broadcast(ports: int) -> Signature:  # noqa: N802 (a signature, like amaranth's own)
    """How an ingress writes one class of packets into the crossbar: one flit bus, a bit an output.

    Parameters
    ----------
    ports : outputs

    Members
    -------
    flit : Out, one flit a cycle, the same for every output
    push : Out, a bit an output: this flit enters its queue in this cycle
    want : Out, flits of the packet that is to go next, 1 to 32
    fits : In, a bit an output: its queue has room for ``want`` flits even if a flit is pushed in
        this very cycle. It depends on ``want`` and registers only, never on ``push``. A queue that
        fits stays so until the next push.
    """
    return Signature(
        {
            "flit": Out(Flit),
            "push": Out(ports),
            "want": Out(range(MAX_FLITS + 1)),
            "fits": In(ports),
        }
    )


Lane = Signature(
    {
        "flit": Out(Flit),
        "push": Out(1),
        "want": Out(range(MAX_FLITS + 1)),
        "fits": In(1),
    }
)
"""One output's share of a :func:`Broadcast`, as the ingress sees it."""
