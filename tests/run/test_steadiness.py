from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeq.loadgen.times import Times
from edgeq.run.during import During
from edgeq.run.record import Interval
from edgeq.run.steadiness import (
    PARTS,
    Series,
    bimodal_notes,
    cpu_notes,
    drift_notes,
    during_notes,
    host_notes,
    neighbour_notes,
    outlier_notes,
    query_notes,
    rounds_notes,
    slowed_by,
)

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
    states = {**QUIET, "throttle_count": 3}, {**QUIET, "throttle_count": 3, **after}
    (note,) = host_notes(*states)
    assert note.code == "unsteady"
    firmware = after.get("throttled") is not None
    assert ("under-voltage (after)" in note.text) == firmware
    assert slowed_by(*states) == (["under-voltage"] if firmware else ["thermal throttling"])


def _during(**fields: Any) -> During:
    return During(samples=4, span_s=3.0, **fields)


def test_a_bit_that_was_set_only_meanwhile_is_told() -> None:
    quiet = {**QUIET, "throttled": {"now": [], "since_boot": []}}
    during = _during(throttled=["throttled"])
    (note,) = host_notes(quiet, quiet, during)
    assert "throttled (during)" in note.text
    assert slowed_by(quiet, quiet, during) == ["throttled"]
    assert host_notes(quiet, quiet, _during(throttled=[])) == []
    assert slowed_by(quiet, quiet, _during(throttled=None)) == []


@pytest.mark.parametrize(("clock", "told"), [(None, False), (1.2, False), (0.9, False), (0.83, True), (0.33, True)])
def test_a_slow_clock_is_told(clock: float | None, told: bool) -> None:
    notes = during_notes(_during(clock=clock, governors=["powersave"]))
    assert [note.code for note in notes] == (["slow-clock"] if told else [])
    assert all("powersave" in note.text for note in notes)


@pytest.mark.parametrize(("moved", "told"), [(None, False), (0.0, False), (3.9, False), (55.0, True)])
def test_swapping_is_told_and_swap_that_only_lies_there_is_not(moved: float | None, told: bool) -> None:
    notes = during_notes(_during(swapped_mb=moved, swap_mb=90.0))
    assert [note.code for note in notes] == (["swapped"] if told else [])


def test_what_was_not_watched_says_nothing() -> None:
    assert during_notes(None) == []


@pytest.mark.parametrize(
    ("ratio", "threads", "told"), [(1.9, 2, False), (0.9, 2, True), (0.9, 1, False), (2.0, 1, True)]
)
def test_cpu_time_that_belies_the_threads_is_told(ratio: float, threads: int, told: bool) -> None:
    assert [note.code for note in cpu_notes(ratio, threads)] == (["cpu-time"] if told else [])


TICKS = {"total": 1000, "idle": 500, "steal": 0, "cpus": 2}


@pytest.mark.parametrize(("idle", "own", "told"), [(600, 1.0, False), (520, 1.0, True), (520, 1.8, False)])
def test_other_processes_are_neighbours_and_our_own_work_is_not(idle: int, own: float, told: bool) -> None:
    after = {"cpu_ticks": {"total": 1200, "idle": idle, "steal": 0, "cpus": 2}}
    notes = neighbour_notes({"cpu_ticks": TICKS}, after, own)
    assert [note.code for note in notes] == (["busy-neighbour"] if told else [])


def test_a_device_that_does_not_tell_has_no_neighbours() -> None:
    assert neighbour_notes({"cpu_ticks": None}, {"cpu_ticks": None}, 1.0) == []


def _times(latencies_ms: Series) -> Times:
    ends = np.cumsum(latencies_ms * 1e6).astype(np.int64)
    return Times(np.concatenate([[0], ends[:-1]]), ends, np.ones(len(ends), np.int64))


# Shapes with one mode, however skewed: 10 ms or so, as a function of a source of chance and a count.
UNIMODAL: dict[str, Callable[[np.random.Generator, int], Series]] = {
    "normal": lambda source, n: source.normal(10, 1, n),
    "narrow": lambda source, n: source.normal(10, 0.05, n),
    "lognormal": lambda source, n: source.lognormal(2, 0.3, n),
    "wide lognormal": lambda source, n: source.lognormal(2, 1.0, n),
    "exponential": lambda source, n: 5 + source.exponential(5, n),
    "gamma": lambda source, n: source.gamma(2, 5, n),
    "uniform": lambda source, n: source.uniform(5, 15, n),
    "pareto": lambda source, n: 5 * (1 + source.pareto(2, n)),
    "falling": lambda source, n: source.triangular(5, 5.01, 15, n),
    "rising": lambda source, n: source.triangular(5, 14.99, 15, n),
}


@pytest.mark.parametrize("shape", UNIMODAL)
@given(seed=st.integers(0, 2**32 - 1), n=st.sampled_from([64, 100, 300, 1000, 5000]))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_one_mode_is_never_two_however_skewed(shape: str, seed: int, n: int) -> None:
    assert bimodal_notes(UNIMODAL[shape](np.random.default_rng(seed), n)) == []


@pytest.mark.parametrize(
    ("n", "share", "ratio"), [(100, 0.3, 2.0), (300, 0.15, 1.6), (1000, 0.5, 1.3), (5000, 0.12, 3.0)]
)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, derandomize=True, deadline=None)
def test_two_modes_are_told_with_their_shares(n: int, share: float, ratio: float, seed: int) -> None:
    source = np.random.default_rng(seed)
    latencies = source.normal(10, 0.3, n)
    latencies[: round(share * n)] *= ratio
    (note,) = bimodal_notes(source.permutation(latencies))
    assert note.code == "bimodal"
    assert f"{1 - share:.0%} take about" in note.text


@pytest.mark.parametrize(("share", "ratio"), [(0.05, 3.0), (0.4, 1.1)])
def test_few_slow_queries_or_near_modes_are_not_two_kinds(share: float, ratio: float) -> None:
    latencies = np.random.default_rng(0).normal(10, 0.1, 1000)
    latencies[: round(share * 1000)] *= ratio
    assert bimodal_notes(latencies) == []


@pytest.mark.parametrize(("share", "told"), [(0.0, False), (0.01, False), (0.03, True)])
def test_interrupted_queries_are_outliers_from_a_share_on(share: float, told: bool) -> None:
    latencies = np.random.default_rng(0).normal(10, 0.3, 1000)
    latencies[: round(share * 1000)] += 30
    assert [note.code for note in outlier_notes(latencies)] == (["outliers"] if told else [])


def test_jitter_of_a_very_even_model_is_no_outlier() -> None:
    latencies = np.full(1000, 10.0)
    latencies[:200] = 10.5
    assert outlier_notes(latencies) == []


@pytest.mark.parametrize("shape", ["normal", "narrow", "lognormal", "gamma", "uniform"])
def test_a_usual_tail_has_no_outliers(shape: str) -> None:
    assert outlier_notes(UNIMODAL[shape](np.random.default_rng(5), 3000)) == []


@pytest.mark.parametrize(("change", "code"), [(0.3, "drift"), (-0.3, "drift"), (0.05, None), (0.0, None)])
def test_a_trend_is_told_from_a_tenth_on(change: float, code: str | None) -> None:
    source = np.random.default_rng(2)
    latencies = 10 * (1 + change * np.linspace(0, 1, 500)) * source.lognormal(0, 0.05, 500)
    assert [note.code for note in query_notes(_times(latencies), "single-stream")] == ([code] if code else [])


def test_one_disturbed_part_is_no_drift() -> None:
    latencies = np.random.default_rng(2).lognormal(2, 0.05, 500)
    latencies[450:] *= 3
    assert drift_notes(np.array([np.median(part) for part in np.array_split(latencies, PARTS)]), "a query") == []


def test_an_offline_run_that_slows_down_drifts() -> None:
    ends = np.cumsum(1e7 * np.linspace(1, 2, 500)).astype(np.int64)
    (note,) = query_notes(Times(np.array([0]), ends, np.ones(500, np.int64)), "offline")
    assert note.code == "drift"
    assert "slower" in note.text
    steady = np.cumsum(np.full(500, 10**7))
    assert query_notes(Times(np.array([0]), steady, np.ones(500, np.int64)), "offline") == []


@given(st.lists(st.floats(0, 1e6), max_size=200), st.sampled_from(["single-stream", "offline"]))
def test_any_series_can_be_judged(latencies: list[float], scenario: str) -> None:
    times = _times(np.array(latencies))
    for note in query_notes(times, scenario):
        assert note.hint
        assert "nan" not in note.text


def _interval(low: float, high: float) -> Interval:
    return Interval(low=low, high=high, n=10, of="blocks")


@pytest.mark.parametrize(
    ("figures", "within", "told"),
    [
        ({1: 10.0}, {}, False),
        ({1: 10.0, 2: 10.9}, {}, False),
        ({1: 10.0, 2: 11.5}, {}, True),
        ({1: 10.0, 3: 11.5}, {1: _interval(9, 11.2), 3: _interval(11, 12)}, False),
        ({1: 10.0, 3: 11.5}, {1: _interval(9.9, 10.1), 3: _interval(11.4, 11.6)}, True),
        ({1: 0.0, 2: 5.0}, {}, False),
    ],
)
def test_rounds_that_lie_apart_differ(figures: dict[int, float], within: dict[int, Interval], told: bool) -> None:
    assert [note.code for note in rounds_notes(figures, within)] == (["rounds-differ"] if told else [])
