"""Measures in simulation how long a reduction unit takes to answer."""

from typing import Any

from amaranth.sim import Simulator

from dysharp.hw.packet import Cmd, Packet, ReplicaTag

__all__ = ["answer_latency"]

LIMIT = 10_000
"""Cycles after which a unit that has not answered never will."""


def answer_latency(unit: Any, attr: Any, *, ports: int, chunk_flits: int) -> int:
    """Cycles from the last flit of the last contribution to the header of the answer.

    One session, to which every port contributes a whole chunk, back to back; nothing else happens.

    Parameters
    ----------
    unit : with the ports of :class:`~dysharp.hw.switch.reduction.ReductionUnit`
    attr : dtype, op and acc of the sum, by name
    ports : contributing ports
    chunk_flits : DATA flits of each contribution

    Raises
    ------
    RuntimeError
        If no answer comes.
    """
    took: list[int] = []

    async def take(ctx, interface, payload: Any, *also: Any) -> tuple:
        """Hold a payload until it is taken; the values of ``also`` in that cycle."""
        ctx.set(interface.payload, payload)
        ctx.set(interface.valid, 1)
        ready = 0
        seen: list[int] = []
        while not ready:
            _, _, ready, *seen = await ctx.tick().sample(interface.ready, *also)
        ctx.set(interface.valid, 0)
        return tuple(seen)

    async def testbench(ctx) -> None:
        ctx.set(unit.o.ready, 1)
        request = {
            "cmd": Cmd.MM_LDR,
            "ports": (1 << ports) - 1,
            "count": ports,
            "attr": attr,
            "flits": chunk_flits,
        }
        use = unit.session
        session, generation = await take(ctx, unit.reserve, request, use.session, use.generation)
        tag = ReplicaTag.const({"session": session, "generation": generation})
        answer = Packet.multimem(
            Cmd.MM_RSP,
            maddr=0,
            count=1,
            local=tag.as_bits(),
            data=[0] * chunk_flits,
        )
        flits = answer.encode()
        for source in range(ports):
            for number, bits in enumerate(flits):
                flit = {"data": bits, "last": number == len(flits) - 1}
                await take(ctx, unit.i, {"flit": flit, "source": source})
        for cycle in range(1, LIMIT):
            _, _, valid = await ctx.tick().sample(unit.o.valid)
            if valid:
                took.append(cycle)
                return

    simulator = Simulator(unit)
    simulator.add_clock(1e-6)
    simulator.add_testbench(testbench)
    simulator.run()
    if not took:
        raise RuntimeError(f"Unit must answer within {LIMIT} cycles, and has not")
    return took[0]
