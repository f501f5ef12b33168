"""The whole: one switch plane and its GPUs."""

from typing import Any

from amaranth import Cat, Module
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, Signature, connect, flipped

from dysharp.hw.axi import axi4, axi4_lite
from dysharp.hw.config import Config
from dysharp.hw.gpu.gpu import Gpu
from dysharp.hw.gpu.instruction import Instruction, Result
from dysharp.hw.link.flit import FlitStream
from dysharp.hw.registers import maps_of
from dysharp.hw.share import place
from dysharp.hw.switch.reduction_ports import LogEntry
from dysharp.hw.switch.switch import Switch

__all__ = ["System", "system_block"]


class System(Component):
    """A switch and its GPUs, port ``gpu * links + h`` on link ``h`` of a GPU.

    Latency and throughput: see :class:`Switch` and :class:`Gpu`; the wires between them add none.

    Parameters
    ----------
    config : the configuration

    Source
    ------
    The DySHARP paper (Figure of the system).
    """

    gpu: Any
    """Out(array), one a GPU: ``inst``, ``inst_data``, ``result``, ``m_axi`` and ``s_axil`` of
    :class:`Gpu`.
    """
    switch: Any
    """Out, ``s_axil`` of the switch."""
    p: Any
    """Out(array), one a port: ``log``, the order in which its reduction unit accumulates."""
    link_flits: Any
    """Out, four bits a port, high as a flit crosses: request and response to the switch, request
    and response to the GPU.
    """

    def __init__(self, config: Config):
        self.config = config
        switch_map, gpu_map = maps_of(config)
        side = Signature(
            {
                "inst": In(stream.Signature(Instruction)),
                "inst_data": In(FlitStream),
                "result": Out(stream.Signature(Result)),
                "m_axi": Out(axi4(data_width=config.gpu.memory_width)),
                "s_axil": In(axi4_lite(addr_width=gpu_map.addr_width)),
            }
        )
        control = Signature({"s_axil": In(axi4_lite(addr_width=switch_map.addr_width))})
        super().__init__(
            {
                "gpu": Out(side).array(config.gpus),
                "switch": Out(control),
                "p": Out(Signature({"log": Out(LogEntry)})).array(config.ports),
                "link_flits": Out(4 * config.ports),
            }
        )

    def elaborate(self, platform):
        """Every GPU to its ports, and all other edges outside."""
        m = Module()
        links = self.config.links
        switch = Switch(self.config)
        m.submodules.switch = switch
        connect(m, flipped(self.switch.s_axil), switch.s_axil)
        crossing = []
        for g in range(self.config.gpus):
            gpu = Gpu(self.config)
            m.submodules[f"gpu{g}"] = place(gpu)
            side = self.gpu[g]
            connect(m, flipped(side.inst), gpu.inst)
            connect(m, flipped(side.inst_data), gpu.inst_data)
            connect(m, gpu.result, flipped(side.result))
            connect(m, gpu.m_axi, flipped(side.m_axi))
            connect(m, flipped(side.s_axil), gpu.s_axil)
            for h in range(links):
                port, edge = switch.p[g * links + h], gpu.p[h]
                connect(m, edge.tx_req, port.rx_req)
                connect(m, edge.tx_rsp, port.rx_rsp)
                connect(m, port.tx_req, edge.rx_req)
                connect(m, port.tx_rsp, edge.rx_rsp)
                m.d.comb += self.p[g * links + h].log.eq(port.log)
                for flits in (edge.tx_req, edge.tx_rsp, port.tx_req, port.tx_rsp):
                    crossing.append(flits.valid & flits.ready)
        m.d.comb += self.link_flits.eq(Cat(crossing))
        return m


def system_block(config: Config) -> System:
    """The system of a configuration."""
    return System(config)
