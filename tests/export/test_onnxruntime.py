from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import TARGETS
from edgeq.backends.session import SessionOptions
from edgeq.export import onnxruntime as exporter
from edgeq.export.onnxruntime_fixes import largest_bias, weights_to_float16
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import SCHEMES
from edgeq.spec.quantization import QuantizationOptions
from tests.export.exported import Exported, export, network, sqnr_db

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxconverter_common")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnxruntime")


@pytest.fixture(scope="module")
def artifacts(folder: Path) -> dict[str, Exported]:
    return {scheme: export("onnxruntime", scheme, folder, target="x86_64") for scheme in SCHEMES}


@pytest.fixture(scope="module")
def static(folder: Path, artifacts: dict[str, Exported]) -> dict[str, Exported]:
    """int8-static for each target."""
    others = {target: export("onnxruntime", "int8-static", folder, target=target) for target in TARGETS[1:]}
    return {"x86_64": artifacts["int8-static"], **others}


def logits(exported: Exported) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    from edgeq.backends.onnxruntime import open_session

    session = open_session(exported.manifest, exported.path, SessionOptions(1))
    try:
        return np.concatenate([session.infer(sample[None]) for sample in exported.samples])
    finally:
        session.close()


def weights(path: Path) -> list[Any]:
    """Every quantized weight, as a number: scale times (stored value minus zero point)."""
    graph = onnx.load(path).graph
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = []
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and values.get(node.input[0], np.empty(0)).ndim > 1:
            stored, scale, zero = (values[name].astype(np.float64) for name in node.input)
            shape = [-1 if axis == 0 and scale.ndim else 1 for axis in range(stored.ndim)]
            found.append((stored - zero.reshape(shape)) * scale.reshape(shape))
    return found


def weight_types(path: Path) -> set[str]:
    graph = onnx.load(path).graph
    return {onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in graph.initializer if len(tensor.dims) > 1}


@pytest.mark.parametrize("scheme", ["fp32", "int8-dynamic"])
def test_these_do_not_depend_on_the_target(scheme: str) -> None:
    recipes = [exporter.recipe(scheme, target) for target in TARGETS]
    assert recipes[0] == recipes[1] == recipes[2]
    assert recipes[0].target == "any"


def test_float16_operators_are_for_aarch64_alone() -> None:
    """ONNX Runtime has kernels for them nowhere else; the file with float16 weights runs anywhere."""
    recipes = {target: exporter.recipe("fp16", target) for target in TARGETS}
    assert recipes["x86_64"] == recipes["x86_64-vnni"]
    assert {target: recipe.target for target, recipe in recipes.items()} == {
        "x86_64": "any", "x86_64-vnni": "any", "aarch64": "aarch64",
    }  # fmt: skip
    assert recipes["aarch64"].settings["opset"] <= 18  # its NHWC kernel of AveragePool knows no newer one


def test_u8_times_s8_is_only_for_cpus_where_it_cannot_saturate() -> None:
    """Trap 1: without VNNI the product of u8 and s8 saturates in 16 bits."""
    pairs = {t: exporter.recipe("int8-static", t).settings for t in TARGETS}
    types = {target: (chosen["activations"], chosen["weights"]) for target, chosen in pairs.items()}
    assert types == {"x86_64": ("uint8", "uint8"), "x86_64-vnni": ("uint8", "int8"), "aarch64": ("int8", "int8")}


def test_a_recipe_needs_no_framework() -> None:
    code = (
        "import sys; from edgeq.export.onnxruntime import recipe; recipe('int8-static', 'x86_64');"
        "assert not {'torch', 'onnx', 'onnxruntime'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_float_model_is_torch_s(artifacts: dict[str, Exported]) -> None:
    found = artifacts["fp32"]
    assert np.abs(logits(found) - found.logits).max() / np.abs(found.logits).max() < 1e-4


@pytest.mark.parametrize(("scheme", "least_db"), [("fp16", 40), ("int8-static", 15), ("int8-dynamic", 15)])
def test_other_schemes_stay_close_to_float(artifacts: dict[str, Exported], scheme: str, least_db: float) -> None:
    assert sqnr_db(logits(artifacts[scheme]), artifacts[scheme].logits) > least_db


@pytest.mark.parametrize("target", TARGETS)
def test_static_int8_stays_close_to_float_for_each_target(static: dict[str, Exported], target: str) -> None:
    """By the graph's own arithmetic, in float: this machine may not be of that target."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(static[target].path), options, providers=["CPUExecutionProvider"])
    found = session.run(None, {"input": static[target].samples})[0]
    assert sqnr_db(found, static[target].logits) > 15


def test_weights_moved_to_uint8_are_the_same_numbers(static: dict[str, Exported]) -> None:
    """ONNX Runtime's own uint8 grid costs 3 points of MobileNetV2 with these weights."""
    assert weight_types(static["x86_64"].path) == {"UINT8"}
    assert weight_types(static["x86_64-vnni"].path) == {"INT8"}
    pairs = list(zip(weights(static["x86_64"].path), weights(static["x86_64-vnni"].path), strict=True))
    assert len(pairs) == static["x86_64"].manifest.details["weights_moved_to_uint8"] == 5
    for moved, original in pairs:
        np.testing.assert_array_equal(moved, original)


def test_input_and_output_stay_float32(artifacts: dict[str, Exported]) -> None:
    for exported in artifacts.values():
        graph = onnx.load(exported.path).graph
        types = {port.type.tensor_type.elem_type for port in [*graph.input, *graph.output]}
        assert types == {onnx.TensorProto.FLOAT}


def test_quantized_files_are_not_larger_than_float(artifacts: dict[str, Exported]) -> None:
    """Trap 7: skipped preprocessing left an INT8 file four times too large."""
    stored = {scheme: weight_types(exported.path) for scheme, exported in artifacts.items()}
    assert stored["fp32"] == {"FLOAT"}
    assert stored["fp16"] == {"FLOAT16"}
    assert stored["int8-dynamic"] == {"UINT8", "FLOAT"}


def executed(path: Path) -> list[str]:
    """The operators of the graph that ONNX Runtime makes of a file, on this machine."""
    from edgeq.backends.onnxruntime import session_options
    from edgeq.backends.onnxruntime_profile import run_once

    return [node.op for node in run_once(path, session_options(1), (3, 32, 32))]


@pytest.mark.parametrize("name", ["small", "dense"])
def test_float16_weights_run_the_float32_graph(tmp_path: Path, name: str) -> None:
    """Casts left before the bounds of Clip, or the factors of a batch norm, kept both from being fused: 1.3 times as slow."""
    module = network() if name == "small" else _dense()
    half, whole = (export("onnxruntime", scheme, tmp_path, module) for scheme in ("fp16", "fp32"))
    assert executed(half.path) == executed(whole.path)
    assert half.manifest.details["tensors_left_in_float32"] == 0


def test_aarch64_gets_float16_operators(tmp_path: Path) -> None:
    exported = export("onnxruntime", "fp16", tmp_path, target="aarch64")
    model = onnx.shape_inference.infer_shapes(onnx.load(exported.path))
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.value_info}
    outputs = {types[node.output[0]] for node in model.graph.node if node.op_type in ("Conv", "Clip", "Gemm")}
    assert outputs == {onnx.TensorProto.FLOAT16}
    assert model.opset_import[0].version == 18
    assert sqnr_db(logits(exported), exported.logits) > 40


def test_a_weight_beyond_float16_stays_float32() -> None:
    tensors = {"big": 1e6, "small": 0.5}
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Add", ["x", "big"], ["y"]), onnx.helper.make_node("Add", ["y", "small"], ["z"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
            [onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [2])],
            [onnx.numpy_helper.from_array(np.full(2, value, np.float32), name) for name, value in tensors.items()],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 20)],
    )
    assert weights_to_float16(model) == 1
    onnx.checker.check_model(model)
    (found,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(found, np.full(2, 1e6 + 1.5, np.float32))


def test_a_batch_norm_that_nothing_takes_up_is_an_integer_convolution(tmp_path: Path) -> None:
    """Trap 10 as well: DenseNet's concatenations and the batch norms behind them load and run."""
    exported = export("onnxruntime", "int8-static", tmp_path, target="x86_64", module=_dense())
    assert exported.manifest.details["batch_norms_as_convolutions"] == 1
    assert exported.manifest.details["batch_norms_left_in_float"] == 0
    assert not {"BatchNormalization", "Relu"} & set(executed(exported.path))
    assert sqnr_db(logits(exported), exported.logits) > 20


def test_a_batch_norm_is_no_layer_of_the_model(tmp_path: Path) -> None:
    from edgeq.backends.layers import layer_errors
    from edgeq.backends.onnxruntime import open_session

    fp32, exported = (export("onnxruntime", scheme, tmp_path, module=_dense()) for scheme in ("fp32", "int8-static"))
    session = open_session(exported.manifest, exported.path, SessionOptions(1))
    assert session.effective().macs == {"int8": 1.0}
    assert session.effective().warnings == ()
    session.close()
    errors = layer_errors((fp32.manifest, fp32.path), (exported.manifest, exported.path), exported.samples)
    assert [error.name for error in errors] == ["first", "second", "linear"]
    assert min(error.sqnr_db or 0 for error in errors) > 20


def test_with_one_scale_a_tensor_a_batch_norm_stays_float(tmp_path: Path) -> None:
    """Its factors differ from channel to channel by more than one scale holds."""
    options = QuantizationOptions(granularity="per-tensor")
    exported = export("onnxruntime", "int8-static", tmp_path, module=_dense(), options=options)
    assert exported.manifest.details["batch_norms_left_in_float"] == 1
    assert "BatchNormalization" in executed(exported.path)


def _dense() -> Any:
    import torch
    from torch import nn

    class Dense(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(16)
            self.second, self.linear = nn.Conv2d(8, 8, 1), nn.Linear(16, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.first(x))
            x = torch.relu(self.norm(torch.cat([x, self.second(x)], 1)))
            return self.linear(x.mean(dim=(2, 3)))

    torch.manual_seed(0)
    return Dense().eval()


def test_the_bias_of_a_dead_channel_survives(tmp_path: Path) -> None:
    """Trap 4: weights close to zero make a scale too small for the bias."""
    module = network()
    module.head[0].weight.data[3] *= 1e-13
    module.head[0].bias.data[3] = 2.0
    exported = export("onnxruntime", "int8-static", tmp_path, target="x86_64", module=module)
    assert exported.manifest.details["largest_int32_bias"] < 2**31 - 1
    assert sqnr_db(logits(exported), exported.logits) > 15


def test_a_bias_at_the_end_of_int32_is_refused() -> None:
    tensors = [
        onnx.numpy_helper.from_array(np.array([5, 2**31 - 1], np.int32), "bias"),
        onnx.numpy_helper.from_array(np.array(1e-12, np.float32), "scale"),
    ]
    node = onnx.helper.make_node("DequantizeLinear", ["bias", "scale"], ["out"])
    output = onnx.helper.make_tensor_value_info("out", onnx.TensorProto.FLOAT, [2])
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [output], tensors))
    with pytest.raises(EdgeqError) as caught:
        largest_bias(model)
    assert caught.value.code == "bias-overflow"


def test_export_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for scheme in SCHEMES:
        export("onnxruntime", scheme, tmp_path)
    assert capfd.readouterr().out == ""
