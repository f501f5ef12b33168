"""Sessions at the edge of the whole switch: how fast they are answered, and silent ports."""

from __future__ import annotations

import heapq
from typing import Any

import cocotb

from dysharp.hw.packet import Cmd, Packet, Status
from dysharp.model.backend import Recorder
from dysharp.model.switch_control import SwitchControl
from dysharp.sim_tb.switch.env import SwitchEnv
from dysharp.sim_tb.switch.traffic import Traffic

TIMEOUT = 1280
"""Cycles of a session; 40 a tick."""


class SilentEnv(SwitchEnv):
    """A switch of which the GPUs at some ports say nothing.

    Attributes
    ----------
    mute : set of int
        Ports that answer nothing to a multimem request.
    withheld : list of tuple
        Port and packet of what they would have said.
    """

    def __init__(self, dut: Any):
        super().__init__(dut)
        self.mute: set[int] = set()
        self.withheld: list[tuple[int, Packet]] = []
        self.recorder = Recorder()
        self.control = SwitchControl(self.config, self.recorder)

    def step(self) -> None:
        for entry in [entry for entry in self._due if entry[2] in self.mute and entry[3].tx]:
            self._due.remove(entry)
            heapq.heapify(self._due)
            self.withheld.append(entry[2:])
        super().step()

    async def write(self) -> None:
        """Carry out what the control has asked for."""
        for _, address, value in self.recorder.take():
            await self.registers.write(address, value)

    async def read(self, name: str) -> dict[str, int]:
        """Fields of a register."""
        words = [await self.registers.read(address) for address in self.control.reads(name)]
        return self.control.decode(name, words)

    @property
    def stuck(self) -> bool:
        """Nothing is under way but sessions that wait for silent ports."""
        heard = all(
            pending.decision.ports - self.mute == set(pending.order)
            for pending in self._pending.values()
        )
        sources = (*self.rx_req, *self.rx_rsp)
        return heard and not self._due and not any(source.pending for source in sources)

    def expect_timeouts(self) -> int:
        """From here on every session that still waits is answered ERR 3; how many."""
        for (port, maddr, stage), pending in self._pending.items():
            assert pending.decision.ports & self.mute
            self.answers[port].expect(
                Packet.multimem(
                    Cmd.ERR,
                    maddr=maddr,
                    stage=stage,
                    count=(pending.decision.session or {})["count"],
                    attr=Status.TIMEOUT.value,
                    port=port,
                    local=pending.packet.tag_local,
                )
            )
        count = len(self._pending)
        self._pending.clear()
        self.expected["results"] += count
        self.expected["error_timeout"] += count
        return count

    def answer_at_last(self) -> int:
        """The silent ports say what they have withheld; how many answers that is."""
        self.mute.clear()
        for port, packet in self.withheld:
            self.rx_rsp[port].send(packet.encode())
        count = len(self.withheld)
        self.withheld.clear()
        return count

    def answer_too_late(self) -> None:
        """The same, when nobody waits for it any more."""
        count = self.answer_at_last()
        self.expected["stray"] += count
        self.expected["error_malformed"] += count


async def start(dut: Any) -> tuple[SilentEnv, Traffic]:
    tb = SilentEnv(dut)
    await tb.start()
    tb.delay = 0
    return tb, Traffic(tb)


@cocotb.test()
async def an_answer_leaves_at_once(dut):
    """Last contribution in to first flit of the answer out: at most 6 cycles and the ALU's depth.

    For acknowledgements at most 6; order ``arrival``, idle, contributions of every length.
    """
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    targets = tuple(gpu << wide.split for gpu in range(tb.config.gpus))
    depth, times = tb.config.alu_depth, {}
    last = tb.ports - 1
    for flits in range(tb.config.chunk_flits + 1):
        cmd = Cmd.MM_LDR if flits else Cmd.MM_ST
        tb.mute = {last}
        tb.send(0, traffic.multimem(wide, cmd=cmd, targets=targets, flits=flits or 8))
        await tb.bench.until(lambda: tb.stuck and bool(tb.withheld), limit=600)
        await tb.bench.cycles(20)
        tb.tx_rsp[0].first_cycle = -1
        tb.answer_at_last()
        await tb.finish()
        times[flits] = tb.tx_rsp[0].first_cycle - tb.rx_rsp[last].last_cycle
    cocotb.log.info(f"cycles from the last contribution to its answer, by DATA flits: {times}")
    if not tb.bench.stall_probability and tb.config.switch.order == "arrival":
        assert times[0] <= 6 and max(times.values()) <= 6 + depth
        assert times[tb.config.chunk_flits] <= 6, "a whole chunk hides the ALU"


@cocotb.test()
async def silent_port(dut):
    """One port says nothing to stores and loads: ERR 3, the port failed, all others go on.

    Its late answers change nothing and make the sessions free again.
    """
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    everyone = tuple(gpu << wide.split for gpu in range(tb.config.gpus))
    tb.control.set_session_timeout(TIMEOUT)
    await tb.write()
    silent = tb.ports - 1
    tb.mute = {silent}
    kinds = [(port, cmd) for port in range(2) for cmd in (Cmd.MM_ST, Cmd.MM_LDR)]
    for port, cmd in kinds:
        tb.send(port, traffic.multimem(wide, cmd=cmd, targets=everyone, flits=8))
    await tb.bench.until(lambda: tb.stuck, limit=600)
    assert tb.expect_timeouts() == len(kinds)
    begin = tb.bench.cycle
    others = tuple(target for target in everyone if target >> wide.split != silent)
    while tb.bench.cycle - begin < 2 * TIMEOUT:
        before = sum(scoreboard.matched for scoreboard in tb.answers)
        for port in range(tb.ports - 1):
            cmd = Cmd.MM_LDR if port % 2 else Cmd.MM_ST
            tb.send(port, traffic.multimem(wide, cmd=cmd, targets=others, flits=8))
        await tb.bench.until(
            lambda goal=before + tb.ports - 1: (
                sum(scoreboard.matched for scoreboard in tb.answers) >= goal
            ),
            limit=400,
            what="the others' answers",
        )
    assert await tb.read("timeouts") == {"timeouts": len(kinds)}
    await tb.finish()
    assert await tb.read("failed") == {"failed": 1 << silent}
    assert await tb.read("retired") == {"retired": len(kinds)}
    first = await tb.read("first_error")
    assert (first["valid"], first["status"]) == (1, Status.TIMEOUT.value)
    tb.answer_too_late()
    await tb.finish()
    await tb.bench.cycles(3 * tb.config.switch.sessions)
    assert await tb.read("retired") == {"retired": 0}
    tb.control.clear_failed([silent])
    await tb.write()
    assert await tb.read("failed") == {"failed": 0}
    for port, cmd in kinds:
        tb.send(port, traffic.multimem(wide, cmd=cmd, targets=everyone, flits=8))
    await tb.finish()


@cocotb.test()
async def freed_by_software(dut):
    """A port that never comes back: software frees the sessions of one port, not of the other."""
    tb, traffic = await start(dut)
    wide = tb.objects[0]
    everyone = tuple(gpu << wide.split for gpu in range(tb.config.gpus))
    tb.control.set_session_timeout(TIMEOUT)
    await tb.write()
    tb.mute = {tb.ports - 1}
    for port in (0, 1, 1):
        tb.send(port, traffic.multimem(wide, cmd=Cmd.MM_ST, targets=everyone, flits=8))
    await tb.bench.until(lambda: tb.stuck, limit=600)
    tb.expect_timeouts()
    await tb.finish()
    for port, left in ((1, 1), (0, 0)):
        tb.control.free_retired(port)
        await tb.write()
        await tb.bench.cycles(3 * tb.config.switch.sessions)
        assert await tb.read("retired") == {"retired": left}
    tb.answer_too_late()
    await tb.finish()
