"""The float network's convolution and linear layers, in execution order, with their multiply-adds for one sample."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

from edgeq.artifact import Layer
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import ModelSpec

if TYPE_CHECKING:
    import torch

_Op = Literal["conv", "depthwise", "linear"]
_Hook = Callable[["torch.nn.Module", object, "torch.Tensor"], None]


def layers(module: torch.nn.Module, spec: ModelSpec) -> list[Layer]:
    """Runs one sample of zeros through ``module`` (in eval mode) and lists what it executed.

    A convolution does ``out elements * in_channels / groups * kernel elements`` multiply-adds, a linear
    layer ``out elements * in_features``; biases, pooling and batch norm count as none. A layer that runs again stands
    where it first ran, with all its multiply-adds.

    Raises:
        EdgeqError: their sum is not ``spec.macs`` (code ``macs-differ``): another network, or a wrong model.toml.
    """
    import torch

    found: dict[str, Layer] = {}
    with _recording(module, found), torch.inference_mode():
        module(torch.zeros(1, *spec.input_shape))
    total = sum(layer.macs for layer in found.values())
    if total != spec.macs:
        raise EdgeqError(
            f"{spec.name}: the network has {total:,} multiply-adds, model.toml says {spec.macs:,}",
            "the constructor builds another network than model.toml describes",
            f"correct source or macs in models/{spec.name}/model.toml",
            code="macs-differ",
        )
    return list(found.values())


@contextlib.contextmanager
def _recording(module: torch.nn.Module, found: dict[str, Layer]) -> Iterator[None]:
    import torch

    handles = []
    for name, layer in module.named_modules():
        if isinstance(layer, (torch.nn.modules.conv._ConvNd, torch.nn.Linear)):
            handles.append(layer.register_forward_hook(_recorder(name, found)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _recorder(name: str, found: dict[str, Layer]) -> _Hook:
    def record(layer: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        op, per_output = _cost(layer)
        before = found[name].macs if name in found else 0
        found[name] = Layer(name=name, op=op, macs=before + output.numel() * per_output)

    return record


def _cost(layer: torch.nn.Module) -> tuple[_Op, int]:
    """What the layer is, and its multiply-adds for one output element."""
    import torch

    if isinstance(layer, torch.nn.Linear):
        return "linear", layer.in_features
    assert isinstance(layer, torch.nn.modules.conv._ConvNd)
    kernel = 1
    for size in layer.kernel_size:
        kernel *= size
    depthwise = layer.groups == layer.in_channels > 1
    return "depthwise" if depthwise else "conv", layer.in_channels // layer.groups * kernel
