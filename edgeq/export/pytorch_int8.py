"""Static INT8 by ``torch.ao.quantization`` FX, with ReLU6 fused into the convolution before it.

FX fuses conv+BN+ReLU but knows no ReLU6: it would observe a convolution's output before the clamp, and spend most of
the 8-bit grid on values that the clamp then throws away (MobileNetV2, real weights: 67 % top-1 where float has 82.5 %).
Here a ReLU takes the ReLU6's place, and the observer after it clamps to 6 while it calibrates; in the quantized network
the grid, which ends at or below 6, does the same by saturation (83 %).
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edgeq.export.family import CalibrationSamples
from edgeq.export.pytorch_modules import with_own_modules

if TYPE_CHECKING:
    import torch

#: Beginnings of the warnings by which torch announces that its own, still only, way to do this will go away.
DEPRECATIONS = (
    r"torch\.ao\.quantization is deprecated",
    r"`?torch\.jit\.\w+`? is (deprecated|not supported)",
    r"Please use quant_min and quant_max to specify the range for observers",
    r"must run observer before calling calculate_qparams",
    r"torch\.quantize_per_tensor, torch\.quantize_per_channel and other",
    r"Converting a tensor to a Python float might cause the trace",  # scales and zero points: constants indeed
)


@contextlib.contextmanager
def without_deprecations() -> Iterator[None]:
    """Silences ``DEPRECATIONS``, and nothing else."""
    with warnings.catch_warnings():
        for message in DEPRECATIONS:
            warnings.filterwarnings("ignore", message=message)
        yield


@contextlib.contextmanager
def quantized_engine(name: str) -> Iterator[None]:
    """Sets torch's quantized engine (weights are packed for it), and the former one again at the end."""
    import torch

    former = torch.backends.quantized.engine
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = former


def quantize_static(
    module: torch.nn.Module, calibration: CalibrationSamples, settings: dict[str, Any]
) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The INT8 form of a float32 network in eval mode, and what was done to it.

    Args:
        module: Left as it is.
        calibration: Samples ``[C, H, W]``, run ``_BATCH`` at a time.
        settings: ``engine``, ``activation_bits`` (7 or 8), ``float_layers`` (``none`` or ``depthwise``),
            ``calibration_method``, ``granularity`` and, where there are any, ``kept_float`` of the recipe.
    """
    import torch
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    network = copy.deepcopy(with_own_modules(module))
    in_float = _depthwise(network) if settings["float_layers"] == "depthwise" else []
    in_float += [name for name in settings.get("kept_float", []) if name not in in_float]
    fused = _fuse_relu6(network, set(in_float))
    mapping = _mapping(network, fused, in_float, settings)
    example = torch.from_numpy(next(iter(calibration))).unsqueeze(0)
    with quantized_engine(settings["engine"]), without_deprecations(), torch.no_grad():
        prepared = prepare_fx(network, mapping, (example,))
        for batch in _batches(calibration):
            prepared(torch.from_numpy(batch))
        quantized = convert_fx(prepared)
    return quantized, {
        "calibration_samples": len(calibration),
        "relu6_fused": len(fused),
        "float_layer_names": in_float,
    }


#: A histogram is merged with the one before it at every call, which costs more than the inference of one sample.
_BATCH = 16


def _batches(samples: CalibrationSamples) -> Iterator[npt.NDArray[np.float32]]:
    held: list[npt.NDArray[np.float32]] = []
    for sample in samples:
        held.append(sample.copy())  # the samples may share one buffer
        if len(held) == _BATCH:
            yield np.stack(held)
            held = []
    if held:
        yield np.stack(held)


#: Our name of a method → torch's observer. The histogram observer looks for the range with the least squared error
#: of quantization; the moving average gives each batch a weight of 1 %.
_OBSERVERS = {"mse": "HistogramObserver", "min-max": "MinMaxObserver", "moving-average": "MovingAverageMinMaxObserver"}


def _mapping(network: torch.nn.Module, fused: set[str], in_float: list[str], settings: dict[str, Any]) -> Any:
    """One qconfig for all, a clamping observer after each fused ReLU6, and none for the layers kept in float."""
    import torch
    from torch.ao.quantization import QConfig, QConfigMapping

    levels: dict[str, Any] = {"dtype": torch.quint8, "quant_min": 0, "quant_max": 2 ** settings["activation_bits"] - 1}
    observer = getattr(torch.ao.quantization, _OBSERVERS[settings["calibration_method"]])
    weight = _weight_observer(settings["granularity"])
    mapping = QConfigMapping().set_global(QConfig(activation=observer.with_args(**levels), weight=weight))
    clamping = QConfig(activation=_clamping(observer).with_args(**levels), weight=weight)
    for name in fused:
        mapping.set_module_name(name, clamping)
    for name in in_float:
        for part in (name, *_followers(network, name)):
            mapping.set_module_name(part, None)
    return mapping


def _weight_observer(granularity: str) -> Any:
    import torch
    from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver

    # -128 is left unused: with it the grid of a symmetric range is not the one that TFLite and ONNX Runtime use, and
    # weights that were once int8 (as QAT's are) fall between its steps.
    levels = {"dtype": torch.qint8, "quant_min": -127, "quant_max": 127}
    if granularity == "per-channel":
        return PerChannelMinMaxObserver.with_args(**levels, qscheme=torch.per_channel_symmetric)
    return MinMaxObserver.with_args(**levels, qscheme=torch.per_tensor_symmetric)


def _clamping(observer: Any) -> Any:
    """A class made when torch is there: what it passes on, and what it observes, is the output of ReLU6."""

    class ClampingObserver(observer):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.clamp(max=6.0))

    return ClampingObserver


def _depthwise(network: torch.nn.Module) -> list[str]:
    import torch

    return [
        name
        for name, layer in network.named_modules()
        if isinstance(layer, torch.nn.Conv2d) and 1 < layer.groups == layer.in_channels
    ]


def _fuse_relu6(network: torch.nn.Module, leave: set[str]) -> set[str]:
    """Puts a ReLU where a ReLU6 follows a convolution (and its batch norm); returns those convolutions' names.

    A ReLU6 anywhere else, or shared by several convolutions, or after a layer in ``leave``, stays.
    """
    import torch

    follows = _chains(network, torch.nn.ReLU6)
    shared = {name for name in follows.values() if list(follows.values()).count(name) > 1}
    found = set()
    for convolution, activation in follows.items():
        if convolution in leave or activation in shared:
            continue
        parent, _, leaf = activation.rpartition(".")
        setattr(network.get_submodule(parent), leaf, torch.nn.ReLU().eval())
        found.add(convolution)
    return found


def _followers(network: torch.nn.Module, convolution: str) -> list[str]:
    """The batch norm and the activation that only a convolution's output goes through; they stay in float with it."""
    import torch

    chain = _chains(network, (torch.nn.ReLU6, torch.nn.ReLU)).get(convolution)
    norm = _chains(network, torch.nn.BatchNorm2d).get(convolution)
    return [name for name in (norm, chain) if name is not None]


def _chains(network: torch.nn.Module, kind: Any) -> dict[str, str]:
    """Convolution → the module of ``kind`` fed by it, directly or through its batch norm, by the traced graph."""
    import torch

    modules = dict(network.named_modules())
    found: dict[str, str] = {}
    for node in torch.fx.symbolic_trace(network).graph.nodes:
        if node.op != "call_module" or not isinstance(modules[node.target], kind):
            continue
        source: Any = node.args[0]
        if _is(source, modules, torch.nn.BatchNorm2d) and len(source.users) == 1:
            source = source.args[0]
        if _is(source, modules, torch.nn.Conv2d) and len(source.users) == 1:
            found[source.target] = node.target
    return found


def _is(node: Any, modules: dict[str, Any], kind: Any) -> bool:
    return getattr(node, "op", "") == "call_module" and isinstance(modules[node.target], kind)
