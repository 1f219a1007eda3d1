"""What a TFLite interpreter really runs, read from its node list: delegated nodes, and MACs by executed precision.

An interpreter lists its original nodes and, after a delegate has taken some, one ``DELEGATE`` node a partition beside
them. Plain data in, plain data out: no framework here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeq.backends.macs import Executed

DELEGATE = "DELEGATE"
_MAC_OPS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")
_INTEGERS = {"int8": "int8", "uint8": "int8", "int16": "int16"}


@dataclass(frozen=True)
class Tensor:
    """Shape, numpy type name, and number of quantization scales (more than 1: one a channel) of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    scales: int = 0


@dataclass(frozen=True)
class Node:
    """One operator; ``inputs`` and ``outputs`` are tensor numbers."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Graph:
    """An interpreter's nodes and tensors."""

    nodes: tuple[Node, ...]
    tensors: Mapping[int, Tensor]

    @property
    def originals(self) -> tuple[Node, ...]:
        """The model's own nodes, whether or not a delegate runs them."""
        return tuple(node for node in self.nodes if node.op != DELEGATE)

    def delegated(self) -> tuple[Node, ...]:
        """The model's nodes that delegates run: from each partition's outputs back to its inputs."""
        producer = {tensor: node for node in self.originals for tensor in node.outputs}
        found: dict[int, Node] = {}
        for partition in (node for node in self.nodes if node.op == DELEGATE):
            pending, stop = list(partition.outputs), set(partition.inputs)
            while pending:
                tensor = pending.pop()
                node = producer.get(tensor)
                if tensor in stop or node is None or id(node) in found:
                    continue
                found[id(node)] = node
                pending += node.inputs
        return tuple(node for node in self.originals if id(node) in found)

    def executed(self) -> list[Executed]:
        """Convolutions and linear layers, with the precision that computes each, and the multiply-adds for one sample.

        The leading dimension is the batch's and not counted: of an interpreter that was resized, tensors inside a delegate's
        partition go on telling the size in the file.
        """
        layers = [node for node in self.originals if node.op in _MAC_OPS]
        return [Executed(self._precision(node), self._node_macs(node)) for node in layers]

    def has_per_channel_hybrid_linear(self) -> bool:
        """True where a linear layer has float activations and int8 weights with one scale a channel."""
        return any(
            node.op == "FULLY_CONNECTED"
            and self.tensors[node.inputs[0]].dtype == "float32"
            and self.tensors[node.inputs[1]].dtype == "int8"
            and self.tensors[node.inputs[1]].scales > 1
            for node in self.originals
        )

    def float_ops(self) -> dict[str, int]:
        """Operators that compute in float beside quantized ones, by type; empty where nothing is quantized."""
        integer = {id(node) for node in self.originals if self._is_integer(node)}
        if not integer:
            return {}
        return dict(
            Counter(
                node.op
                for node in self.originals
                if id(node) not in integer and node.op not in _CONVERSIONS and self._gives_float(node)
            )
        )

    def _precision(self, node: Node) -> str:
        """Activations of an integer type, or integer weights under float activations, compute in integers.

        The second is TFLite's "hybrid" kernel, or XNNPACK's qd8 one: both quantize the activations when they run.
        Weights that a DEQUANTIZE node widens reach the operator as float32, and compute as such.
        """
        data, weights = (self.tensors[index].dtype for index in node.inputs[:2])
        if data in _INTEGERS:
            return _INTEGERS[data]
        if weights in _INTEGERS:
            return _INTEGERS[weights]
        return {"float32": "fp32", "float16": "fp16"}.get(data, data)

    def _is_integer(self, node: Node) -> bool:
        if node.op in _MAC_OPS:
            return self._precision(node) in _INTEGERS.values()
        return node.op not in _CONVERSIONS and any(self.tensors[t].dtype in _INTEGERS for t in node.outputs)

    def _gives_float(self, node: Node) -> bool:
        return any(self.tensors[t].dtype in ("float32", "float16") for t in node.outputs)

    def _node_macs(self, node: Node) -> int:
        weights, output = self.tensors[node.inputs[1]].shape, self.tensors[node.outputs[0]].shape[1:]
        if node.op == "DEPTHWISE_CONV_2D":  # weights [1, kh, kw, channels]
            return math.prod(output) * weights[1] * weights[2]
        return math.prod(output) * math.prod(weights[1:])  # [out, kh, kw, in a group] or [out, in]


def read_graph(ops: Iterable[Mapping[str, Any]], tensors: Iterable[Mapping[str, Any]]) -> Graph:
    """Builds a ``Graph`` from ``Interpreter._get_ops_details()`` and ``Interpreter.get_tensor_details()``."""
    return Graph(
        nodes=tuple(Node(str(op["op_name"]), _indices(op["inputs"]), _indices(op["outputs"])) for op in ops),
        tensors={int(tensor["index"]): _tensor(tensor) for tensor in tensors},
    )


def _tensor(details: Mapping[str, Any]) -> Tensor:
    dtype = details["dtype"]
    scales = details.get("quantization_parameters", {}).get("scales", ())
    return Tensor(tuple(int(n) for n in details["shape"]), str(getattr(dtype, "__name__", dtype)), len(scales))


def _indices(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values if int(value) >= 0)  # -1 stands for an optional input left out
