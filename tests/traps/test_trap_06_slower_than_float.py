"""microsoft/onnxruntime#6732: dynamic INT8 eight times slower than FP32 for a convolutional network."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.operators import OperatorProfile
from edgeq.spec.names import Cell
from edgeq.verdict import slower, slower_note, verdict
from tests.report.factory import profile
from tests.traps.conftest import Artifact


def test_control_the_raw_tool_quantizes_depthwise_convolutions_too(artifact: Artifact, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnxruntime.quantization import quantize_dynamic

    raw = tmp_path / "raw.onnx"
    quantize_dynamic(str(artifact("onnxruntime", "fp32").path), str(raw))
    assert _grouped(onnx.load(raw)) == {"ConvInteger"}
    assert _grouped(onnx.load(artifact("onnxruntime", "int8-dynamic").path)) == {"Conv"}


def _grouped(model: object) -> set[str]:
    nodes = model.graph.node  # type: ignore[attr-defined]
    return {node.op_type for node in nodes if any(a.name == "group" and a.i > 1 for a in node.attribute)}


def test_a_cell_slower_than_its_fp32_twin_is_flagged_with_a_cause() -> None:
    fp32: OperatorProfile = profile(10.0, convolution=0.9, other=0.1)
    cell: OperatorProfile = profile(80.0, convolution=0.25, convert=0.75)
    assert slower(cell, fp32)
    sentence = verdict(cell, fp32, backend="onnxruntime", scheme="int8-dynamic", macs={"int8": 1.0}, isa=["avx2"])
    assert "8.0 times as slow as fp32" in sentence
    assert "75 %" in sentence
    note = slower_note(Cell("m", "onnxruntime", "int8-dynamic", "single-stream"), sentence)
    assert (note.code, note.text) == ("slower-than-fp32", sentence)
    assert "edgeq explain" in note.hint
    assert not slower(fp32, cell)
