"""What a session is expected to take: enough to keep a small device from trying what would kill it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.run.footprint import Footprint, footprint
from edgeq.setting import Setting
from edgeq.tune.memory import needed

SAMPLE, WEIGHTS = 600_000, 575_000_000
VGG = 2 * 64 * 224 * 224 * 4  # bytes of a sample's two largest neighbouring activations


def expected(setting: Setting, backend: str = "tflite", scheme: str = "fp32", artifact: int = WEIGHTS) -> Footprint:
    return footprint(backend, scheme, framework=0, artifact=artifact, sample=SAMPLE, resident=0, setting=setting)


@given(streams=st.integers(1, 8), batch=st.integers(1, 32))
def test_it_grows_with_streams_and_batch(streams: int, batch: int) -> None:
    def takes(streams: int, batch: int) -> int:
        setting = Setting(threads=8, streams=streams, batch=batch)
        return needed(setting, expected(setting), SAMPLE, {})

    now = takes(streams, batch)
    assert now < takes(streams, batch + 1)
    assert now < takes(streams + 1, batch)
    assert now > WEIGHTS + streams * batch * VGG


@pytest.mark.parametrize("backend", ["openvino", "tflite", "onnxruntime", "pytorch"])
def test_float16_weights_may_be_widened(backend: str) -> None:
    one = Setting(threads=1)
    half, full = (needed(one, expected(one, backend, scheme), SAMPLE, {}) for scheme in ("fp16", "fp32"))
    assert half > full


def test_what_was_measured_counts() -> None:
    one, eight, more = (Setting(threads=2, streams=2, batch=batch) for batch in (1, 8, 32))
    grown = {one: 100_000_000, eight: 100_000_000 + 2 * 7 * 20_000_000}
    before = expected(more)
    assert needed(more, before, SAMPLE, grown) == before.model + 2 * 32 * 1.25 * 20_000_000
    assert needed(more, before, SAMPLE, {one: 100_000_000}) == before.most, "one size shows no growth"
    other = {Setting(threads=2, streams=1, batch=each.batch): size for each, size in grown.items()}
    assert needed(more, before, SAMPLE, other) == before.most, "of other streams"


def test_memory_that_was_used_again_does_not_make_samples_free() -> None:
    one, eight, more = (Setting(threads=2, batch=batch) for batch in (1, 8, 32))
    assert needed(more, expected(more), SAMPLE, {one: 100_000_000, eight: 0}) >= 32 * 16 * SAMPLE
