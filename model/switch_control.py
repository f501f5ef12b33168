"""What the runtime does about failures: limits of time, ports that failed, sessions, the error log.

Writes go to a backend like those of :class:`~dysharp.model.runtime.Runtime`. What is read comes
back through :meth:`SwitchControl.reads`, the addresses to read, and :meth:`SwitchControl.decode`,
which makes fields of the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dysharp.hw.config import Config
from dysharp.hw.register_map import WORD_BITS, WORD_BYTES
from dysharp.hw.registers import least_timeout, maps_of
from dysharp.model.backend import SWITCH, Backend
from dysharp.model.cuda import CudaError, CUresult

__all__ = ["SwitchControl"]


class SwitchControl:
    """Limits of time, failed ports, retired sessions and the error log of a switch.

    A call that breaks a rule raises :class:`~dysharp.model.cuda.CudaError` with
    ``CUDA_ERROR_INVALID_VALUE`` and writes nothing.

    Parameters
    ----------
    config : what was built
    backend : where writes go
    """

    def __init__(self, config: Config, backend: Backend):
        self.config, self.backend = config, backend
        self.registers, _ = maps_of(config)

    def set_session_timeout(self, cycles: int) -> None:
        """After how many cycles a session is answered ERR 3, if answers are missing; 0: never."""
        least = least_timeout(sessions=self.config.switch.sessions)
        self._check("set_session_timeout", cycles == 0 or least <= cycles, f"0, or {least} and up")
        self._write("session_timeout", session_timeout=cycles)

    def set_stall_limit(self, cycles: int) -> None:
        """After how many cycles a packet that stops in the middle is cut short; 0: never."""
        self._write("stall_limit", stall_limit=cycles)

    def set_drop_limit(self, cycles: int) -> None:
        """After how many cycles an output that takes no flit fails; 0: never."""
        self._write("drop_limit", drop_limit=cycles)

    def clear_failed(self, ports: Iterable[int]) -> None:
        """Send requests to these ports again."""
        self._write("failed", failed=sum(1 << self._port("clear_failed", p) for p in set(ports)))

    def free_retired(self, port: int) -> None:
        """Use the retired sessions of a port again: their missing answers will never come.

        An answer that comes all the same is dropped, unless its session has been used 16 times.
        """
        self._write("free_retired", port=self._port("free_retired", port), free=1)

    def clear_errors(self) -> None:
        """Clear the error bits and re-arm the capture of the first error."""
        errors = self.registers["errors"]
        self._write("errors", **dict.fromkeys((field.name for field in errors.fields), 1))
        self._write("first_error")

    def reads(self, name: str) -> list[int]:
        """Addresses of a register's words, lowest first."""
        register = self.registers[name]
        return [register.offset + WORD_BYTES * word for word in range(register.words)]

    def decode(self, name: str, words: Sequence[int]) -> dict[str, int]:
        """Fields of the words that were read at :meth:`reads`."""
        return self.registers[name].unpack(
            sum(word << WORD_BITS * place for place, word in enumerate(words))
        )

    def _port(self, call: str, port: int) -> int:
        self._check(call, 0 <= port < self.config.ports, f"below {self.config.ports}")
        return port

    def _check(self, call: str, holds: bool, rule: str) -> None:
        if not holds:
            raise CudaError(CUresult.CUDA_ERROR_INVALID_VALUE, call, f"value must be {rule}")

    def _write(self, name: str, **values: int) -> None:
        try:
            words = self.registers[name].split(**values)
        except ValueError as error:
            raise CudaError(CUresult.CUDA_ERROR_INVALID_VALUE, name, str(error)) from error
        for address, word in zip(self.reads(name), words, strict=True):
            self.backend.write32(SWITCH, address, word)
