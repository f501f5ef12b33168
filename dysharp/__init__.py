"""DySHARP-RTL: in-switch multicast and reduction for mixture-of-experts traffic.

The importable face of the project. ``dysharp.hw`` generates the RTL, ``dysharp.model`` is the
golden model, ``dysharp.sim_tb`` verifies the one against the other and ``dysharp.synth``
measures the result.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
