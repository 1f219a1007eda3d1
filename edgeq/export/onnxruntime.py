"""PyTorch module → ONNX; ONNX Runtime's own tools for both int8 schemes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.artifact import ANY_TARGET, InputInfo
from edgeq.export import onnxruntime_fixes
from edgeq.export.family import Built, CalibrationSamples, FloatSource, Recipe

TOOLS = ("onnxruntime", "onnx", "onnxconverter-common", "torch")

INPUT, OUTPUT = "input", "logits"
#: The newest that torch's TorchScript exporter writes; ONNX Runtime fuses all of it.
_OPSET = 20

#: Target → activation and weight type of int8-static. Measured with MobileNetV2, 300 images, float 80.0 %: each of the
#: three 79.7 to 80.3 %. x86-64 multiplies u8 by s8 in saturating 16 bits unless it has VNNI, where that is by far the
#: fastest; u8 by u8 never saturates. aarch64 has kernels for s8 by s8. Min-max ranges: percentile and entropy were no
#: better (79.7 to 80.0 %) and took 9 GB and seven times as long.
_INT8 = {"x86_64": ("uint8", "uint8"), "x86_64-vnni": ("uint8", "int8"), "aarch64": ("int8", "int8")}


def recipe(scheme: str, target: str) -> Recipe:
    """How ``scheme`` is made for ``target``; only int8-static depends on it. Imports no framework."""
    common = {"opset": _OPSET, "exporter": "torchscript", "batch": "dynamic"}
    if scheme == "int8-static":
        activations, weights = _INT8[target]
        return Recipe(
            target,
            common
            | {
                "method": "quantize_static",
                "format": "QDQ",
                "activations": activations,
                "weights": weights,
                "weight_grid": "symmetric, -127 to 127, per channel",
                "calibration": "min-max",
            },
        )
    if scheme == "int8-dynamic":
        return Recipe(
            ANY_TARGET,
            common
            | {
                "method": "quantize_dynamic",
                "weights": "uint8",
                "per_channel": "linear layers only",
                "float": "depthwise convolutions",
            },
        )
    if scheme == "fp16":
        return Recipe(ANY_TARGET, common | {"method": "convert_float_to_float16", "keep_io_types": True})
    return Recipe(ANY_TARGET, common | {"method": "export"})


def build(source: FloatSource, scheme: str, recipe: Recipe, out: Path, name: str) -> Built:
    """Writes ``out/<name>.onnx``, whose input is float32 NCHW with any batch.

    Raises whatever the tools raise, and ``EdgeqError`` (``bias-overflow``) where a bias does not fit its int32.
    """
    file = out / f"{name}.onnx"
    details: dict[str, Any] = {}
    if scheme == "fp32":
        _export(source, file)
    elif scheme == "fp16":
        _to_float16(_float_graph(source), file)
    elif scheme == "int8-static":
        details = _quantize_static(_preprocessed(source), file, source.calibration, recipe.settings)
    else:
        details = _quantize_dynamic(_preprocessed(source), file)
    return Built([file], InputInfo(shape=source.spec.input_shape, layout="NCHW", batch=None), details)


def _export(source: FloatSource, file: Path) -> None:
    """The TorchScript exporter, not the newer one: the same fused graph in under a second instead of 14, and global
    pooling stays an operator that the quantizer knows."""
    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.onnx.export(
            source.module,
            (torch.zeros(1, *source.spec.input_shape),),
            str(file),
            dynamo=False,
            opset_version=_OPSET,
            input_names=[INPUT],
            output_names=[OUTPUT],
            dynamic_axes={INPUT: {0: "batch"}, OUTPUT: {0: "batch"}},
        )


def _float_graph(source: FloatSource) -> Path:
    """The float32 ONNX file, exported once a model."""
    file = source.work / "float.onnx"
    if not file.is_file():
        partial = source.work / "partial.onnx"
        _export(source, partial)
        partial.replace(file)
    return file


def _preprocessed(source: FloatSource) -> Path:
    """The float graph with shapes inferred, constants folded and batch norms fused, which the quantizers count on
    (skipping it left opencv_zoo#239 with a file four times the size)."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    file = source.work / "preprocessed.onnx"
    if not file.is_file():
        partial = source.work / "partial.onnx"
        quant_pre_process(str(_float_graph(source)), str(partial))
        partial.replace(file)
    return file


def _to_float16(source: Path, file: Path) -> None:
    import onnx
    from onnxconverter_common import float16

    with warnings.catch_warnings():
        # It warns of each value that float16 can't hold; export compares the outcome with float, which tells more.
        warnings.simplefilter("ignore", UserWarning)
        model = float16.convert_float_to_float16(onnx.load(source), keep_io_types=True)
    onnx.save(model, file)


class _Reader:
    """``CalibrationDataReader`` over samples read one at a time."""

    def __init__(self, samples: CalibrationSamples) -> None:
        self._samples = samples
        self._left: Iterator[npt.NDArray[np.float32]] = iter(samples)

    def get_next(self) -> dict[str, npt.NDArray[np.float32]] | None:
        sample = next(self._left, None)
        return None if sample is None else {INPUT: sample[None]}

    def rewind(self) -> None:
        self._left = iter(self._samples)


def _quantize_static(source: Path, file: Path, samples: CalibrationSamples, settings: dict[str, Any]) -> dict[str, Any]:
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    # There is no integer batch norm: quantizing one only rounds its factors to int8, one scale for all channels.
    excluded = onnxruntime_fixes.batch_norms(onnx.load(source))
    kind = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}
    quantize_static(
        str(source),
        str(file),
        _Reader(samples),
        quant_format=QuantFormat.QDQ,
        activation_type=kind[settings["activations"]],
        weight_type=QuantType.QInt8,
        per_channel=True,
        calibrate_method=CalibrationMethod.MinMax,
        nodes_to_exclude=excluded,
    )
    model = onnx.load(file)
    details: dict[str, Any] = {
        "largest_int32_bias": onnxruntime_fixes.largest_bias(model),
        "batch_norms_left_in_float": len(excluded),
    }
    if settings["weights"] == "uint8":
        details["weights_moved_to_uint8"] = onnxruntime_fixes.weights_to_uint8(model)
        onnx.save(model, file)
    return details


def _quantize_dynamic(source: Path, file: Path) -> dict[str, Any]:
    """Depthwise convolutions stay float: with one scale for all of their channels, MobileNetV2 falls from 80 % to 0 or
    6 %; without them it keeps 78.3 % (u8 weights; s8 77.3 %, and slower)."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    excluded = onnxruntime_fixes.depthwise(onnx.load(source))
    quantize_dynamic(str(source), str(file), weight_type=QuantType.QUInt8, per_channel=True, nodes_to_exclude=excluded)
    return {"convolutions_left_in_float": len(excluded)}
