"""float32 network → frozen TorchScript, which loads with torch alone: no torchvision, no source of the network."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeq.artifact import ANY_TARGET, InputInfo
from edgeq.export.family import Built, FloatSource, Recipe
from edgeq.export.pytorch_int8 import quantize_static, quantized_engine, without_deprecations
from edgeq.export.pytorch_modules import with_own_modules
from edgeq.spec.quantization import DEFAULTS, INT8_SCHEMES, QuantizationOptions, resolve

if TYPE_CHECKING:
    import torch

TOOLS = ("torch",)

_STATIC = {
    "method": "FX graph mode", "weights": "int8, symmetric, -127 to 127",
    "relu6": "fused into the convolution",
}  # fmt: skip
#: What each target's int8 kernels can take. FBGEMM adds two u8 × s8 products in 16 bits where there is no VNNI:
#: activations of 7 bits keep that from saturating (trap 1), and depthwise layers, which lose most by it, stay in float
#: (MobileNetV2, real weights: 80.5 % top-1, against 74.5 % with them in int8; float has 82.5 %). With VNNI oneDNN is exact
#: in all layers. torch's x86 engine is not: depthwise layers of more than 100 channels go to FBGEMM, whose depthwise kernel
#: knows no VNNI (torch 2.14; MobileNetV2's logits 20.6 dB from float, by oneDNN 22.4, as by QNNPACK, which is exact too).
_STATIC_BY_TARGET: dict[str, dict[str, Any]] = {
    "x86_64": {"engine": "x86", "activation_bits": 7, "float_layers": "depthwise"},
    "x86_64-vnni": {"engine": "onednn", "activation_bits": 8, "float_layers": "none"},
    "aarch64": {"engine": "qnnpack", "activation_bits": 8, "float_layers": "none"},
}
_SETTINGS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "fp16": {"weights": "float16", "input_output": "float32, cast inside"},
    "int8-dynamic": {"method": "quantize_dynamic", "layers": "linear", "weights": "int8, symmetric"},
}


def recipe(scheme: str, target: str, options: QuantizationOptions = DEFAULTS) -> Recipe:
    """int8-static depends on the target's int8 kernels; the other files are the same for all."""
    form = {"form": "frozen TorchScript"}
    asked = resolve(options, "pytorch", scheme).settings() if scheme in INT8_SCHEMES else {}
    if scheme == "int8-static":
        return Recipe(target, {**form, **_STATIC, **_STATIC_BY_TARGET[target], **asked})
    return Recipe(ANY_TARGET, {**form, "memory_format": "channels_last", **_SETTINGS[scheme], **asked})


def build(source: FloatSource, scheme: str, recipe: Recipe, out: Path, name: str) -> Built:
    """Writes ``out/<name>.pt``: float32 NCHW in, float32 logits out, any batch size."""
    import torch

    file = out / f"{name}.pt"
    details = dict(recipe.settings)
    example = torch.zeros(1, *source.spec.input_shape)
    with without_deprecations(), torch.no_grad():
        if scheme == "int8-static":
            quantized, done = quantize_static(source.module, source.calibration, recipe.settings)
            details |= done
            with quantized_engine(recipe.settings["engine"]):
                script = torch.jit.trace(quantized, example, check_trace=False)
        else:
            script = _TRACERS[scheme](source.module, example, recipe.settings)
        torch.jit.save(torch.jit.freeze(script.eval()), str(file))
    return Built([file], InputInfo(shape=source.spec.input_shape, layout="NCHW"), details)


def _trace_fp32(module: torch.nn.Module, example: torch.Tensor, _: dict[str, Any]) -> torch.jit.ScriptModule:
    return _trace(_channels_last(copy.deepcopy(module)), example)


def _trace_dynamic(module: torch.nn.Module, example: torch.Tensor, settings: dict[str, Any]) -> torch.jit.ScriptModule:
    import torch
    from torch.ao.quantization import default_dynamic_qconfig, per_channel_dynamic_qconfig, quantize_dynamic

    how = per_channel_dynamic_qconfig if settings["granularity"] == "per-channel" else default_dynamic_qconfig
    layers = {
        name: how
        for name, layer in module.named_modules()
        if isinstance(layer, torch.nn.Linear) and name not in settings.get("kept_float", [])
    }
    with quantized_engine(_host_engine()):
        # Without any layer to quantize, None would stand for all of them.
        network = copy.deepcopy(module)
        quantized: torch.nn.Module = quantize_dynamic(network, layers, dtype=torch.qint8) if layers else network
        return _trace(_channels_last(quantized), example)


def _trace_fp16(module: torch.nn.Module, example: torch.Tensor, _: dict[str, Any]) -> torch.jit.ScriptModule:
    """Traces in float32 and halves the trace: a CPU without float16 arithmetic would take minutes for one inference."""
    import torch
    from torch.fx.experimental.optimization import fuse

    # Batch norm is folded while the weights are still float32; freezing would fold the halves of both.
    inner = _trace(fuse(with_own_modules(module)), example).half()

    class HalfInside(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner.to(memory_format=torch.channels_last)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            half = x.half().contiguous(memory_format=torch.channels_last)
            return self.inner(half).float()

    return torch.jit.script(HalfInside().eval())


_TRACERS = {"fp32": _trace_fp32, "fp16": _trace_fp16, "int8-dynamic": _trace_dynamic}


def _channels_last(module: torch.nn.Module) -> torch.nn.Module:
    """NCHW in as ever, computed as NHWC, for which oneDNN's kernels are faster (MobileNetV2: 10 ms, against 13)."""
    import torch

    inner = module.to(memory_format=torch.channels_last)

    class ChannelsLast(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x.contiguous(memory_format=torch.channels_last))

    return ChannelsLast().eval()


def _trace(module: torch.nn.Module, example: torch.Tensor) -> torch.jit.ScriptModule:
    import torch

    return torch.jit.trace(module, example, check_trace=False)


def _host_engine() -> str:
    """An engine that this build of torch has; the artifact holds weights unpacked, and a session packs them anew."""
    import torch

    return "x86" if "x86" in torch.backends.quantized.supported_engines else "qnnpack"
