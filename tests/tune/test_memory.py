"""What a session is expected to take: enough to keep a small device from trying what would kill it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edgeq.setting import Setting
from edgeq.tune.memory import ACTIVATIONS, needed

SAMPLE, WEIGHTS = 600_000, 575_000_000
VGG = 2 * 64 * 224 * 224 * 4  # bytes of a sample's two largest neighbouring activations


@given(streams=st.integers(1, 8), batch=st.integers(1, 32))
def test_it_grows_with_streams_and_batch(streams: int, batch: int) -> None:
    now = needed(Setting(threads=8, streams=streams, batch=batch), WEIGHTS, SAMPLE, {})
    assert now < needed(Setting(threads=8, streams=streams, batch=batch + 1), WEIGHTS, SAMPLE, {})
    assert now < needed(Setting(threads=8, streams=streams + 1, batch=batch), WEIGHTS, SAMPLE, {})
    assert now > WEIGHTS + streams * batch * VGG


def test_float16_weights_may_be_widened() -> None:
    one = Setting(threads=1)
    assert needed(one, WEIGHTS, SAMPLE, {}, widened=True) == needed(one, WEIGHTS, SAMPLE, {}) + WEIGHTS


def test_what_was_measured_counts() -> None:
    one, eight, more = (Setting(threads=2, streams=2, batch=batch) for batch in (1, 8, 32))
    grown = {one: 100_000_000, eight: 100_000_000 + 2 * 7 * 20_000_000}
    assert needed(more, 0, SAMPLE, grown) == 2 * 32 * 1.25 * 20_000_000
    assert needed(more, 0, SAMPLE, {one: 100_000_000}) == 2 * 32 * ACTIVATIONS * SAMPLE, "one size shows no growth"
    other = {Setting(threads=2, streams=1, batch=each.batch): size for each, size in grown.items()}
    assert needed(more, 0, SAMPLE, other) == needed(more, 0, SAMPLE, {}), "of other streams"


def test_memory_that_was_used_again_does_not_make_samples_free() -> None:
    one, eight, more = (Setting(threads=2, batch=batch) for batch in (1, 8, 32))
    assert needed(more, 0, SAMPLE, {one: 100_000_000, eight: 0}) >= 32 * 16 * SAMPLE
