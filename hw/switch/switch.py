"""The switch: ports round a buffered crossbar, one object table, one register bank."""

from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Const, Module, Signal, Value
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from dysharp.hw.axi import axi4_lite
from dysharp.hw.config import Config
from dysharp.hw.csr import CsrBank
from dysharp.hw.packet import AGE_BITS
from dysharp.hw.registers import switch_registers
from dysharp.hw.share import place
from dysharp.hw.switch.object_table import ObjectTable
from dysharp.hw.switch.port import LINK_EDGE, Port
from dysharp.hw.switch.session_clock import SessionClock

__all__ = ["Switch", "switch_block"]

_AGE_UNIT_BITS = 3
"""Ages of requests are told in units of 8 cycles, about a packet at an output: of equal ages the
lower port goes first, so a coarser unit would favour it."""


class Switch(Component):
    """One switch plane of 2 to 72 ports.

    Port ``p`` belongs to GPU ``p // links``. Every input has a queue in front of every output for
    each class, so an input never holds one output while it waits for another; each output empties
    its queues towards its link and towards its reduction unit in parallel.

    Latency, idle: a unicast or static request from ``rx`` to ``tx`` in 5 cycles, one with a list
    in one more for every TX flit, a response in 3. Throughput: each port one flit a cycle in and
    one out, both classes together, and one flit of contributions a cycle besides.

    Parameters
    ----------
    config : the configuration

    Source
    ------
    The DySHARP paper's switch: route by target id, prune, reduce at the port that asked.
    """

    p: Any
    """Out(array of :data:`LINK_EDGE`), the ports."""
    s_axil: Any
    """In(axi4_lite), registers and object table."""

    def __init__(self, config: Config):
        self.config = config
        self.registers = switch_registers(
            gpus=config.gpus,
            links=config.links,
            chunk_bytes=config.chunk_bytes,
            objects=config.objects,
            sessions=config.switch.sessions,
            arithmetic=config.arithmetic,
            order=config.switch.order,
        )
        super().__init__(
            {
                "p": Out(LINK_EDGE).array(config.ports),
                "s_axil": In(axi4_lite(addr_width=self.registers.addr_width)),
            }
        )

    def elaborate(self, platform):
        """Ports, the crossbar's wires between them, and what they share."""
        m = Module()
        config = self.config
        table = ObjectTable(gpus=config.gpus, objects=config.objects)
        bank: Any = CsrBank(registers=self.registers)
        m.submodules.objects = place(table)
        m.submodules.registers = place(bank)
        connect(m, flipped(self.s_axil), bank.bus)
        connect(m, bank.objects, table.window)
        m.submodules.session_clock = place(clock := SessionClock())
        m.d.comb += clock.timeout.eq(bank.session_timeout)
        cycles = Signal(AGE_BITS + _AGE_UNIT_BITS)
        m.d.sync += cycles.eq(cycles + 1)

        ports = [self._port() for _ in range(config.ports)]
        for p, port in enumerate(ports):
            m.submodules[f"port{p}"] = place(port)
            connect(m, port.link, flipped(self.p[p]))
            m.d.comb += [
                port.port.eq(Const(p, 7)),
                port.gpu.eq(Const(p // config.links, 7)),
                port.objects.eq(table.entries),
                port.control.now.eq(cycles[_AGE_UNIT_BITS:]),
                port.control.session_tick.eq(clock.tick),
                port.control.free_retired.eq(
                    bank.free_retired.free & (bank.free_retired.port == p)
                ),
                port.control.failed.eq(bank.failed_held),
                port.control.stall_limit.eq(bank.stall_limit),
                port.control.drop_limit.eq(bank.drop_limit),
            ]
        for source, writer in enumerate(ports):
            for sink, reader in enumerate(ports):
                lanes = reader.inputs[source]
                _cross(m, writer.req, sink, lanes.req)
                _cross(m, writer.rsp, sink, lanes.rsp)
        self._observe(m, ports, bank)
        return m

    def _port(self) -> Port:
        config = self.config
        return Port(
            gpus=config.gpus,
            links=config.links,
            objects=config.objects,
            chunk_bytes=config.chunk_bytes,
            gpu_address_bit=config.gpu_address_bit,
            request_depth=config.switch.request_depth,
            response_depth=config.switch.response_depth,
            sessions=config.switch.sessions,
            arithmetic=config.arithmetic,
            order=config.switch.order,
        )

    def _observe(self, m: Module, ports: list[Port], bank: Any) -> None:
        """Counters add up what the ports saw; of faults in one cycle the lowest port's is logged.

        All of it is registered, so the sums of 72 ports bound no path.
        """
        for name, _ in bank.events.shape():
            m.d.sync += bank.events[name].eq(_tree_sum([port.events[name] for port in ports]))
        failures = [port.failures for port in ports]
        m.d.sync += [
            bank.failed.eq(reduce(or_, failures)),
            bank.retired.eq(_tree_sum([port.retired for port in ports])),
        ]
        first: Any = Signal(bank.first_error.shape(), name="first")
        for p, port in reversed(list(enumerate(ports))):
            with m.If(port.fault.valid):
                m.d.comb += [
                    first.valid.eq(1),
                    first.status.eq(Value.cast(port.fault.status)),
                    first.port.eq(p),
                    first.cmd.eq(port.fault.cmd),
                    first.addr.eq(port.fault.addr),
                ]
        m.d.sync += bank.first_error.eq(first)
        for field, _ in bank.errors.shape():
            found = Cat(port.events[f"error_{field}"].any() for port in ports)
            m.d.sync += bank.errors[field].eq(found.any())


def _cross(m: Module, broadcast, sink: int, lane) -> None:
    """One crossing of the crossbar's wires."""
    m.d.comb += [
        lane.flit.eq(broadcast.flit),
        lane.push.eq(broadcast.push[sink]),
        broadcast.credit[sink].eq(lane.credit),
    ]


def _tree_sum(values):
    """Sum in a tree, which is as deep as the logarithm of its length."""
    while len(values) > 1:
        pairs = [sum(values[k : k + 2]) for k in range(0, len(values), 2)]
        values = pairs
    return values[0]


def switch_block(config: Config) -> Switch:
    """One switch plane."""
    return Switch(config)
