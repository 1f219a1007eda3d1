"""microsoft/onnxruntime#11415: with one scale a channel, a nearly dead channel's bias does not fit its int32.

A bias is stored in steps of input scale x weight scale. Where a channel's weights are nearly zero, the step is so small
that the bias would need more than 32 bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.exported import export, network, sqnr_db

torch = pytest.importorskip("torch")


def _with_a_dead_channel() -> Any:
    module = network()
    with torch.no_grad():
        module.head[0].weight[3] *= 1e-9
        module.head[0].bias[3] = 5.0
    return module


def _grid() -> float:
    """How many steps of its scale the dead channel's bias is, in a naive per-channel grid."""
    layer = _with_a_dead_channel().head[0].requires_grad_(False)
    return float(layer.bias[3].abs() / (layer.weight[3].abs().max() / 127 * (6 / 255)))


def test_control_the_bias_would_overflow() -> None:
    assert _grid() > np.iinfo(np.int32).max


@pytest.mark.parametrize("backend", ["onnxruntime", "pytorch"])
def test_the_dead_channel_keeps_its_bias(backend: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from edgeq.backends import open_session
    from edgeq.backends.session import SessionOptions

    made = export(backend, "int8-static", tmp_path, _with_a_dead_channel())
    session = open_session(made.manifest, made.path, SessionOptions(threads=1))
    found = np.concatenate([session.infer(sample[None]) for sample in made.samples])
    session.close()
    # Without the bias, 5 times the dead channel's weight in the linear layer would be missing from each logit.
    assert sqnr_db(found, made.logits) > 15


def test_a_bias_at_the_end_of_int32_is_no_artifact() -> None:
    onnx = pytest.importorskip("onnx")
    from edgeq.export.onnxruntime_fixes import largest_bias
    from edgeq.spec.errors import EdgeqError

    def model(value: int) -> Any:
        bias = onnx.numpy_helper.from_array(np.array([value], np.int32), "b")
        scale = onnx.numpy_helper.from_array(np.array([1e-9], np.float32), "s")
        node = onnx.helper.make_node("DequantizeLinear", ["b", "s"], ["y"])
        output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
        return onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [output], [bias, scale]))

    assert largest_bias(model(7)) == 7
    with pytest.raises(EdgeqError) as caught:
        largest_bias(model(np.iinfo(np.int32).max))
    assert caught.value.code == "bias-overflow"
