"""An output whose GPU takes nothing: it fails in time, and every packet's end is found again."""

import random

import pytest
from amaranth import Elaboratable, Module
from amaranth.lib.wiring import connect
from amaranth.sim import Simulator

from dysharp.hw.link.link_mux import LinkMux
from dysharp.hw.packet import Header
from dysharp.hw.switch.drain import Drain

LIMIT = 12
ONES = (1 << 128) - 1


class Output(Elaboratable):
    """A drain in front of one class of a link, as in an egress; ``failed`` as software sees it."""

    def __init__(self):
        self.drain, self.link = Drain(), LinkMux()

    def elaborate(self, platform):
        m = Module()
        m.submodules.drain, m.submodules.link = self.drain, self.link
        connect(m, self.drain.o, self.link.i_req)
        tx = self.link.o_req
        m.d.comb += self.drain.waits.eq(tx.valid & ~tx.ready)
        return m


class Play:
    """Random packets through an output whose GPU stops and comes back; what came out."""

    def __init__(self, seed: int, *, limit: int = LIMIT, clears: float = 0.02):
        self.random = random.Random(seed)
        self.limit, self.clears = limit, clears
        self.sent: list[tuple[int, ...]] = []
        self.out: list[tuple[list[int], bool]] = []
        self.flits_in = self.drained = self.failures = self.longest_wait = 0

    def packets(self):
        """Endless packets, each told by its second flit."""
        number = 0
        while True:
            length = self.random.choice((1, 2, 3, 9, 32))
            flits = [Header.const({"len": length - 1, "addr": number}).as_bits()]
            flits += [number << 8 | k for k in range(1, length)]
            self.sent.append(tuple(flits))
            yield from ((flit, k == length - 1) for k, flit in enumerate(flits))
            number += 1

    async def bench(self, ctx, dut: Output):
        drain, tx = dut.drain, dut.link.o_req
        rng, flits = self.random, self.packets()
        current, waited, failed, since, ready_for = next(flits), 0, False, 0, 0
        packet: list[int] = []
        stopped = False
        ctx.set(drain.limit, self.limit)
        for _ in range(4000):
            if ready_for == 0:
                stopped = not stopped and rng.random() < 0.5
                ready_for = rng.randint(1, 6 * LIMIT if stopped else 60)
            ready_for -= 1
            ready = not stopped and rng.random() < 0.9
            offers = rng.random() < 0.8 or waited > 0
            ctx.set(drain.i.valid, offers)
            ctx.set(drain.i.payload, {"data": current[0], "last": current[1], "poison": 0})
            ctx.set(tx.ready, ready)
            ctx.set(drain.failed, failed)
            if ready and ctx.get(tx.valid):
                payload = ctx.get(tx.payload)
                packet.append(payload.data)
                if payload.last:
                    self.out.append((packet, bool(payload.poison)))
                    packet = []
            if offers and ctx.get(drain.i.ready):
                self.flits_in += 1
                self.drained += ctx.get(drain.drained)
                current, waited = next(flits), 0
            elif offers:
                waited += 1
                self.longest_wait = max(self.longest_wait, waited)
            fails = ctx.get(drain.fails)
            self.failures += fails
            await ctx.tick()
            since = 0 if fails else since + 1
            if self.failures and since == 3:
                failed = True
            elif failed and rng.random() < self.clears:
                failed = False
        self.rest = packet

    def run(self) -> "Play":
        dut = Output()
        sim = Simulator(dut)
        sim.add_clock(1e-9)

        async def bench(ctx):
            await self.bench(ctx, dut)

        sim.add_testbench(bench)
        sim.run()
        return self


@pytest.mark.parametrize("seed", range(4))
def test_packets_are_whole_or_filled_up_and_poisoned(seed):
    """Each comes out at most once, in order, as long as its header says; every flit is counted."""
    play = Play(seed).run()
    assert play.failures > 5
    last, cut, filled = -1, 0, 0
    for flits, poison in play.out:
        header = Header.from_bits(flits[0])
        assert len(flits) == header.len + 1
        assert header.addr > last
        last = header.addr
        whole = play.sent[last]
        if poison:
            real = flits.index(ONES)
            assert flits == [*whole[:real], *[ONES] * (len(flits) - real)]
            cut, filled = cut + 1, filled + len(flits) - real
        else:
            assert tuple(flits) == whole
    assert cut
    came = sum(len(flits) for flits, _ in play.out) + len(play.rest)
    in_link = play.flits_in - play.drained - (came - filled - play.rest.count(ONES))
    assert 0 <= in_link <= 2


def test_nobody_waits_for_longer_than_the_limit():
    """What stands behind an output that has failed goes on."""
    play = Play(9, clears=0).run()
    assert play.failures and play.longest_wait <= LIMIT + 1


def test_without_a_limit_nothing_is_dropped():
    play = Play(2, limit=0).run()
    assert play.longest_wait > 3 * LIMIT
    assert not (play.drained or play.failures or any(poison for _, poison in play.out))
    assert [tuple(flits) for flits, _ in play.out] == play.sent[: len(play.out)]
