"""The whole system: RTL switch, RTL GPUs, a memory model and the golden model."""

from dysharp.sim_tb.system.run import run_system

__all__ = ["run_system"]
