"""float32 network → TFLite artifacts: ``litert-torch`` once a model, then ``litert-quantizer`` for each scheme."""

from __future__ import annotations

import math
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeq.artifact import ANY_TARGET, InputInfo
from edgeq.export.family import Built, CalibrationSamples, FloatSource, Recipe, nodes_of
from edgeq.files import atomic_path
from edgeq.spec.errors import EdgeqError
from edgeq.spec.quantization import DEFAULTS, INT8_SCHEMES, QuantizationOptions, resolve

TOOLS = ("torch", "litert-torch", "litert-converter", "litert-quantizer", "ai-edge-litert")

_SIGNATURE, _ARGUMENT = "serving_default", "args_0"
_SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {"recipe": "none"},
    "fp16": {"recipe": "float_casting", "weights": "float16 behind DEQUANTIZE"},
    "int8-static": {
        "recipe": "static_wi8_ai8", "weights": "int8, symmetric", "activations": "int8, asymmetric",
        "input_output": "float32",
        "bias_guard": "weights of dead channels raised so that biases fit 32 bits",
    },
    "int8-dynamic": {
        "recipe": "dynamic_wi8_afp32", "weights": "int8, symmetric", "activations": "float32",
        "float_layers": "DEPTHWISE_CONV_2D, and a small CONV_2D of the padded input",
    },
}  # fmt: skip


#: Our name of a method → how ranges of activations and of weights are chosen. The quantizer's own moving average gives
#: each sample a weight of 5 %, and so forgets all but the last fifty or so: 78.0 % top-1 against 80.5 % (MobileNetV2, 400
#: images, p = 0.03; float 80.0 %). ``mse`` and ``octav`` look for the weight scale with the least squared error, OCTAV
#: by a formula.
_RANGES = {
    "min-max": ("minimum and maximum", "min-max"),
    "moving-average": ("moving average of minimum and maximum", "min-max"),
    "mse": ("minimum and maximum", "mse"),
    "octav": ("minimum and maximum", "octav"),
}


def recipe(scheme: str, target: str, options: QuantizationOptions = DEFAULTS) -> Recipe:
    """The same file for every target: int8 kernels of TFLite and XNNPACK do not saturate on any of them."""
    del target
    settings = {"input_layout": "NHWC", **_SETTINGS[scheme]}
    if scheme in INT8_SCHEMES:
        asked = resolve(options, "tflite", scheme)
        settings |= asked.settings()
        if asked.method is not None:
            settings["activation_ranges"], settings["weight_ranges"] = _RANGES[asked.method]
    return Recipe(ANY_TARGET, settings)


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
        details |= _quantize_static(float_model, source, recipe.settings, file)
    elif scheme == "int8-dynamic":
        details |= _quantize_dynamic(float_model, source, recipe.settings, file)
    else:
        _to_float16(float_model, file)
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


def _to_float16(float_model: Path, file: Path) -> None:
    """Weights change, activations stay float32, so nothing is calibrated."""
    from litert_quantizer import algorithm_manager, qtyping, quantizer

    tool = quantizer.Quantizer(str(float_model))
    half = qtyping.TensorQuantizationConfig(num_bits=16, dtype=qtyping.TensorDataType.FLOAT)
    tool.update_quantization_recipe(
        regex=".*",
        operation_name=qtyping.TFLOperationName.ALL_SUPPORTED,
        op_config=qtyping.OpQuantizationConfig(
            weight_tensor_config=half, compute_precision=qtyping.ComputePrecision.FLOAT, explicit_dequantize=True
        ),
        algorithm_key=algorithm_manager.AlgorithmName.FLOAT_CASTING,
    )
    _write(tool, None, file)


def _quantize_dynamic(float_model: Path, source: FloatSource, settings: dict[str, Any], file: Path) -> dict[str, Any]:
    from litert_quantizer import algorithm_manager, qtyping, quantizer
    from litert_quantizer.utils import tfl_flatbuffer_utils

    names, algorithms = qtyping.TFLOperationName, algorithm_manager.AlgorithmName
    tool = quantizer.Quantizer(str(float_model))
    tool.add_dynamic_config(".*", names.ALL_SUPPORTED, 8, _granularity(settings))
    # XNNPACK has no dynamically quantized depthwise kernel: one such layer in int8 breaks the graph into partitions
    # and runs on a slow kernel of TFLite's own (tensorflow/tensorflow#48751; MobileNetV2 here: 16 ms, against 9).
    tool.update_quantization_recipe(
        regex=".*", operation_name=names.DEPTHWISE_CONV_2D, algorithm_key=algorithms.NO_QUANTIZE
    )
    model = tfl_flatbuffer_utils.read_model(str(float_model))
    padded = [tfl_flatbuffer_utils.get_op_scope(operator, graph.tensors) for graph, operator in padded_input(model)]
    _leave_float(tool, padded)
    _keep_float(tool, float_model, source, settings)
    _write(tool, None, file)
    return {"convolutions_of_padded_input_in_float": len(padded)}


def _quantize_static(float_model: Path, source: FloatSource, settings: dict[str, Any], file: Path) -> dict[str, Any]:
    from litert_quantizer import algorithm_manager, qtyping, quantizer
    from litert_quantizer.utils import tfl_flatbuffer_utils

    statistics = _calibrate(float_model, source.calibration, settings)
    content = tfl_flatbuffer_utils.get_model_buffer(str(float_model))
    guarded = raise_dead_channels(tfl_flatbuffer_utils.read_model(memoryview(content)), statistics)
    tool = quantizer.Quantizer(content)
    names, granularity = qtyping.TFLOperationName, _granularity(settings)
    tool.add_static_config(".*", names.ALL_SUPPORTED, 8, 8, granularity)
    if settings["weight_ranges"] != "min-max":
        for operation in (names.CONV_2D, names.DEPTHWISE_CONV_2D, names.FULLY_CONNECTED):
            tool.add_static_config(".*", operation, 8, 8, granularity, settings["weight_ranges"].upper())
    for end in (names.INPUT, names.OUTPUT):
        tool.update_quantization_recipe(
            regex=".*", operation_name=end, algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE
        )
    _keep_float(tool, float_model, source, settings)
    _write(tool, statistics, file)
    lost = saturated_biases(tfl_flatbuffer_utils.read_model(str(file)))
    if lost:
        raise EdgeqError(
            f"{lost} biases of {file.name} do not fit 32 bits", "a channel's weights are too small beside its bias",
            "use int8-dynamic, or other weights", code="bias-overflow",
        )  # fmt: skip
    return {"calibration_samples": len(source.calibration), "bias_guarded_channels": guarded}


def _granularity(settings: dict[str, Any]) -> Any:
    from litert_quantizer import qtyping

    names = {"per-channel": "CHANNELWISE", "per-tensor": "TENSORWISE"}
    return qtyping.QuantGranularity(names[settings["granularity"]])


def _calibrate(float_model: Path, calibration: CalibrationSamples, settings: dict[str, Any]) -> dict[str, Any]:
    """Tensor name → its ``min`` and ``max``; one sample's activations are in memory at a time."""
    from litert_quantizer import calibrator, recipe_manager
    from litert_quantizer import recipe as recipes
    from litert_quantizer.utils import qsv_utils

    average = settings["activation_ranges"].startswith("moving average")
    tool = calibrator.Calibrator(
        str(float_model),
        num_threads=len(os.sched_getaffinity(0)),
        mode=calibrator.CalibrationMode.CALIBRATION_PRESERVE_ALL_TENSORS,
        qsv_update_func=qsv_utils.moving_average_update if average else qsv_utils.min_max_update,
    )
    everything = recipe_manager.RecipeManager()
    everything.load_quantization_recipe(recipes.static_wi8_ai8())
    tool.calibrate({_SIGNATURE: _Feed(calibration)}, everything)
    statistics: dict[str, Any] = tool.get_model_qsvs()
    return statistics


def _keep_float(tool: Any, float_model: Path, source: FloatSource, settings: dict[str, Any]) -> None:
    """Takes layers out of the recipe by the name of their operator's output, which the quantizer knows them by."""
    from litert_quantizer.utils import tfl_flatbuffer_utils

    kept = settings.get("kept_float", [])
    model = tfl_flatbuffer_utils.read_model(str(float_model)) if kept else None
    scopes = [
        tfl_flatbuffer_utils.get_op_scope(operator, graph.tensors)
        for graph in (model.subgraphs if model else ())
        for operator in graph.operators
        if _code(model, operator) in _CHANNEL_AXIS
    ]
    _leave_float(tool, nodes_of(kept, source.layers, scopes))


def _leave_float(tool: Any, scopes: Sequence[str]) -> None:
    from litert_quantizer import algorithm_manager, qtyping

    for scope in scopes:
        tool.update_quantization_recipe(
            regex=f"^{re.escape(scope)}$",
            operation_name=qtyping.TFLOperationName.ALL_SUPPORTED,
            algorithm_key=algorithm_manager.AlgorithmName.NO_QUANTIZE,
        )


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
_CONV, _PAD = 3, 34
_BIAS_LIMIT = 2.0**30
#: Multiply-adds a value of the padded input. Measured (2.3.0, one thread): in float MobileNetV2's first convolution, with
#: 72, saves 9 % of an inference, and DenseNet-121's, with 784, costs 2 %.
_SMALL = 256


def padded_input(model: Any) -> list[tuple[Any, Any]]:
    """Small convolutions that read the network's input through a PAD, each with its subgraph.

    XNNPACK pads inside a float32 or int8 convolution. Before one that quantizes its input at run time it runs PAD by
    itself, which for an image of three channels takes longer than the convolution.
    """
    found = []
    for graph in model.subgraphs:
        maker = {int(tensor): operator for operator in graph.operators for tensor in operator.outputs}
        for operator in graph.operators:
            pad = maker.get(int(operator.inputs[0])) if _code(model, operator) == _CONV else None
            if pad is None or _code(model, pad) != _PAD or int(pad.inputs[0]) not in graph.inputs:
                continue
            image, weights, output = (
                math.prod(graph.tensors[int(tensor)].shape)
                for tensor in (pad.inputs[0], operator.inputs[1], operator.outputs[0])
            )
            channels = graph.tensors[int(operator.outputs[0])].shape[-1]
            if output * weights / channels < _SMALL * image:
                found.append((graph, operator))
    return found


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
