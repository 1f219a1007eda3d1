"""microsoft/onnxruntime#25824: FP16 four times slower, because each node stands between casts to float32 and back."""

from __future__ import annotations

from edgeq.backends import open_session
from edgeq.backends.session import Effective, SessionOptions
from edgeq.report.numbers import precision_label
from edgeq.verdict import verdict
from tests.export.exported import Exported
from tests.report.factory import profile
from tests.traps.conftest import Artifact


def _effective(made: Exported) -> Effective:
    session = open_session(made.manifest, made.path, SessionOptions(threads=1))
    try:
        return session.effective()
    finally:
        session.close()


def _casts(effective: Effective) -> int:
    return sum(count for name, count in effective.extra["operators"].items() if name.startswith("Cast"))


def test_weights_alone_in_float16_need_no_cast_at_run_time(artifact: Artifact) -> None:
    effective = _effective(artifact("onnxruntime", "fp16"))
    assert _casts(effective) == 0
    assert precision_label("fp16", effective.macs, "onnxruntime") == "fp16 (computes fp32)"


def test_the_label_says_in_what_it_computes(artifact: Artifact) -> None:
    effective = _effective(artifact("onnxruntime", "fp16", "aarch64"))
    label = precision_label("fp16", effective.macs, "onnxruntime")
    if effective.macs.get("fp16", 0) == 0:
        # This CPU has no float16 kernels in ONNX Runtime: the control is its own graph, full of casts.
        assert _casts(effective) > 2
        assert label == "fp16 (computes fp32)"
    else:
        assert label.startswith("fp16")


def test_the_casts_are_named_where_they_cost() -> None:
    fp32 = profile(10.0, convolution=0.9, other=0.1)
    cell = profile(40.0, convolution=0.25, convert=0.75)
    said = verdict(cell, fp32, backend="onnxruntime", scheme="fp16", macs={"fp32": 1.0}, isa=["avx2"])
    assert "4.0 times as slow as fp32" in said
    assert "75 % of its time goes into Cast" in said
