"""Several AXI4 masters on one memory port."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out
from amaranth.utils import ceil_log2

from dysharp.hw.axi import axi4
from dysharp.hw.link.arbiter import RoundRobin
from dysharp.hw.link.fifo import Fifo, Skid
from dysharp.hw.share import place

__all__ = ["AxiMux"]

BURSTS_AHEAD = 8
"""Write bursts whose address has been taken and whose data has not."""
_ADDRESS = ("id", "addr", "len", "size", "burst")


class AxiMux(Component):
    """Merges AXI4 masters; answers find their master by id.

    Addresses are chosen round robin. Write data goes in the order of the write addresses, so a
    master must not hold back the data of a burst until another master has done something. A master
    whose ``bready`` and ``rready`` are always high is never the reason that another one waits.

    Latency: one cycle for addresses and write data, none for answers. Throughput: a beat a cycle on
    each channel. No path leads from the memory side's ready to a master's.

    Parameters
    ----------
    data_width : bits of a beat
    read_ids, write_ids : for each master the ids that it uses; no id belongs to two

    Source
    ------
    AMBA AXI and ACE protocol specification: write data in address order, answers by id.
    """

    masters: Any
    """In(array of axi4), one a master."""
    m_axi: Any
    """Out(axi4)."""

    def __init__(
        self,
        *,
        data_width: int,
        read_ids: tuple[tuple[int, ...], ...],
        write_ids: tuple[tuple[int, ...], ...],
    ):
        if len(read_ids) != len(write_ids) or len(read_ids) < 2:
            raise ValueError(f"Ids must be given for two masters or more, not {read_ids!r}")
        for noun, ids in (("Read ids", read_ids), ("Write ids", write_ids)):
            flat = [number for group in ids for number in group]
            if len(set(flat)) != len(flat):
                raise ValueError(f"{noun} must belong to one master each, not {ids!r}")
        self.data_width, self.read_ids, self.write_ids = data_width, read_ids, write_ids
        bus = axi4(data_width=data_width)
        super().__init__({"masters": In(bus).array(len(read_ids)), "m_axi": Out(bus)})

    @property
    def module_name(self) -> str:
        """``axi_mux_w<data width>_r<ids>_w<ids>``, ids of the masters in turn."""
        reads, writes = (
            "_".join("".join(map(str, group)) or "n" for group in ids)
            for ids in (self.read_ids, self.write_ids)
        )
        return f"axi_mux_w{self.data_width}_r{reads}_w{writes}"

    def elaborate(self, platform):
        """Two address channels, write data behind its address, answers straight through."""
        m = Module()
        count = len(self.masters)
        self._address(m, "ar", None)
        order = Fifo(shape=max(1, ceil_log2(count)), depth=BURSTS_AHEAD)
        m.submodules.order = place(order)
        self._address(m, "aw", order.i)
        self._write_data(m, order.o)
        self._answers(m, "b", ("id", "resp"), self.write_ids)
        self._answers(m, "r", ("id", "data", "resp", "last"), self.read_ids)
        return m

    def _address(self, m: Module, channel: str, order) -> None:
        """Choose an address, and with ``order`` note whose it was."""
        out = _port(self.m_axi, channel, _ADDRESS)
        ports = [_port(master, channel, _ADDRESS) for master in self.masters]
        choice = RoundRobin(count=len(ports))
        held = Skid(shape=len(Cat(out)))
        m.submodules[f"{channel}_choice"] = place(choice)
        m.submodules[f"{channel}_held"] = place(held)
        room = held.i.ready if order is None else held.i.ready & order.ready
        chosen = Value.cast(0)
        for k, (master, port) in enumerate(zip(self.masters, ports, strict=True)):
            m.d.comb += [
                choice.request[k].eq(getattr(master, f"{channel}valid")),
                getattr(master, f"{channel}ready").eq(choice.grant[k] & room),
            ]
            chosen = chosen | Mux(choice.grant[k], Cat(port), 0)
        taken = choice.grant.any() & room
        m.d.comb += [
            choice.advance.eq(taken),
            held.i.valid.eq(taken),
            held.i.payload.eq(chosen),
            getattr(self.m_axi, f"{channel}valid").eq(held.o.valid),
            Cat(out).eq(held.o.payload),
            held.o.ready.eq(getattr(self.m_axi, f"{channel}ready")),
        ]
        if order is not None:
            m.d.comb += order.valid.eq(taken)
            for k in range(len(ports)):
                with m.If(choice.grant[k]):
                    m.d.comb += order.payload.eq(k)

    def _write_data(self, m: Module, order) -> None:
        out = _port(self.m_axi, "w", ("data", "strb", "last"))
        m.submodules.w_held = place(held := Skid(shape=len(Cat(out))))
        taken, is_last = Signal(), Signal()
        with m.Switch(order.payload):
            for k, master in enumerate(self.masters):
                with m.Case(k):
                    m.d.comb += [
                        taken.eq(master.wvalid & order.valid & held.i.ready),
                        master.wready.eq(order.valid & held.i.ready),
                        is_last.eq(master.wlast),
                        held.i.payload.eq(Cat(_port(master, "w", ("data", "strb", "last")))),
                    ]
        m.d.comb += [
            held.i.valid.eq(taken),
            order.ready.eq(taken & is_last),
            self.m_axi.wvalid.eq(held.o.valid),
            Cat(out).eq(held.o.payload),
            held.o.ready.eq(self.m_axi.wready),
        ]

    def _answers(self, m: Module, channel: str, fields, ids) -> None:
        """An answer of an id that nobody has is taken and forgotten."""
        wires = _port(self.m_axi, channel, fields)
        number = wires[0]
        ready = getattr(self.m_axi, f"{channel}ready")
        m.d.comb += ready.eq(1)
        for master, mine in zip(self.masters, ids, strict=True):
            hit = Cat(number == one for one in mine).any() if mine else Value.cast(0)
            m.d.comb += [
                getattr(master, f"{channel}valid").eq(getattr(self.m_axi, f"{channel}valid") & hit),
                Cat(_port(master, channel, fields)).eq(Cat(wires)),
            ]
            with m.If(hit):
                m.d.comb += ready.eq(getattr(master, f"{channel}ready"))


def _port(bus, channel: str, fields) -> list:
    """Signals of one channel of an AXI4 bus by the rest of their names."""
    return [getattr(bus, channel + field) for field in fields]
