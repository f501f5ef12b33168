"""AXI signatures by their standard names: AXI4 for memory, AXI4-Lite for control.

A member ``m_axi: Out(axi4(...))`` becomes ``m_axi_awvalid`` and so on at a generated top.
Source: AMBA AXI and ACE protocol specification (AXI4, AXI4-Lite).
"""

from amaranth.lib import enum
from amaranth.lib.wiring import In, Out, Signature

__all__ = [
    "ADDR_BITS",
    "ID_BITS",
    "PAGE_BYTES",
    "ReadId",
    "WriteId",
    "axi4",
    "axi4_lite",
    "axi4_read",
]

ADDR_BITS = 48
ID_BITS = 2
PAGE_BYTES = 4096
"""No burst crosses a multiple of this."""


class ReadId(enum.Enum, shape=ID_BITS):
    """AXI read ids of a GPU: each purpose has its own, so none waits for another's answers."""

    HUB_DATA = 0
    AL_WALK = 1
    LIST_FETCH = 2
    TRACKER = 3


class WriteId(enum.Enum, shape=ID_BITS):
    """AXI write ids of a GPU."""

    HUB_DATA = 0
    AL_TABLE = 1
    TRACKER = 3


def axi4(*, data_width: int) -> Signature:
    """AXI4 as its master sees it; INCR bursts, no locks, caches, protection or regions.

    Parameters
    ----------
    data_width : bits of a beat, a power of two from 32 to 1024
    """
    _check_width(data_width)
    return Signature(
        _address("aw")
        | _read(data_width)
        | {
            "wvalid": Out(1),
            "wready": In(1),
            "wdata": Out(data_width),
            "wstrb": Out(data_width // 8),
            "wlast": Out(1),
            "bvalid": In(1),
            "bready": Out(1),
            "bid": In(ID_BITS),
            "bresp": In(2),
        }
    )


def axi4_read(*, data_width: int) -> Signature:
    """The read channels of :func:`axi4` alone, for a master that never writes."""
    _check_width(data_width)
    return Signature(_read(data_width))


def _check_width(data_width: int) -> None:
    if data_width not in (32, 64, 128, 256, 512, 1024):
        raise ValueError(f"Data width must be a power of two in 32..1024, not {data_width!r}")


def _address(channel: str) -> dict:
    return {
        f"{channel}valid": Out(1),
        f"{channel}ready": In(1),
        f"{channel}id": Out(ID_BITS),
        f"{channel}addr": Out(ADDR_BITS),
        f"{channel}len": Out(8),
        f"{channel}size": Out(3),
        f"{channel}burst": Out(2),
    }


def _read(data_width: int) -> dict:
    return _address("ar") | {
        "rvalid": In(1),
        "rready": Out(1),
        "rid": In(ID_BITS),
        "rdata": In(data_width),
        "rresp": In(2),
        "rlast": In(1),
    }


def axi4_lite(*, addr_width: int) -> Signature:
    """AXI4-Lite with 32-bit data as its master sees it.

    Parameters
    ----------
    addr_width : bits of a byte address
    """
    if addr_width < 2:
        raise ValueError(f"Address width must be at least 2, not {addr_width!r}")
    return Signature(
        {
            "awvalid": Out(1),
            "awready": In(1),
            "awaddr": Out(addr_width),
            "wvalid": Out(1),
            "wready": In(1),
            "wdata": Out(32),
            "wstrb": Out(4),
            "bvalid": In(1),
            "bready": Out(1),
            "bresp": In(2),
            "arvalid": Out(1),
            "arready": In(1),
            "araddr": Out(addr_width),
            "rvalid": In(1),
            "rready": Out(1),
            "rdata": In(32),
            "rresp": In(2),
        }
    )
