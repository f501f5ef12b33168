"""Agents and scoreboard round a route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.lib import data

from dysharp.hw.packet import Packet, Status
from dysharp.hw.switch.route_record import RoutedFlit
from dysharp.sim_tb.agents import Bench, StreamSink, StreamSource
from dysharp.sim_tb.parser.env import Faults, Frame, command_bits, parse
from dysharp.sim_tb.route.model import POSTED, Decision, Fabric, ObjectSpec

__all__ = ["RouteEnv"]


class RouteEnv:
    """A route, the requests sent to it, and what it must say of each.

    Parameters
    ----------
    dut
        cocotb's handle; the manifest beside it tells the configuration.
    """

    def __init__(self, dut: Any):
        self.bench = bench = Bench(dut)
        config = bench.manifest["config"]
        self.fabric = Fabric.of(config)
        self.routed: Any = RoutedFlit(ports=config["gpus"] * config["links"])
        self.gpu = 1
        self._gpu = bench.wire("gpu")
        self._failed = bench.wire("failed")
        self._entries = [
            {name: bench.wire(f"objects_{k}_{name}") for name in ObjectSpec(0, 0).fields()}
            for k in range(config["objects"])
        ]
        self.source = StreamSource(bench, "i")
        self.sink = StreamSink(bench, "o", on_record=self._flit)
        self.errors = StreamSink(bench, "error", on_record=self._error)
        self.faults = Faults(bench)
        self.clear()
        self.set_gpu(self.gpu)
        self.set_failed(set())
        for k in range(config["objects"]):
            self.set_object(k, ObjectSpec(0, 0, valid=False))

    def clear(self) -> None:
        """Forget what was sent and seen, as after a reset."""
        self.sent: list[tuple[Packet, Decision]] = []
        self._flits: list[tuple[dict[str, int], Packet]] = []
        self._errors: list[tuple[dict[str, int], Packet]] = []
        self._faults: list[dict[str, int]] = []
        self.flits_seen = self.errors_seen = 0
        self.taken: list[int] = []

    def set_gpu(self, gpu: int) -> None:
        """Be the port of another GPU."""
        self.gpu = gpu
        self._gpu.write(gpu)

    def set_failed(self, ports: set[int]) -> None:
        """Ports that have failed."""
        self.fabric.failed = ports
        self._failed.write(sum(1 << port for port in ports))

    def set_object(self, index: int, entry: ObjectSpec) -> None:
        """Fill an entry of the table."""
        self.fabric.objects[index] = entry
        for name, value in entry.fields().items():
            self._entries[index][name].write(value)

    def send(self, packet: Packet, flits: Sequence[int] | None = None) -> Decision:
        """Send a well-formed packet, perhaps with other flits than it encodes."""
        flits = list(flits or packet.encode())
        poison = {len(flits) - 1} if packet.poison else set()
        parsed = parse(Frame(flits, poison), responses=False, chunk_bytes=self.fabric.chunk_bytes)
        assert parsed.flits, f"not well formed: {packet}"
        decision = self.fabric.decide(packet, self.gpu, flits)
        self.sent.append((packet, decision))
        self._expect(packet, decision, parsed.flits)
        for word, kind, last, mark in parsed.flits:
            self.source.send(data=word, kind=kind, last=last, poison=mark)
        return decision

    def _expect(self, packet: Packet, decision: Decision, flits: Sequence[Any]) -> None:
        decides = -(-packet.count // 8) if packet.tx else 0
        refused = decision.status is not Status.OK
        for index, (word, _, last, poison) in enumerate(flits):
            expected = {"data": word, "last": last, "poison": poison}
            expected["decided"] = int(index == decides)
            if index == decides:
                expected["refused"] = int(refused)
                if not refused:
                    expected |= self._record(packet, decision, len(flits))
            self._flits.append((expected, packet))
            if refused and index == decides:
                break
        if not refused:
            return
        answered = packet.cmd not in POSTED
        self._faults.append(
            {
                "status": decision.status.value,
                "answered": int(answered),
                "cmd": command_bits(flits[0][0]),
                "addr": flits[0][0] >> 64,
            }
        )
        if answered:
            answer = {
                "tag": packet.tag_port << 12 | packet.tag_local,
                "tx": packet.tx,
                "status": decision.status.value,
            }
            if packet.tx:
                answer |= {"maddr": packet.maddr, "stage": packet.stage, "count": packet.count}
            self._errors.append((answer, packet))

    @staticmethod
    def _record(packet: Packet, decision: Decision, flits: int) -> dict[str, int]:
        record = {
            "posted": int(packet.cmd in POSTED),
            "needs_session": int(bool(decision.session)),
            "len": flits - 1,
            "split": decision.split,
            "ports": sum(1 << port for port in decision.ports),
        }
        if packet.cmd not in POSTED:
            record["local"] = packet.tag_local
        return record | decision.session

    def _flit(self, fields: dict[str, int]) -> None:
        got = self._unpack(fields)
        self.taken.append(self.bench.cycle)
        if self.flits_seen == len(self._flits):
            self.bench.fail(f"a flit too many: {got}")
        want, packet = self._flits[self.flits_seen]
        self._compare(f"flit {self.flits_seen}", want, got, packet)
        self.flits_seen += 1

    def _unpack(self, fields: dict[str, int]) -> dict[str, int]:
        flit = self.routed["flit"].shape.from_bits(fields["flit"])
        got = {"data": flit.data, "last": flit.last, "poison": flit.poison}
        got["decided"] = fields["decided"]
        record = _numbers(self.routed["record"].shape, fields["record"])
        session = _numbers(self.routed["record"].shape["session"].shape, record.pop("session"))
        return got | record | session

    def _error(self, record: dict[str, int]) -> None:
        if self.errors_seen == len(self._errors):
            self.bench.fail(f"an answer too many: {record}")
        want, packet = self._errors[self.errors_seen]
        self._compare(f"answer {self.errors_seen}", want, record, packet)
        self.errors_seen += 1

    def _compare(
        self, what: str, want: dict[str, int], got: dict[str, int], packet: Packet
    ) -> None:
        lines = [
            f"{name}: expected {value:#x}, got {got[name]:#x}"
            for name, value in want.items()
            if got[name] != value
        ]
        if lines:
            text = "\n  ".join(lines)
            self.bench.fail(f"{what} differs\n  {text}\n  of {packet}\n")

    async def finished(self, *, limit: int = 200_000) -> None:
        """Wait for all that must come, then for nothing more."""
        await self.bench.until(
            lambda: (
                self.source.pending == 0
                and self.flits_seen == len(self._flits)
                and self.errors_seen == len(self._errors)
            ),
            limit=limit,
            what=f"{len(self._flits)} flits and {len(self._errors)} answers",
        )
        await self.bench.cycles(40)
        assert self.faults.seen == self._faults, f"seed {self.bench.seed}"
        self.bench.check()


def _numbers(layout: Any, bits: int) -> dict[str, int]:
    """Fields of a packed value as plain numbers."""
    layout = data.Layout.cast(layout)
    return {name: bits >> field.offset & (1 << field.width) - 1 for name, field in layout}
