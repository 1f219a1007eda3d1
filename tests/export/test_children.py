from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.export.children import Children, side_by_side


@given(st.lists(st.integers(0, 5), max_size=8), st.integers(1, 4), st.none() | st.integers(0, 12))
def test_every_result_comes_once_and_the_room_is_never_exceeded(jobs: list[int], width: int, room: int | None) -> None:
    numbered = list(enumerate(jobs))
    lock, at_work, seen = threading.Lock(), [], []

    def work(job: tuple[int, int]) -> Iterator[tuple[int, int]]:
        with lock:
            at_work.append(job)
            seen.append(list(at_work))
        yield from ((job[0], step) for step in range(job[1]))
        with lock:
            at_work.remove(job)

    found = list(side_by_side(numbered, width, work, Children(), room=room, need=lambda job: job[1]))
    assert sorted(found) == [(number, step) for number, steps in numbered for step in range(steps)]
    for together in seen:
        assert len(together) <= width
        assert room is None or len(together) == 1 or sum(job[1] for job in together) <= room


def test_a_small_job_goes_before_a_large_one_that_has_no_room() -> None:
    small, order = threading.Event(), []

    def work(job: tuple[str, int]) -> Iterator[str]:
        order.append(job[0])
        if job[0] == "first":
            assert small.wait(30)
        if job[0] == "small":
            small.set()
        yield job[0]

    jobs = [("first", 5), ("large", 9), ("small", 1)]
    assert sorted(side_by_side(jobs, 2, work, Children(), room=10, need=lambda job: job[1])) == [
        "first",
        "large",
        "small",
    ]
    assert order == ["first", "small", "large"]


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
