"""What OpenVINO's CPU plugin really executes, read from its runtime graph. Imports nothing of OpenVINO's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgeq.backends.macs import Executed, conv_macs, linear_macs

if TYPE_CHECKING:
    import openvino

_CONV, _LINEAR = ("Convolution",), ("FullyConnected", "MatMul")
_PRECISION = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "i8": "int8", "u8": "int8"}
#: Nodes that move or convert data: no arithmetic of the network's own.
_PLUMBING = ("Const", "Input", "Output", "Reorder", "Reshape", "Convert", "Transpose")


@dataclass(frozen=True)
class Node:
    """One node of the runtime graph; types as OpenVINO names them (``f32``, ``u8``), one an input."""

    kind: str
    primitive: str
    inputs: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output: str
    output_shape: tuple[int, ...]

    @property
    def layer(self) -> bool:
        return self.kind in _CONV + _LINEAR

    @property
    def compressed(self) -> bool:
        """Float activations times integer weights: decompressed in the kernel, or activations quantized there."""
        return self.kind in _LINEAR and self.inputs[0] == "f32" and self.inputs[1] in ("i8", "u8")

    def precision(self, dynamic: bool) -> str:
        """Precision of the multiplications: that of the activations. ``runtimePrecision`` would not do: for compressed
        weights it says ``u8`` though the product is taken in float."""
        if self.compressed and dynamic:
            return "int8"
        return _PRECISION.get(self.inputs[0], self.inputs[0])


def read(model: openvino.Model) -> list[Node]:
    """The nodes of ``CompiledModel.get_runtime_model()``, in execution order."""
    return [_node(op) for op in model.get_ordered_ops()]


def _node(op: openvino.Node) -> Node:
    info = op.get_rt_info()
    outputs = op.outputs()
    return Node(
        kind=info["layerType"].astype(str),
        primitive=info["primitiveType"].astype(str),
        inputs=tuple(port.get_element_type().get_type_name() for port in op.inputs()),
        input_shapes=tuple(_shape(port.get_partial_shape()) for port in op.inputs()),
        output=outputs[0].get_element_type().get_type_name() if outputs else "",
        output_shape=_shape(outputs[0].get_partial_shape()) if outputs else (),
    )


def _shape(shape: openvino.PartialShape) -> tuple[int, ...]:
    """Dimensions; 0 for one that is not fixed, so that a count with it can't pass for complete."""
    return tuple(dim.get_length() if dim.is_static else 0 for dim in shape)


def compressed(nodes: Sequence[Node]) -> list[Node]:
    """Linear layers whose integer weights meet float activations."""
    return [node for node in nodes if node.compressed]


def executed(nodes: Sequence[Node], dynamic: bool) -> list[Executed]:
    """The convolution and linear layers. ``dynamic``: compressed linear layers quantize their activations."""
    return [Executed(node.precision(dynamic), _macs(node)) for node in nodes if node.layer]


def _macs(node: Node) -> int:
    """For one sample: the leading dimension is the batch's."""
    output = node.output_shape[1:]
    if node.kind in _CONV:
        return conv_macs(output, node.input_shapes[1])
    return linear_macs(output, node.input_shapes[0][-1])


def primitives(nodes: Sequence[Node]) -> dict[str, int]:
    """Kernel names of the convolution and linear layers, and how often each is used."""
    return dict(sorted(Counter(node.primitive for node in nodes if node.layer).items()))


def float_ops(nodes: Sequence[Node], dynamic: bool) -> dict[str, int]:
    """Arithmetic nodes that compute in float, by kind; a node that only quantizes, float to integer, is not one."""
    counted = Counter(
        node.kind
        for node in nodes
        if node.kind not in _PLUMBING
        and node.inputs
        and node.inputs[0] in ("f32", "f16", "bf16")
        and node.output not in ("u8", "i8")
        and not (node.compressed and dynamic)
    )
    return dict(sorted(counted.items()))
