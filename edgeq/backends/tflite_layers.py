"""Layer by layer what TFLite computes, by its own ``experimental_preserve_all_tensors``.

With it ai-edge-litert 2.3 still gives the operators to XNNPACK, each in a partition of its own; older runtimes take
their own kernels instead, whose integers may differ by one. ``LayerReport`` says where that shows in the logits.
"""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgeq.artifact import Manifest
from edgeq.backends.layers import Activations, Tap
from edgeq.backends.macs import Executed
from edgeq.backends.session import Array, SessionOptions
from edgeq.backends.tflite import TfliteSession, _interpreter_class
from edgeq.backends.tflite_graph import Node
from edgeq.installing import pip_install
from edgeq.spec.errors import EdgeqError

_MAC_OPS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")


def open_taps(manifest: Manifest, path: Path, options: SessionOptions, *, inputs: bool) -> TfliteTaps:
    """``edgeq.backends.layers.Opener``."""
    return TfliteTaps(manifest, path, options, inputs=inputs)


class TfliteTaps:
    """``edgeq.backends.layers.Taps``."""

    tool = "TFLite, experimental_preserve_all_tensors"

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions, *, inputs: bool) -> None:
        self._path, self._threads, self._inputs = path, options.threads, inputs
        self._session = TfliteSession(manifest, path, options)  # refuses what a session would refuse
        self._interpreter = _make(options.threads, model_path=str(path), experimental_preserve_all_tensors=True)
        self._tensors = {int(tensor["index"]): tensor for tensor in self._interpreter.get_tensor_details()}
        graph = self._session._graph()
        self._executed = graph.executed()
        self._nodes = [node for node in graph.originals if node.op in _MAC_OPS]
        self.layers: Sequence[Tap] = [self._tap(node) for node in self._nodes]
        self._alone: Any = None

    def _tap(self, node: Node) -> Tap:
        name, weight = (
            self._tensors[node.outputs[0]]["name"],
            tuple(int(n) for n in self._tensors[node.inputs[1]]["shape"]),
        )
        if node.op == "FULLY_CONNECTED":
            return Tap(name, "linear", weight)
        height, width = weight[1:3]
        if node.op == "DEPTHWISE_CONV_2D":  # [1, kh, kw, channels]
            return Tap(name, "conv", (weight[3], 1, height, width))
        return Tap(name, "conv", (weight[0], weight[3], height, width))

    def run(self, sample: Array) -> Activations:
        """``Taps.run``."""
        interpreter = self._interpreter
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], sample)
        interpreter.invoke()
        outputs = [self._float(node.outputs[0], interpreter) for node in self._nodes]
        inputs = [self._float(node.inputs[0], interpreter) for node in self._nodes] if self._inputs else []
        return Activations(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]), outputs, inputs)

    def _float(self, tensor: int, interpreter: Any) -> Array:
        return _dequantized(interpreter.get_tensor(tensor), self._tensors[tensor])

    def alone(self, inputs: Sequence[Array]) -> list[Array]:
        """``Taps.alone``: the layers cut apart, all in one model of as many inputs."""
        if self._alone is None:
            content = _cut(self._path, [node.outputs[0] for node in self._nodes])
            self._alone = _make(self._threads, model_content=content)
        interpreter = self._alone
        for details, value in zip(interpreter.get_input_details(), inputs, strict=True):
            interpreter.set_tensor(details["index"], _quantized(value, details))
        interpreter.invoke()
        return [_dequantized(interpreter.get_tensor(d["index"]), d) for d in interpreter.get_output_details()]

    def executed(self) -> list[Executed]:
        """``Taps.executed``."""
        return self._executed

    def close(self) -> None:
        self._alone = self._interpreter = None
        self._session.close()


def _make(threads: int, **arguments: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*experimental_preserve_all_tensors", category=UserWarning)
        interpreter = _interpreter_class()[0](num_threads=threads, **arguments)
        interpreter.allocate_tensors()
    return interpreter


def _scale(details: Any) -> tuple[np.float32, int]:
    """Of an activation: one for the tensor."""
    parameters = details["quantization_parameters"]
    return np.float32(parameters["scales"][0]), int(parameters["zero_points"][0])


def _dequantized(value: Any, details: Any) -> Array:
    if not np.issubdtype(value.dtype, np.integer):
        return np.asarray(value, np.float32)
    scale, zero = _scale(details)
    result: Array = (value.astype(np.float32) - np.float32(zero)) * scale
    return result


def _quantized(value: Array, details: Any) -> Any:
    """As TFLite's QUANTIZE does it: rounded half away from zero, and clipped."""
    dtype = np.dtype(details["dtype"])
    if not np.issubdtype(dtype, np.integer):
        return value.astype(dtype)
    scale, zero = _scale(details)
    scaled = value / scale
    limits = np.iinfo(dtype)
    rounded = np.trunc(scaled + np.copysign(np.float32(0.5), scaled)) + np.float32(zero)
    return np.clip(rounded, limits.min, limits.max).astype(dtype)


def _cut(path: Path, outputs: Sequence[int]) -> bytes:
    """A copy of the file that holds only the operators giving ``outputs`` (tensor numbers), in that order, each with an
    input of its own, and what makes its weights."""
    content, schema = path.read_bytes(), _schema()
    model = schema.ModelT.InitFromPackedBuf(content)
    for buffer in model.buffers:
        if buffer.offset > 1:  # the quantizer puts large constants behind the flatbuffer
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    graph = model.subgraphs[0]
    maker = {int(tensor): operator for operator in graph.operators for tensor in operator.outputs}
    inputs, kept = [], []
    for output in outputs:
        operator = maker[output]
        fed = copy.copy(graph.tensors[operator.inputs[0]])
        fed.buffer, fed.name = 0, b"edgeq:" + str(output).encode()
        graph.tensors.append(fed)
        inputs.append(len(graph.tensors) - 1)
        operator.inputs = [inputs[-1], *(int(tensor) for tensor in operator.inputs[1:])]
        kept += [maker[tensor] for tensor in operator.inputs[1:] if tensor in maker]  # a float16 weight's DEQUANTIZE
        kept.append(operator)
    graph.operators = list({id(operator): operator for operator in kept}.values())
    graph.inputs, graph.outputs = inputs, [int(output) for output in outputs]
    model.signatureDefs = None
    builder = schema.flatbuffers.Builder(path.stat().st_size + 4096)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _schema() -> Any:
    try:
        return importlib.import_module("ai_edge_litert.schema_py_generated")
    except ImportError as error:
        raise EdgeqError(
            "the layers of a TFLite file can't be cut apart here", f"{error}; only ai-edge-litert brings its schema",
            f"run: {pip_install('ai-edge-litert')}, or do this on the machine that exported the artifacts",
            code="not-installed",
        ) from error  # fmt: skip
