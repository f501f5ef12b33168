"""Measures in simulation how many flits a cycle an ALU takes."""

import random
from collections.abc import Sequence
from typing import Any

from amaranth.sim import Simulator

from dysharp.hw.packet import FLIT_BITS

__all__ = ["flits_per_cycle"]


SETTLE = 4
"""Cycles that a flit gets beyond the latency when it goes alone, should the latency be wrong."""


def flits_per_cycle(
    alu: Any, reductions: Sequence[tuple], *, rounds: int = 2, seed: int = 1
) -> float:
    """Flits that an ALU reduces a cycle when every cycle asks for another reduction.

    Each flit first stands alone until its result has settled. Then all go back to back, one a
    cycle, and a flit counts if its result is there :attr:`latency` cycles after it, unchanged.

    Parameters
    ----------
    alu : with the ports of :class:`~dysharp.hw.alu.alu.ReductionAlu`, and its ``latency``
    reductions : ``(dtype, op, acc)`` to ask for, in a random order
    rounds : how often each is asked for; half of the flits are loads
    seed : of the operands and the order

    Returns
    -------
    float
        Flits that count over cycles in which one was offered: 1 if nothing is lost.
    """
    draw = random.Random(seed)
    work = [
        {
            "attr": {"dtype": dtype, "op": op, "acc": acc},
            "load": draw.getrandbits(1),
            "operand": draw.getrandbits(FLIT_BITS),
            "accumulator": draw.getrandbits(alu.accumulator_bits),
        }
        for dtype, op, acc in reductions
        for _ in range(rounds)
    ]
    draw.shuffle(work)
    alone: list[int] = []
    streamed: list[int] = []

    def offer(ctx, flit: dict[str, Any]) -> None:
        for name, value in flit.items():
            ctx.set(getattr(alu, name), value)

    async def testbench(ctx) -> None:
        for flit in work:
            offer(ctx, flit)
            for _ in range(alu.latency + SETTLE):
                await ctx.tick()
            alone.append(ctx.get(alu.result))
        for cycle in range(len(work) + alu.latency):
            if cycle < len(work):
                offer(ctx, work[cycle])
            if cycle >= alu.latency:
                streamed.append(ctx.get(alu.result))
            await ctx.tick()

    simulator = Simulator(alu)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    counting = sum(one == other for one, other in zip(alone, streamed, strict=True))
    return counting / len(work)
