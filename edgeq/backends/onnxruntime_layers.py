"""Layer by layer what ONNX Runtime computes: outputs added at the layers of a copy of the graph.

As ``onnxruntime.quantization.qdq_loss_debug`` does it, but that tool adds every tensor as an output, runs without graph
optimisations (another graph than the measured one) and keeps all activations of all samples. Here the options are the
session's own. In a QDQ graph a layer is read by a ``DequantizeLinear`` of its own behind the layer's
``QuantizeLinear``, so that the layer is still fused to one integer operator; elsewhere behind its clamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeq.artifact import Manifest
from edgeq.backends import onnxruntime_profile
from edgeq.backends.layers import Activations, Tap
from edgeq.backends.macs import Executed
from edgeq.backends.onnxruntime import OnnxRuntimeSession, session_options
from edgeq.backends.session import Array, SessionOptions
from edgeq.installing import pip_install
from edgeq.spec.errors import EdgeqError

if TYPE_CHECKING:
    import onnx
    import onnxruntime

#: Operator → where its weight stands among its inputs. Files hold these; QLinear operators are made when one is loaded.
_CONV, _LINEAR = {"Conv": 1, "ConvInteger": 1}, {"Gemm": 1, "MatMul": 1, "MatMulInteger": 1}
_CLAMPS = ("Relu", "Clip")
#: What may stand between a layer and the tensor that is quantized for it.
_MOVES = (
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "Cast", "Flatten", "Reshape", "Squeeze", "Unsqueeze",
    "Transpose", "MaxPool", "Identity",
)  # fmt: skip
_OWN = "edgeq:"
_FLOAT, _FLOAT16 = 1, 10  # of onnx.TensorProto


def open_taps(manifest: Manifest, path: Path, options: SessionOptions, *, inputs: bool) -> OnnxRuntimeTaps:
    """``edgeq.backends.layers.Opener``."""
    return OnnxRuntimeTaps(manifest, path, options, inputs=inputs)


class OnnxRuntimeTaps:
    """``edgeq.backends.layers.Taps``. Needs the ``onnx`` package, which a device has no other need of."""

    tool = "ONNX Runtime, outputs added at each layer"

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions, *, inputs: bool) -> None:
        OnnxRuntimeSession(manifest, path, options).close()  # refuses what a session would refuse
        self._manifest, self._path, self._threads = manifest, path, options.threads
        graph = _Graph(_load(path))
        self.layers: Sequence[Tap] = [layer.tap for layer in graph.layers]
        self._names = [graph.model.graph.output[0].name, *graph.read()]
        self._names += [layer.source for layer in graph.layers] if inputs else []
        known = {value.name for value in (*graph.model.graph.output, *graph.model.graph.input)}
        graph.add_outputs(name for name in dict.fromkeys(self._names) if name not in known)
        self._input = graph.model.graph.input[0].name
        self._session = self._open(graph.model)
        self._alone: tuple[onnxruntime.InferenceSession, list[str]] | None = None

    def _open(self, model: onnx.ModelProto) -> onnxruntime.InferenceSession:
        import onnxruntime

        options = session_options(self._threads)
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(self, sample: Array) -> Activations:
        """``Taps.run``."""
        wanted = [name for name in dict.fromkeys(self._names) if name != self._input]
        values = dict(zip(wanted, self._session.run(wanted, {self._input: sample}), strict=True))
        values[self._input] = sample
        logits, *taken = (values[name].astype(np.float32, copy=False) for name in self._names)
        return Activations(logits, taken[: len(self.layers)], taken[len(self.layers) :])

    def alone(self, inputs: Sequence[Array]) -> list[Array]:
        """``Taps.alone``: the layers cut apart, all in one graph of as many inputs."""
        if self._alone is None:
            graph = _Graph(_load(self._path))
            names = graph.cut()
            self._alone = self._open(graph.model), names
        session, names = self._alone
        kinds = {value.name: _NUMPY[value.type] for value in session.get_inputs()}
        feeds = {name: inputs[int(name.removeprefix(_OWN))].astype(kind) for name, kind in kinds.items()}
        values = dict(zip(dict.fromkeys(names), session.run(list(dict.fromkeys(names)), feeds), strict=True))
        return [values[name].astype(np.float32, copy=False) for name in names]

    def executed(self) -> list[Executed]:
        """``Taps.executed``, from a profile of the file as it is measured."""
        nodes = onnxruntime_profile.run_once(self._path, session_options(self._threads), self._manifest.input.shape)
        return onnxruntime_profile.executed(nodes)

    def close(self) -> None:
        self._alone = None
        del self._session


_NUMPY: dict[str, Any] = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True)
class _Found:
    node: Any
    tap: Tap
    chain: list[Any]
    """From the layer's input up: what moves and quantizes the tensor that is fed where the layer runs alone."""
    output: str
    """The tensor behind the layer's bias and clamp."""
    quantized: bool
    """A layer of a QDQ graph that is not left in float."""
    quantize: Any
    """The ``QuantizeLinear`` that alone follows, where the layer is quantized, else None."""

    @property
    def source(self) -> str:
        name: str = (self.chain[-1] if self.chain else self.node).input[0]
        return name


class _Graph:
    """An ONNX model whose layers are found, and which is then changed to be read or cut."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._nodes = list(model.graph.node)
        self._weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
        self._maker = {name: node for node in self._nodes for name in node.output}
        self._takers: dict[str, list[Any]] = {}
        for node in self._nodes:
            for name in node.input:
                self._takers.setdefault(name, []).append(node)
        self._results = {value.name for value in model.graph.output}
        self._half = any(tensor.data_type == _FLOAT16 for tensor in model.graph.initializer)
        self.layers = [found for node in self._nodes if (found := self._layer(node))]

    def _layer(self, node: Any) -> _Found | None:
        index = (_CONV | _LINEAR).get(node.op_type)
        weight = None if index is None else self._constant(node.input[index])
        if weight is None or (weight[1:] == (1, 1, 1) and weight[0] > 1):  # a batch norm, as in onnxruntime_profile
            return None
        key = node.name.removesuffix("_quant").removesuffix("_MatMul")
        if node.op_type in _CONV:
            tap = Tap(key, "conv", weight)
        else:
            turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            tap = Tap(key, "linear", weight if turned else weight[::-1])
        output = self._output(node)
        quantized = self._dequantizes(node.input[index])
        quantize = self._follower(output, "QuantizeLinear") if quantized else None
        return _Found(node, tap, self._chain(node), output, quantized, quantize)

    def _constant(self, name: str) -> tuple[int, ...] | None:
        """Shape of an initializer, itself or behind operators that move or widen it; None where it is none."""
        while name not in self._weights and name in self._maker and self._maker[name].op_type in _MOVES:
            name = self._maker[name].input[0]
        return self._weights.get(name)

    def _dequantizes(self, name: str) -> bool:
        while name in self._maker:
            if self._maker[name].op_type == "DequantizeLinear":
                return True
            name = self._maker[name].input[0]
        return False

    def _chain(self, node: Any) -> list[Any]:
        chain: list[Any] = []
        while (above := self._maker.get((chain[-1] if chain else node).input[0])) and above.op_type in _MOVES:
            chain.append(above)
        return chain

    def _output(self, node: Any) -> str:
        name: str = node.output[0]
        steps = ["Cast", "Mul"] if node.op_type.endswith("Integer") else []
        for kind in steps:
            follower = self._follower(name, kind)
            name = follower.output[0] if follower else name
        bias = self._follower(name, "Add")
        if bias and node.op_type in ("MatMul", "ConvInteger", "MatMulInteger") and any(map(self._constant, bias.input)):
            name = bias.output[0]
        clamp = self._follower(name, *_CLAMPS)
        return clamp.output[0] if clamp else name

    def _follower(self, name: str, *kinds: str) -> Any:
        """The one node that takes ``name``, where it is of these kinds and ``name`` is no output of the graph."""
        takers = self._takers.get(name, [])
        return takers[0] if len(takers) == 1 and takers[0].op_type in kinds and name not in self._results else None

    def read(self) -> list[str]:
        """For each layer the float tensor to read, made where it is not there."""
        names = []
        for index, layer in enumerate(self.layers):
            names.append(self._dequantized(index, layer) if layer.quantize else self._widened(index, layer.output))
        return names

    def _widened(self, index: int, name: str) -> str:
        """Where float16 is computed in float32, rounding between two operators may be optimised away; reading float16
        itself would bring it back."""
        if not self._half or name in self._results:
            return name
        name = self._append("Cast", [name], f"{_OWN}read {index}")
        to = self.model.graph.node[-1].attribute.add()
        to.name, to.type, to.i = "to", to.INT, _FLOAT
        return name

    def _dequantized(self, index: int, layer: _Found) -> str:
        quantized = layer.quantize.output[0]
        for node in self._takers.get(quantized, []):
            if node.output[0] in self._results:
                return str(node.output[0])
        return self._append("DequantizeLinear", [quantized, *layer.quantize.input[1:]], f"{_OWN}read {index}")

    def _append(self, kind: str, inputs: Sequence[str], output: str) -> str:
        node = self.model.graph.node.add()
        node.op_type, node.name = kind, output
        node.input.extend(inputs)
        node.output.append(output)
        return output

    def add_outputs(self, names: Iterable[str]) -> None:
        """Their types are left for ONNX Runtime to infer."""
        for name in names:
            self.model.graph.output.add().name = name

    def cut(self) -> list[str]:
        """Leaves the layers alone, each fed by an input of its own, ``edgeq:<place>``; returns the tensors to read."""
        types = _types(self.model)
        names, sources = self.read(), [layer.source for layer in self.layers]
        del self.model.graph.input[:], self.model.graph.output[:]
        for index, (layer, source) in enumerate(zip(self.layers, sources, strict=True)):
            value = self.model.graph.input.add()
            value.name = f"{_OWN}{index}"
            value.type.CopyFrom(types[source])
            self._feed(layer, value.name)
        self.add_outputs(dict.fromkeys(names))
        self._prune(names)
        return names

    def _feed(self, layer: _Found, name: str) -> None:
        if any(node.op_type == "DynamicQuantizeLinear" for node in layer.chain):
            layer.chain[-1].input[0] = name  # its scale goes to the layer by other ways
            return
        # Copies: what quantizes this input also ends the layer before, which is read behind it.
        for node in reversed(layer.chain):
            if not layer.quantized and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
                continue  # belongs to the layer before
            copy = self.model.graph.node.add()
            copy.CopyFrom(node)
            copy.name = copy.output[0] = f"{name} {node.output[0]}"
            copy.input[0], name = name, copy.output[0]
        layer.node.input[0] = name

    def _prune(self, names: Sequence[str]) -> None:
        nodes = list(self.model.graph.node)
        maker = {name: node for node in nodes for name in node.output}
        pending, kept = list(names), set()
        while pending:
            node = maker.get(pending.pop())
            if node is not None and id(node) not in kept:
                kept.add(id(node))
                pending += node.input
        for node in nodes:
            if id(node) not in kept:
                self.model.graph.node.remove(node)


def _types(model: onnx.ModelProto) -> dict[str, Any]:
    """The type and shape of each tensor, by name."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(model).graph
    return {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}


def _load(path: Path) -> onnx.ModelProto:
    try:
        import onnx
    except ImportError as error:
        raise EdgeqError(
            "the layers of an ONNX file can't be read: onnx is not installed", str(error),
            f"run: {pip_install('onnx')}, or do this on the machine that exported the artifacts",
            code="not-installed",
        ) from error  # fmt: skip
    return onnx.load(path)
