"""What a TorchScript graph computes, and in which precision: its convolutions and linear layers in execution order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgeq.artifact import Layer
from edgeq.backends.macs import Executed, shares, unaccounted
from edgeq.spec.note import Note

_FLOAT_LAYERS = {
    "aten::conv2d": "conv", "aten::_convolution": "conv", "aten::convolution": "conv",
    "prim::mkldnn_convolution": "conv", "mkldnn::_convolution_pointwise": "conv", "aten::linear": "linear",
    "aten::addmm": "linear", "mkldnn::_linear_pointwise": "linear",
}  # fmt: skip
#: Where each kind's weights stand among its inputs (1 for all others).
_WEIGHTS = {"aten::addmm": 2}
#: Operators that move or describe values and compute none.
_MOVES = {
    "aten::contiguous", "aten::dequantize", "aten::detach", "aten::dropout", "aten::dropout_", "aten::feature_dropout",
    "aten::flatten", "aten::permute", "aten::quantize_per_tensor", "aten::reshape", "aten::t", "aten::to",
    "aten::transpose", "aten::unsqueeze", "aten::view",
}  # fmt: skip
_PRECISIONS = {"torch.float32": "fp32", "torch.float16": "fp16", "torch.bfloat16": "bf16", "torch.float64": "fp64"}


@dataclass(frozen=True)
class Found:
    """One convolution or linear layer of a graph."""

    kind: str
    """``conv`` or ``linear``."""
    precision: str
    """``fp32``, ``fp16``, ``int8`` …, or ``unknown`` where its weights are not a constant of the graph."""


@dataclass(frozen=True)
class Contents:
    """A graph's layers in execution order, and its operators that compute in float, by type."""

    layers: tuple[Found, ...]
    float_ops: dict[str, int]


def read_graph(graph: Any) -> Contents:
    """Walks a frozen, inlined ``torch._C.Graph``, which lists its nodes in execution order."""
    layers: list[Found] = []
    floats: Counter[str] = Counter()
    quantized: set[str] = set()
    for node in graph.nodes():
        kind = node.kind()
        if kind.startswith("quantized::"):
            if kind.split("::")[1].startswith(("conv", "linear")):
                layers.append(Found("conv" if "conv" in kind else "linear", _quantized_precision(kind)))
            if not _gives_float(kind):
                quantized.update(value.debugName() for value in node.outputs())
            continue
        if kind in _FLOAT_LAYERS:
            layers.append(Found(_FLOAT_LAYERS[kind], _precision_of_weights(node)))
        if kind == "aten::quantize_per_tensor" or (kind != "aten::dequantize" and _takes(node, quantized)):
            quantized.update(value.debugName() for value in node.outputs())
        elif _computes(node):
            floats[kind.split("::")[1]] += 1
    return Contents(tuple(layers), dict(floats))


def macs_by_precision(found: Sequence[Found], layers: Sequence[Layer]) -> tuple[dict[str, float], tuple[Note, ...]]:
    """The share of multiply-adds in each precision; a note where the two lists are not the same layers in order.

    Where they do not match, no multiply-add can be ascribed to a precision: all of them are ``unknown``.
    """
    expected = ["linear" if layer.op == "linear" else "conv" for layer in layers]
    if [layer.kind for layer in found] != expected:
        why = (
            f"the graph has {len(found)} convolution and linear operators, the model {len(layers)}, or in another order"
        )
        return {"unknown": 1.0}, (unaccounted(why),)
    pairs = zip(found, layers, strict=True)
    return shares([Executed(layer.precision, expectation.macs) for layer, expectation in pairs], layers)


def _gives_float(kind: str) -> bool:
    return "dynamic" in kind or kind.endswith("_output_fp32")


def _quantized_precision(kind: str) -> str:
    return "fp16" if kind.endswith(("_fp16", "_fp16_unpacked_weight")) else "int8"


def _precision_of_weights(node: Any) -> str:
    source = list(node.inputs())[_WEIGHTS.get(node.kind(), 1)].node()
    if source.kind() == "aten::t":
        source = next(source.inputs()).node()
    if source.kind() != "prim::Constant":
        return "unknown"
    dtype = str(source.output().toIValue().dtype)
    return _PRECISIONS.get(dtype, dtype)


def _takes(node: Any, quantized: set[str]) -> bool:
    """True where the node works on quantized values; a list of tensors (for a concatenation) counts as its members."""
    return any(value.debugName() in quantized for value in node.inputs())


def _computes(node: Any) -> bool:
    kind = node.kind()
    is_operator = kind.startswith(("aten::", "mkldnn::")) or kind == "prim::mkldnn_convolution"
    return is_operator and kind not in _MOVES and any("Tensor" in str(value.type()) for value in node.outputs())
