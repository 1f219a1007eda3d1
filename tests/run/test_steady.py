"""Warm-up on made-up series of times: no clock."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.run.steady import CAP_S, CAP_WINDOWS, STEADY_SHARE, WINDOW_INFERENCES, WINDOW_S, Settled, settle


class Series:
    """Gives one time after the other, and keeps those that were asked for."""

    def __init__(self, times: Iterable[float]) -> None:
        self._times: Iterator[float] = iter(times)
        self.given: list[float] = []

    def __call__(self) -> float:
        self.given.append(next(self._times))
        return self.given[-1]


def _settled(value: Callable[[int], float], budget_s: float = 60.0) -> tuple[Settled, Series]:
    series = Series(value(i) for i in itertools.count())
    return settle(series, budget_s), series


def test_a_constant_model_is_steady_after_two_windows_and_its_first_call_is_apart() -> None:
    found, series = _settled(lambda i: 1.0 if i == 0 else 0.1)
    assert (found.first_s, found.typical_s, found.total, found.last) == (1.0, 0.1, 11, 5)
    assert found.steady
    assert found.notes() == []
    assert len(series.given) == found.total


def test_a_fast_model_is_watched_for_two_windows_of_time() -> None:
    found, series = _settled(lambda i: 1e-4)
    assert found.steady
    assert sum(series.given) == pytest.approx(2 * WINDOW_S, rel=0.01)


def test_a_model_that_gets_faster_is_waited_for() -> None:
    found, _ = _settled(lambda i: 0.1 * (1 + 5 * 0.9**i))
    assert found.steady
    assert found.typical_s < 0.115


def test_a_step_is_seen_wherever_it_falls_between_windows() -> None:
    found, _ = _settled(lambda i: 0.2 if i <= 5 else 0.1)
    assert found.steady
    assert found.typical_s == 0.1


def test_rising_times_are_no_more_steady_than_falling_ones() -> None:
    found, _ = _settled(lambda i: 0.1 * (1 + 0.04 * min(i, 20)))
    assert found.steady
    assert found.typical_s == pytest.approx(0.18)


@pytest.mark.parametrize("base", [0.02, 0.5])
def test_a_model_that_never_settles_ends_at_the_cap_and_is_told(base: float) -> None:
    found, series = _settled(lambda i: base * 1.02**i)
    assert not found.steady
    assert [note.code for note in found.notes()] == ["not-steady"]
    assert "rising" in found.notes()[0].text
    assert sum(series.given) >= min(CAP_S, 10 * base)


def test_windows_are_capped_too() -> None:
    times = itertools.chain([1e-3], itertools.cycle([0.05] * 5 + [0.06] * 5))
    found = settle(Series(times), budget_s=1e9)
    assert not found.steady
    assert found.total <= 1 + CAP_WINDOWS * WINDOW_INFERENCES


@pytest.mark.parametrize(("seconds", "calls"), [(100.0, 1), (31.0, 1), (20.0, 3), (8.0, 7)])
def test_a_slow_model_never_costs_more_than_its_budget(seconds: float, calls: int) -> None:
    found, series = _settled(lambda i: seconds, budget_s=60.0)
    assert len(series.given) == found.total == calls
    assert found.typical_s == seconds
    assert "too few to see" in found.notes()[0].text


@given(seed=st.integers(0, 10_000), base=st.floats(1e-3, 0.5), sigma=st.floats(0.0, 0.02), first=st.floats(1.0, 50.0))
def test_noise_of_two_percent_is_steady_at_its_true_level(seed: int, base: float, sigma: float, first: float) -> None:
    noise = np.random.default_rng(seed)
    found, _ = _settled(lambda i: base * (first if i == 0 else float(np.exp(sigma * noise.normal()))), 1e6)
    assert found.steady
    assert found.typical_s == pytest.approx(base, rel=0.06)


@given(
    times=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60),
    budget_s=st.floats(0.0, 200.0),
)
def test_it_always_ends_and_says_what_it_saw(times: list[float], budget_s: float) -> None:
    tail = max(times[-1], 1e-3)
    series = Series(itertools.chain(times, itertools.repeat(tail)))
    found = settle(series, budget_s)
    assert found.total == len(series.given)
    assert found.first_s == series.given[0]
    assert found.typical_s == statistics.median(series.given[-found.last :])
    assert found.steady == (not found.notes())
    if found.steady:
        before = statistics.median(series.given[-found.last - WINDOW_INFERENCES : -found.last])
        assert found.last >= WINDOW_INFERENCES
        assert found.change is not None
        assert abs(found.change) <= STEADY_SHARE
        assert before >= 0
