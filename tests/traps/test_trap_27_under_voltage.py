"""raspberrypi/firmware#615: throttled at 39 °C, and it was the power supply."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.host.state import snapshot
from edgeq.report.frames import rows_of
from edgeq.report.runs import load_runs
from edgeq.run.record import HostStates
from edgeq.run.steadiness import host_notes, slowed_by
from tests.host.trees import write
from tests.report import factory


def _cool(root: Path) -> Path:
    return write(root, {
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n", "sys/class/thermal/thermal_zone0/temp": "39000\n",
    })  # fmt: skip


@pytest.mark.parametrize(
    ("word", "now", "since_boot"),
    [
        ("throttled=0x0\n", [], []),
        ("throttled=0x50005\n", ["under-voltage", "throttled"], ["under-voltage", "throttled"]),
        ("throttled=0x50000\n", [], ["under-voltage", "throttled"]),
        ("throttled=0x80008\n", ["soft temperature limit"], ["soft temperature limit"]),
    ],
)
def test_the_firmware_s_bits_are_words(tmp_path: Path, word: str, now: list[str], since_boot: list[str]) -> None:
    found = snapshot(_cool(tmp_path), lambda: word)
    assert found["temperature_c"] == {"cpu-thermal": 39.0}
    assert (found["throttled"]["now"], found["throttled"]["since_boot"]) == (now, since_boot)


@pytest.mark.parametrize(("before", "after"), [("0x0", "0x50005"), ("0x50005", "0x50000")])
def test_under_voltage_is_named_and_gates(tmp_path: Path, before: str, after: str) -> None:
    states = [snapshot(_cool(tmp_path), lambda word=word: f"throttled={word}") for word in (before, after)]  # type: ignore[misc]
    (note,) = host_notes(*states)
    assert (note.code, "under-voltage" in note.text, "power supply" in note.hint) == ("unsteady", True, True)
    record = factory.record(
        "m/tflite/fp32/single-stream", host=HostStates(slowed_by=slowed_by(*states)), warnings=[note]
    )
    over_rounds = factory.with_rounds(record, [1.0, 1.0, 1.0])
    (row,) = rows_of(load_runs(tmp_path, [factory.write_run(tmp_path / "results", [over_rounds])]))
    assert row["gates"] == "throttled"
    assert "under-voltage" in row["slowed_by"]


def test_what_came_and_went_during_the_measurement_is_told(tmp_path: Path) -> None:
    before, after = (
        snapshot(_cool(tmp_path), lambda word=word: word) for word in ("throttled=0x0", "throttled=0x50000")
    )  # type: ignore[misc]
    assert [note.code for note in host_notes(before, after)] == ["unsteady"]
    long_ago = snapshot(_cool(tmp_path), lambda: "throttled=0x50000")
    assert host_notes(long_ago, after) == []
