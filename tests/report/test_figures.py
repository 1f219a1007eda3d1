from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.report.figures import (
    Estimate,
    accuracy_drop,
    by_round,
    figure,
    from_row,
    overhead,
    overlaps,
    proportion,
    ranks,
    ratio,
    row_of,
)
from edgeq.run.record import LoadgenInfo, RunInfo
from tests.report.factory import null_record, record, run_info, with_rounds

S = "single-stream"


@st.composite
def estimates(draw: st.DrawFn) -> Estimate:
    value = draw(st.floats(min_value=0.1, max_value=100))
    if draw(st.booleans()) and draw(st.booleans()):
        return Estimate(value)
    below, above = (draw(st.floats(min_value=0, max_value=0.5)) for _ in range(2))
    return Estimate.around(value, value * (1 - below), value * (1 + above), 5, "blocks")


def plain(new: Estimate, base: Estimate, *, rate: bool = False) -> Estimate:
    found = ratio(new, base, new_rounds={}, base_rounds={}, rate=rate)
    assert found is not None
    return found


def test_the_figure_comes_with_the_records_interval() -> None:
    found = figure(record(f"m/tflite/fp32/{S}", 10.0, spread=0.03))
    assert found == Estimate(10.0, pytest.approx(9.7), pytest.approx(10.3), 12, "blocks")
    offline = figure(record("m/tflite/fp32/offline", 10.0, spread=0.03))
    assert offline == Estimate(100.0, pytest.approx(97.0), pytest.approx(103.0), 12, "blocks")
    assert figure(record(f"m/tflite/fp32/{S}", spread=None)) == Estimate(10.0)


def test_an_early_stopping_estimate_does_not_borrow_the_percentiles_interval() -> None:
    run = RunInfo(**{**run_info().model_dump(), "mlperf_rules": True})
    info = LoadgenInfo(version="6", scenario=S, valid=True, percentile=0.9, early_stopping_ms=11.0)
    found = record(f"m/tflite/fp32/{S}", 10.0, run=run, loadgen=info)
    assert figure(found) == Estimate(11.0)
    rounds = with_rounds(found, [1.0, 1.0, 1.0]).rounds
    early = [
        each.model_copy(update={"early_stopping_ms": ms}) for each, ms in zip(rounds, (10.9, 11.0, 11.1), strict=True)
    ]
    over = figure(found.model_copy(update={"rounds": early}))
    assert over is not None
    assert (over.value, over.n, over.of) == (11.0, 3, "rounds")
    assert over.low == pytest.approx(11.0 - 4.3027 * 0.1 / math.sqrt(3), abs=1e-3)


def test_rounds_that_were_lost_have_no_figure() -> None:
    assert by_round(with_rounds(record(f"m/tflite/fp32/{S}", 10.0), [1.0, 0, 1.1])) == pytest.approx({1: 10.0, 3: 11.0})
    assert by_round(with_rounds(record("m/tflite/fp32/offline", 10.0), [1.0, 1.25])) == pytest.approx(
        {1: 100.0, 2: 80.0}
    )
    assert by_round(record(f"m/tflite/fp32/{S}")) == {}


def test_the_overhead_has_the_intervals_of_what_it_is_made_of() -> None:
    query, sample = overhead(null_record(S, 4.0))
    assert query is not None
    assert sample is not None
    assert query.low is not None
    assert query.low < query.value <= (query.high or 0)
    assert sample.low is None  # one run, one time of it
    query, sample = overhead(null_record("offline", 4.0))
    assert query is None
    assert sample is not None
    assert (sample.low, sample.high) == (pytest.approx(4.0 / 1.02), pytest.approx(4.0 / 0.98))
    assert overhead(record(f"m/tflite/fp32/{S}")) == (None, None)


@given(estimates(), estimates(), st.booleans())
def test_a_ratios_interval_holds_it_and_all_ratios_within(new: Estimate, base: Estimate, rate: bool) -> None:
    found = plain(new, base, rate=rate)
    if found.low is None or found.high is None:
        assert None in (new.low, base.low) or min(new.low or 0, base.low or 0) == 0
        return
    assert found.low <= found.value <= found.high
    for one in (new.low, new.high):
        for other in (base.low, base.high):
            assert one is not None
            assert other is not None
            inner = one / other if rate else other / one
            assert found.low * (1 - 1e-9) <= inner <= found.high * (1 + 1e-9)


def test_rounds_in_common_are_paired() -> None:
    """What makes a round slow makes both cells slow: pairs tell what the two intervals apart can't."""
    new, base = Estimate(10.0, 8.0, 12.0, 3, "rounds"), Estimate(12.0, 9.6, 14.4, 3, "rounds")
    rounds = {"new_rounds": {1: 8.0, 2: 10.0, 3: 12.0, 4: 99.0}, "base_rounds": {1: 9.6, 2: 12.1, 3: 14.3}}
    found = ratio(new, base, rate=False, **rounds)
    assert found is not None
    logs = [math.log(a / b) for a, b in ((9.6, 8.0), (12.1, 10.0), (14.3, 12.0))]
    mean = sum(logs) / 3
    half = 4.3027 * math.sqrt(sum((x - mean) ** 2 for x in logs) / 2 / 3)
    assert (found.value, found.n, found.of) == (pytest.approx(1.2), 3, "rounds")
    assert (found.low, found.high) == (pytest.approx(math.exp(mean - half)), pytest.approx(math.exp(mean + half)))
    unpaired = plain(new, base)
    assert unpaired.low is not None
    assert unpaired.low < 1 < found.low  # type: ignore[operator]


def test_one_round_in_common_is_no_pair_and_two_wild_ones_do_not_overflow() -> None:
    new, base = Estimate(10.0, 9.0, 11.0, 2, "rounds"), Estimate(20.0, 19.0, 21.0, 2, "rounds")
    once = ratio(new, base, new_rounds={1: 10.0, 2: 9.0}, base_rounds={1: 20.0, 3: 21.0}, rate=False)
    assert once is not None
    assert once.of == "intervals"
    wild = ratio(new, base, new_rounds={1: 1e-3, 2: 1e6}, base_rounds={1: 20.0, 2: 20.0}, rate=False)
    assert wild is not None
    assert wild.high is not None
    assert math.isfinite(wild.high)
    assert ratio(Estimate(0.0), base, new_rounds={}, base_rounds={}, rate=True) is None


@given(st.lists(estimates(), min_size=1, max_size=16), st.booleans())
def test_ranks_are_of_those_that_overlap_their_best(figures: list[Estimate], rate: bool) -> None:
    found = ranks(figures, rate=rate)
    sign = -1 if rate else 1
    by_rank: dict[int, list[Estimate]] = {}
    for estimate, rank in zip(figures, found, strict=True):
        by_rank.setdefault(rank, []).append(estimate)
    numbers = sorted(by_rank)
    assert numbers[0] == 1
    leaders = {rank: min(group, key=lambda each: sign * each.value) for rank, group in by_rank.items()}
    for rank, group in by_rank.items():
        assert all(overlaps(leaders[rank], each) for each in group)
        # Whoever is in a worse rank is surely worse than the best of each rank before it.
        assert not any(overlaps(leaders[better], each) for better in numbers if better < rank for each in group)
        assert rank == 1 + sum(len(by_rank[better]) for better in numbers if better < rank)
    assert all(sign * leaders[a].value < sign * leaders[b].value for a, b in pairwise(numbers))


@given(st.integers(min_value=0, max_value=500), st.integers(min_value=1, max_value=500))
def test_a_proportions_interval_holds_it_and_stays_a_proportion(right: int, n: int) -> None:
    found = proportion(min(right, n) / n, n)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low


def test_wilson_as_published() -> None:
    """Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    for right, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        found = proportion(right / n, n)
        assert (found.low, found.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_a_loss_is_paired_by_what_the_two_agree_on() -> None:
    base, own = proportion(0.80, 400), proportion(0.78, 400)
    paired = accuracy_drop(base, own, agreement=0.97)
    assert (paired.of, paired.n, paired.value) == ("paired images", 400, pytest.approx(0.02))
    # 12 images differ, 8 more lost than won: Agresti and Min (2005) with 10.5 and 2.5 of 402.
    half = 1.959964 * math.sqrt(13 - 8**2 / 402) / 402
    assert (paired.low, paired.high) == (pytest.approx(8 / 402 - half), pytest.approx(8 / 402 + half))
    apart = accuracy_drop(base, own, agreement=None)
    assert apart.of == "images"
    assert (apart.high or 0) - (apart.low or 0) > (paired.high or 0) - (paired.low or 0)


def test_images_that_cannot_be_the_same_are_not_paired() -> None:
    assert accuracy_drop(proportion(0.8, 400), proportion(0.6, 400), agreement=0.97).of == "images"
    assert accuracy_drop(proportion(0.8, 400), proportion(0.79, 300), agreement=0.97).of == "images"


@given(st.integers(10, 2000), st.data())
def test_a_paired_loss_lies_in_its_interval(n: int, data: st.DataObject) -> None:
    differ = data.draw(st.integers(0, n))
    lost = data.draw(st.integers(-differ, differ))
    kept = data.draw(st.integers(max(0, -lost), n - max(0, lost)))
    found = accuracy_drop(proportion((kept + lost) / n, n), proportion(kept / n, n), 1 - differ / n)
    assert found.of == "paired images"
    assert found.low is not None
    assert found.high is not None
    assert -1 <= found.low <= found.value <= found.high <= 1


def test_a_round_without_an_early_stopping_estimate_is_left_out() -> None:
    run = RunInfo(**{**run_info().model_dump(), "mlperf_rules": True})
    info = LoadgenInfo(version="6", scenario=S, valid=True, percentile=0.9, early_stopping_ms=12.0)
    found = with_rounds(record(f"m/tflite/fp32/{S}", 10.0, run=run, loadgen=info), [1.0, 1.0, 1.0])
    rounds = [each.model_copy(update={"early_stopping_ms": 12.0 if each.round < 3 else None}) for each in found.rounds]
    mixed = found.model_copy(update={"rounds": rounds})
    assert by_round(mixed) == {1: 12.0, 2: 12.0}
    assert figure(mixed) == Estimate(12.0, 12.0, 12.0, 2, "rounds")


def test_a_figure_without_an_interval_is_told_from_nothing() -> None:
    assert overlaps(Estimate(1.0), Estimate(9.0, 8.9, 9.1))
    assert not overlaps(Estimate(1.0, 0.9, 1.1), Estimate(9.0, 8.9, 9.1))


@given(estimates())
def test_an_estimate_survives_its_columns(estimate: Estimate) -> None:
    assert from_row("x", row_of("x", estimate)) == estimate
    assert from_row("x", row_of("x", None)) is None
