from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.loadgen.times import Times
from edgeq.run.intervals import (
    FIGURES,
    MOST_BLOCKS,
    Series,
    at_quantile,
    block_rates,
    latency_intervals,
    over_rounds,
    rate_intervals,
    within_run,
)
from edgeq.run.record import Interval
from edgeq.student import student_t

# 90 and 95 % quantiles of the normal distribution.
NORMAL = {0.5: 0.0, 0.9: 1.2815516, 0.99: 2.3263479}
finite = st.floats(0, 1e6, allow_nan=False)


def test_the_table_of_t_is_scipys() -> None:
    scipy = pytest.importorskip("scipy.stats", reason="scipy comes with the exporting frameworks")
    for freedom in [*range(1, 200), 1000, 10**6]:
        assert student_t(freedom) == pytest.approx(scipy.t.ppf(0.975, freedom), rel=1e-4)
    with pytest.raises(ValueError, match="0 degrees"):
        student_t(0)


def _correlated(n: int, memory: float, source: np.random.Generator) -> Series:
    """A stationary AR(1) series of standard normal values, exponentiated: skewed like latencies."""
    noise = source.normal(size=n) * math.sqrt(1 - memory**2)
    found = np.empty(n)
    last = source.normal()
    for index in range(n):
        last = memory * last + noise[index]
        found[index] = last
    series: Series = np.exp(0.3 * found)
    return series


@pytest.mark.parametrize("memory", [0.0, 0.6])
@pytest.mark.parametrize(
    ("quantile", "n"), [(None, 100), (None, 500), (0.5, 500), (0.9, 200), (0.9, 500), (0.99, 1000)]
)
def test_nineteen_of_twenty_intervals_hold_the_truth(quantile: float | None, n: int, memory: float) -> None:
    source, hits, repeats = np.random.default_rng(7), 0, 400
    truth = math.exp(0.045) if quantile is None else math.exp(0.3 * NORMAL[quantile])
    for _ in range(repeats):
        series = _correlated(n, memory, source)
        found = within_run(series, series.mean() if quantile is None else at_quantile(series, quantile), quantile)
        assert found is not None
        hits += found.low <= truth <= found.high
    # 95 % nominal; 400 trials have a standard deviation of 1.1 %, and few blocks of skewed data cost some coverage.
    assert 0.90 <= hits / repeats <= 0.995


def test_correlated_queries_are_not_taken_for_independent_ones() -> None:
    """What the usual standard error would claim of such a series is far too narrow."""
    source = np.random.default_rng(3)
    series = _correlated(2000, 0.9, source)
    found = within_run(series, float(series.mean()), None)
    assert found is not None
    naive = 1.96 * float(series.std()) / math.sqrt(len(series))
    assert (found.high - found.low) / 2 > 2 * naive


def test_rounds_hold_the_truth_too() -> None:
    source, hits = np.random.default_rng(1), 0
    for _ in range(1000):
        figures = list(source.normal(10, 1, size=4))
        found = over_rounds(figures, float(np.median(figures)))
        assert found is not None
        hits += found.low <= 10 <= found.high
    assert 0.93 <= hits / 1000 <= 0.97


@pytest.mark.parametrize(("quantile", "n", "there"), [(None, 24, False), (None, 25, True), (0.5, 25, True),
                                                      (0.9, 64, False), (0.9, 100, True), (0.95, 199, False),
                                                      (0.99, 999, False), (0.99, 1000, True)])  # fmt: skip
def test_too_few_queries_have_no_interval(quantile: float | None, n: int, there: bool) -> None:
    assert (within_run(np.arange(float(n)), 1.0, quantile) is not None) == there


@given(st.lists(finite, min_size=0, max_size=300), finite, st.sampled_from([None, 0.5, 0.9, 0.95, 0.99]))
def test_any_series_has_an_interval_about_its_figure_or_none(
    values: list[float], figure: float, quantile: float | None
) -> None:
    found = within_run(np.array(values), figure, quantile)
    if found is not None:
        assert 0 <= found.low <= figure <= found.high
        assert 5 <= found.n <= MOST_BLOCKS
        assert found.of == "blocks"


@given(st.floats(0, 1e6), st.integers(25, 2000))
def test_a_constant_series_is_sure(value: float, n: int) -> None:
    found = within_run(np.full(n, value), value, 0.5)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(value), pytest.approx(value))


@given(st.lists(finite, min_size=0, max_size=8))
def test_an_interval_over_rounds_holds_the_median(figures: list[float]) -> None:
    middle = float(np.median(figures)) if figures else 0.0
    found = over_rounds(figures, middle)
    assert (found is None) == (len(figures) < 2)
    if found is not None:
        assert 0 <= found.low <= middle <= found.high
        assert (found.n, found.of) == (len(figures), "rounds")


def test_rounds_that_agree_by_chance_are_no_surer_than_each_of_them() -> None:
    within = [Interval(low=9, high=11, n=10, of="blocks")] * 2
    found = over_rounds([10.0, 10.0], 10.0, within)
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(10 - 0.5**0.5), pytest.approx(10 + 0.5**0.5))
    assert over_rounds([8.0, 12.0], 10.0, within) == over_rounds([8.0, 12.0], 10.0), "rounds that differ say more"


def test_the_quantile_is_loadgens() -> None:
    """Index ``floor(n * quantile)`` of the sorted latencies: LoadGen's results.cc."""
    values = np.arange(100.0)[::-1].copy()
    assert [at_quantile(values, q) for q in (0.5, 0.9, 0.99)] == [50, 90, 99]
    assert at_quantile(np.array([3.0]), 0.99) == 3


def test_latency_intervals_go_by_the_names_of_the_record() -> None:
    series = np.random.default_rng(0).lognormal(0, 0.2, 300)
    figures = {name: float(series.mean()) if q is None else at_quantile(series, q) for name, q in FIGURES.items()}
    found = latency_intervals(series, figures)
    assert set(found) == {"latency_ms.mean", "latency_ms.p50", "latency_ms.p90", "latency_ms.p95"}
    for name, interval in found.items():
        assert interval.low < figures[name.removeprefix("latency_ms.")] < interval.high


def _blocks(sizes: list[int], seconds: Callable[[int], float]) -> Times:
    ends = np.cumsum([round(1e9 * seconds(i)) for i in range(len(sizes))])
    return Times(np.array([0]), ends, np.array(sizes))


def test_an_even_rate_is_found_whatever_the_blocks() -> None:
    times = _blocks([4, 1, 7] * 100, lambda i: 0.01 * [4, 1, 7][i % 3])
    rates = block_rates(times, 10)
    assert len(rates) == 10
    assert rates == pytest.approx(100)
    found = rate_intervals(times, 100.0)["samples_per_second"]
    assert found.low == pytest.approx(100)
    assert found.high == pytest.approx(100)


def test_a_rate_that_changes_widens_the_interval_and_few_blocks_have_none() -> None:
    half = _blocks([1] * 200, lambda i: 0.01 if i < 100 else 0.02)
    found = rate_intervals(half, 200 / 3)["samples_per_second"]
    assert found.low < 50
    assert found.high > 80
    assert rate_intervals(_blocks([100] * 4, lambda i: 1.0), 100.0) == {}


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10**9)), min_size=0, max_size=120), st.integers(2, 10))
def test_rates_are_positive_and_of_all_samples(blocks: list[tuple[int, int]], most: int) -> None:
    sizes, spans = np.array([s for s, _ in blocks], np.int64), np.array([t for _, t in blocks], np.int64)
    rates = block_rates(Times(np.array([0]), np.cumsum(spans), sizes), most)
    assert len(rates) <= min(most, len(blocks) // 5)
    assert (rates > 0).all()
    assert np.isfinite(rates).all()
