"""Drivers and monitors of the interfaces, and the memory model."""

from dysharp.sim_tb.agents.axi_memory import AxiMemory, Latency
from dysharp.sim_tb.agents.axil import AxiLiteError, AxiLiteManager
from dysharp.sim_tb.agents.bench import Agent, Bench, StallPattern
from dysharp.sim_tb.agents.flit import FlitMonitor, FlitPacket, FlitSink, FlitSource, LinkMonitor
from dysharp.sim_tb.agents.memory import NAN_FILL, SparseMemory
from dysharp.sim_tb.agents.stream import StreamMonitor, StreamSink, StreamSource
from dysharp.sim_tb.agents.wire import Wire

__all__ = [
    "NAN_FILL",
    "Agent",
    "AxiLiteError",
    "AxiLiteManager",
    "AxiMemory",
    "Bench",
    "FlitMonitor",
    "FlitPacket",
    "FlitSink",
    "FlitSource",
    "Latency",
    "LinkMonitor",
    "SparseMemory",
    "StallPattern",
    "StreamMonitor",
    "StreamSink",
    "StreamSource",
    "Wire",
]
