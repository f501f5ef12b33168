"""What the runtime writes about failures, and what it makes of what is read."""

import pytest

from dysharp.hw.config import load_preset
from dysharp.model.backend import SWITCH, Recorder
from dysharp.model.cuda import CudaError
from dysharp.model.switch_control import SwitchControl


@pytest.fixture
def control() -> SwitchControl:
    return SwitchControl(load_preset("nvl72"), Recorder())


def written(control: SwitchControl) -> dict[int, int]:
    assert isinstance(control.backend, Recorder)
    taken = control.backend.take()
    assert all(device == SWITCH for device, _, _ in taken)
    return {address: value for _, address, value in taken}


def test_limits(control):
    control.set_session_timeout(100_000)
    control.set_stall_limit(2000)
    control.set_drop_limit(0)
    registers = control.registers
    assert written(control) == {
        registers["session_timeout"].offset: 100_000,
        registers["stall_limit"].offset: 2000,
        registers["drop_limit"].offset: 0,
    }
    control.set_session_timeout(0)
    assert written(control) == {registers["session_timeout"].offset: 0}


def test_a_time_too_short_to_be_kept_is_refused(control):
    with pytest.raises(CudaError, match="value must be 0, or 5120 and up"):
        control.set_session_timeout(5119)
    with pytest.raises(CudaError, match="stall_limit must fit 32 bits"):
        control.set_stall_limit(1 << 32)
    assert not written(control)


def test_failed_ports_of_three_words(control):
    control.clear_failed([0, 33, 71, 33])
    first = control.registers["failed"].offset
    assert written(control) == {first: 1, first + 4: 2, first + 8: 1 << 7}
    assert control.reads("failed") == [first, first + 4, first + 8]
    assert control.decode("failed", [1, 2, 1 << 7]) == {"failed": 1 | 1 << 33 | 1 << 71}


def test_sessions_of_a_port_are_freed(control):
    control.free_retired(71)
    assert written(control) == {control.registers["free_retired"].offset: 71 | 1 << 8}
    for call in (control.free_retired, lambda port: control.clear_failed([port])):
        with pytest.raises(CudaError, match="value must be below 72"):
            call(72)
    assert not written(control)


def test_error_log(control):
    control.clear_errors()
    errors, first = control.registers["errors"], control.registers["first_error"]
    assert written(control) == {
        errors.offset: errors.mask,
        **dict.fromkeys(control.reads("first_error"), 0),
    }
    assert errors.mask >> 3 & 1 and errors.mask >> 10 & 1, "ERR 3 and 10 are found by a switch"
    words = first.split(valid=1, status=3, port=5, cmd=18, addr=0xABC)
    assert control.decode("first_error", words)["status"] == 3
