"""Layer by layer what OpenVINO computes: results added at the layers of a copy of the model.

In a quantized model a layer is read behind the ``FakeQuantize`` that follows it, so that its integer output stays one
kernel's; the plugin then only dequantizes it once more for the reader. A float layer is read before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeq.artifact import Manifest
from edgeq.backends import openvino_graph
from edgeq.backends.layers import Activations, Tap
from edgeq.backends.macs import Executed
from edgeq.backends.openvino import OpenVINOSession
from edgeq.backends.session import Array, SessionOptions

if TYPE_CHECKING:
    import openvino

_CONV, _LINEAR = ("Convolution", "GroupConvolution"), ("MatMul",)
_CLAMPS = ("Relu", "Clamp")
#: What may stand between a layer and the tensor that is quantized for it.
_MOVES = ("FakeQuantize", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "MaxPool", "Convert")
#: Followers that take a layer's output as it stands. Others, such as the sum of a residual, are fused into the layer
#: before them, and reading that layer ends it.
_QUIET = (*_CONV, *_LINEAR, *_MOVES, "Result", "Concat", "AvgPool", "ReduceMean")
#: What may stand between a constant and the layer that takes it.
_OF_CONSTANTS = ("Convert", "Multiply", "Subtract", "FakeQuantize", "Reshape", "Transpose")


def open_taps(manifest: Manifest, path: Path, options: SessionOptions, *, inputs: bool) -> OpenVINOTaps:
    """``edgeq.backends.layers.Opener``."""
    return OpenVINOTaps(manifest, path, options, inputs=inputs)


@dataclass(frozen=True)
class _Found:
    node: Any
    tap: Tap
    chain: list[Any]
    """From the layer's input up: what moves and quantizes the tensor that is fed where the layer runs alone."""
    quantized: bool
    """A layer of integer weights and activations."""
    output: Any
    """Where the layer is read."""

    @property
    def port(self) -> Any:
        return (self.chain[-1] if self.chain else self.node).input(0)

    @property
    def source(self) -> Any:
        return self.port.get_source_output()

    @property
    def quiet(self) -> bool:
        """True where reading the layer does not change what is computed."""
        return all(port.get_node().get_type_name() in _QUIET for port in self.output.get_target_inputs())


@dataclass(frozen=True)
class _Reader:
    """A compiled copy of the model that gives its logits, then the outputs of some layers, then inputs."""

    request: Any
    layers: list[int]
    places: list[int]
    """Where each of these values stands among the results, which have no repetitions."""

    def run(self, sample: Array) -> list[Array]:
        values = self.request.infer([sample]).to_tuple()
        return [np.asarray(values[place], np.float32) for place in self.places]


class OpenVINOTaps:
    """``edgeq.backends.layers.Taps``, compiled with the session's own properties.

    Layers that feed a residual's sum have a copy of the model of their own, so that all others, and the logits, are
    exactly those of the measured model. ``inputs`` (of the float model, where this is but rounding): one copy.
    """

    tool = "OpenVINO, results added at each layer"

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions, *, inputs: bool) -> None:
        self._path, self._session = path, OpenVINOSession(manifest, path, options)
        found = self._find()
        self.layers: Sequence[Tap] = [layer.tap for layer in found]
        quiet = [i for i, layer in enumerate(found) if layer.quiet or inputs]
        loud = [i for i in range(len(found)) if i not in quiet]
        self._readers = [self._reader(quiet, inputs)] + ([self._reader(loud, False)] if loud else [])
        self._alone: list[tuple[openvino.InferRequest, list[int]]] = []

    def _find(self) -> list[_Found]:
        return _find(self._session._core.read_model(str(self._path)))

    def _compile(self, results: Sequence[Any], parameters: Sequence[Any]) -> openvino.InferRequest:
        import openvino

        model = openvino.Model([openvino.op.Result(output) for output in results], list(parameters))
        return self._session._core.compile_model(model, "CPU", self._session._config).create_infer_request()

    def _reader(self, layers: list[int], inputs: bool) -> _Reader:
        model = self._session._core.read_model(str(self._path))
        found = _find(model)
        wanted = [model.get_results()[0].input_value(0), *(found[i].output for i in layers)]
        wanted += [layer.source for layer in found] if inputs else []
        unique = {_key(output): output for output in wanted}
        places = [list(unique).index(_key(output)) for output in wanted]
        return _Reader(self._compile(list(unique.values()), model.get_parameters()), layers, places)

    def run(self, sample: Array) -> Activations:
        """``Taps.run``."""
        outputs: dict[int, Array] = {}
        for reader in reversed(self._readers):  # the first one's logits and inputs are kept
            logits, *values = reader.run(sample)
            outputs |= zip(reader.layers, values, strict=False)
        return Activations(logits, [outputs[i] for i in range(len(self.layers))], values[len(reader.layers) :])

    def alone(self, inputs: Sequence[Array]) -> list[Array]:
        """``Taps.alone``: the layers cut apart, in as few models as can be."""
        if not self._alone:
            self._alone = [(self._cut(group), group) for group in _apart(self._find())]
        outputs: dict[int, Array] = {}
        for request, group in self._alone:
            values = request.infer([inputs[i] for i in group]).to_tuple()
            outputs |= {i: np.asarray(value, np.float32) for i, value in zip(group, values, strict=True)}
        return [outputs[i] for i in range(len(self.layers))]

    def _cut(self, group: list[int]) -> openvino.InferRequest:
        import openvino

        found, parameters = self._find(), []
        for i in group:
            port, source = found[i].port, found[i].source
            parameters.append(openvino.op.Parameter(source.get_element_type(), source.get_partial_shape()))
            port.replace_source_output(parameters[-1].output(0))
            if not found[i].quantized:
                _bypass(found[i])
        return self._compile([found[i].output for i in group], parameters)

    def executed(self) -> list[Executed]:
        """``Taps.executed``, from the runtime graph of the measured session."""
        nodes = openvino_graph.read(self._session._models[0].get_runtime_model())
        dynamic = bool(openvino_graph.compressed(nodes)) and self._session._quantizes_at_run_time()
        return openvino_graph.executed(nodes, dynamic)

    def close(self) -> None:
        self._alone, self._readers = [], []
        self._session.close()


def _find(model: openvino.Model) -> list[_Found]:
    found = []
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind not in _CONV + _LINEAR or not _constant(node.input_value(1)):
            continue
        weight = tuple(node.input_value(1).get_shape())
        inner = tuple(node.input_value(0).get_shape())[-1:]
        key = node.get_friendly_name()
        tap = Tap(key, "conv", weight) if kind in _CONV else Tap(key, "linear", inner)
        chain = _chain(node)
        quantized = _integers(node.input_value(1)) and any(part.get_type_name() == "FakeQuantize" for part in chain)
        found.append(_Found(node, tap, chain, quantized, _output(node, quantized)))
    return found


def _bypass(layer: _Found) -> None:
    """Takes out what quantizes the input of a float layer: it belongs to the layer before."""
    below = layer.node
    for node in layer.chain:
        if node.get_type_name() == "FakeQuantize":
            below.input(0).replace_source_output(node.input_value(0))
        else:
            below = node


def _apart(found: Sequence[_Found]) -> list[list[int]]:
    """Groups of layers that can be cut apart in one model: what quantizes a layer's input may also end the layer that
    gives it, and these two can't."""
    groups: list[list[int]] = []
    for i, layer in enumerate(found):
        fitting = (group for group in groups if not any(_clash(found[j], layer) for j in group))
        group = next(fitting, None)
        if group is None:
            groups.append(group := [])
        group.append(i)
    return groups


def _clash(one: _Found, other: _Found) -> bool:
    pairs = ((one, other), (other, one))
    return any(a.output.get_node().get_name() in {node.get_name() for node in b.chain} for a, b in pairs)


def _constant(output: Any) -> bool:
    node = output.get_node()
    kind = node.get_type_name()
    return kind == "Constant" or (kind in _OF_CONSTANTS and all(_constant(value) for value in node.input_values()))


def _integers(output: Any) -> bool:
    """True for a constant of integers, or one that is quantized where it is loaded."""
    node = output.get_node()
    if node.get_type_name() == "Constant":
        return output.get_element_type().get_type_name() in ("i8", "u8", "i4", "u4")
    return node.get_type_name() == "FakeQuantize" or any(_integers(value) for value in node.input_values())


def _chain(node: Any) -> list[Any]:
    chain: list[Any] = []
    while (above := (chain[-1] if chain else node).input_value(0).get_node()).get_type_name() in _MOVES:
        chain.append(above)
    return chain


def _output(node: Any, quantized: bool) -> Any:
    """Behind the bias, a clamp, and (quantized) the quantization of the output, each where it alone follows."""
    follower = _only_follower(node)
    if follower and follower.get_type_name() == "Add" and any(_constant(value) for value in follower.input_values()):
        node, follower = follower, _only_follower(follower)
    if follower and follower.get_type_name() in _CLAMPS:
        node, follower = follower, _only_follower(follower)
    if quantized and follower and follower.get_type_name() == "FakeQuantize":
        node = follower
    return node.output(0)


def _only_follower(node: Any) -> Any:
    ports = list(node.output(0).get_target_inputs())
    return ports[0].get_node() if len(ports) == 1 else None


def _key(output: Any) -> tuple[str, int]:
    return output.get_node().get_name(), output.get_index()
