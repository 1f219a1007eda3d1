"""The default stays unless another setting is better beyond noise."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.setting import Setting
from edgeq.tune.choice import MIN_GAIN, MOST, better, choose, rate, survivors

DEFAULT, OTHER, THIRD = (Setting(threads=2, streams=2, batch=batch) for batch in (1, 4, 8))
RATES = st.lists(st.floats(1, 1e4), min_size=2, max_size=8)


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([110, 112, 111, 109, 110], True),
        ([110, 80, 140, 90, 160], False),  # faster on average, but by luck
        ([101, 101.5, 101, 101.2, 101], False),  # beyond noise, but not worth it
        ([90, 91, 90, 92, 90], False),
        ([104, 150, 190], False),  # faster in every round, which is no wonder in three
        ([110, 112, 111], True),
        ([120, 190], False),  # two rounds, which differ much
        ([150, 151], True),  # two, which hardly differ
        ([200], False),  # a single round says nothing of noise
        ([], False),
    ],
)
def test_better_beyond_noise(rates: list[float], expected: bool) -> None:
    assert better(rates, [100] * len(rates)) is expected


def test_rounds_are_compared_in_pairs() -> None:
    """A machine that is slow in some rounds is slow for all settings alike."""
    weather = [1.0, 0.3, 0.9, 0.5, 0.7]
    assert better([115 * each for each in weather], [100 * each for each in weather])
    assert not better([115 * each for each in weather], [100 * each for each in reversed(weather)])


def test_the_fastest_of_the_better_ones_wins() -> None:
    rounds = {DEFAULT: [100, 101, 99, 100, 100], OTHER: [110, 111, 109, 110, 111], THIRD: [120, 121, 119, 120, 121]}
    found = choose(rounds, DEFAULT)
    assert found.setting == THIRD
    assert found.ratio is not None
    assert found.ratio.middle == pytest.approx(1.2, abs=0.01)
    assert 1 < found.ratio.low < found.ratio.middle < found.ratio.high
    unsteady = {**rounds, THIRD: [60, 200, 90, 170, 140]}
    assert choose(unsteady, DEFAULT).setting == OTHER


@given(base=RATES, data=st.data())
def test_nothing_that_is_no_better_on_average_is_chosen(base: list[float], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.floats(1, 1e4), min_size=len(base), max_size=len(base)))
    found = choose({DEFAULT: base, OTHER: other}, DEFAULT)
    gain = math.exp(statistics.fmean(math.log(b / a) for a, b in zip(base, other, strict=True)))
    if found.setting == OTHER:
        assert gain >= MIN_GAIN * (1 - 1e-9)
        assert found.ratio is not None
    else:
        assert found.ratio is None


def test_noise_alone_seldom_changes_the_setting() -> None:
    """Four rivals as fast as the default, and rounds that vary by 10 %: at most as often as the intervals are wrong."""
    draw = random.Random(1)
    changed = 0
    for _ in range(500):
        settings = [DEFAULT, *(Setting(threads=2, batch=batch) for batch in (1, 2, 3, 4))]
        rounds = {each: [100 * math.exp(draw.gauss(0, 0.1)) for _ in range(5)] for each in settings}
        changed += choose(rounds, DEFAULT).setting != DEFAULT
    assert changed / 500 < 4 * 0.025 * 1.3


def test_a_first_look_drops_what_lies_behind_but_never_the_default() -> None:
    others = {Setting(threads=2, batch=batch): speed for batch, speed in ((1, 91.0), (4, 100.0), (8, 89.0))}
    found = survivors({DEFAULT: 20.0, **others}, DEFAULT)
    assert found == [DEFAULT, Setting(threads=2, batch=4), Setting(threads=2, batch=1)]


@given(speeds=st.dictionaries(st.integers(1, 40), st.floats(0.1, 1e4), min_size=1), number=st.integers(0, 39))
def test_the_fastest_and_the_default_go_on(speeds: dict[int, float], number: int) -> None:
    looks = {Setting(threads=1, batch=batch): speed for batch, speed in speeds.items()}
    default = list(looks)[number % len(looks)]
    found = survivors(looks, default)
    assert found[0] == default
    assert max(looks.values()) in [looks[each] for each in found]
    assert len(found) == len(set(found)) <= 1 + MOST


def test_a_rate_is_of_the_median_query() -> None:
    assert rate([0.5, 0.1, 40.0], 8) == 16
