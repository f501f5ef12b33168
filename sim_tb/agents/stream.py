"""Sources, sinks and monitors of record streams: ``<prefix>_valid/_ready/_<field>``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from cocotb.triggers import Event

from dysharp.sim_tb.agents.bench import Bench, StallPattern
from dysharp.sim_tb.agents.handshake import Monitor, Sink, Source

__all__ = ["StreamMonitor", "StreamSink", "StreamSource", "stream_fields"]


def stream_fields(bench: Bench, prefix: str) -> tuple[str, ...]:
    """The payload fields of the record stream ``prefix``, read off the top's ports.

    A longer name that is a stream of its own (``inst_data`` beside ``inst``) is left out.
    """
    names = {handle._name for handle in bench.dut}
    start = f"{prefix}_"
    fields = []
    for name in sorted(names):
        rest = name.removeprefix(start)
        if rest == name or rest in ("valid", "ready"):
            continue
        parts = rest.split("_")
        others = (start + "_".join(parts[:end]) for end in range(1, len(parts)))
        if any(f"{other}_valid" in names or f"{other}_tvalid" in names for other in others):
            continue
        if parts[-1] in ("tdata", "tvalid", "tready", "tlast", "tuser") and len(parts) == 1:
            continue
        fields.append(rest)
    return tuple(fields)


class StreamSource(Source):
    """Sends records on ``<prefix>_valid/_ready/_<field>``.

    Parameters
    ----------
    fields : sequence of str or None
        Names of the payload ports without the prefix; read off the top by default.
    """

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        fields: Sequence[str] | None = None,
        stall: StallPattern | None = None,
    ):
        self.fields = tuple(stream_fields(bench, prefix) if fields is None else fields)
        super().__init__(bench, prefix, "valid", "ready", self.fields, stall)

    def feed(self, records: Iterable[Mapping[str, int]]) -> None:
        """Send records from an iterator that is advanced only when the last record has left."""
        self._feed([self._item(record)] for record in records)

    def _item(self, record: Mapping[str, int]) -> tuple[int, ...]:
        if unknown := record.keys() - set(self.fields):
            raise KeyError(f"{self.prefix} has no field {', '.join(sorted(unknown))}")
        return tuple(int(record.get(name, 0)) for name in self.fields)

    def send(self, record: Mapping[str, int] | None = None, **values: int) -> None:
        """Queue one record; fields that are not given are 0, unknown ones are an error."""
        self._put(self._item({**(record or {}), **values}))


class StreamSink(Sink):
    """Takes records from ``<prefix>_valid/_ready/_<field>`` and checks that offers are stable.

    Attributes
    ----------
    records : deque of dict
        Records not yet fetched by :meth:`receive`, unless ``on_record`` was given.
    """

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        fields: Sequence[str] | None = None,
        stall: StallPattern | None = None,
        on_record: Callable[[dict[str, int]], None] | None = None,
    ):
        self.fields = tuple(stream_fields(bench, prefix) if fields is None else fields)
        super().__init__(bench, prefix, "valid", "ready", self.fields, stall)
        self.records: deque[dict[str, int]] = deque()
        self._on_record = on_record or self._keep
        self._arrived = Event()

    def _keep(self, record: dict[str, int]) -> None:
        self.records.append(record)
        self._arrived.set()

    def _accept(self, payload: list[int]) -> None:
        self._on_record(dict(zip(self.fields, payload, strict=True)))

    async def receive(self) -> dict[str, int]:
        """Wait for the next record."""
        while not self.records:
            self._arrived.clear()
            await self._arrived.wait()
        return self.records.popleft()


class StreamMonitor(Monitor):
    """Watches a record stream that others drive; ``records`` keeps what was transferred."""

    def __init__(
        self,
        bench: Bench,
        prefix: str,
        *,
        fields: Sequence[str] | None = None,
        on_record: Callable[[dict[str, int]], None] | None = None,
    ):
        self.fields = tuple(stream_fields(bench, prefix) if fields is None else fields)
        super().__init__(bench, prefix, "valid", "ready", self.fields)
        self.records: list[dict[str, int]] = []
        self._on_record = on_record or self.records.append

    def _accept(self, payload: list[int]) -> None:
        self._on_record(dict(zip(self.fields, payload, strict=True)))
