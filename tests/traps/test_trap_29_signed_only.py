"""google/XNNPACK#6653: uint8 is slow on ARM, where only int8 has the fast kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeq.export import onnxruntime
from tests.traps.conftest import Artifact


def test_tflite_artifacts_hold_no_uint8(artifact: Artifact) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    for scheme in ("int8-static", "int8-dynamic"):
        raw = interpreter.Interpreter(model_path=str(artifact("tflite", scheme).path))
        dtypes = {np.dtype(detail["dtype"]).name for detail in raw.get_tensor_details()}
        assert "int8" in dtypes
        assert "uint8" not in dtypes


def test_nor_do_onnx_artifacts_for_arm(artifact: Artifact) -> None:
    onnx = pytest.importorskip("onnx")
    assert onnxruntime.recipe("int8-static", "aarch64").settings["weights"] == "int8"
    path: Path = artifact("onnxruntime", "int8-static", "aarch64").path
    kinds = {tensor.data_type for tensor in onnx.load(path).graph.initializer}
    assert onnx.TensorProto.INT8 in kinds
    assert onnx.TensorProto.UINT8 not in kinds
