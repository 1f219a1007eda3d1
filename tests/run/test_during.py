from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.host.sampler import Sensors
from edgeq.run.during import Clocks, During, Extent, parse_lines, read_lines, summarise, together
from tests.host import trees

#: A Raspberry Pi 4 that heats up: two lines before the first query, one after the last.
PI: list[dict[str, Any]] = [
    {"t": 10.0, "temperature_c": {"cpu-thermal": 60.0}, "mhz": [600.0] * 4, "governor": "ondemand", "throttled": [],
     "since_boot": ["under-voltage"], "available_mb": 900.0, "swap_mb": 5.0, "swapped_pages": 100,
     "about": {"full_mhz": [1800.0] * 4, "page_bytes": 4096}},
    {"t": 11.0, "temperature_c": {"cpu-thermal": 70.0}, "mhz": [1800.0] * 4, "governor": "ondemand", "throttled": [],
     "since_boot": ["under-voltage"], "available_mb": 700.0, "swap_mb": 5.0, "swapped_pages": 100},
    {"t": 12.0, "temperature_c": {"cpu-thermal": 80.0}, "mhz": [1500.0] * 4, "governor": "ondemand",
     "throttled": ["soft temperature limit"], "since_boot": ["under-voltage", "soft temperature limit"],
     "available_mb": 500.0, "swap_mb": 60.0, "swapped_pages": 300},
    {"t": 13.0, "temperature_c": {"cpu-thermal": 84.0}, "mhz": [1000.0] * 4, "governor": "ondemand", "throttled": [],
     "since_boot": ["under-voltage", "throttled", "soft temperature limit"], "available_mb": 600.0, "swap_mb": 60.0,
     "swapped_pages": 1100},
    {"t": 13.5, "temperature_c": {"cpu-thermal": 75.0}, "mhz": [600.0] * 4, "governor": "performance", "throttled": [],
     "since_boot": ["under-voltage", "throttled", "soft temperature limit"], "available_mb": 800.0, "swap_mb": 60.0,
     "swapped_pages": 1100, "end": True},
]  # fmt: skip


def test_a_pi_that_heats_up() -> None:
    found = summarise(PI, 10.5, 13.25, 30)
    assert found == During(
        samples=5, span_s=3.5, temperature_c={"cpu-thermal": Extent(min=60, max=84)},
        frequency_mhz=Clocks(min=1000, median=1500, max=1800), clock=1500 / 1800,
        governors=["ondemand", "performance"],
        throttled=["throttled", "soft temperature limit"], available_mb=500, swap_mb=60, swapped_mb=4.096,
    )  # fmt: skip


def test_a_bit_of_before_the_run_is_not_of_it() -> None:
    found = summarise(PI[:2], 10.5, 13.25, 30)
    assert found is not None
    assert found.throttled == []


def test_a_run_without_samples_in_it_says_nothing_of_its_clock() -> None:
    found = summarise(PI, 10.2, 10.3, 30)
    assert found is not None
    assert found.clock is None
    assert found.frequency_mhz == Clocks(min=600, median=1000, max=1800), "of all lines"


def test_a_core_that_waits_is_no_slow_clock_and_a_turbo_no_fast_one() -> None:
    lines = [{"t": float(n), "mhz": [800.0, 2900.0], "about": {"full_mhz": [2800.0, 2800.0]}} for n in range(4)]
    found = summarise(lines, 0, 3, 1)
    assert found is not None
    assert found.clock == pytest.approx(2900 / 2800)


def test_of_two_kinds_of_cores_the_fast_kind_counts() -> None:
    lines = [{"t": float(n), "mhz": [1800.0, 1200.0], "about": {"full_mhz": [1800.0, 2400.0]}} for n in range(4)]
    found = summarise(lines, 0, 3, 1)
    assert found is not None
    assert found.clock == 0.5


@pytest.mark.parametrize("full", [None, [], [2800.0, None]])
def test_a_clock_without_a_known_limit_is_judged_by_nothing(full: list[float | None] | None) -> None:
    about = {} if full is None else {"full_mhz": full}
    found = summarise([{"t": float(n), "mhz": [800.0, 800.0], "about": about} for n in range(4)], 0, 3, 1)
    assert found is not None
    assert found.clock is None


RANGE = 10_000_000


def _powered(watts: float, seconds: int, start: int = 0) -> list[dict[str, Any]]:
    """A line a second at a steady power, the counter beginning again every 10 J."""
    lines: list[dict[str, Any]] = [
        {"t": float(second), "energy_uj": {"package-0": round(start + watts * second * 1e6) % RANGE}}
        for second in range(seconds + 1)
    ]
    lines[0]["about"] = {"energy_range_uj": {"package-0": RANGE}}
    return lines


@given(watts=st.floats(min_value=0.5, max_value=9.5), start=st.integers(min_value=0, max_value=RANGE - 1))
def test_energy_is_power_times_the_time_of_the_queries(watts: float, start: int) -> None:
    found = summarise(_powered(watts, 20, start), 2.5, 17.0, 29)
    assert found is not None
    assert found.watts == pytest.approx(watts, abs=1e-5)
    assert found.energy_j == pytest.approx(watts * 14.5, rel=1e-4)
    assert found.joules_per_sample == pytest.approx(watts / 2, rel=1e-4)


def test_what_a_device_takes_while_it_waits_is_not_in_the_power() -> None:
    lines = _powered(2.0, 3)
    later = [{"t": line["t"] + 4, "energy_uj": {"package-0": round(6e6 + line["t"] * 8e6) % RANGE}}
             for line in _powered(8.0, 6)]  # fmt: skip
    found = summarise([*lines, *later], 3.9, 10.1, 10)
    assert found is not None
    assert found.watts == pytest.approx(8.0)


@pytest.mark.parametrize(("begin", "end"), [(2.2, 2.9), (2.2, 3.9), (1.0, 40.0)])
def test_energy_that_the_readings_do_not_cover_is_not_guessed(begin: float, end: float) -> None:
    found = summarise(_powered(5.0, 10), begin, end, 10)
    assert found is not None
    assert (found.watts, found.energy_j, found.joules_per_sample) == (None, None, None)


def test_lines_of_recorded_trees_are_summed_up(tmp_path: Path) -> None:
    sensors = Sensors(trees.x86_with_rapl(tmp_path))
    lines = [json.loads(json.dumps({**sensors.sample(), "about": sensors.about()}))]
    trees.x86_with_rapl(tmp_path, energy_uj=31_000_000)
    lines.append(json.loads(json.dumps(sensors.sample())))
    begin = lines[0]["t"]
    lines[1]["t"] = begin + 2.0
    found = summarise(lines, begin, begin + 2.0, 60)
    assert found is not None
    assert (found.watts, found.joules_per_sample) == (pytest.approx(15.0), pytest.approx(0.5))
    assert found.temperature_c == {"x86_pkg_temp": Extent(min=67, max=67)}


def test_nothing_watched_is_nothing_told(tmp_path: Path) -> None:
    assert summarise([], 0, 1, 1) is None
    assert read_lines(tmp_path / "gone.jsonl") == []


@given(cut=st.integers(min_value=0, max_value=10_000))
def test_a_sampler_killed_amid_a_line_leaves_the_whole_ones(cut: int) -> None:
    text = "".join(json.dumps(line) + "\n" for line in PI)
    kept = text[:cut]
    found = parse_lines(kept)
    assert found == PI[: len(found)]
    assert kept.count("\n") <= len(found) <= kept.count("\n") + 1


@given(st.text())
def test_any_text_is_read_as_lines_or_left_out(text: str) -> None:
    assert all(isinstance(line["t"], float) for line in parse_lines(text))


def test_rounds_together() -> None:
    first = summarise(PI, 10.5, 13.25, 30)
    assert first is not None
    second = first.model_copy(
        update={
            "temperature_c": {"cpu-thermal": Extent(min=50, max=70)}, "throttled": ["under-voltage"], "watts": 4.0,
            "joules_per_sample": 0.2, "energy_j": 12.0, "available_mb": 450.0, "governors": ["performance"],
        }
    )  # fmt: skip
    found = together([first, second])
    assert found is not None
    assert found.samples == 10
    assert found.temperature_c == {"cpu-thermal": Extent(min=50, max=84)}
    assert found.throttled == ["under-voltage", "throttled", "soft temperature limit"]
    assert (found.available_mb, found.swapped_mb, found.watts, found.energy_j) == (450.0, 8.192, 4.0, 12.0)
    assert found.governors == ["ondemand", "performance"]
    assert together([first]) == first
    assert together([]) is None
