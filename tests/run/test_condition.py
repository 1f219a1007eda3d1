"""The device's state in doctor: from recorded trees, each line with what mends it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeq.run.condition import complaints, condition
from tests.host import trees


def _state(**changes: Any) -> dict[str, Any]:
    state = {"throttled": None, "temperature_c": None, "governor": None, "frequency_mhz": None}
    return {
        "state": {**state, **changes.pop("state", {})}, "memory_mb": {"total": 4000, "available": 3000},
        "energy": {"readable": None, "mend": ""},
        "disk_mb": {"free": 9000, "folder": "/x"}, **changes,
    }  # fmt: skip


def _codes(found: dict[str, Any]) -> dict[str, bool]:
    return {note.code: wrong for note, wrong in complaints(found)}


def test_a_throttled_pi_4(tmp_path: Path) -> None:
    found = condition(trees.pi4(tmp_path), tmp_path)
    notes = {note.code: note for note, _ in complaints(found)}
    assert _codes(found) == {"throttled": True, "governor": False}
    assert "under-voltage, throttled (0x50005)" in notes["throttled"].text
    assert "power supply" in notes["throttled"].hint, "it is under-voltage that throttles it, not heat"
    assert notes["governor"].hint.startswith("run: echo performance | sudo tee /sys")


def test_what_was_since_boot_is_told_apart_from_now() -> None:
    bits = {"raw": "0x50000", "now": [], "since_boot": ["under-voltage", "throttled"]}
    (told,) = complaints(_state(state={"throttled": bits}))
    assert told[0].code == "was-throttled"
    assert not told[1]
    assert "sudo reboot" in told[0].hint
    heat = {"raw": "0x80008", "now": ["soft temperature limit"], "since_boot": ["soft temperature limit"]}
    (told,) = complaints(_state(state={"throttled": heat}))
    assert told[1]
    assert "fan" in told[0].hint
    assert "power supply" not in told[0].hint


@pytest.mark.parametrize(("celsius", "told"), [(79.0, False), (82.0, True)])
def test_heat(celsius: float, told: bool) -> None:
    assert ("hot" in _codes(_state(state={"temperature_c": {"a": 40.0, "cpu-thermal": celsius}}))) is told


def test_energy_counters_that_only_root_may_read() -> None:
    ((note, wrong),) = complaints(_state(energy={"readable": False, "mend": "sudo chmod a+r /sys/x"}))
    assert (note.code, wrong) == ("no-energy", False)
    assert note.hint == "run: sudo chmod a+r /sys/x"
    assert complaints(_state(energy={"readable": True, "mend": "sudo chmod a+r /sys/x"})) == []


def test_little_memory_and_a_full_disk_are_wrong() -> None:
    found = _state(memory_mb={"total": 900, "available": 100}, disk_mb={"free": 3, "folder": "/x"})
    assert _codes(found) == {"little-memory": True, "disk-full": True}


def test_a_device_that_tells_nothing_has_nothing_to_complain_of(tmp_path: Path) -> None:
    found = condition(tmp_path, tmp_path)
    assert found["memory_mb"] == {"total": None, "available": None}
    assert [note for note, _ in complaints(found)] == []


def test_a_pi_that_is_well_has_no_complaint(tmp_path: Path) -> None:
    assert complaints(condition(trees.pi5(tmp_path), tmp_path)) == []
