"""The golden model: numerics, routing, placement, protocol, traffic, traces, runtime."""
