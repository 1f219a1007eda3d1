"""What is tried: the default first, nothing twice, nothing that the device or the scenario can't make use of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgeq.setting import QUERY, Setting, default_setting
from edgeq.spec.names import STUDY_SCENARIOS
from edgeq.tune.candidates import candidates, powers, stream_counts

SCENARIO, THREADS = st.sampled_from(STUDY_SCENARIOS), st.integers(1, 64)


def tried(scenario: str, threads: int, *, batches: bool = True) -> list[tuple[int, int, int]]:
    found = candidates(scenario, threads, default_setting(scenario, threads), batches=batches)
    return [(each.threads, each.streams, each.batch) for each in found]


@given(scenario=SCENARIO, threads=THREADS, batches=st.booleans())
def test_every_candidate_can_be_run(scenario: str, threads: int, *, batches: bool) -> None:
    default = default_setting(scenario, threads)
    found = candidates(scenario, threads, default, batches=batches)
    assert found[0] == default
    assert len(found) == len(set(found))
    for each in found:
        assert each.threads <= threads
        assert each.threads % each.streams == 0
        assert batches or each.batch == 1
        if scenario == "single-stream":
            assert each.streams == each.batch == 1
        if scenario == "multi-stream":
            assert each.streams <= QUERY
            assert (each.streams - 1) * each.batch < QUERY, "no stream is without a sample"


@given(scenario=SCENARIO, threads=THREADS)
def test_the_extremes_are_among_them(scenario: str, threads: int) -> None:
    found = tried(scenario, threads)
    assert (threads, 1, 1) in found
    if scenario == "single-stream":
        assert (1, 1, 1) in found
    elif threads <= QUERY or scenario == "offline":
        assert (threads, threads, 1) in found


def test_two_threads() -> None:
    assert sorted(tried("single-stream", 2)) == [(1, 1, 1), (2, 1, 1)]
    assert sorted(tried("multi-stream", 2)) == [(2, 1, 1), (2, 1, 8), (2, 2, 1), (2, 2, 4)]
    assert sorted(tried("offline", 2)) == [(2, streams, batch) for streams in (1, 2) for batch in (1, 4, 8, 16, 32)]
    assert sorted(tried("offline", 2, batches=False)) == [(2, 1, 1), (2, 2, 1)]


def test_four_threads_are_also_split_in_the_middle() -> None:
    assert {(4, 2, 1), (4, 2, 4)} <= set(tried("multi-stream", 4))
    assert {each for each in tried("offline", 4) if each[1] == 2} == {(4, 2, 1), (4, 2, 8)}
    assert sorted(tried("single-stream", 4)) == [(1, 1, 1), (2, 1, 1), (4, 1, 1)]


def test_numbers() -> None:
    assert [powers(n) for n in (1, 2, 3, 4, 5, 8)] == [[1], [1], [1, 2], [1, 2], [1, 2, 4], [1, 2, 4]]
    assert [stream_counts(n) for n in (1, 2, 3, 4, 6, 8)] == [[1], [1, 2], [1, 3], [1, 2, 4], [1, 2, 6], [1, 2, 4, 8]]


def test_a_default_that_is_no_candidate_is_tried_all_the_same() -> None:
    odd = Setting(threads=3, streams=3, batch=2)
    assert candidates("offline", 4, odd, batches=True)[0] == odd
