"""float32 network → TFLite artifacts: ``litert-torch`` once a model, then ``litert-quantizer`` for each scheme."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.artifact import ANY_TARGET, InputInfo
from edgeq.export.family import Built, CalibrationSamples, FloatSource, Recipe
from edgeq.files import atomic_path
from edgeq.spec.errors import EdgeqError

TOOLS = ("torch", "litert-torch", "litert-converter", "litert-quantizer", "ai-edge-litert")

_SIGNATURE, _ARGUMENT = "serving_default", "args_0"
_SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {"recipe": "none"},
    "fp16": {"recipe": "float_casting", "weights": "float16 behind DEQUANTIZE"},
    "int8-static": {
        "recipe": "static_wi8_ai8", "weights": "int8, symmetric, per channel", "activations": "int8, asymmetric",
        "ranges": "min-max, moving average over the calibration samples", "input_output": "float32",
        "bias_guard": "weights of dead channels raised so that biases fit 32 bits",
    },
    "int8-dynamic": {
        "recipe": "dynamic_wi8_afp32", "weights": "int8, symmetric, per channel", "activations": "float32",
        "float_layers": "DEPTHWISE_CONV_2D",
    },
}  # fmt: skip


def recipe(scheme: str, target: str) -> Recipe:
    """The same file for every target: int8 kernels of TFLite and XNNPACK do not saturate on any of them."""
    del target
    return Recipe(ANY_TARGET, {"input_layout": "NHWC", **_SETTINGS[scheme]})


def build(source: FloatSource, scheme: str, recipe: Recipe, out: Path, name: str) -> Built:
    """Writes ``out/<name>.tflite``, with float32 NHWC input and float32 logits for every scheme.

    Raises:
        EdgeqError: the quantizer gave a bias that does not fit 32 bits (code ``bias-overflow``). Else what the tools
            raise.
    """
    _quiet()
    float_model = _float_model(source)
    file = out / f"{name}.tflite"
    details = dict(recipe.settings)
    if scheme == "fp32":
        shutil.copyfile(float_model, file)
    elif scheme == "int8-static":
        details |= _quantize_static(float_model, source.calibration, file)
    else:
        _quantize_weights(float_model, scheme, file)
    channels, height, width = source.spec.input_shape
    return Built([file], InputInfo(shape=(height, width, channels), layout="NHWC"), details)


def _quiet() -> None:
    """Keeps the C++ logs and progress bars of the conversion tools out of the terminal; errors still show."""
    for variable, value in {"TF_CPP_MIN_LOG_LEVEL": "2", "ABSL_MIN_LOG_LEVEL": "2", "TQDM_DISABLE": "1"}.items():
        os.environ.setdefault(variable, value)


def _float_model(source: FloatSource) -> Path:
    """The float32 flatbuffer that every scheme starts from; converted at the first call."""
    path = source.work / "float.tflite"
    if path.is_file():
        return path
    import litert_torch
    import torch
    from litert_torch import progress

    progress.config.show_progress = False  # it prints to standard output
    # The wrapper's leading transpose cancels against the converter's own, so the graph has none at run time.
    module = litert_torch.to_channel_last_io(source.module, args=[0]).eval()
    channels, height, width = source.spec.input_shape
    with atomic_path(path) as temporary, torch.no_grad():
        litert_torch.convert(module, (torch.zeros(1, height, width, channels),)).export(str(temporary))
    return path


def _quantize_weights(float_model: Path, scheme: str, file: Path) -> None:
    """fp16 and int8-dynamic: weights change, activations stay float32, so nothing is calibrated."""
    from litert_quantizer import algorithm_manager, qtyping, quantizer
    from litert_quantizer import recipe as recipes

    names, algorithms = qtyping.TFLOperationName, algorithm_manager.AlgorithmName
    if scheme == "fp16":
        tool = quantizer.Quantizer(str(float_model))
        half = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
        tool.update_quantization_recipe(
            regex=".*",
            operation_name=names.ALL_SUPPORTED,
            op_config=qtyping.OpQuantizationConfig(
                weight_tensor_config=half,
                compute_precision=qtyping.ComputePrecision.FLOAT,
                explicit_dequantize=True,
            ),
            algorithm_key=algorithms.FLOAT_CASTING,
        )
    else:
        tool = quantizer.Quantizer(str(float_model), recipes.dynamic_wi8_afp32())
        # XNNPACK has no dynamically quantized depthwise kernel: one such layer in int8 breaks the graph into partitions
        # and runs on a slow kernel of TFLite's own (tensorflow/tensorflow#48751; MobileNetV2 here: 16 ms, against 9).
        tool.update_quantization_recipe(
            regex=".*", operation_name=names.DEPTHWISE_CONV_2D, algorithm_key=algorithms.NO_QUANTIZE
        )
    _write(tool, None, file)


def _quantize_static(float_model: Path, calibration: CalibrationSamples, file: Path) -> dict[str, Any]:
    from litert_quantizer import algorithm_manager, qtyping, quantizer
    from litert_quantizer import recipe as recipes
    from litert_quantizer.utils import tfl_flatbuffer_utils

    statistics = quantizer.Quantizer(str(float_model), recipes.static_wi8_ai8()).calibrate(
        {_SIGNATURE: _Feed(calibration)}, num_threads=len(os.sched_getaffinity(0))
    )
    content = tfl_flatbuffer_utils.get_model_buffer(str(float_model))
    guarded = raise_dead_channels(tfl_flatbuffer_utils.read_model(memoryview(content)), statistics)
    tool = quantizer.Quantizer(content, recipes.static_wi8_ai8())
    for end in (qtyping.TFLOperationName.INPUT, qtyping.TFLOperationName.OUTPUT):
        tool.update_quantization_recipe(
            regex=".*", operation_name=end, algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE
        )
    _write(tool, statistics, file)
    lost = saturated_biases(tfl_flatbuffer_utils.read_model(str(file)))
    if lost:
        raise EdgeqError(
            f"{lost} biases of {file.name} do not fit 32 bits", "a channel's weights are too small beside its bias",
            "use int8-dynamic, or other weights", code="bias-overflow",
        )  # fmt: skip
    return {"calibration_samples": len(calibration), "bias_guarded_channels": guarded}


class _Feed:
    """Calibration samples as the quantizer's inputs, in one buffer: it walks over them twice, first to count them."""

    def __init__(self, samples: CalibrationSamples) -> None:
        self._samples = samples

    def __iter__(self) -> Iterator[dict[str, npt.NDArray[np.float32]]]:
        buffer: npt.NDArray[np.float32] | None = None
        for sample in self._samples:
            image = sample.transpose(1, 2, 0)
            if buffer is None:
                buffer = np.empty((1, *image.shape), np.float32)
            buffer[0] = image
            yield {_ARGUMENT: buffer}


def _write(tool: Any, statistics: Any, file: Path) -> None:
    with warnings.catch_warnings():
        # A bias beyond 32 bits is only a warning to the quantizer, and then has the wrong sign.
        warnings.filterwarnings("error", message="invalid value encountered in cast", category=RuntimeWarning)
        result = tool.quantize(statistics, enable_progress_bar=False, enable_progress_report=False)
    result.export_model(str(file), overwrite=file.exists())


# Builtin operator codes of TFLite's schema, with the axis of the weights that counts output channels.
_CHANNEL_AXIS = {3: 0, 4: 3, 9: 0}  # CONV_2D, DEPTHWISE_CONV_2D, FULLY_CONNECTED
_BIAS_LIMIT = 2.0**30


def raise_dead_channels(model: Any, statistics: dict[str, Any]) -> int:
    """Makes biases fit the int32 grid that weights and input dictate; returns the number of channels changed.

    A bias is stored in steps of ``input scale × weight scale``. Where a channel's weights are nearly zero (training
    killed the channel), that step is so small that the bias is clipped to almost nothing (trap 4, as in
    microsoft/onnxruntime#11415). The channel's largest weight is raised to the least value with which its bias fits:
    this adds at most ``|bias| × 127 × 255 / 2**30``, 3e-5 of the bias, to the channel's output.

    Args:
        model: A float32 ``ModelT`` whose buffers can be written.
        statistics: The quantizer's calibration result: tensor name → ``min`` and ``max``.
    """
    changed = 0
    for graph, operator in _weighted_operators(model):
        data, weights, bias = (graph.tensors[index] for index in operator.inputs[:3])
        scale = _scale(statistics.get(data.name.decode(), {}))
        if scale == 0:
            continue
        rows = _rows(model, weights, _CHANNEL_AXIS[_code(model, operator)])
        floor = np.abs(_values(model, bias, np.float32)) * 127 / (scale * _BIAS_LIMIT)
        for channel in np.flatnonzero(np.abs(rows).max(axis=1) < floor):
            tap = int(np.abs(rows[channel]).argmax())
            rows[channel, tap] = np.copysign(floor[channel], rows[channel, tap])
            changed += 1
    return changed


def saturated_biases(model: Any) -> int:
    """The number of int32 biases at an end of their range, in a quantized ``ModelT``."""
    limit, count = np.iinfo(np.int32), 0
    for graph, operator in _weighted_operators(model):
        bias = graph.tensors[operator.inputs[2]]
        if bias.quantization is not None and bias.quantization.scale is not None:
            values = _values(model, bias, np.int32)
            count += int(((values <= limit.min) | (values >= limit.max)).sum())
    return count


def _weighted_operators(model: Any) -> Iterator[tuple[Any, Any]]:
    """Each convolution and linear operator that has a bias, with its subgraph."""
    for graph in model.subgraphs:
        for operator in graph.operators:
            if _code(model, operator) in _CHANNEL_AXIS and len(operator.inputs) > 2 and operator.inputs[2] >= 0:
                yield graph, operator


def _code(model: Any, operator: Any) -> int:
    return int(model.operatorCodes[operator.opcodeIndex].builtinCode)


def _values(model: Any, tensor: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """The tensor's constant data: a view of the model's buffer."""
    values: npt.NDArray[Any] = np.asarray(model.buffers[tensor.buffer].data).view(dtype).reshape(tensor.shape)
    return values


def _rows(model: Any, weights: Any, axis: int) -> npt.NDArray[np.float32]:
    """Weights as ``[channels, taps]``: a view of the model's buffer, so that writing it changes them."""
    values = _values(model, weights, np.float32)
    return values.reshape(len(values), -1) if axis == 0 else values.reshape(-1, values.shape[-1]).T


def _scale(statistics: dict[str, Any]) -> float:
    """The scale of an asymmetric 8-bit grid over the observed range, which always includes zero; 0 where none was."""
    low, high = min(0.0, float(np.min(statistics.get("min", 0)))), max(0.0, float(np.max(statistics.get("max", 0))))
    return (high - low) / 255
