"""Traffic in expectation under uniform routing: the formulas that counted traffic is held against.

``E`` experts of which a token takes ``K``, all sets alike, contiguously on ``G`` GPUs; ``d`` is the
number of remote GPUs that a token reaches. Rows count payload alone, flits everything on the wire.
"""

from math import comb

from dysharp.hw.packet import tx_flits

__all__ = [
    "hit",
    "distinct_gpus",
    "remote_gpus",
    "static_useless",
    "rows_saved",
    "ideal_rows",
    "deepep_flits",
    "dysharp_flits",
    "ideal_speedup",
    "payload_efficiency",
]


def hit(experts: int, top_k: int, gpus: int) -> float:
    """Chance that a token reaches a given GPU: 1 - C(E - E/G, K) / C(E, K)."""
    return 1 - comb(experts - experts // gpus, top_k) / comb(experts, top_k)


def distinct_gpus(experts: int, top_k: int, gpus: int) -> float:
    """GPUs that a token reaches, its own included."""
    return gpus * hit(experts, top_k, gpus)


def remote_gpus(experts: int, top_k: int, gpus: int) -> float:
    """``d``: other GPUs that a token reaches."""
    return (gpus - 1) * hit(experts, top_k, gpus)


def static_useless(d: float, gpus: int) -> float:
    """Useless rows for each useful one if a preset group (NVLS) carries the token to all GPUs."""
    return (gpus - 1) / d - 1


def rows_saved(d: float) -> float:
    """Part of the rows over both directions and stages that multicast and reduction save.

    DeepEP moves ``d`` rows each way in each stage, 4d; in-switch multicast 1 up and d down in
    Dispatch and d up and 1 down in Combine, 2 (d + 1).
    """
    return 1 - 2 * (d + 1) / (4 * d)


def ideal_rows(d: float) -> float:
    """Speedup in rows with both stages at once: 2d against d + 1 on the busier direction."""
    return 2 * d / (d + 1)


def deepep_flits(d: float, data: int) -> float:
    """Flits a chunk of ``data`` flits costs a link in either direction, both stages, acked.

    Dispatch sends ``d`` writes of HDR and data up and takes ``d`` one-flit acks down; as every GPU
    is a destination too, it also takes ``d`` writes down and sends ``d`` acks up: (data + 2) d each
    way. Combine is the same mirrored. At 8 flits: 20d.
    """
    return 2 * (data + 2) * d


def dysharp_flits(d: float, data: int) -> tuple[float, float]:
    """The same for fused multimem, (up, down), lists of at most 8 targets (one TX flit).

    Up: one MM_ST of HDR, TX, data; ``d`` MM_ACK; one MM_LDR of HDR, TX; ``d`` MM_RSP of HDR, data.
    Down: ``d`` MM_ST, each with a TX flit of its own; one collapsed MM_ACK; ``d`` MM_LDR; one
    MM_RSP. At 8 flits: 10d + 12 up, 12d + 10 down.
    """
    list_flits = tx_flits(8)
    store, load, answer = 1 + list_flits + data, 1 + list_flits, 1 + data
    return store + d + load + answer * d, store * d + 1 + load * d + answer


def ideal_speedup(d: float, data: int) -> float:
    """Ratio of the busier directions: 20d / (12d + 10) at 8 flits, 36d / (20d + 18) at 16."""
    return deepep_flits(d, data) / max(dysharp_flits(d, data))


def payload_efficiency(targets: int, data: int, scheme: str) -> float:
    """Part of the flits of an acked store that is payload, over both hops, one target a GPU.

    ``none`` carries no list (the ideal), ``explicit`` an address flit for each target but the
    first, on the first hop and again on the way back, ``wire`` is wire format v1.
    """
    payload = data * (1 + targets)
    flits = (data + 2) * (1 + targets)
    if scheme == "explicit":
        flits += 2 * (targets - 1)
    elif scheme == "wire":
        flits += tx_flits(targets) + tx_flits(1) * targets
    elif scheme != "none":
        raise ValueError(f"Scheme must be none, explicit or wire, not {scheme!r}")
    return payload / flits
