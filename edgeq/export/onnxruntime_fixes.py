"""ONNX graphs: what ONNX Runtime's quantizer leaves to be done or checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edgeq.spec.errors import EdgeqError

if TYPE_CHECKING:
    import onnx


def weighted(model: onnx.ModelProto) -> list[str]:
    """Names of the convolutions and matrix products with constant weights, in execution order."""
    constants = {tensor.name for tensor in model.graph.initializer}
    return [
        node.name
        for node in model.graph.node
        if node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in constants
    ]


def depthwise(model: onnx.ModelProto) -> list[str]:
    """Names of the convolutions with groups."""
    return [
        node.name
        for node in model.graph.node
        if node.op_type == "Conv" and any(attr.name == "group" and attr.i > 1 for attr in node.attribute)
    ]


def batch_norms(model: onnx.ModelProto) -> list[str]:
    """Names of the batch norms that no convolution could take up."""
    return [node.name for node in model.graph.node if node.op_type == "BatchNormalization"]


def norms_to_convolutions(model: onnx.ModelProto) -> int:
    """Batch norms that no convolution could take up become depthwise convolutions of one tap, which quantize.

    ONNX Runtime has no integer batch norm: in float each costs two conversions of type and two of layout, together with
    itself half of what DenseNet-121's convolutions take in int8. With one scale a channel the weight of each is exact.

    Returns:
        How many were replaced; one whose factors are not constant is left.
    """
    import onnx
    from onnx import helper, numpy_helper

    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    replaced = 0
    for node in model.graph.node:
        if node.op_type != "BatchNormalization" or not all(name in constants for name in node.input[1:]):
            continue
        gamma, beta, mean, variance = (numpy_helper.to_array(constants[name]) for name in node.input[1:])
        epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), 1e-5)
        factor = gamma / np.sqrt(variance + np.float32(epsilon))
        values = {f"{node.name}_weight": factor.reshape(-1, 1, 1, 1), f"{node.name}_bias": beta - mean * factor}
        model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
        inputs = [node.input[0], *values]
        node.CopyFrom(
            helper.make_node("Conv", inputs, [node.output[0]], node.name, group=len(gamma), kernel_shape=[1, 1])
        )
        replaced += 1
    used = {name for node in model.graph.node for name in node.input}
    kept = [onnx.TensorProto.FromString(t.SerializeToString()) for t in model.graph.initializer if t.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return replaced


def shield(model: onnx.ModelProto, names: list[str]) -> None:
    """Keeps nodes that were left out of a QDQ graph from being quantized by the session that loads it.

    A float convolution or linear layer between DequantizeLinear and QuantizeLinear gets int8 weights, one scale a
    tensor, when the graph is optimized (the transformer WeightBiasQuantization). A Clip without an upper bound, and with
    the lowest float as its lower one, changes no value and hides the DequantizeLinear.
    """
    import onnx
    from onnx import helper, numpy_helper

    lowest = "edgeq_lowest_float"
    dequantized = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    nodes = []
    for node in model.graph.node:
        if node.name in names and node.input[0] in dequantized:
            hidden = f"{node.name}_input"
            nodes.append(helper.make_node("Clip", [node.input[0], lowest], [hidden], f"{node.name}_shield"))
            node.input[0] = hidden
        nodes.append(node)
    if len(nodes) == len(model.graph.node):
        return
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    model.graph.initializer.append(numpy_helper.from_array(np.array(np.finfo(np.float32).min), lowest))


def weights_to_uint8(model: onnx.ModelProto) -> int:
    """Moves every int8 weight of a QDQ graph by 128, with its zero point: the same real values, stored as uint8.

    ONNX Runtime's own uint8 weights lie on a grid of 255 steps about 127.5, which is no zero point; on weights that
    fit 254 steps this costs 3 points (MobileNetV2: 76.7 % against 79.7 %), and on others never gains.

    Returns:
        How many weights were moved.
    """
    import onnx
    from onnx import numpy_helper

    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    moved: set[str] = set()
    weights = 0
    for node in model.graph.node:
        weight = initializers.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if weight is None or weight.data_type != onnx.TensorProto.INT8:
            continue
        weights += 1
        for name in {node.input[0], node.input[2]} - moved:
            values = numpy_helper.to_array(initializers[name]).astype(np.int16) + 128
            initializers[name].CopyFrom(numpy_helper.from_array(values.astype(np.uint8), name))
            moved.add(name)
    return weights


def weights_to_float16(model: onnx.ModelProto) -> int:
    """Stores every float32 initializer as float16 behind a Cast to float32, which ONNX Runtime folds when it loads the file.

    Returns:
        How many tensors stay float32, because float16 can't hold one of their values.
    """
    import onnx
    from onnx import helper, numpy_helper

    left, casts = 0, []
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        values = numpy_helper.to_array(tensor)
        if values.size and np.abs(values).max() > np.finfo(np.float16).max:
            left += 1
            continue
        name, half = tensor.name, f"{tensor.name}_float16"
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), half))
        casts.append(helper.make_node("Cast", [half], [name], f"{name}_widened", to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *(onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node)]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return left


def largest_bias(model: onnx.ModelProto) -> int:
    """The largest int32 bias of a QDQ graph, as a magnitude.

    Raises:
        EdgeqError: a bias reached the end of int32 (code ``bias-overflow``): its scale is too small, and the layer's
            output wrong (microsoft/onnxruntime#11415).
    """
    import onnx
    from onnx import numpy_helper

    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    largest = 0
    for node in model.graph.node:
        bias = initializers.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
        if bias is None or bias.data_type != onnx.TensorProto.INT32:
            continue
        largest = max(largest, int(np.abs(numpy_helper.to_array(bias).astype(np.int64)).max(initial=0)))
        if largest >= np.iinfo(np.int32).max:
            raise EdgeqError(
                f"the bias {node.input[0]} does not fit in int32",
                "the scale of its weights is too small for it",
                "calibrate with other images, or leave this scheme out: --scheme fp32",
                code="bias-overflow",
            )
    return largest
