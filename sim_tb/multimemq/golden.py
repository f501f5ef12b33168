"""What an instruction must do, written from the wire format and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from dysharp.hw.packet import FLIT_BYTES, NO_TARGET, Cmd, Packet, Status, tx_flits

__all__ = ["Job", "expected", "random_job"]

STORES = (Cmd.MM_ST, Cmd.MM_STP, Cmd.MM_RED)
OPS = (Cmd.MM_ST, Cmd.MM_ST, Cmd.MM_LDR, Cmd.MM_LDR, Cmd.MM_STP, Cmd.MM_RED)


@dataclass
class Job:
    """An instruction with the list that lies in memory and the data that goes with it.

    Attributes
    ----------
    fields : dict of str to int
        Fields of the instruction.
    ids : list of int
        The list in memory, 0xFFFF entries included.
    data : list of int
        DATA flits given.
    """

    fields: dict[str, int]
    ids: list[int]
    data: list[int]

    @property
    def cmd(self) -> Cmd | None:
        """The operation, or None if it is no command."""
        try:
            return Cmd(self.fields["op"])
        except ValueError:
            return None

    @property
    def loads(self) -> bool:
        return self.cmd is Cmd.MM_LDR

    @property
    def answered(self) -> bool:
        return self.cmd is not Cmd.MM_STP


@dataclass
class Expected:
    """Packet to be sent (None for nothing; tag left 0), and the result if none is."""

    packet: Packet | None
    fault: Status = Status.OK
    beats: tuple[int, ...] = ()


def expected(job: Job, *, chunk_bytes: int) -> Expected:
    """What ``job`` must lead to before any answer has come."""
    fields, flits = job.fields, job.fields["flits"]
    listed = not fields["static"] and fields["count"] > 0
    given = flits if job.cmd in STORES else 0
    if job.cmd not in (*STORES, Cmd.MM_LDR):
        return Expected(None, Status.MALFORMED)
    if fields["maddr"] % FLIT_BYTES or (listed and fields.get("list_addr", 0) % 2):
        return Expected(None, Status.MALFORMED)
    if flits == 0 or fields["maddr"] % chunk_bytes + flits * FLIT_BYTES > chunk_bytes:
        return Expected(None, Status.MALFORMED)
    if 1 + (tx_flits(fields["count"]) if listed else 0) + given > 32:
        return Expected(None, Status.UNSUPPORTED)
    targets = [target for target in job.ids if target != NO_TARGET] if listed else []
    if not targets and not fields["static"]:
        return Expected(None, beats=(0,) * flits if job.loads else ())
    packet = Packet.multimem(
        Cmd(fields["op"]),
        maddr=fields["maddr"] | (flits - 1 if job.loads else 0),
        targets=targets,
        stage=fields["stage"],
        attr=fields["attr"],
        data=job.data,
    )
    return Expected(packet)


def random_job(
    choose: random.Random,
    *,
    chunk_bytes: int,
    op: Cmd | None = None,
    count: int | None = None,
    missing: float | None = None,
    flits: int | None = None,
    static: bool = False,
) -> Job:
    """A legal instruction; what is given is not drawn. ``list_addr`` is left 0."""
    cmd = choose.choice(OPS) if op is None else op
    most = chunk_bytes // FLIT_BYTES
    flits = choose.choice([1, most, choose.randint(1, most)]) if flits is None else flits
    if count is None:
        count = choose.choice([0, 1, 2, 8, 9, choose.randint(1, 16), choose.randint(17, 120)])
    missing = choose.choice([0, 0, 0.1, 0.5, 0.9, 1]) if missing is None else missing
    first = choose.randint(0, most - flits)
    return Job(
        {
            "op": cmd.value,
            "static": int(static),
            "attr": choose.choice([0, 0x88]),
            "maddr": choose.getrandbits(48 - 8) << 8 | first * FLIT_BYTES,
            "stage": choose.getrandbits(1),
            "count": count,
            "flits": flits,
        },
        [
            NO_TARGET if choose.random() < missing else choose.randrange(NO_TARGET)
            for _ in range(count)
        ],
        [choose.getrandbits(128) for _ in range(flits)] if cmd in STORES else [],
    )


def list_bytes(ids: Sequence[int]) -> bytes:
    """The list as it lies in memory."""
    return b"".join(target.to_bytes(2, "little") for target in ids)
