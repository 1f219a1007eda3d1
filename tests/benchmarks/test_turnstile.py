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

from benchmarks.harness_child import Loop
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


class _Session:
    def __init__(self) -> None:
        self.seen: list[np.ndarray] = []  # type: ignore[type-arg]

    def infer(self, batch: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        self.seen.append(batch)
        return batch


def test_a_slice_of_the_loop_follows_every_so_many_answers() -> None:
    session, answers = _Session(), []
    loop = Loop(session, [np.zeros(1), np.ones(1)], 0.001, every=3)  # type: ignore[arg-type]
    complete = loop.after(lambda responses: answers.append((responses, len(session.seen))))
    for number in range(7):
        complete([number])
    assert [responses for responses, _ in answers] == [[number] for number in range(7)]
    before = [calls for _, calls in answers]
    assert before[:3] == [0, 0, 0], "it waits for as many answers"
    assert before[3] == before[5] > 0, "and for as many again"
    assert before[6] > before[5], "and comes after the answer"
    assert loop.slices == 2
    assert len(loop.took_ms) == len(session.seen)
