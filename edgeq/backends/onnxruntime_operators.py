"""ONNX Runtime: milliseconds an operator, from its own profile of inferences with the options of measured cells."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeq.artifact import Manifest
from edgeq.backends import onnxruntime_profile
from edgeq.backends.onnxruntime import session_options
from edgeq.backends.onnxruntime_profile import Node
from edgeq.backends.operators import BLOCK_INFERENCES, WARM_UP_INFERENCES, Timing, is_depthwise, timed
from edgeq.backends.session import Array, SessionOptions
from edgeq.operators import Group, OperatorProfile, OperatorTime, profile_of

if TYPE_CHECKING:
    import onnxruntime

UNSEEN = (
    "weights that ONNX Runtime packs or folds while it loads, and the time between two nodes (untimed); "
    "what a fused node does inside is one figure"
)

#: Sessions made one after the other; each is run with its profiler on, and then, the same session, without.
_SESSIONS = 3
_CONVERT = {
    "Cast", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear", "ReorderInput", "ReorderOutput", "Transpose",
}  # fmt: skip


def profile_operators(
    manifest: Manifest, path: Path, options: SessionOptions, samples: Array, seconds: float
) -> OperatorProfile:
    """``edgeq.backends.profile_operators``.

    The profile is taken with pre-packing on, as in measured cells, where a packed weight is missing from it: types and
    shapes of the nodes come from a second session without pre-packing, joined by the nodes' names.

    The two kinds of inference do not alternate one by one: an idle session's threads spin for some 100 ms after its
    last run, on the cores of the other.
    """
    known = {
        node.name: node
        for node in onnxruntime_profile.run_once(path, session_options(options.threads), manifest.input.shape)
    }
    kept: list[list[dict[str, Any]]] = []
    plain: list[float] = []
    wall: list[float] = []
    for _ in range(_SESSIONS):
        with onnxruntime_profile.profiling(path, session_options(options.threads)) as (session, end):
            infer = _inferences(session, samples)
            warm = timed(infer, 2, settle=False)[-1]  # the first one of a session is slower
            once = 3 * warm > seconds
            count = 1 if once else _fitting(infer, seconds / _SESSIONS / 2)
            wall += timed(infer, count, settle=False)
            kept += _runs(end())[-count:]
            plain += timed(infer, count)
        if once:
            break
    timing = Timing(len(wall), statistics.fmean(wall) * 1e3, statistics.median(plain) * 1e3)
    return profile_of(
        _times(kept, known),
        tool=f"ONNX Runtime {_version()} profiler",
        threads=options.threads,
        inferences=timing.inferences,
        profiled_ms=timing.profiled_ms,
        plain_ms=timing.plain_ms,
    )


def _inferences(session: onnxruntime.InferenceSession, samples: Array) -> Callable[[], object]:
    feeds = [{session.get_inputs()[0].name: samples[index : index + 1]} for index in range(len(samples))]
    outputs = [session.get_outputs()[0].name]
    turn = iter(range(1 << 62))
    return lambda: session.run(outputs, feeds[next(turn) % len(feeds)])


def _fitting(infer: Callable[[], object], seconds: float) -> int:
    """Warms up; returns how many inferences take about ``seconds``."""
    warm = timed(infer, WARM_UP_INFERENCES, settle=False)
    return max(1, min(BLOCK_INFERENCES, int(seconds / max(min(warm), 1e-6))))


def _runs(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The kernels' events, run by run: a run's own event follows those of its kernels."""
    found: list[list[dict[str, Any]]] = []
    run: list[dict[str, Any]] = []
    for event in events:
        if onnxruntime_profile.is_kernel(event):
            run.append(event)
        elif event.get("name") == "model_run":
            found.append(run)
            run = []
    return found


def _times(runs: Sequence[Sequence[dict[str, Any]]], known: dict[str, Node]) -> list[OperatorTime]:
    """Every node with its mean milliseconds; ``known`` are the nodes with their weights' types and shapes."""
    micros: defaultdict[str, float] = defaultdict(float)
    nodes: dict[str, Node] = {}
    for event in (event for run in runs for event in run):
        node = onnxruntime_profile.node_of(event)
        micros[node.name] += event["dur"]
        nodes[node.name] = node
    found = []
    for name, node in nodes.items():
        whole = known.get(name)
        if whole is not None and whole.op != node.op:
            whole = None
        found.append(
            OperatorTime(
                name=name,
                operator=node.op,
                group=_group(whole or node, whole is not None),
                precision=whole.precision if whole is not None and node.op not in _CONVERT and whole.inputs else None,
                ms=micros[name] / len(runs) / 1e3,
            )
        )
    return found


def _group(node: Node, whole: bool) -> Group:
    if node.op in _CONVERT:
        return "convert"
    if not whole or node.weight is None:
        return "other"
    if node.op not in onnxruntime_profile.CONVOLUTIONS:
        return "fully connected"
    data = node.input_shapes[0]  # channels first, or last where the node is one of the optimiser's for that layout
    return "depthwise" if is_depthwise(node.input_shapes[node.weight], min(data[1], data[-1])) else "convolution"


def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)
