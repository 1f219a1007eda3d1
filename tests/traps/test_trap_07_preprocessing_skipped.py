"""opencv/opencv_zoo#239: an INT8 file of 120 MB instead of 26, because the graph was not prepared before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.export.check import check
from tests.export.exported import Exported
from tests.traps.conftest import Artifact


def _float_bytes(path: Path) -> int:
    """Bytes of float32 tensors with more than one dimension: weights that were not quantized."""
    onnx = pytest.importorskip("onnx")
    tensors = onnx.load(path).graph.initializer
    return sum(
        4 * int(np.prod(tensor.dims))
        for tensor in tensors
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.dims) > 1
    )


def test_no_weights_stay_in_float(artifact: Artifact) -> None:
    assert _float_bytes(artifact("onnxruntime", "fp32").path) > 0
    assert _float_bytes(artifact("onnxruntime", "int8-static").path) == 0


@pytest.mark.parametrize(("scheme", "share"), [("fp32", 0.0), ("int8-static", 1.0)])
def test_size_ratio_and_share_of_macs_are_part_of_the_check(artifact: Artifact, scheme: str, share: float) -> None:
    made: Exported = artifact("onnxruntime", scheme)
    session: Any = open_session(made.manifest, made.path, SessionOptions(threads=1))
    found, _ = check(session, made.manifest, made.samples, made.logits, fp32_bytes=1000)
    session.close()
    assert found.quantized_macs == share
    assert found.size_ratio == made.manifest.bytes / 1000
