"""Student's t and ratios measured in pairs."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.student import Ratio, half_width, median_ratio, paired_ratio, student_t

positive = st.floats(1e-6, 1e6)


def test_the_quantiles_are_those_of_the_tables() -> None:
    assert [student_t(n) for n in (1, 4, 30)] == [12.7062, 2.7764, 2.0423]
    assert student_t(60) == pytest.approx(2.0003, rel=1e-3)
    assert student_t(10**9) == pytest.approx(1.959964, rel=1e-6)
    with pytest.raises(ValueError, match="0 degrees"):
        student_t(0)


def test_half_a_width_by_hand() -> None:
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.3027 / math.sqrt(3))


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=10))
def test_the_ratio_lies_in_its_interval_and_turns_round(pairs: list[tuple[float, float]]) -> None:
    new, base = zip(*pairs, strict=True)
    found, back = paired_ratio(new, base), paired_ratio(base, new)
    assert found is not None
    assert back is not None
    assert found.low <= found.middle <= found.high
    assert math.isfinite(found.high)
    assert back.middle == pytest.approx(1 / found.middle)
    assert (back.low, back.high) == (pytest.approx(1 / found.high), pytest.approx(1 / found.low))


def test_what_moves_both_of_a_pair_does_not_matter() -> None:
    clock = [1.0, 1.6, 0.7, 1.2, 2.0]
    found = paired_ratio([2.0 * each for each in clock], clock)
    assert found is not None
    assert found.shown
    assert (found.low, found.high) == (pytest.approx(2.0), pytest.approx(2.0))


def test_one_pair_shows_nothing() -> None:
    assert paired_ratio([2.0], [1.0]) is None


def test_noise_alone_shows_a_difference_in_one_of_twenty() -> None:
    draw = random.Random(0)
    shown = 0
    for _ in range(4000):
        sides = [[math.exp(draw.gauss(0, 0.1)) for _ in range(5)] for _ in range(2)]
        found = paired_ratio(*sides)
        shown += found is not None and found.shown
    assert 0.04 <= shown / 4000 <= 0.06


@pytest.mark.parametrize(("n", "k"), [(6, 1), (8, 1), (9, 2), (12, 3), (17, 5), (25, 8)])
def test_the_interval_of_a_median_lies_between_the_order_statistics_of_the_published_table(n: int, k: int) -> None:
    """Conover, Practical Nonparametric Statistics: ranks of 95 % intervals of the median."""
    found = median_ratio([float(each) for each in range(1, n + 1)], [1.0] * n)
    assert found == Ratio(statistics.median(range(1, n + 1)), float(k), float(n + 1 - k), n)


@given(st.lists(st.floats(0.5, 2.0), min_size=6, max_size=30), st.floats(1e3, 1e6))
def test_a_single_wild_pair_does_not_move_a_median_past_its_neighbours(ratios: list[float], wild: float) -> None:
    calm = median_ratio(ratios, [1.0] * len(ratios))
    stormy = median_ratio([*ratios[:-1], wild], [1.0] * len(ratios))
    assert calm is not None
    assert stormy is not None
    assert min(ratios) <= calm.middle <= stormy.middle <= max(ratios)


def test_few_pairs_are_judged_by_their_mean() -> None:
    new, base = [1.0, 1.1, 1.2], [1.0, 1.0, 1.0]
    assert median_ratio(new, base) == paired_ratio(new, base)
    assert median_ratio([1.0], [1.0]) is None
