from __future__ import annotations

import subprocess
import sys

import numpy as np

from edgeq.backends.null import open_null
from edgeq.backends.session import Array, Session, SessionOptions

SHAPE = (3, 4, 4)


def null() -> Session:
    return open_null(SessionOptions(threads=4, streams=2), SHAPE, 10)


def test_infer_gives_live_logits_that_are_the_caller_s() -> None:
    session = null()
    first = session.infer(np.zeros((2, *SHAPE), np.float32))
    assert first.shape == (2, 10)
    assert first.dtype == np.float32
    assert np.isfinite(first).all()
    assert (np.ptp(first, axis=1) > 0).all()
    kept = first.copy()
    first[:] = 7
    assert (session.infer(np.zeros((2, *SHAPE), np.float32)) == kept).all()
    assert session.infer(np.zeros((1500, *SHAPE), np.float32)).shape == (1500, 10)


def test_infer_many_answers_every_sample_once() -> None:
    for count in (0, 1, 1024, 2500):
        seen: list[int] = []

        def done(first: int, logits: Array, seen: list[int] = seen) -> None:
            assert logits.shape[1:] == (10,)
            seen.extend(range(first, first + len(logits)))

        null().infer_many([np.zeros(SHAPE, np.float32)] * count, done)
        assert seen == list(range(count))


def test_says_what_it_runs() -> None:
    session = null()
    effective = session.effective()
    assert (effective.engine, effective.macs, effective.threads, effective.streams) == ("none", {}, 1, 1)
    assert session.input.shape == SHAPE
    assert session.classes == 10
    session.close()


def test_imports_no_framework() -> None:
    code = "import sys, edgeq.backends.null; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for framework in ("torch", "onnxruntime", "openvino", "ai_edge_litert", "tflite_runtime"):
        assert f"'{framework}'" not in modules
