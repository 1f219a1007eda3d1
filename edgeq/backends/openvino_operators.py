"""OpenVINO: milliseconds a node, from the CPU plugin's performance counters (``PERF_COUNT``)."""

from __future__ import annotations

from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeq.artifact import Manifest
from edgeq.backends import openvino_graph
from edgeq.backends.openvino import OpenVINOSession
from edgeq.backends.openvino_graph import Node
from edgeq.backends.operators import alternate, in_turn, is_depthwise, timed
from edgeq.backends.session import Array, SessionOptions
from edgeq.operators import Group, OperatorProfile, OperatorTime, profile_of

if TYPE_CHECKING:
    import openvino

UNSEEN = (
    "weights that the plugin reorders while it compiles the model, and its own work between two nodes (untimed); "
    "a Subgraph is several small operators compiled into one"
)

_CONVERT = {"Reorder", "Convert", "Transpose", "FakeQuantize", "ConvertTruncation", "ConvertSaturation"}
_CONV = {"Convolution", "GroupConvolution"}


class _Profiled(OpenVINOSession):
    """The measured session, but for the performance counters."""

    def _hints(self, options: SessionOptions) -> dict[str, Any]:
        return {**super()._hints(options), "PERF_COUNT": True}

    def nodes(self) -> dict[str, Node]:
        """The runtime graph's nodes by name, which the counters use too."""
        ops = self._models[0].get_runtime_model().get_ordered_ops()
        nodes = openvino_graph.read(self._models[0].get_runtime_model())
        return {op.get_friendly_name(): node for op, node in zip(ops, nodes, strict=True)}

    def counters(self) -> list[openvino.ProfilingInfo]:
        """Of the last inference."""
        return list(self._requests[0].profiling_info)

    def dynamic(self) -> bool:
        """Whether linear layers over compressed weights quantize their activations."""
        nodes = openvino_graph.read(self._models[0].get_runtime_model())
        return bool(openvino_graph.compressed(nodes)) and self._quantizes_at_run_time()


class _Pair:
    """``edgeq.backends.operators.Profiled``."""

    def __init__(self, plain: OpenVINOSession, profiled: _Profiled, samples: Array) -> None:
        self._plain, self._profiled, self._samples = plain, profiled, in_turn(samples)
        self.ms: defaultdict[str, float] = defaultdict(float)
        self.kinds: dict[str, tuple[str, str]] = {}

    def plain(self, count: int) -> list[float]:
        return timed(lambda: self._plain.infer(next(self._samples)), count)

    def profiled(self, count: int) -> list[float]:
        found: list[float] = []
        if count > 1:
            self._profiled.infer(next(self._samples))
        for _ in range(count):
            found += timed(lambda: self._profiled.infer(next(self._samples)), 1)
            for counter in self._profiled.counters():
                self.ms[counter.node_name] += counter.real_time.total_seconds() * 1e3
                self.kinds[counter.node_name] = (counter.node_type, counter.exec_type)
        return found

    def forget(self) -> None:
        self.ms.clear()


def profile_operators(
    manifest: Manifest, path: Path, options: SessionOptions, samples: Array, seconds: float
) -> OperatorProfile:
    """``edgeq.backends.profile_operators``: both sessions have the hints of measured cells, one of them counters."""
    one = SessionOptions(threads=options.threads)
    with closing(OpenVINOSession(manifest, path, one)) as plain, closing(_Profiled(manifest, path, one)) as profiled:
        pair = _Pair(plain, profiled, samples)
        timing = alternate(pair, seconds)
        nodes, dynamic = profiled.nodes(), profiled.dynamic()
    times = [
        OperatorTime(
            name=name,
            operator=f"{kind} ({primitive})" if _is_kernel(primitive) else kind,
            group=_group(kind, nodes.get(name)),
            precision=_precision(nodes.get(name), dynamic),
            ms=ms / timing.inferences,
        )
        for name, ms in pair.ms.items()
        for kind, primitive in [pair.kinds[name]]
        if ms > 0
    ]
    return profile_of(
        times,
        tool=f"OpenVINO {_version()} performance counters",
        threads=options.threads,
        inferences=timing.inferences,
        profiled_ms=timing.profiled_ms,
        plain_ms=timing.plain_ms,
    )


def _is_kernel(primitive: str) -> bool:
    """True where the plugin names a kernel, and not only that it does not know one."""
    return bool(primitive) and not primitive.startswith(("unknown", "undef"))


def _group(kind: str, node: Node | None) -> Group:
    if kind in _CONVERT:
        return "convert"
    if kind.startswith(("FullyConnected", "MatMul")):  # FullyConnectedCompressed, FullyConnectedQuantizedLegacy
        return "fully connected"
    if kind not in _CONV:
        return "other"
    if node is None or len(node.input_shapes) < 2:
        return "convolution"
    return "depthwise" if is_depthwise(node.input_shapes[1], node.input_shapes[0][1]) else "convolution"


def _precision(node: Node | None, dynamic: bool) -> str | None:
    """Of the multiplications, for convolutions and linear layers; for others that of what they read."""
    if node is None or not node.inputs or node.kind in _CONVERT:
        return None
    found = node.precision(dynamic)
    return found if found in ("fp32", "fp16", "bf16", "int8") else None


def _version() -> str:
    import openvino

    return str(openvino.__version__).split("-")[0]
