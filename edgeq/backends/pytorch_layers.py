"""Layer by layer what a TorchScript file computes: its graph, made to return the layers' values as well.

``torch.ao.ns`` compares eager or FX modules, which the files are not. A file's graph is run as it is, with more
results: nothing but what is returned differs from the measured module.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeq.artifact import Manifest
from edgeq.backends.layers import Activations, Tap
from edgeq.backends.macs import Executed
from edgeq.backends.pytorch import PytorchSession
from edgeq.backends.pytorch_graph import _FLOAT_LAYERS, _WEIGHTS, read_graph
from edgeq.backends.session import Array, SessionOptions

_CLAMPS = {"aten::relu", "aten::relu_", "aten::relu6", "aten::relu6_", "aten::hardtanh", "aten::hardtanh_"}
_CASTS = {"aten::to", "aten::dequantize"}


def open_taps(manifest: Manifest, path: Path, options: SessionOptions, *, inputs: bool) -> PytorchTaps:
    """``edgeq.backends.layers.Opener``. The inputs are read in any case: their scales are needed."""
    del inputs
    return PytorchTaps(manifest, path, options)


@dataclass(frozen=True)
class _Found:
    node: Any
    tap: Tap
    place: int
    """Which of the node's inputs is the layer's."""
    output: Any


class PytorchTaps:
    """``edgeq.backends.layers.Taps``."""

    tool = "TorchScript graph, with each layer's value returned"

    def __init__(self, manifest: Manifest, path: Path, options: SessionOptions) -> None:
        import torch

        self._torch, self._manifest = torch, manifest
        self._session = PytorchSession(manifest, path, options)
        graph = self._graph()
        found = _find(torch, graph)
        self.layers: Sequence[Tap] = [layer.tap for layer in found]
        values = [next(graph.outputs())]
        values += [layer.output for layer in found] + [_inputs(layer.node)[layer.place] for layer in found]
        self._run = _returning(torch, graph, values)
        self._alone: Any = None
        self._last: list[Any] = []

    def _graph(self) -> Any:
        """A copy of the file's graph; a frozen module's needs nothing of the module."""
        graph = self._session._module.inlined_graph.copy()
        graph.eraseInput(0)
        return graph

    def run(self, sample: Array) -> Activations:
        """``Taps.run``."""
        torch, count = self._torch, len(self.layers)
        with torch.inference_mode():
            values = self._run(torch.from_numpy(sample))
            logits, *taken = [_float(value) for value in values]
        self._last = values[1 + count :]
        return Activations(logits, taken[:count], taken[count:])

    def alone(self, inputs: Sequence[Array]) -> list[Array]:
        """``Taps.alone``: the layers cut apart, all in one graph of as many inputs."""
        if self._alone is None:
            graph = self._graph()
            found = _find(self._torch, graph)
            for layer in found:
                layer.node.replaceInput(layer.place, graph.addInput())
            self._alone = _returning(self._torch, graph, [layer.output for layer in found], unused=1)
        with self._torch.inference_mode():
            pairs = zip(inputs, self._last, strict=True)
            values = self._alone(*(self._like(value, reference) for value, reference in pairs))
            return [_float(value) for value in values]

    def _like(self, value: Array, reference: Any) -> Any:
        """``value`` in the form in which the layer took its input when the whole network ran."""
        torch = self._torch
        found = torch.from_numpy(value)
        if reference.is_quantized:
            found = torch.quantize_per_tensor(found, reference.q_scale(), reference.q_zero_point(), reference.dtype)
        found = found.to(reference.dtype) if not reference.is_quantized else found
        last = reference.dim() == 4 and reference.is_contiguous(memory_format=torch.channels_last)
        return found.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)

    def executed(self) -> list[Executed]:
        """``Taps.executed``. A graph has no shapes: the multiply-adds are the manifest's, where the counts are equal."""
        found = read_graph(self._session._module.inlined_graph).layers
        pairs = zip(found, self._manifest.layers, strict=False)
        return [Executed(layer.precision, expected.macs) for layer, expected in pairs]

    def close(self) -> None:
        self._run = self._alone = None
        self._last = []
        self._session.close()


def _float(value: Any) -> Array:
    result: Array = (value.dequantize() if value.is_quantized else value.float()).numpy()
    return result


def _inputs(node: Any) -> list[Any]:
    return list(node.inputs())


def _find(torch: Any, graph: Any) -> list[_Found]:
    found = []
    for node in graph.nodes():
        kind = node.kind()
        operator = kind.removeprefix("quantized::")
        if kind in _FLOAT_LAYERS:
            weights = _WEIGHTS.get(kind, 1)
            shape = _shape(_inputs(node)[weights])
            tap = Tap("", "conv" if _FLOAT_LAYERS[kind] == "conv" else "linear", shape)
            found.append(_Found(node, tap, weights - 1, _output(node)))
        elif operator != kind and operator.startswith(("conv", "linear")):
            packed = _inputs(node)[1].node().output().toIValue()
            unpack = (
                torch.ops.quantized.conv2d_unpack if operator.startswith("conv") else torch.ops.quantized.linear_unpack
            )
            tap = Tap("", "conv" if operator.startswith("conv") else "linear", tuple(unpack(packed)[0].shape))
            found.append(_Found(node, tap, 0, _output(node)))
    return found


def _shape(value: Any) -> tuple[int, ...]:
    """Of a constant, or of one that is transposed."""
    node = value.node()
    turned = node.kind() == "aten::t"
    shape = tuple((next(node.inputs()) if turned else value).toIValue().shape)
    return shape[::-1] if turned else shape


def _output(node: Any) -> Any:
    """Behind a clamp, where it alone follows, perhaps behind what only changes the type."""
    own = value = next(node.outputs())
    while len(uses := list(value.uses())) == 1 and uses[0].user.kind() in _CLAMPS | _CASTS:
        value = next(uses[0].user.outputs())
        if uses[0].user.kind() in _CLAMPS:
            return value
    return own


def _returning(torch: Any, graph: Any, values: Sequence[Any], unused: int = 0) -> Any:
    """A function of the graph that returns a list of ``values``; its first ``unused`` inputs are left out."""
    result = graph.create("prim::ListConstruct", list(values))
    graph.appendNode(result)
    result.output().setType(torch._C.ListType.ofTensors())
    graph.eraseOutput(0)
    graph.registerOutput(result.output())
    torch._C._jit_pass_dce(graph)
    for _ in range(unused):
        graph.eraseInput(0)
    return torch._C._create_function_from_graph("layers", graph)
