"""Packets round a whole switch: who sends them, who answers them, and what must come of it.

The expectation is written from docs/switch.md and docs/packet.md. It needs one thing from the
hardware: the order in which each reduction unit took contributions, which no model can foresee.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from dysharp.hw.config import load_preset
from dysharp.hw.packet import Cmd, Dtype, Packet, PacketError, Status
from dysharp.hw.registers import maps_of
from dysharp.model.backend import SWITCH, Recorder
from dysharp.model.cuda import CUDymulticastObjectProp
from dysharp.model.numerics import row_of
from dysharp.model.runtime import Runtime
from dysharp.sim_tb.agents import AxiLiteManager, Bench, FlitPacket, FlitSink, FlitSource
from dysharp.sim_tb.agents import LinkMonitor as Link
from dysharp.sim_tb.elements import random_flit
from dysharp.sim_tb.reduction.model import reduce_contributions
from dysharp.sim_tb.route.model import POSTED, Decision, Fabric, ObjectSpec
from dysharp.sim_tb.scoreboard import Scoreboard, difference

__all__ = ["SwitchEnv"]

LOADS = {Cmd.MM_LDR: Cmd.MM_RSP, Cmd.RD: Cmd.RD_RSP}
LOCALS = 4096


@dataclass
class _Pending:
    """A request with a session, until it is answered.

    Attributes
    ----------
    contributions : dict of int to Packet
        What each port answered to its replica.
    order : list of int
        Ports in the order in which the reduction unit took them.
    """

    packet: Packet
    decision: Decision
    contributions: dict[int, Packet] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)


class SwitchEnv:
    """Agents on all ports, GPUs that answer, and the expectation.

    Parameters
    ----------
    dut
        cocotb's handle of block ``switch``.

    Attributes
    ----------
    objects : list of ObjectSpec
        Those that :meth:`set_up` made: one of all GPUs, one of all but the last with a preset
        group of two, one whose preset group is empty.
    errors : float
        Chance that a GPU answers ERR, or that its answer is poisoned.
    delay : int
        Most cycles that a GPU takes to answer.
    silent : set of int
        Ports that answer no multimem request, and are sent no other that needs an answer.
    kept : list of (int, Packet)
        The answers that they would have given, each with its port.
    """

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        found = bench.manifest["config"]
        same = {name: found[name] for name in ("gpus", "links", "dtypes", "ftz")}
        self.config = load_preset(found["name"], order=found["switch"]["order"], **same)
        self.ports: int = self.config.ports
        self.fabric = Fabric(
            gpus=self.config.gpus,
            links=self.config.links,
            chunk_bytes=found["chunk_bytes"],
            gpu_address_bit=found["gpu_address_bit"],
        )
        self.random = bench.random("traffic")
        self.errors = 0.0
        self.delay = 40
        self.objects: list[ObjectSpec] = []
        ports = range(self.ports)
        self.rx_req = [FlitSource(bench, f"p{p}_rx_req") for p in ports]
        self.rx_rsp = [FlitSource(bench, f"p{p}_rx_rsp") for p in ports]
        self.answers = [Scoreboard(bench, f"answers of p{p}", key=_local) for p in ports]
        self.tx_req = [
            FlitSink(bench, f"p{p}_tx_req", on_packet=partial(self._replica, p)) for p in ports
        ]
        self.tx_rsp = [
            FlitSink(bench, f"p{p}_tx_rsp", on_packet=partial(self._answer, p)) for p in ports
        ]
        self.links = [Link(bench, f"p{p}_tx_req", f"p{p}_tx_rsp") for p in ports]
        self.registers = AxiLiteManager(bench)
        self.map = maps_of(self.config)[0]
        self._log = [
            [bench.wire(f"p{p}_log_{name}").read for name in ("valid", "maddr", "stage", "source")]
            for p in ports
        ]
        self._clear()
        bench.add(self)

    def _clear(self) -> None:
        self.expected: Counter[str] = Counter()
        self._replicas: dict[tuple[int, int], deque[Packet]] = {}
        self._posted: list[list[Packet]] = [[] for _ in range(self.ports)]
        self._pending: dict[tuple[int, int, int], _Pending] = {}
        self._locals: list[set[int]] = [set() for _ in range(self.ports)]
        self._due: list[tuple[int, int, int, Packet]] = []
        self._serial = 0
        self.silent: set[int] = set()
        self.kept: list[tuple[int, Packet]] = []
        self._lossy: set[int] = set()
        self._lost: list[list[int]] = []
        for scoreboard in self.answers:
            scoreboard.__init__(self.bench, scoreboard.name, key=_local)

    async def start(self) -> None:
        """Come out of reset and set the objects up."""
        await self.bench.start()
        await self.set_up()

    async def restart(self) -> None:
        """Reset in the middle of whatever is going on, and set up again."""
        await self.bench.reset()
        await self.set_up()

    async def set_up(self) -> None:
        """Make the objects through the runtime, over the registers."""
        recorder = Recorder()
        runtime = Runtime(self.config, recorder)
        gpus = self.config.gpus
        self.objects = [
            self._object(runtime, range(gpus), slots=4, group=None),
            self._object(runtime, range(gpus - 1), slots=3, group=tuple({0, gpus - 2})),
            self._object(runtime, range(gpus), slots=1, group=()),
        ]
        self.fabric.objects = list(self.objects)
        for device, address, value in recorder.take():
            if device == SWITCH:
                await self.registers.write(address, value)
        # The runtime gives no object an empty group; a switch must refuse it all the same.
        await self.write_object(2, "group", group=0)

    async def write_object(self, index: int, register: str, **values: int) -> None:
        """Write a register of an object's entry while traffic goes on."""
        for address, value in self.map.window("objects").writes(index, register, **values):
            await self.registers.write(address, value)

    def begin_loss(self, ports: list[int]) -> list[list[int]]:
        """Take what these ports are sent for what is left after a loss; the flits of each packet.

        What they were to get before is not expected any more.
        """
        self._lossy.update(ports)
        for port in ports:
            self._posted[port].clear()
        return self._lost

    def end_loss(self) -> None:
        """Expect whole packets again."""
        self._lossy.clear()

    def _object(self, runtime: Runtime, members: range, *, slots: int, group: Any) -> ObjectSpec:
        prop = CUDymulticastObjectProp(len(members), bsize=1024, slots=slots, group=group or None)
        handle = runtime.cuDyMulticastCreate(prop)
        for gpu in members:
            runtime.cuDyMulticastAddDevice(handle, gpu)
        for gpu in members:
            runtime.cuDyMulticastBindAddr(handle, gpu, 1 << 20, ntoken=64, nactive=[64] * slots)
        return ObjectSpec(
            base=runtime.address(handle, 0, 0),
            size=64 * len(members) * 1024,
            members=set(members),
            group=set(members if group is None else group),
            split=prop.split,
            slots=slots,
        )

    # The bench steps this environment as its last agent.

    def reset(self) -> None:
        self._clear()

    def problems(self) -> list[str]:
        return []

    def step(self) -> None:
        while self._due and self._due[0][0] <= self.bench.cycle:
            _, _, port, packet = heapq.heappop(self._due)
            flits = packet.encode()
            self.rx_rsp[port].send(flits, poison=[len(flits) - 1] if packet.poison else [])
        for port, (valid, maddr, stage, source) in enumerate(self._log):
            if valid():
                self._accumulated(port, maddr(), stage(), source())

    def local(self, port: int) -> int:
        """A tag that is not in use at a port."""
        while (number := self.random.randrange(LOCALS)) in self._locals[port]:
            pass
        self._locals[port].add(number)
        return number

    def send(self, port: int, packet: Packet) -> Decision:
        """Send a well-formed request; its tag is filled in, and all that follows is expected."""
        packet = self.tagged(port, packet)
        flits = packet.encode()
        self.rx_req[port].send(flits, poison=[len(flits) - 1] if packet.poison else [])
        return self.expect(port, packet)

    def tagged(self, port: int, packet: Packet) -> Packet:
        """The request with a tag that its port does not use yet."""
        return replace(packet, tag_local=0 if packet.cmd in POSTED else self.local(port))

    def expect(self, port: int, packet: Packet) -> Decision:
        """Expect all that follows of a request as the parser of its port hands it on."""
        answered = packet.cmd not in POSTED
        decision = self.fabric.decide(packet, port // self.config.links)
        if decision.status is not Status.OK:
            self._refused(port, packet, decision.status)
            return decision
        if decision.session:
            key = port, packet.maddr, packet.stage
            assert key not in self._pending, f"two requests for {packet.maddr:#x} at a time"
            self._pending[key] = _Pending(packet, decision)
        for target in decision.ports:
            self.expected["replicas"] += 1
            replica = self._pruned(packet, target // self.config.links, decision.split)
            if answered:
                replica = replace(replica, tag_port=port)
                self._replicas.setdefault((target, port), deque()).append(replica)
            else:
                self._posted[target].append(replica)
        return decision

    def send_malformed(self, port: int, packet: Packet) -> None:
        """Send a request whose header promises one flit too many of another kind."""
        packet = replace(packet, tag_local=self.local(port), be=0)
        self.rx_req[port].send(packet.encode())
        self._refused(port, packet, Status.MALFORMED)

    def send_stray(self, port: int, to: int) -> None:
        """Send an acknowledgement that no session waits for."""
        session = self.config.switch.sessions
        packet = Packet.multimem(Cmd.MM_ACK, maddr=0, count=1, port=to, local=session)
        self.rx_rsp[port].send(packet.encode())
        self.expected["stray"] += 1
        self.expected["error_malformed"] += 1

    def _refused(self, port: int, packet: Packet, status: Status) -> None:
        self.expected[f"error_{status.name.lower()}"] += 1
        if packet.cmd in POSTED:
            self.expected["dropped"] += 1
            return
        where: dict[str, Any] = {"port": port, "local": packet.tag_local}
        if packet.tx:
            answer = Packet.multimem(
                Cmd.ERR,
                maddr=packet.maddr,
                stage=packet.stage,
                count=packet.count,
                attr=status.value,
                **where,
            )
        else:
            answer = Packet.unicast(Cmd.ERR, addr=status.value, **where)
        self.answers[port].expect(answer)

    def _pruned(self, packet: Packet, gpu: int, split: int) -> Packet:
        if not packet.targets:
            return packet
        targets = tuple(target for target in packet.targets if target >> split == gpu)
        return replace(packet, targets=targets, count=len(targets))

    def _replica(self, port: int, received: FlitPacket) -> None:
        """Compare what comes out at a port, and answer it as the GPU there."""
        if port in self._lossy:
            self._lost.append(received.flits)
            return
        try:
            packet = Packet.decode(received.flits, poison=received.poisoned)
        except PacketError as error:
            self.bench.fail(f"p{port}_tx_req: not a packet: {error}")
            raise
        if packet.cmd in POSTED:
            if packet not in self._posted[port]:
                self.bench.fail(f"p{port}_tx_req: unexpected {packet}")
            self._posted[port].remove(packet)
            return
        queue = self._replicas.get((port, packet.tag_port))
        if not queue:
            self.bench.fail(f"p{port}_tx_req: unexpected {packet}")
            return
        wanted = queue.popleft()
        request = wanted
        if wanted.tx:  # the session is the switch's to choose
            wanted = replace(wanted, tag_local=packet.tag_local)
        if lines := difference(wanted, packet):
            self.bench.fail(f"p{port}_tx_req: " + "\n  ".join(lines))
        answer = self._respond(packet)
        if packet.tx:
            key = packet.tag_port, request.maddr, request.stage
            self._pending[key].contributions[port] = answer
            if port in self.silent:
                self.kept.append((port, answer))
                return
        else:
            self.answers[packet.tag_port].expect(answer)
        self._serial += 1
        due = self.bench.cycle + self.random.randint(0, self.delay)
        heapq.heappush(self._due, (due, self._serial, port, answer))

    def _respond(self, packet: Packet) -> Packet:
        """What the GPU behind a port answers."""
        rng = self.random
        cmd = LOADS.get(packet.cmd, Cmd.MM_ACK if packet.tx else Cmd.WR_ACK)
        poison = rng.random() < self.errors
        status = 0
        if packet.poison:
            status = Status.POISONED.value
        elif rng.random() < self.errors:
            status = rng.choice((1, 4, 6, 8))
        wanted = (packet.maddr if packet.tx else packet.addr) % 16 + 1
        dtype = row_of(packet.attr)[0] if packet.attr else Dtype.BF16
        data = tuple(random_flit(rng, dtype) for _ in range(wanted)) if packet.cmd in LOADS else ()
        if status:
            cmd, data = Cmd.ERR, ()
        where: dict[str, Any] = {"port": packet.tag_port, "local": packet.tag_local, "data": data}
        if not packet.tx:
            answer = Packet.unicast(cmd, addr=status, **where)
        else:
            answer = Packet.multimem(
                cmd,
                maddr=packet.maddr,
                stage=packet.stage,
                count=packet.count or 1,
                attr=status,
                **where,
            )
        return replace(answer, poison=poison)

    def _accumulated(self, port: int, maddr: int, stage: int, source: int) -> None:
        """A reduction unit took a contribution; after the last one its answer is known."""
        pending = self._pending.get((port, maddr, stage))
        if pending is None or source not in pending.contributions or source in pending.order:
            self.bench.fail(f"p{port}_log: unexpected contribution of p{source} to {maddr:#x}")
            return
        pending.order.append(source)
        self.expected["contributions"] += 1
        self.expected["error_poisoned"] += pending.contributions[source].poison
        missing = pending.decision.ports & self.silent
        if len(pending.order) < len(pending.decision.ports - missing):
            return
        del self._pending[port, maddr, stage]
        self.expected["results"] += 1
        packet, session = pending.packet, pending.decision.session or {}
        arrived = [pending.contributions[number] for number in pending.order]
        statuses = {answer.attr for answer in arrived if answer.cmd is Cmd.ERR}
        statuses |= {Status.POISONED.value for answer in arrived if answer.poison}
        statuses |= {Status.TIMEOUT.value} if missing else set()
        cmd, attr, data = Cmd.MM_ACK, 0, ()
        if statuses:
            cmd, attr = Cmd.ERR, min(statuses)
        elif packet.cmd is Cmd.MM_LDR:
            operands = [(number, pending.contributions[number].data) for number in pending.order]
            order, ftz = self.config.switch.order, self.config.ftz
            cmd = Cmd.MM_RSP
            data = reduce_contributions(operands, session["attr"], order=order, ftz=ftz)
        self.answers[port].expect(
            Packet.multimem(
                cmd,
                maddr=maddr,
                stage=stage,
                count=session["count"],
                attr=attr,
                data=data,
                port=port,
                local=packet.tag_local,
            )
        )

    def _answer(self, port: int, received: FlitPacket) -> None:
        packet = self.answers[port].observe(received)
        self._locals[port].discard(packet.tag_local)

    @property
    def quiet(self) -> bool:
        """Nothing is under way."""
        return not (
            self._pending
            or self._due
            or any(self._posted)
            or any(self._replicas.values())
            or any(source.pending for source in (*self.rx_req, *self.rx_rsp))
            or any(scoreboard.outstanding for scoreboard in self.answers)
        )

    async def finish(self, *, limit: int = 30_000) -> None:
        """Wait until everything has come, then compare the counters."""
        await self.bench.until(lambda: self.quiet, limit=limit, what=self._missing() or "the end")
        await self.bench.cycles(10)
        counters = {
            "rx_req_flits": sum(source.sent for source in self.rx_req),
            "rx_rsp_flits": sum(source.sent for source in self.rx_rsp),
            "tx_req_flits": sum(sink.taken for sink in self.tx_req),
            "tx_rsp_flits": sum(sink.taken for sink in self.tx_rsp),
        }
        counters |= dict.fromkeys(
            ("replicas", "contributions", "results", "stray", "dropped"), 0
        ) | {f"error_{name}": 0 for name in self._statuses()}
        counters |= self.expected
        found = {name: await self.registers.read(self.map[name].offset) for name in counters}
        assert found == counters, {
            name: f"{found[name]}, not {counters[name]}"
            for name in counters
            if found[name] != counters[name]
        }
        sticky = await self.registers.read(self.map["errors"].offset)
        flags = self.map["errors"].unpack(sticky)
        assert flags == {name: int(self.expected[f"error_{name}"] > 0) for name in flags}
        self.bench.check()

    def _statuses(self) -> list[str]:
        return [name.name for name in self.map["errors"].fields]

    def _missing(self) -> str:
        return "" if self.quiet else "the rest of the packets"


def _local(packet: Packet) -> int:
    return packet.tag_local
