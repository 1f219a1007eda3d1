from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.export.children import Children, side_by_side


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(1, 4))
def test_every_result_comes_once(jobs: list[int], width: int) -> None:
    numbered = list(enumerate(jobs))

    def work(job: tuple[int, int]) -> Iterator[tuple[int, int]]:
        yield from ((job[0], step) for step in range(job[1]))

    found = list(side_by_side(numbered, width, work, Children()))
    assert sorted(found) == [(number, step) for number, steps in numbered for step in range(steps)]


def test_two_are_at_work_at_once() -> None:
    both = threading.Barrier(2, timeout=30)

    def work(job: int) -> Iterator[int]:
        both.wait()
        yield job

    assert sorted(side_by_side([1, 2], 2, work, Children())) == [1, 2]


def test_the_first_failure_is_raised_and_nothing_new_begins() -> None:
    begun = []

    def work(job: int) -> Iterator[int]:
        begun.append(job)
        raise RuntimeError(f"job {job}")
        yield job

    children = Children()
    with pytest.raises(RuntimeError, match="job 1"):
        list(side_by_side([1, 2, 3], 1, work, children))
    assert begun == [1]
    assert children.stopped
