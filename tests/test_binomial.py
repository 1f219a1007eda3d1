from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.binomial import _at_most, interval, paired


@pytest.mark.parametrize(
    ("count", "n", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (8, 10, 0.4439, 0.9748), (50, 100, 0.3983, 0.6017)],
)
def test_clopper_and_pearson_as_tabulated(count: int, n: int, low: float, high: float) -> None:
    assert interval(count, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.floats(0.001, 0.999))))
def test_the_sum_is_the_binomial_one(case: tuple[int, int, float]) -> None:
    n, count, share = case
    exact = math.fsum(math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(count + 1))
    assert _at_most(count, n, share) == pytest.approx(exact, abs=1e-9)


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_the_interval_holds_the_share_and_mirrors(case: tuple[int, int]) -> None:
    n, count = case
    low, high = interval(count, n)
    assert 0 <= low <= count / n <= high <= 1
    assert interval(n - count, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_what_is_not_a_share_is_refused() -> None:
    for count, n in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match=str(n)):
            interval(count, n)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200))
def test_a_pair_is_told_by_the_images_on_which_they_differ(answers: list[tuple[bool, bool]]) -> None:
    first, second = np.array(answers, bool).T
    found = paired(first, second)
    assert found.drop == pytest.approx(first.mean() - second.mean())
    assert found.low <= found.drop <= found.high
    assert 0 < found.p <= 1
    back = paired(second, first)
    assert (back.drop, back.low, back.high) == pytest.approx((-found.drop, -found.high, -found.low))


def test_no_difference_on_few_images_proves_little() -> None:
    few, many = np.ones(10, bool), np.ones(1000, bool)
    assert paired(few, few).high > 0.2
    assert paired(many, many).high < 0.005


def test_the_interval_of_the_difference_holds_the_true_one_nineteen_times_in_twenty() -> None:
    """Images of which the first gets 80 % right; the second loses 4 % of all and gains 1 %."""
    generator = np.random.default_rng(0)
    held = []
    for _ in range(2000):
        kind = generator.choice(4, size=400, p=[0.76, 0.04, 0.01, 0.19])
        found = paired(kind <= 1, (kind == 0) | (kind == 2))
        held.append(found.low <= 0.03 <= found.high)
    assert 0.93 < np.mean(held) < 0.985


def test_mcnemar() -> None:
    """Ten lost and two gained: 2 * (1 + 12 + 66) / 4096."""
    first = np.array([True] * 10 + [False] * 2 + [True] * 88)
    second = np.array([False] * 10 + [True] * 2 + [True] * 88)
    assert paired(first, second).p == pytest.approx(2 * 79 / 4096)
