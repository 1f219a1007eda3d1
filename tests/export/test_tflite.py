from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import TARGETS
from edgeq.backends.session import SessionOptions
from edgeq.backends.tflite import open_session
from edgeq.export import tflite
from edgeq.spec.names import SCHEMES
from tests.export.exported import Exported, export, network, sqnr_db

pytest.importorskip("litert_torch")
pytest.importorskip("litert_quantizer")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("tflite")
    return {scheme: export("tflite", scheme, folder) for scheme in SCHEMES}


def logits(exported: Exported) -> np.ndarray[Any, np.dtype[np.float32]]:
    session = open_session(exported.manifest, exported.path, SessionOptions(threads=1))
    try:
        return session.infer(exported.samples)
    finally:
        session.close()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_target_gets_the_same_recipe_without_a_framework(scheme: str) -> None:
    recipes = [tflite.recipe(scheme, target) for target in TARGETS]
    assert recipes[0] == recipes[1] == recipes[2]
    assert recipes[0].target == "any"


def test_the_float_graph_agrees_with_torch_and_transposes_nothing(artifacts: dict[str, Exported]) -> None:
    fp32 = artifacts["fp32"]
    assert np.abs(logits(fp32) - fp32.logits).max() / np.abs(fp32.logits).max() < 1e-4
    assert (fp32.manifest.input.shape, fp32.manifest.input.layout) == ((32, 32, 3), "NHWC")
    assert "TRANSPOSE" not in operators(fp32)


def operators(exported: Exported) -> list[str]:
    from ai_edge_litert.interpreter import Interpreter

    return [op["op_name"] for op in Interpreter(str(exported.path))._get_ops_details()]


@pytest.mark.parametrize(("scheme", "least_db"), [("fp16", 50), ("int8-static", 15), ("int8-dynamic", 25)])
def test_quantized_artifacts_stay_close_to_float(artifacts: dict[str, Exported], scheme: str, least_db: float) -> None:
    exported = artifacts[scheme]
    assert sqnr_db(logits(exported), exported.logits) > least_db


def test_int8_static_takes_and_gives_float32_around_integer_operators(artifacts: dict[str, Exported]) -> None:
    found = operators(artifacts["int8-static"])
    assert found.count("QUANTIZE") == 1
    assert found.count("DEQUANTIZE") == 1
    assert artifacts["int8-static"].manifest.details["calibration_samples"] == 16


def weight_types(exported: Exported) -> list[str]:
    """The numpy type of each convolution's and linear layer's weights, in order."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(exported.path))
    types = {tensor["index"]: tensor["dtype"].__name__ for tensor in interpreter.get_tensor_details()}
    layers = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    return [types[op["inputs"][1]] for op in interpreter._get_ops_details() if op["op_name"] in layers]


def test_int8_dynamic_leaves_depthwise_layers_and_a_small_padded_first_one_in_float(
    artifacts: dict[str, Exported],
) -> None:
    """XNNPACK has no dynamic kernel for the first, and pads by an operator of its own before the other."""
    assert weight_types(artifacts["int8-dynamic"]) == ["float32", "float32", "int8", "int8", "int8"]
    assert artifacts["int8-dynamic"].manifest.details["convolutions_of_padded_input_in_float"] == 1


def test_a_large_padded_first_convolution_is_quantized(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    large = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(64, 10),
    )  # fmt: skip
    exported = export("tflite", "int8-dynamic", tmp_path, large.eval())
    assert weight_types(exported) == ["int8", "int8"]
    assert sqnr_db(logits(exported), exported.logits) > 25


def test_quantized_files_are_smaller(artifacts: dict[str, Exported]) -> None:
    size = {scheme: exported.path.stat().st_size for scheme, exported in artifacts.items()}
    assert size["fp16"] < size["fp32"]
    assert size["int8-dynamic"] < size["fp32"]


def test_the_bias_of_a_dead_channel_survives_int8(tmp_path: Path) -> None:
    """Trap 4: the bias grid of a channel whose weights are all but zero does not reach its bias."""
    module = network()
    convolution = module.head[0]
    convolution.weight.data[3] *= 1e-13
    convolution.bias.data[3] = 5.0
    convolution.weight.data[4] *= 1e-13
    convolution.bias.data[4] = 0.0
    dead = export("tflite", "int8-static", tmp_path, module)
    assert dead.manifest.details["bias_guarded_channels"] == 1
    assert sqnr_db(logits(dead), dead.logits) > 15


def test_a_saturated_bias_is_counted() -> None:
    limit = np.iinfo(np.int32)
    model = SimpleNamespace(
        operatorCodes=[SimpleNamespace(builtinCode=3)],
        buffers=[SimpleNamespace(data=np.array([limit.min, 5, limit.max], np.int32).view(np.uint8))],
        subgraphs=[
            SimpleNamespace(
                operators=[SimpleNamespace(opcodeIndex=0, inputs=[0, 0, 0])],
                tensors=[SimpleNamespace(buffer=0, shape=[3], quantization=SimpleNamespace(scale=[1.0, 1.0, 1.0]))],
            )
        ],
    )
    assert tflite.saturated_biases(model) == 2


def test_export_prints_nothing_on_standard_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    export("tflite", "fp32", tmp_path)
    assert capfd.readouterr().out == ""
