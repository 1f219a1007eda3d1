from __future__ import annotations

from collections.abc import Iterable

import pytest

from edgeq.run import cooling
from edgeq.run.record import HostStates
from edgeq.spec.errors import RequestError
from tests.report import factory


class Board:
    """A clock that only sleeping moves, and a CPU with a temperature for each look, the last one for ever."""

    def __init__(self, temperatures: Iterable[float | None]) -> None:
        self.now, self.left, self.shown = 0.0, list(temperatures), list[float | None]()

    def read(self) -> float | None:
        return self.left.pop(0) if len(self.left) > 1 else self.left[0]

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def cool(self, to_c: float) -> cooling.Cooled:
        return cooling.cool(to_c, self.shown.append, self.read, self.clock, self.sleep)


def test_it_waits_until_the_cpu_is_cool() -> None:
    board = Board([82.0, 71.0, 60.5, 60.0, 20.0])
    found = board.cool(60)
    assert found == cooling.Cooled(seconds=3 * cooling.LOOK_S, start_c=82.0, end_c=60.0, reached=True)
    assert board.shown == [82.0, 71.0, 60.5]


def test_a_cpu_that_is_cool_is_not_waited_for() -> None:
    board = Board([45.0])
    assert board.cool(60).seconds == 0
    assert board.shown == []


@pytest.mark.parametrize("stays", [75.0, None])
def test_the_wait_is_given_up_in_the_end(stays: float | None) -> None:
    found = Board([80.0, stays]).cool(60)
    assert not found.reached
    assert cooling.MOST_S <= found.seconds <= cooling.MOST_S + cooling.LOOK_S


def test_a_sensor_that_is_silent_once_is_asked_again() -> None:
    assert Board([80.0, None, 59.0]).cool(60).reached


@pytest.mark.parametrize(
    ("temperature", "codes"), [(59.0, ["measured-again"]), (75.0, ["measured-again", "not-cooled"])]
)
def test_the_record_tells_of_it(temperature: float, codes: list[str]) -> None:
    first = factory.record("m/tflite/fp32/single-stream", host=HostStates(slowed_by=["throttled"]))
    notes = cooling.notes(first, "record.try-1.json", 60, Board([temperature]).cool(60))
    assert [note.code for note in notes] == codes
    assert "throttled" in notes[0].text
    assert f"{temperature:.1f} °C" in notes[-1].text


@pytest.mark.parametrize(
    ("sensors", "found"),
    [
        ({"cpu-thermal": 51.0}, 51.0),
        ({"battery": 70.0, "x86_pkg_temp": 51.0, "iwlwifi_1": 64.0}, 51.0),
        ({"bigcore0-thermal": 66.0, "soc-thermal": 60.0, "gpu-thermal": 90.0}, 66.0),
        ({"acpitz": 40.0, "other": 44.0}, 44.0),
        (None, None),
    ],
)
def test_the_cpu_s_sensors_count(
    monkeypatch: pytest.MonkeyPatch, sensors: dict[str, float] | None, found: float | None
) -> None:
    monkeypatch.setattr(cooling.state, "temperatures", lambda: sensors)
    assert cooling.hottest() == found


def test_without_a_sensor_cooling_is_refused() -> None:
    cooling.check(None, lambda: None)
    cooling.check(60, lambda: 99.0)
    with pytest.raises(RequestError) as caught:
        cooling.check(60, lambda: None)
    assert (caught.value.code, caught.value.hint) == ("no-sensor", "leave out --cool-to")
