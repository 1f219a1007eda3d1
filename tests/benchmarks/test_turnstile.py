"""Two processes that are measured at once run in turn; and a bare loop takes turns with LoadGen."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness_child import Loop, apart_ms
from benchmarks.turnstile import Turnstile, side_by_side
from edgeq.spec.errors import EdgeqError

LIMIT_S = 60.0


@pytest.fixture
def children() -> Iterator[list[psutil.Process]]:
    """Two processes that use all of a core each, and end with the test whatever becomes of it."""
    with ExitStack() as ended:
        started = []
        for _ in range(2):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            ended.callback(process.wait)
            ended.callback(process.kill)
            started.append(process)
        yield [psutil.Process(process.pid) for process in started]


def stopped(children: list[psutil.Process]) -> tuple[bool, ...]:
    return tuple(child.status() == psutil.STATUS_STOPPED for child in children)


def test_one_runs_while_the_other_stands_still(children: list[psutil.Process]) -> None:
    seen, until = set(), time.monotonic() + LIMIT_S
    with Turnstile(slice_s=0.01):
        while not {(True, False), (False, True)} <= seen:
            assert time.monotonic() < until, seen
            seen.add(stopped(children))
    assert stopped(children) == (False, False), "both run on afterwards"


def test_the_one_that_is_left_runs_on(children: list[psutil.Process]) -> None:
    until = time.monotonic() + LIMIT_S
    with Turnstile(slice_s=0.01):
        while not any(stopped(children)):
            assert time.monotonic() < until
        children[0].kill()
        children[0].wait()
        before = children[1].cpu_times().user
        while children[1].cpu_times().user - before < 0.1:
            assert time.monotonic() < until


def test_both_figures_are_had_at_once() -> None:
    def child(figure: float) -> float:
        subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
        return figure

    found = side_by_side(lambda: child(2.0), lambda: child(4.0))
    assert (found.ours, found.theirs) == (2.0, 4.0)


def test_an_error_of_one_is_told_when_both_have_ended() -> None:
    ended = []

    def fails() -> float:
        raise EdgeqError("it gave no figure", "it died", "try again", code="no-figure")

    with pytest.raises(EdgeqError, match="it died"):
        side_by_side(fails, lambda: float(ended.append(1) or 1))
    assert ended == [1]


def test_a_slice_of_the_loop_follows_every_so_many_answers() -> None:
    seen: list[int] = []
    answers = []
    loop = Loop([lambda: seen.append(0), lambda: seen.append(1)], 0.001, every=3)
    complete = loop.after(lambda responses: answers.append((responses, len(seen))))
    for number in range(7):
        complete([number])
    assert [responses for responses, _ in answers] == [[number] for number in range(7)]
    before = [calls for _, calls in answers]
    assert before[:3] == [0, 0, 0], "it waits for as many answers"
    assert before[3] == before[5] > 0, "and for as many again"
    assert before[6] > before[5], "and comes after the answer"
    assert loop.marks == [(3, 0), (6, before[5])]
    assert len(loop.took_ms) == len(seen)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=12), st.floats(-1, 1), st.floats(0, 3), st.integers(2, 9))
def test_queries_are_compared_with_the_slices_around_them_however_the_machine_drifts(
    sizes: list[int], apart: float, drift: float, each: int
) -> None:
    # Slice i of the loop takes 10 + i * drift, and the queries after it half a step more, and ``apart``.
    calls = np.concatenate([np.full(size, 10 + index * drift) for index, size in enumerate(sizes)])
    queries = np.concatenate([np.full(each, 10 + (index - 0.5) * drift + apart) for index in range(len(sizes))])
    queries[each - 1 :: each] = np.nan  # a slice was in their callback
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    marks = [((index + 1) * each, int(begin)) for index, begin in enumerate(begins)]
    assert apart_ms(queries, calls, marks) == pytest.approx(apart, abs=1e-9)


def test_one_stretch_that_was_disturbed_does_not_move_the_difference() -> None:
    queries = np.array([10.0] * 5 + [10.1] * 5 + [40.0] * 5 + [10.1] * 5)
    marks = [(5, 0), (10, 4), (15, 8), (20, 12)]
    assert apart_ms(queries, np.full(16, 10.0), marks) == pytest.approx(0.1)


@pytest.mark.parametrize("marks", [[], [(3, 0)], [(1, 0), (2, 1)]])
def test_without_queries_between_two_slices_there_is_no_difference(marks: list[tuple[int, int]]) -> None:
    with pytest.raises(EdgeqError, match="nothing to compare"):
        apart_ms(np.array([1.0, np.nan, 1.0]), np.ones(4), marks)
