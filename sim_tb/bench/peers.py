"""What others report of such a switch: figures to hold ours against."""

from collections.abc import Mapping
from typing import Any

__all__ = ["PEERS", "TARGETS"]

PEERS: tuple[Mapping[str, Any], ...] = (
    {
        "name": "DySHARP (Zhang et al., ISCA 2026)",
        "source": "https://arxiv.org/abs/2605.05607",
        "figure": "more than 0.90 of ideal, communication alone",
        "how": "BookSim2, simulated in flits; 32 GPUs",
    },
    {
        "name": "DySHARP's switch",
        "source": "https://arxiv.org/abs/2605.05607",
        "figure": "one cycle more than static multimem; 16 virtual channels of 256 flits",
        "how": "Design Compiler, TSMC 12 nm",
    },
    {
        "name": "crosspoint-queued switch",
        "source": "a packet-level model",
        "figure": "0.998 of the limiting link at two packets a queue",
        "how": "simulated in packets, no target lists, no pipeline",
    },
    {
        "name": "input-queued switch, one FIFO an input (Karol, Hluchyj, Morgan, 1987)",
        "source": "https://doi.org/10.1109/TCOM.1987.1096719",
        "figure": "0.586 under uniform unicast",
        "how": "closed form for many ports",
    },
)
TARGETS: Mapping[str, float] = {
    "dispatch": 0.98,
    "combine": 0.98,
    "fused": 0.97,
    "allgather": 0.98,
    "reduce_scatter": 0.98,
    "unicast_uniform": 0.98,
    "permutation": 0.995,
}
"""Utilisation that is aimed at."""
