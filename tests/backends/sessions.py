"""What every backend's session must do, whichever framework is behind it."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from edgeq.backends import open_session
from edgeq.backends.session import Array, Effective, SessionOptions
from edgeq.spec.errors import EdgeqError
from tests.export.exported import Exported


def effective(exported: Exported, threads: int = 1, streams: int = 1) -> Effective:
    with closing(open_session(exported.manifest, exported.path, SessionOptions(threads, streams))) as session:
        return session.effective()


def check_inference(exported: Exported, streams: int, batch_size: int = 1) -> Array:
    """``infer`` on one sample, on a batch, and ``infer_many`` give the same; returns the logits."""
    options = SessionOptions(threads=2, streams=streams, batch=batch_size)
    with closing(open_session(exported.manifest, exported.path, options)) as session:
        single = [session.infer(sample[None]) for sample in exported.samples]
        kept = single[0].copy()
        many = np.zeros((len(exported.samples), session.classes), np.float32)

        def done(position: int, block: Array) -> None:
            many[position : position + len(block)] = block

        session.infer_many(list(exported.samples), done)
        batch = session.infer(exported.samples)
        into = np.full((1, session.classes), np.nan, np.float32)
        # Copies that nothing else holds: a call must not read memory that was freed.
        calls = [session.bind(sample[None].copy(), into) for sample in exported.samples]
        written = []
        for call in calls:
            call()
            written.append(into.copy())
            into.fill(np.nan)
        calls[0]()
        np.testing.assert_array_equal(into, written[0])
        with pytest.raises(Exception, match=r"shape|dimensions"):  # each framework's own, or edgeq's
            session.bind(exported.samples[:1], np.zeros((1, session.classes + 1), np.float32))()
    np.testing.assert_allclose(np.concatenate(written), np.concatenate(single), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(single[0], kept)
    assert batch.dtype == np.float32
    logits = np.concatenate(single)
    np.testing.assert_allclose(many, logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(batch, logits, rtol=1e-5, atol=1e-5)
    return logits


def check_a_failing_done(exported: Exported, streams: int) -> None:
    """An exception in ``done`` comes out of ``infer_many``, and the session goes on working."""

    def broken(position: int, block: Array) -> None:
        raise LookupError("no such query")

    with closing(open_session(exported.manifest, exported.path, SessionOptions(2, streams))) as session:
        with pytest.raises(LookupError, match="no such query"):
            session.infer_many(list(exported.samples), broken)
        assert session.infer(exported.samples[:1]).shape == (1, session.classes)


def check_a_failing_sample(exported: Exported, streams: int) -> None:
    """A sample of a wrong shape raises in ``infer_many``, whichever stream meets it."""
    samples = [*exported.samples[:3], np.zeros((1, 2, 2), np.float32)]
    options = SessionOptions(2, streams)
    with closing(open_session(exported.manifest, exported.path, options)) as session, pytest.raises(Exception):  # noqa: B017, PT011
        session.infer_many(samples, lambda *_: None)


def check_batches(exported: Exported, streams: int) -> None:
    """Three samples a call give each sample's own logits, the last call's as well, and say so; macs add up all the same."""
    alone = check_inference(exported, streams)
    assert len(exported.samples) % 3, "the last call must be short of samples"
    np.testing.assert_allclose(check_inference(exported, streams, 3), alone, rtol=1e-4, atol=1e-4)
    with closing(open_session(exported.manifest, exported.path, SessionOptions(2, streams, 3))) as session:
        found = session.effective()
    assert found.batch == 3
    assert [note.code for note in found.warnings if note.code == "macs-unaccounted"] == []
    assert sum(found.macs.values()) == pytest.approx(1)


def check_refused_batch(exported: Exported) -> None:
    """A batch would change its samples' logits, and is refused."""
    with pytest.raises(EdgeqError, match="gives alone"):
        open_session(exported.manifest, exported.path, SessionOptions(1, 1, 2))
