"""microsoft/onnxruntime#25824: FP16 four times slower, because each node stands between casts to float32 and back."""

from __future__ import annotations

from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.report.numbers import precision_label
from edgeq.verdict import verdict
from tests.report.factory import profile
from tests.traps.conftest import Artifact


def test_the_label_says_in_what_it_computes(artifact: Artifact) -> None:
    made = artifact("onnxruntime", "fp16")
    session = open_session(made.manifest, made.path, SessionOptions(threads=1))
    effective = session.effective()
    session.close()
    label = precision_label("fp16", effective.macs, "onnxruntime")
    if effective.macs.get("fp16", 0) == 0:
        # This CPU has no float16 kernels in ONNX Runtime: the control is its own graph, full of casts.
        operators = effective.extra["operators"]
        assert sum(count for name, count in operators.items() if name.startswith("Cast")) > 2
        assert label == "fp16 (computes fp32)"
    else:
        assert label.startswith("fp16")


def test_the_casts_are_named_where_they_cost() -> None:
    fp32 = profile(10.0, convolution=0.9, other=0.1)
    cell = profile(40.0, convolution=0.25, convert=0.75)
    said = verdict(cell, fp32, backend="onnxruntime", scheme="fp16", macs={"fp32": 1.0}, isa=["avx2"])
    assert "4.0 times as slow as fp32" in said
    assert "75 % of its time goes into Cast" in said
