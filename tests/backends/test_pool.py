from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeq.backends.pool import StreamPool, run_streams
from edgeq.backends.session import Array


def logits(value: float) -> Array:
    return np.full((1, 2), value, np.float32)


@given(count=st.integers(0, 40), streams=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_every_position_is_done_once_with_its_own_logits(count: int, streams: int) -> None:
    found: list[tuple[int, float]] = []
    run_streams(
        count, streams, lambda _, position: logits(position), lambda p, out: found.append((p, float(out[0, 0])))
    )
    assert sorted(found) == [(position, float(position)) for position in range(count)]


def test_one_stream_runs_in_order_in_the_calling_thread() -> None:
    threads, order = set(), []

    def work(stream: int, position: int) -> Array:
        threads.add(threading.get_ident())
        order.append((stream, position))
        return logits(0)

    run_streams(5, 1, work, lambda *_: None)
    assert threads == {threading.get_ident()}
    assert order == [(0, position) for position in range(5)]


def test_streams_run_side_by_side_each_in_one_thread() -> None:
    meet = threading.Barrier(3, timeout=30)
    used: Counter[tuple[int, int]] = Counter()

    def work(stream: int, position: int) -> Array:
        if position < 3:
            meet.wait()
        used[stream, threading.get_ident()] += 1
        return logits(0)

    with StreamPool(3) as pool:
        for _ in range(3):
            pool.run(3, work, lambda *_: None)
    assert sorted(stream for stream, _ in used) == [0, 1, 2]
    assert len({thread for _, thread in used}) == 3


@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.parametrize("where", ["work", "done"])
def test_the_first_failure_stops_the_others_and_is_raised(streams: int, where: str) -> None:
    calls: list[int] = []

    def fail(position: int) -> None:
        calls.append(position)
        if position == 3:
            raise RuntimeError("sample 3")

    def work(_: int, position: int) -> Array:
        if where == "work":
            fail(position)
        return logits(0)

    with StreamPool(streams) as pool:
        with pytest.raises(RuntimeError, match="sample 3"):
            pool.run(10_000, work, lambda position, _: fail(position) if where == "done" else None)
        assert len(calls) < 10_000
        after = len(calls)
        found: list[int] = []
        pool.run(8, lambda *_: logits(0), lambda position, _: found.append(position))
    assert sorted(found) == list(range(8))
    assert len(calls) == after


def test_even_a_keyboard_interrupt_in_a_stream_reaches_the_caller() -> None:
    def work(stream: int, position: int) -> Array:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_streams(4, 2, work, lambda *_: None)


def test_close_ends_the_threads() -> None:
    before = threading.active_count()
    pool = StreamPool(4)
    assert threading.active_count() == before + 3
    pool.close()
    pool.close()
    assert threading.active_count() == before


def test_no_streams_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        StreamPool(0)
