"""PyTorch module → ONNX; ONNX Runtime's own tools for both int8 schemes."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.artifact import ANY_TARGET, InputInfo
from edgeq.export import onnxruntime_fixes
from edgeq.export.family import Built, CalibrationSamples, FloatSource, Recipe, nodes_of
from edgeq.spec.quantization import DEFAULTS, QuantizationOptions, resolve

TOOLS = ("onnxruntime", "onnx", "onnxconverter-common", "torch")

INPUT, OUTPUT = "input", "logits"
#: The newest that torch's TorchScript exporter writes; ONNX Runtime fuses all of it.
_OPSET = 20
#: Of a graph of float16 operators: ONNX Runtime's float16 kernel for average pooling on aarch64 knows none newer, and a
#: DenseNet of opset 20 does not load where the CPU has float16 arithmetic (1.32, Cortex-A76 played by qemu).
_OPSET_FLOAT16 = 18

#: Target → activation and weight type of int8-static. Measured with MobileNetV2, 300 images, float 80.0 %: each of the
#: three 79.7 to 80.3 %. x86-64 multiplies u8 by s8 in saturating 16 bits unless it has VNNI, where that is by far the
#: fastest; u8 by u8 never saturates. aarch64 has kernels for s8 by s8. Min-max ranges: percentile and entropy were no
#: better (79.7 to 80.0 %) and took 9 GB and seven times as long.
_INT8 = {"x86_64": ("uint8", "uint8"), "x86_64-vnni": ("uint8", "int8"), "aarch64": ("int8", "int8")}


#: Our name of a method → ONNX Runtime's, and its options.
_CALIBRATION: dict[str, tuple[str, dict[str, Any]]] = {
    "min-max": ("MinMax", {}),
    "moving-average": ("MinMax", {"CalibMovingAverage": True, "CalibMovingAverageConstant": 0.05}),
    "percentile": ("Percentile", {"CalibPercentile": 99.999}),
    "entropy": ("Entropy", {}),
}


def recipe(scheme: str, target: str, options: QuantizationOptions = DEFAULTS) -> Recipe:
    """How ``scheme`` is made for ``target``; only int8-static depends on it. Imports no framework."""
    common: dict[str, Any] = {"opset": _OPSET, "exporter": "torchscript", "batch": "dynamic"}
    if scheme == "int8-static":
        asked = resolve(options, "onnxruntime", scheme)
        activations, weights = _INT8[target]
        return Recipe(
            target,
            common
            | {
                "method": "quantize_static",
                "format": "QDQ",
                "activations": activations,
                "weights": weights,
                "weight_grid": f"symmetric, -127 to 127, {asked.granularity.replace('-', ' ')}",
                **_CALIBRATION[asked.method or ""][1],
            }
            | asked.settings(),
        )
    if scheme == "int8-dynamic":
        asked = resolve(options, "onnxruntime", scheme)
        per_channel = asked.granularity == "per-channel"
        return Recipe(
            ANY_TARGET,
            common
            | {
                "method": "quantize_dynamic",
                "weights": "uint8",
                "per_channel": "linear layers only" if per_channel else "no",
                "float": "depthwise convolutions",
            }
            | asked.settings(),
        )
    if scheme == "fp16":
        return _float16_recipe(target, common)
    return Recipe(ANY_TARGET, common | {"method": "export"})


def _float16_recipe(target: str, common: dict[str, Any]) -> Recipe:
    """Float16 operators where ONNX Runtime has kernels for them, elsewhere float16 weights alone.

    It has them on aarch64 with float16 arithmetic (Raspberry Pi 5), and none on x86, whatever the CPU. There it would put
    Casts around each operator, and those left before Clip's bounds and the factors of DenseNet's batch norms keep these
    from being fused: 1.15 to 1.3 times the time of float32. A weight behind a Cast is widened while the file is loaded, and
    what runs is the float32 graph. An aarch64 CPU without float16 arithmetic loses 2 % by the unfused Clips.
    """
    if target == "aarch64":
        settings = {"opset": _OPSET_FLOAT16, "method": "convert_float_to_float16", "keep_io_types": True}
        return Recipe(target, common | settings)
    return Recipe(ANY_TARGET, common | {"method": "weights only", "weights": "float16, widened when they are loaded"})


def build(source: FloatSource, scheme: str, recipe: Recipe, out: Path, name: str) -> Built:
    """Writes ``out/<name>.onnx``, whose input is float32 NCHW with any batch.

    Raises whatever the tools raise, and ``EdgeqError`` (``bias-overflow``) where a bias does not fit its int32.
    """
    file = out / f"{name}.onnx"
    details: dict[str, Any] = {}
    if scheme == "fp32":
        _export(source, file)
    elif scheme == "fp16":
        details = _to_float16(source, file, recipe.settings)
    elif scheme == "int8-static":
        details = _quantize_static(_preprocessed(source), file, source, recipe.settings)
    else:
        details = _quantize_dynamic(_preprocessed(source), file, source, recipe.settings)
    return Built([file], InputInfo(shape=source.spec.input_shape, layout="NCHW", batch=None), details)


def _export(source: FloatSource, file: Path, opset: int = _OPSET) -> None:
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
            opset_version=opset,
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


def _to_float16(source: FloatSource, file: Path, settings: dict[str, Any]) -> dict[str, Any]:
    import onnx
    from onnxconverter_common import float16

    if settings["method"] == "weights only":
        model = onnx.load(_float_graph(source))
        details = {"tensors_left_in_float32": onnxruntime_fixes.weights_to_float16(model)}
        onnx.save(model, file)
        return details
    _export(source, file, settings["opset"])
    with warnings.catch_warnings():
        # It warns of each value that float16 can't hold; export compares the outcome with float, which tells more.
        warnings.simplefilter("ignore", UserWarning)
        model = float16.convert_float_to_float16(onnx.load(file), keep_io_types=settings["keep_io_types"])
    onnx.save(model, file)
    return {}


class _Reader:
    """``CalibrationDataReader`` over samples read one at a time.

    With ``set_range`` and a stride of one, the quantizer takes what it needs of each sample's activations before it
    runs the next. Left alone it keeps those of all samples for percentile and entropy (9 GB for 100 of MobileNetV2's);
    its ``CalibMaxIntermediateOutputs`` throws samples away without looking at them (onnxruntime 1.32).
    """

    def __init__(self, samples: CalibrationSamples) -> None:
        self._samples = samples
        self._all: Iterator[npt.NDArray[np.float32]] = iter(samples)
        self._left: Iterator[npt.NDArray[np.float32]] = self._all

    def __len__(self) -> int:
        return len(self._samples)

    def get_next(self) -> dict[str, npt.NDArray[np.float32]] | None:
        sample = next(self._left, None)
        return None if sample is None else {INPUT: sample[None]}

    def set_range(self, start_index: int, end_index: int) -> None:
        """Ranges are asked for in order, each beginning where the last one ended."""
        self._left = islice(self._all, end_index - start_index)


def _quantize_static(source: Path, file: Path, network: FloatSource, settings: dict[str, Any]) -> dict[str, Any]:
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    graph = onnx.load(source)
    kept = nodes_of(settings.get("kept_float", []), network.layers, onnxruntime_fixes.weighted(graph))
    per_channel = settings["granularity"] == "per-channel"
    details: dict[str, Any] = {
        "batch_norms_as_convolutions": onnxruntime_fixes.norms_to_convolutions(graph) if per_channel else 0
    }
    # There is no integer batch norm: quantizing one only rounds its factors to int8, one scale for all channels.
    norms = onnxruntime_fixes.batch_norms(graph)
    kind = {"uint8": QuantType.QUInt8, "int8": QuantType.QInt8}
    method, options = _CALIBRATION[settings["calibration_method"]]
    with contextlib.redirect_stdout(sys.stderr):  # the histogram calibrators print
        quantize_static(
            graph,
            str(file),
            _Reader(network.calibration),
            quant_format=QuantFormat.QDQ,
            activation_type=kind[settings["activations"]],
            weight_type=QuantType.QInt8,
            per_channel=per_channel,
            reduce_range=settings.get("reduce_range", False),
            calibrate_method=CalibrationMethod[method],
            nodes_to_exclude=norms + kept,
            extra_options={**options, "CalibStridedMinMax": 1},
        )
    model = onnx.load(file)
    details["largest_int32_bias"] = onnxruntime_fixes.largest_bias(model)
    details["batch_norms_left_in_float"] = len(norms)
    onnxruntime_fixes.shield(model, kept)
    if settings["weights"] == "uint8":
        details["weights_moved_to_uint8"] = onnxruntime_fixes.weights_to_uint8(model)
    onnx.save(model, file)
    return details


def _quantize_dynamic(source: Path, file: Path, network: FloatSource, settings: dict[str, Any]) -> dict[str, Any]:
    """Depthwise convolutions stay float: with one scale for all of their channels, MobileNetV2 falls from 80 % to 0 or
    6 %; without them it keeps 78.3 % (u8 weights; s8 77.3 %, and slower)."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    graph = onnx.load(source)
    grouped = onnxruntime_fixes.depthwise(graph)
    kept = nodes_of(settings.get("kept_float", []), network.layers, onnxruntime_fixes.weighted(graph))
    quantize_dynamic(
        str(source),
        str(file),
        weight_type=QuantType.QUInt8,
        per_channel=settings["granularity"] == "per-channel",
        # A Gemm becomes a MatMul of this name before the names are looked at.
        nodes_to_exclude=[*grouped, *kept, *(f"{name}_MatMul" for name in kept)],
    )
    return {"convolutions_left_in_float": len(grouped)}
