"""What the Hub must do, packet by packet, in the order in which they come."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from dysharp.hw.packet import Cmd, Dtype, Op, Packet, Status
from dysharp.model.flits import reduce_flits
from dysharp.model.layout import AL_VALID
from dysharp.model.numerics import DEFAULT_DTYPES, attr_bits, supports
from dysharp.sim_tb.agents import SparseMemory

__all__ = ["HubModel", "HubObject", "BF16_ADD_F32"]

BF16_ADD_F32 = attr_bits(Dtype.BF16, Op.ADD, 1)
LOADS = (Cmd.RD, Cmd.MM_LDR)
POSTED = (Cmd.WRP, Cmd.MM_STP)


@dataclass
class HubObject:
    """An object as one GPU knows it.

    Attributes
    ----------
    base, size, stride, rows : multimem addresses: first, bytes, log2 of bytes a row, rows
    bsize, vbase : bytes of a block and memory address, by stage
    al_base : address of the AL table
    capacity : rows of each local expert
    split, attr, preloaded : as in the register map
    """

    base: int
    size: int
    stride: int
    rows: int
    bsize: tuple[int, int]
    vbase: tuple[int, int]
    al_base: int
    capacity: Sequence[int]
    split: int
    attr: int = BF16_ADD_F32
    preloaded: bool = False
    used: list[int] = field(default_factory=list)

    def __post_init__(self):
        self.used = [0] * len(self.capacity)

    @property
    def row0(self) -> list[int]:
        """First row of each local expert."""
        return [sum(self.capacity[:slot]) for slot in range(len(self.capacity))]

    def maddr(self, aidx: int, offset: int = 0) -> int:
        """Multimem address of a byte of a row."""
        return self.base + (aidx << self.stride) + offset

    def al_address(self, slot: int, aidx: int) -> int:
        """Address of an AL table entry."""
        return self.al_base + 4 * (slot * self.rows + aidx)

    def address(self, stage: int, slot: int, lidx: int, offset: int) -> int:
        """Address of a byte of an expert's row."""
        return self.vbase[stage] + (self.row0[slot] + lidx) * self.bsize[stage] + offset


class HubModel:
    """Memory and answers under the rules of docs/hub.md, every access done at once.

    Parameters
    ----------
    memory : SparseMemory
        What memory holds; changed by :meth:`serve`.
    objects : dict of int to HubObject
        By entry of the object table.
    bad : sequence of (start, end)
        Addresses that memory refuses.
    gpu_address_bit : int
    dtypes : collection of Dtype
        The types that the build reduces.
    ftz : bool
        f32 subnormals count as zero.

    Attributes
    ----------
    touches, written : lists of the events that must come, in order
    full : entries that met a full expert
    """

    def __init__(
        self,
        memory: SparseMemory,
        objects: dict[int, HubObject],
        *,
        bad: Sequence[tuple[int, int]] = (),
        gpu_address_bit: int = 40,
        dtypes: Collection[Dtype] = DEFAULT_DTYPES,
        ftz: bool = False,
    ):
        self.memory, self.objects, self.bad = memory, objects, bad
        self.gpu_address_bit, self.dtypes, self.ftz = gpu_address_bit, dtypes, ftz
        self.touches: list[dict[str, int]] = []
        self.written: list[dict[str, int]] = []
        self.full = 0

    def serve(self, packet: Packet) -> Packet | None:
        """Do what a packet asks for; its answer, or None for a posted one."""
        if packet.tx:
            statuses, data = self._multimem(packet)
        else:
            statuses, data = self._unicast(packet)
        wrong = min((status for status in statuses if status), default=0)
        if packet.cmd in POSTED:
            return None
        return self._answer(packet, wrong, data)

    def _answer(self, packet: Packet, wrong: int, data: list[int]) -> Packet:
        loads = packet.cmd in LOADS
        if wrong:
            cmd = Cmd.ERR
        elif packet.tx:
            cmd = Cmd.MM_RSP if loads else Cmd.MM_ACK
        else:
            cmd = Cmd.RD_RSP if loads else Cmd.WR_ACK
        answer = Packet(cmd, tx=packet.tx, tag_port=packet.tag_port, tag_local=packet.tag_local)
        if packet.tx:
            answer.maddr, answer.stage = packet.maddr, packet.stage
            answer.count = packet.count or 1
            answer.attr = wrong
        else:
            answer.addr = wrong or packet.addr
        answer.data = tuple(data) if loads and not wrong else ()
        return answer

    def _unicast(self, packet: Packet):
        if packet.cmd not in (Cmd.RD, Cmd.WR, Cmd.WRP):
            return [Status.UNSUPPORTED.value], []
        if packet.poison:
            return [Status.POISONED.value], []
        address = packet.addr & (1 << self.gpu_address_bit) - 1 & ~0xF
        if packet.cmd is Cmd.RD:
            flits = (packet.addr & 0xF) + 1
            return [self._fails(address, flits)], _flits(self.memory, address, flits)
        return [self._store(address, packet)], []

    def _multimem(self, packet: Packet):
        loads = packet.cmd is Cmd.MM_LDR
        start = packet.maddr & ~0xF
        flits = (packet.maddr & 0xF) + 1 if loads else len(packet.data)
        number, found = next(
            (
                (number, entry)
                for number, entry in sorted(self.objects.items())
                if entry.base <= start < entry.base + entry.size
            ),
            (0, None),
        )
        wrong = []
        if found is None:
            return [Status.UNKNOWN_OBJECT.value], []
        delta = start - found.base
        aidx, offset = delta >> found.stride, delta & (1 << found.stride) - 1
        if packet.count:
            inside = aidx < found.rows and offset + 16 * flits <= found.bsize[packet.stage]
        else:
            inside = delta + 16 * flits <= found.size
        if not inside:
            wrong.append(Status.MALFORMED.value)
        attr = packet.attr or found.attr
        if packet.cmd is Cmd.MM_RED or loads and not supports(attr, self.dtypes):
            wrong.append(Status.UNSUPPORTED.value)
        if packet.poison:
            wrong.append(Status.POISONED.value)
        if wrong:
            return wrong, []
        if not packet.count:
            places = [(0, found.vbase[packet.stage] + delta)]
        else:
            places = self._places(packet, number, found, aidx, offset, flits)
        if not loads:
            statuses = []
            told = set()
            for slot, (status, address) in enumerate(places):
                failed = status or self._store(address, packet)
                statuses.append(failed)
                if packet.count and not packet.stage and not status:
                    told_slot = packet.targets[slot] & (1 << found.split) - 1
                    if told_slot not in told and not failed:
                        lidx = self._entry(found, told_slot, aidx) & AL_VALID - 1
                        self.written.append(
                            {"object": number, "slot": told_slot, "lidx": lidx, "flits": flits}
                        )
                    told.add(told_slot)
            return statuses, []
        statuses = [status or self._fails(address, flits) for status, address in places]
        if any(statuses):
            return statuses, []
        chunks = [_flits(self.memory, address, flits) for _, address in places]
        return statuses, list(reduce_flits(chunks, attr, ftz=self.ftz))

    def _places(self, packet: Packet, number, found: HubObject, aidx, offset, flits):
        """Status and address of each entry; first touches are done on the way."""
        places = []
        for target in packet.targets:
            slot = target & (1 << found.split) - 1
            if slot >= len(found.capacity):
                places.append((Status.UNKNOWN_TARGET.value, 0))
                continue
            entry_address = found.al_address(slot, aidx)
            if self._fails(entry_address, 0):
                places.append((Status.UNMAPPED_INDEX.value, 0))
                continue
            entry = self._entry(found, slot, aidx)
            lidx = entry & AL_VALID - 1
            if not entry & AL_VALID:
                stores = packet.cmd in (Cmd.MM_ST, Cmd.MM_STP)
                if not stores or packet.stage or found.preloaded:
                    places.append((Status.UNMAPPED_INDEX.value, 0))
                    continue
                lidx = found.used[slot]
                if lidx == found.capacity[slot]:
                    self.full += 1
                    places.append((Status.QUOTA_EXCEEDED.value, 0))
                    continue
                found.used[slot] += 1
                self.memory.write_bytes(entry_address, (AL_VALID | lidx).to_bytes(4, "little"))
                self.touches.append({"object": number, "slot": slot, "aidx": aidx, "lidx": lidx})
            elif lidx >= found.capacity[slot]:
                places.append((Status.UNMAPPED_INDEX.value, 0))
                continue
            places.append((0, found.address(packet.stage, slot, lidx, offset)))
        return places

    def _entry(self, found: HubObject, slot: int, aidx: int) -> int:
        return int.from_bytes(self.memory.read_bytes(found.al_address(slot, aidx), 4), "little")

    def _store(self, address: int, packet: Packet) -> int:
        """Write what the byte enables allow; a part that memory refuses stays as it is."""
        enables = (1 << 256) - 1 if packet.be is None else packet.be
        raw = b"".join(flit.to_bytes(16, "little") for flit in packet.data)
        for number, byte in enumerate(raw):
            if enables >> number & 1 and not self._is_bad(address + number, packet, address):
                self.memory.write_bytes(address + number, bytes([byte]))
        return self._fails(address, len(packet.data))

    def _is_bad(self, byte: int, packet: Packet, start: int) -> bool:
        """Memory refuses bursts, and a burst ends at 4 KB."""
        end = start + 16 * len(packet.data)
        low = max(start, byte & ~0xFFF)
        high = min(end, (byte | 0xFFF) + 1)
        return self._refused(low, high)

    def _fails(self, address: int, flits: int) -> int:
        end = address + max(4, 16 * flits)
        return Status.POISONED.value if self._refused(address, end) else 0

    def _refused(self, low: int, high: int) -> bool:
        return any(low < end and start < high for start, end in self.bad)


def _flits(memory: SparseMemory, address: int, flits: int) -> list[int]:
    return [int.from_bytes(memory.read_bytes(address + 16 * k, 16), "little") for k in range(flits)]
