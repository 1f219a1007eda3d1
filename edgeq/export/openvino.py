"""PyTorch module → OpenVINO IR; NNCF for both int8 schemes."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeq.artifact import ANY_TARGET, InputInfo
from edgeq.export.family import Built, FloatSource, Recipe, nodes_of
from edgeq.spec.quantization import DEFAULTS, QuantizationOptions, resolve

if TYPE_CHECKING:
    import openvino

TOOLS = ("openvino", "nncf", "torch")

#: Products of u8 and s8 saturate in 16 bits on x86 without VNNI. Measured there (AVX2 kernels, MobileNetV2, 744 images,
#: float 78.8 %), NNCF's fix, which holds weights to 7 bits: in the first layer 77.4 %, agreement with float 89 %; in
#: every layer 76.7 % and 83 %: the lost bit costs more than the saturation left (without a fix, on 300 of the images:
#: 6 points lost). With VNNI, and on aarch64, nothing saturates.
_OVERFLOW_FIX = {"x86_64": "first_layer_only", "x86_64-vnni": "disable", "aarch64": "disable"}


#: Our name of a method → NNCF's of its range estimator for activations. ``mean-min-max`` is what NNCF does unasked: the
#: mean over the images for ranges of a whole tensor, the extremes for those of depthwise layers, one a channel. Asked
#: for by name it would take the mean of these too, and lose 14 points (MobileNetV2: 66 % against 80 %). ``mse`` takes
#: the range with the least error of quantization over a histogram, ``percentile`` the mean over the images of each
#: one's 0.01 % quantiles.
_ESTIMATORS = {
    "min-max": "MINMAX", "median-min-max": "MEDIAN_MINMAX",
    "percentile": "MEAN_QUANTILE", "mse": "HISTOGRAM",
}  # fmt: skip


def recipe(scheme: str, target: str, options: QuantizationOptions = DEFAULTS) -> Recipe:
    """How ``scheme`` is made for ``target``; only int8-static depends on it. Imports no framework."""
    common: dict[str, Any] = {"batch": 1}
    if scheme == "int8-static":
        asked = resolve(options, "openvino", scheme)
        return Recipe(
            target,
            common
            | {
                "method": "nncf.quantize",
                "preset": "mixed",
                "overflow_fix": _OVERFLOW_FIX[target],
                "weights": f"symmetric {asked.granularity.replace('-', ' ')}",
                "fast_bias_correction": True,
            }
            | asked.settings(),
        )
    if scheme == "int8-dynamic":
        # Symmetric, not the asymmetric default: on MobileNetV2 78.3 % against 77.0 %, and a third faster, because
        # nothing is subtracted when convolution weights are decompressed, which the plugin does in each inference.
        asked = resolve(options, "openvino", scheme)
        method = {"method": "nncf.compress_weights", "mode": "int8_sym"}
        return Recipe(ANY_TARGET, common | method | asked.settings())
    return Recipe(ANY_TARGET, common | {"method": "save_model", "compress_to_fp16": scheme == "fp16"})


def build(source: FloatSource, scheme: str, recipe: Recipe, out: Path, name: str) -> Built:
    """Writes ``out/<name>.xml`` and ``out/<name>.bin``, a model of one float32 NCHW sample.

    Raises whatever OpenVINO or NNCF raise.
    """
    import openvino

    model = openvino.Core().read_model(_float_ir(source))
    if scheme == "int8-static":
        model = _quantize(model, source, recipe.settings)
    elif scheme == "int8-dynamic":
        model = _compress(model, source, recipe.settings)
    xml = out / f"{name}.xml"
    openvino.save_model(model, xml, compress_to_fp16=scheme == "fp16")
    details = _counts(openvino.Core().read_model(xml))
    return Built([xml, xml.with_suffix(".bin")], InputInfo(shape=source.spec.input_shape, layout="NCHW"), details)


def _float_ir(source: FloatSource) -> Path:
    """The float32 IR of the network, converted once a model."""
    import openvino
    import torch

    xml = source.work / "float.xml"
    if xml.is_file():
        return xml
    shape = (1, *source.spec.input_shape)
    with _quiet():
        model = openvino.convert_model(source.module, example_input=torch.zeros(shape), input=[shape])
    partial = source.work / "partial.xml"
    openvino.save_model(model, partial, compress_to_fp16=False)
    partial.with_suffix(".bin").replace(xml.with_suffix(".bin"))
    return partial.replace(xml)


def _quantize(model: openvino.Model, source: FloatSource, settings: dict[str, Any]) -> openvino.Model:
    with _quiet():
        import nncf
        from nncf.quantization.advanced_parameters import QuantizationParameters
        from nncf.quantization.range_estimator import RangeEstimatorParametersSet

        advanced = nncf.AdvancedQuantizationParameters(overflow_fix=nncf.OverflowFix(settings["overflow_fix"]))
        estimator = _ESTIMATORS.get(settings["calibration_method"])
        if estimator is not None:
            advanced.activations_range_estimator_params = getattr(RangeEstimatorParametersSet, estimator)
        if settings["granularity"] == "per-tensor":
            advanced.weights_quantization_params = QuantizationParameters(per_channel=False)
        return nncf.quantize(
            model,
            nncf.Dataset(source.calibration, lambda sample: sample[None]),
            preset=nncf.QuantizationPreset(settings["preset"]),
            target_device=nncf.TargetDevice.CPU,
            subset_size=len(source.calibration),
            fast_bias_correction=settings["fast_bias_correction"],
            ignored_scope=_ignored(model, source, settings),
            advanced_parameters=advanced,
        )


def _compress(model: openvino.Model, source: FloatSource, settings: dict[str, Any]) -> openvino.Model:
    with _quiet():
        import nncf

        mode = nncf.CompressWeightsMode(settings["mode"])
        return nncf.compress_weights(model, mode=mode, ignored_scope=_ignored(model, source, settings))


_WEIGHTED = ("Convolution", "GroupConvolution", "MatMul")


def _ignored(model: openvino.Model, source: FloatSource, settings: dict[str, Any]) -> Any:
    """NNCF's scope of the layers kept in float; None where none is."""
    import nncf

    kept = settings.get("kept_float", [])
    nodes = [op.get_friendly_name() for op in model.get_ordered_ops() if op.get_type_name() in _WEIGHTED]
    return nncf.IgnoredScope(names=nodes_of(kept, source.layers, nodes)) if kept else None


def _counts(model: openvino.Model) -> dict[str, Any]:
    """What was written, for the manifest: fake-quantize nodes, and bytes of constants in each type."""
    stored: Counter[str] = Counter()
    nodes: Counter[str] = Counter()
    for op in model.get_ops():
        nodes[op.get_type_name()] += 1
        if op.get_type_name() == "Constant":
            stored[op.get_output_element_type(0).get_type_name()] += op.get_byte_size()
    return {"fake_quantize": nodes["FakeQuantize"], "constant_bytes": dict(sorted(stored.items()))}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the tools' own talk out of the terminal: NNCF's progress bars on standard output, where a command may be
    printing JSON; its log; torch's word on a missing CUDA and on the age of ``jit.trace``, which OpenVINO calls."""
    loggers = [logging.getLogger(name) for name in ("nncf", "torch.utils.cpp_extension")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
