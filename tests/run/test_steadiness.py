from __future__ import annotations

from typing import Any

import pytest

from edgeq.run.steadiness import cpu_notes, host_notes

QUIET: dict[str, Any] = {"cpu_ticks": {"total": 1000, "steal": 0}, "throttled": None, "throttle_count": None}


def test_a_quiet_device_has_nothing_to_say() -> None:
    after = {**QUIET, "cpu_ticks": {"total": 2000, "steal": 10}, "throttle_count": 3}
    assert host_notes({**QUIET, "throttle_count": 3}, after) == []


def test_a_stolen_cpu_is_unsteady() -> None:
    (note,) = host_notes(QUIET, {**QUIET, "cpu_ticks": {"total": 2000, "steal": 200}})
    assert note.code == "unsteady"
    assert "20%" in note.text


@pytest.mark.parametrize(
    "after", [{"throttled": {"raw": 1, "now": ["under-voltage"], "since_boot": []}}, {"throttle_count": 5}]
)
def test_throttling_is_named(after: dict[str, Any]) -> None:
    (note,) = host_notes({**QUIET, "throttle_count": 3}, {**QUIET, "throttle_count": 3, **after})
    assert note.code == "throttled"
    assert ("under-voltage" in note.text) == (after.get("throttled") is not None)


@pytest.mark.parametrize(
    ("ratio", "threads", "told"), [(1.9, 2, False), (0.9, 2, True), (0.9, 1, False), (2.0, 1, True)]
)
def test_cpu_time_that_belies_the_threads_is_told(ratio: float, threads: int, told: bool) -> None:
    assert [note.code for note in cpu_notes(ratio, threads)] == (["cpu-time"] if told else [])
