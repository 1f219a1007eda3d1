"""What ONNX Runtime really executes, read from its own profile of one run. Needs no ``onnx`` package."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeq.backends.macs import Executed, conv_macs, linear_macs

if TYPE_CHECKING:
    import onnxruntime

#: Operator → where its weight stands among its inputs, after fusion and under the optimiser's own names.
CONVOLUTIONS = {"Conv": 1, "FusedConv": 1, "NhwcFusedConv": 1, "ConvInteger": 1, "QLinearConv": 3}
_LINEAR = {
    "Gemm": 1,
    "FusedGemm": 1,
    "MatMul": 1,
    "FusedMatMul": 1,
    "MatMulInteger": 1,
    "DynamicQuantizeMatMul": 1,
    "MatMulIntegerToFloat": 1,
    "QGemm": 3,
    "QLinearMatMul": 3,
}
_PRECISION = {"float": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8", "uint8": "int8"}
_KERNEL = "_kernel_time"
_FLOAT = ("float", "float16", "bfloat16", "double")
#: Operators that move, convert, quantize or dequantize data: no arithmetic of the network's own.
_PLUMBING = (
    "Cast",
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "Transpose",
    "Reshape",
    "Flatten",
    "ReorderInput",
    "ReorderOutput",
    "Identity",
    "Squeeze",
    "Unsqueeze",
)


@dataclass(frozen=True)
class Node:
    """One executed node: its operator, and the type and shape of each input and of its first output.

    With pre-packing on, weights are missing among the inputs: then ask for neither ``weight`` nor ``precision``.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_shape: tuple[int, ...]

    @property
    def weight(self) -> int | None:
        """Index of the weight, or None where the node is no convolution or linear layer.

        A depthwise 1x1 convolution is not taken for one: it is how the NCHWc layout executes a batch norm.
        """
        index = CONVOLUTIONS.get(self.op)
        if index is not None and self.input_shapes[index][1:] == (1, 1, 1) and self.input_shapes[index][0] > 1:
            return None
        return _LINEAR.get(self.op) if index is None else index

    @property
    def precision(self) -> str:
        """Precision of the multiplications: the weight's, which an int8 product shares with its activations. A float16
        weight widened before the node reads float32 here, as it is computed."""
        kind = self.inputs[self.weight or 0]
        return _PRECISION.get(kind, kind)


def run_once(path: Path, options: onnxruntime.SessionOptions, shape: Sequence[int]) -> list[Node]:
    """Loads ``path`` with ``options``, profiles one run of one random sample ``[1, *shape]``; returns its nodes.

    Pre-packing is off here, and only here, because a pre-packed weight is missing from the profile; it changes the
    order of a weight in memory, not the operator or its types.
    """
    options.add_session_config_entry("session.disable_prepacking", "1")
    with profiling(path, options) as (session, end):
        sample = np.random.default_rng(0).standard_normal((1, *shape), np.float32)
        session.run(None, {session.get_inputs()[0].name: sample})
        return parse(end())


@contextmanager
def profiling(
    path: Path, options: onnxruntime.SessionOptions
) -> Iterator[tuple[onnxruntime.InferenceSession, Callable[[], list[dict[str, Any]]]]]:
    """A session of ``path`` with its profiler on, and what ends the profiling and returns its events.

    The session may be run on after that, without the profiler. No file is left behind.
    """
    import onnxruntime

    options.enable_profiling = True
    with tempfile.TemporaryDirectory(prefix="edgeq-profile-") as folder:
        options.profile_file_prefix = str(Path(folder) / "ort")
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        yield session, lambda: json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))


def parse(events: Sequence[dict[str, Any]]) -> list[Node]:
    """The executed nodes among the events of a profile, in execution order."""
    return [node_of(event) for event in events if is_kernel(event)]


def is_kernel(event: dict[str, Any]) -> bool:
    """True for the event of one executed node; its ``dur`` is the kernel's microseconds."""
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith(_KERNEL)


def node_of(event: dict[str, Any]) -> Node:
    """The node of a kernel's event."""
    args = event["args"]
    inputs = [next(iter(entry.items())) for entry in args["input_type_shape"]]
    outputs = [next(iter(entry.items())) for entry in args["output_type_shape"]]
    return Node(
        name=event["name"].removesuffix(_KERNEL),
        op=args["op_name"],
        inputs=tuple(kind for kind, _ in inputs),
        input_shapes=tuple(tuple(shape) for _, shape in inputs),
        output_shape=tuple(outputs[0][1]) if outputs else (),
    )


def executed(nodes: Sequence[Node]) -> list[Executed]:
    """The convolution and linear layers."""
    return [Executed(node.precision, _macs(node)) for node in nodes if node.weight is not None]


def _macs(node: Node) -> int:
    if node.op in _LINEAR:
        return linear_macs(node.output_shape, node.input_shapes[0][-1])
    return conv_macs(node.output_shape, node.input_shapes[CONVOLUTIONS[node.op]])


def operators(nodes: Sequence[Node]) -> dict[str, int]:
    """Every executed operator, with the type of its first input, and how often it ran: ``{"Conv(float)": 52}``."""
    return dict(sorted(Counter(f"{node.op}({node.inputs[0] if node.inputs else ''})" for node in nodes).items()))


def float_ops(nodes: Sequence[Node]) -> dict[str, int]:
    """Arithmetic operators that compute in float, by type; those that quantize or only move data are left out."""
    counted = Counter(
        node.op
        for node in nodes
        if node.op not in _PLUMBING
        and not node.op.startswith("QLinear")
        and node.inputs
        and node.inputs[0] in _FLOAT
        and not (node.weight is not None and node.precision == "int8")
    )
    return dict(sorted(counted.items()))
