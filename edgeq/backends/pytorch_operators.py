"""PyTorch: milliseconds an operator, from ``torch.profiler`` over the TorchScript module."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeq.artifact import Layer, Manifest
from edgeq.backends.operators import alternate, group_of, in_turn, timed
from edgeq.backends.pytorch import PytorchSession
from edgeq.backends.pytorch_graph import Found, read_graph
from edgeq.backends.session import Array, SessionOptions
from edgeq.operators import Group, OperatorProfile, OperatorTime, profile_of

UNSEEN = (
    "what oneDNN, FBGEMM or QNNPACK do inside an operator: reordering and packing count as the convolution that they are "
    "done for; TorchScript's own work between operators is untimed"
)

_CONVERT = {
    "aten::quantize_per_tensor", "aten::quantize_per_channel", "aten::quantize_per_tensor_dynamic", "aten::dequantize",
    "aten::to", "aten::contiguous", "aten::clone",
}  # fmt: skip
_CONVOLUTIONS = {"aten::conv2d", "aten::_convolution", "aten::convolution", "mkldnn::_convolution_pointwise"}
_LINEAR = {"aten::linear", "mkldnn::_linear_pointwise", "aten::addmm"}


@dataclass(frozen=True)
class Op:
    """One operator event of one inference. ``path``: its name, after those of its callers, the outermost first."""

    path: tuple[str, ...]
    position: int
    """Of the outermost operator in the inference."""
    ms: float
    """Its own time, without that of the operators that it calls."""

    @property
    def converts(self) -> bool:
        return any(name in _CONVERT for name in self.path)


class _Pair:
    """``edgeq.backends.operators.Profiled``: one session; ``torch.profiler`` around some of its inferences."""

    def __init__(self, session: PytorchSession, samples: Array) -> None:
        self._session, self._samples = session, in_turn(samples)
        self.runs: list[list[Op]] = []

    def plain(self, count: int) -> list[float]:
        return timed(self._infer, count)

    def profiled(self, count: int) -> list[float]:
        import torch

        if count > 1:
            self._infer()
        found: list[float] = []
        # What torch.profiler.profile wraps; that one imports torch's compiler first, which takes seconds.
        with torch.autograd.profiler.profile(use_kineto=True) as profiler:
            for _ in range(count):
                with torch.autograd.profiler.record_function(_MARK):
                    found += timed(self._infer, 1)
        self.runs += [list(_operators(mark)) for mark in profiler.function_events or [] if mark.name == _MARK]
        return found

    def forget(self) -> None:
        self.runs.clear()

    def _infer(self) -> None:
        self._session.infer(next(self._samples))


_MARK = "edgeq inference"
#: torch makes a Python object of each event, of which an inference has hundreds: reading a profile takes several times as
#: long as the inferences in it. So many of them a second asked for, which a cell of MobileNetV2 has half of.
_PROFILED_A_SECOND = 16
_BLOCKS = 6


def profile_operators(
    manifest: Manifest, path: Path, options: SessionOptions, samples: Array, seconds: float
) -> OperatorProfile:
    """``edgeq.backends.profile_operators``: one session, with the profiler around half of its inferences."""
    import torch

    with closing(PytorchSession(manifest, path, SessionOptions(threads=options.threads))) as session:
        pair = _Pair(session, samples)
        timing = alternate(pair, seconds, seconds / _BLOCKS, max(1, round(_PROFILED_A_SECOND * seconds)))
        layers = read_graph(session._module.inlined_graph).layers
    return profile_of(
        times_of(pair.runs, manifest.layers, layers),
        tool=f"torch {torch.__version__} profiler",
        threads=options.threads,
        inferences=timing.inferences,
        profiled_ms=timing.profiled_ms,
        plain_ms=timing.plain_ms,
    )


def _operators(mark: Any) -> Iterator[Op]:
    """The operators below the mark of one inference; ``forward`` and the like stand between, and are no operators."""
    position = -1
    pending: list[tuple[Any, tuple[str, ...]]] = [(child, ()) for child in reversed(mark.cpu_children)]
    while pending:
        event, callers = pending.pop()
        path = callers
        if "::" in event.name:
            path = (*callers, event.name)
            position += len(path) == 1
            yield Op(path, position, event.self_cpu_time_total / 1e3)
        pending += [(child, path) for child in reversed(event.cpu_children)]


def times_of(runs: Sequence[Sequence[Op]], layers: Sequence[Layer], found: Sequence[Found]) -> list[OperatorTime]:
    """Every outermost operator with its mean milliseconds, and apart from it the conversions that it calls.

    An operator is named after the one below it that takes most of its time: ``aten::mkldnn_convolution`` tells more than
    ``aten::_convolution``. ``found`` are the graph's layers with their precision, ``layers`` the float model's.
    """
    inner: defaultdict[tuple[int, bool], defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    outer: dict[int, str] = {}
    for op in (op for run in runs for op in run):
        inner[op.position, op.converts][op.path[-1]] += op.ms / len(runs)
        outer[op.position] = op.path[0]
    weighted = [position for position in sorted(outer) if _kind(outer[position]) is not None]
    layer_of = dict(zip(weighted, layers, strict=True)) if len(weighted) == len(layers) else {}
    precisions = dict(zip(weighted, found, strict=True)) if len(weighted) == len(found) else {}
    times = []
    for (position, converts), parts in inner.items():
        layer, ran = layer_of.get(position), precisions.get(position)
        name = layer.name if layer is not None else f"{outer[position]}, operator {position}"
        group: Group = _kind(outer[position]) or "other"
        times.append(
            OperatorTime(
                name=f"{name}, conversion" if converts and layer is not None else name,
                operator=max(parts, key=lambda part: parts[part]),
                group="convert" if converts else group if layer is None else group_of(layer),
                precision=ran.precision if ran is not None and not converts else None,
                ms=sum(parts.values()),
            )
        )
    return times


def _kind(name: str) -> Group | None:
    """The group of an operator that has weights, as far as its name tells; None for another."""
    if name in _CONVOLUTIONS or name.startswith("quantized::conv"):
        return "convolution"
    return "fully connected" if name in _LINEAR or name.startswith("quantized::linear") else None
