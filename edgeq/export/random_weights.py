"""Random weights made sane: activations of unit scale in every layer, and logits that depend on the sample.

A plain random network is no stand-in for a trained one: torchvision's MobileNetV2 puts out logits of 1e-9, so that
quantization scales degenerate and conversions fail. Here one forward pass over a few samples scales each layer by what
it puts out, in the manner of LSUV (Mishkin & Matas 2015, "All you need is a good init", arXiv 1511.06422).

Unit scale is not enough for a network on which quantization can be judged: rectifiers that halve their input make a
deep random network chaotic, so that any rounding grows from layer to layer, and depthwise kernels without a constant
part pass the rounding of smooth inputs and little else. So biases are ``LIFT``, not zero, and each depthwise kernel
gets a ``CONSTANT_PART``.
Simulated 8-bit weights and activations then leave 15 dB (MobileNetV2), 18 dB (VGG-19) and 19 dB (DenseNet-121) of
signal over error in the logits; without the two, MobileNetV2 keeps 3 dB.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgeq.data.samples import synthetic
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import ModelSpec

if TYPE_CHECKING:
    import torch

SAMPLES = 16
#: The mean of what a batch norm, or a layer with a bias, puts out: in standard deviations of the same.
LIFT = 1.0
#: Added to all weights of a depthwise kernel, in the direction of their mean: in standard deviations of the layer's.
CONSTANT_PART = 0.5
#: The samples' seed is the weights' plus this, so that calibrating by the same seed does not see the same samples.
SEED_OFFSET = 1_000_003


def make_sane(module: torch.nn.Module, spec: ModelSpec, seed: int) -> None:
    """Sets weights, biases and batch norm statistics of ``module`` (in eval mode), in place, by one forward pass.

    A convolution or linear layer is scaled so that what it puts out has unit standard deviation over the batch; if it
    has a bias, the bias centres each channel at ``LIFT``, and each logit at zero, so that what all samples share does
    not drown what differs. Batch norm's running statistics become those of the batch, its bias ``LIFT``. Each layer
    sees its predecessors' outputs as already corrected. The same seed gives the same weights on
    the same kind of machine.

    Raises:
        EdgeqError: a layer puts out a constant, or no finite numbers (code ``degenerate-weights``).
    """
    import torch

    samples = synthetic(spec, SAMPLES, seed + SEED_OFFSET)
    batch = torch.from_numpy(samples.load(range(SAMPLES), "NCHW"))
    scaled: list[torch.nn.Module] = []
    with torch.no_grad(), _one_thread():
        handles = [handle for layer in module.modules() for handle in _prepare(layer, scaled)]
        try:
            module(batch)
        finally:
            for handle in handles:
                handle.remove()
        if isinstance(bias := getattr(scaled[-1], "bias", None) if scaled else None, torch.Tensor):
            bias -= LIFT


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Sums taken in as many parts as there are threads round differently: the weights would hang on --threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _prepare(layer: torch.nn.Module, scaled: list[torch.nn.Module]) -> list[torch.utils.hooks.RemovableHandle]:
    """Hooks the correction of ``layer`` into the forward pass; none for a layer without weights."""
    import torch

    if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
        return [layer.register_forward_hook(_set_statistics)]
    if not isinstance(layer, (torch.nn.modules.conv._ConvNd, torch.nn.Linear)):
        return []
    if isinstance(layer, torch.nn.modules.conv._ConvNd) and layer.groups == layer.in_channels > 1:
        direction = torch.sign(layer.weight.mean(dim=tuple(range(2, layer.weight.ndim)), keepdim=True))
        layer.weight += CONSTANT_PART * layer.weight.std() * direction
    return [layer.register_forward_hook(functools.partial(_scale, scaled))]


def _scale(
    scaled: list[torch.nn.Module], layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor
) -> torch.Tensor:
    """Hook of a convolution or linear layer: corrects its weights, and returns what they would have put out."""
    import torch

    assert isinstance(layer, (torch.nn.modules.conv._ConvNd, torch.nn.Linear))
    scaled.append(layer)
    # Channels are dimension 1 of a convolution's output, the last one of a linear layer's.
    axis = output.ndim - 1 if isinstance(layer, torch.nn.Linear) else 1
    if layer.bias is not None:
        mean = output.mean(dim=[dim for dim in range(output.ndim) if dim != axis])
        layer.bias -= mean
        output = output - mean.reshape([-1 if dim == axis else 1 for dim in range(output.ndim)])
    std = float(output.std())
    # Neither zero nor NaN nor infinity can be divided by.
    if not 1e-20 < std < 1e20:
        raise EdgeqError(
            "cannot make the random weights sane",
            f"a {type(layer).__name__} puts out values of standard deviation {std}",
            "use another seed, or pass --weights FILE",
            code="degenerate-weights",
        )
    layer.weight /= std
    output = output / std
    if layer.bias is None:
        return output
    layer.bias.div_(std).add_(LIFT)
    return output + LIFT


def _set_statistics(layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor:
    """Hook of a batch norm: takes the batch's mean and variance, and returns what it puts out with them."""
    import torch

    assert isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
    (given,) = inputs
    if layer.bias is not None:
        layer.bias.fill_(LIFT)
    if layer.running_mean is not None and layer.running_var is not None:
        over = [dim for dim in range(given.ndim) if dim != 1]
        layer.running_mean.copy_(given.mean(dim=over))
        layer.running_var.copy_(given.var(dim=over, unbiased=False))
    return torch.nn.functional.batch_norm(
        given,
        layer.running_mean,
        layer.running_var,
        layer.weight,
        layer.bias,
        training=layer.running_mean is None,
        eps=layer.eps,
    )
