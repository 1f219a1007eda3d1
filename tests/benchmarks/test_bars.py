from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.bars import Bar, Claim, Measured, Row, summary
from edgeq.spec.note import Note

LEAST, MOST = Bar("at least", 0.97), Bar("at most", 1.02, slack=0.05)
positive = st.floats(1e-3, 1e6)


def row(bar: Bar | None, *pairs: tuple[float, float], failures: int = 0, given_up: bool = False) -> Row:
    rounds = tuple(Measured(ours, theirs) for ours, theirs in pairs)
    notes = tuple(Note(code="no-figure", text="it broke") for _ in range(failures))
    return Row(Claim("group/row", "one against another", "ms", bar), rounds, notes, given_up)


@pytest.mark.parametrize(
    ("bar", "pairs", "verdict"),
    [
        (LEAST, [(100, 100), (101, 100), (100, 101)], "met"),
        (LEAST, [(90, 100), (91, 100), (90, 100)], "not met"),
        (LEAST, [(110, 100), (90, 100), (95, 100)], "met, not certain"),
        (LEAST, [(101, 100), (90, 100), (95, 100)], "not met, not certain"),
        (LEAST, [(100, 100)], "met, not certain"),
        (LEAST, [(90, 100)], "not met, not certain"),
        (None, [(90, 100)], "no bar"),
        (LEAST, [], "failed"),
    ],
)  # fmt: skip
def test_a_verdict_is_that_of_the_ratio_and_says_whether_the_interval_agrees(
    bar: Bar | None, pairs: list[tuple[float, float]], verdict: str
) -> None:
    assert row(bar, *pairs).verdict == verdict


def test_the_bar_itself_is_met() -> None:
    assert LEAST.reached(0.97, 1.0)
    assert MOST.reached(1.02, 100.0)
    assert not MOST.reached(1.0200001, 100.0)


def test_slack_is_a_difference_in_the_unit_of_the_row_and_counts_where_it_allows_more() -> None:
    assert MOST.beside(1.0) == 1.05  # 50 µs of 1 ms
    assert MOST.beside(10.0) == 1.02  # 2 % of 10 ms is more than 50 µs
    assert row(MOST, (1.04, 1.0), (1.041, 1.0), (1.04, 1.0)).verdict == "met"
    assert row(MOST, (10.4, 10.0), (10.41, 10.0), (10.4, 10.0)).verdict == "not met"


@pytest.mark.parametrize("bar", [("at least", 0.0, None), ("at least", 1.0, 0.1), ("at most", 1.0, -1.0)])
def test_a_bar_that_says_nothing_is_refused(bar: tuple[str, float, float | None]) -> None:
    with pytest.raises(ValueError, match="no bar"):
        Bar(*bar)  # type: ignore[arg-type]


@pytest.mark.parametrize("pair", [(0.0, 1.0), (1.0, -1.0), (math.inf, 1.0), (1.0, math.nan)])
def test_a_figure_that_has_no_ratio_is_refused(pair: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        Measured(*pair)


def test_a_row_given_up_is_failed_whatever_its_rounds_say() -> None:
    assert row(LEAST, (100, 100), (100, 100), failures=2, given_up=True).verdict == "failed"
    assert row(LEAST, (100, 100), (100, 100), failures=1).verdict == "met"


def test_the_summary_counts_rows_with_a_bar() -> None:
    rows = [
        row(LEAST, (100, 100)), row(LEAST, (50, 100), (50, 100)), row(None, (1, 1)), row(LEAST, failures=2, given_up=True)
    ]  # fmt: skip
    assert summary(rows) == (1, 3)


def test_what_is_kept_is_strict_json_with_every_round() -> None:
    found = row(MOST, (1.0, 2.0), (1.1, 2.0), failures=1).as_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [(one["ours"], one["theirs"]) for one in found["rounds"]] == [(1.0, 2.0), (1.1, 2.0)]
    assert found["bar_in_force"] == 1.025
    assert found["failures"][0]["text"] == "it broke"
    single = row(LEAST, (1.0, 2.0)).as_json()
    assert single["interval"] is None
    assert json.dumps(single, allow_nan=False)


@given(st.lists(st.tuples(positive, positive), min_size=2, max_size=8), st.floats(0.1, 10))
def test_the_ratio_does_not_hang_on_the_unit(pairs: list[tuple[float, float]], factor: float) -> None:
    one = row(LEAST, *pairs).ratio
    other = row(LEAST, *((ours * factor, theirs * factor) for ours, theirs in pairs)).ratio
    assert one is not None
    assert other is not None
    assert other.middle == pytest.approx(one.middle, rel=1e-6)
    assert one.low <= one.middle <= one.high


def test_one_disturbed_round_does_not_decide() -> None:
    """As seen on a virtual machine whose neighbour woke up in one of the rounds."""
    disturbed = row(MOST, (2.0, 1.0), *[(1.01, 1.0)] * 7)
    assert disturbed.ratio is not None
    assert disturbed.ratio.middle == pytest.approx(1.01)
    assert disturbed.verdict == "met, not certain"
