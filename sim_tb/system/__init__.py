"""The whole system: RTL switch, RTL GPUs, a memory model and the golden model."""
