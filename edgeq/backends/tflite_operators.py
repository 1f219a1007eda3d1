"""TFLite: milliseconds an operator, as XNNPACK times its own, from LiteRT's profiler."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import numpy as np

from edgeq.artifact import Layer, Manifest
from edgeq.backends.operators import alternate, group_of, in_turn, timed
from edgeq.backends.session import Array, SessionOptions
from edgeq.backends.tflite import TfliteSession
from edgeq.backends.tflite_capi import CompiledModel, Event, no_profiler
from edgeq.operators import Group, OperatorProfile, OperatorTime, profile_of

UNSEEN = (
    "what XNNPACK does while it loads (packing weights), and copying input and output (untimed); XNNPACK calls a 1x1 "
    "convolution Fully Connected, and its times are whole microseconds"
)

_LAYERS = ("Convolution", "Fully Connected", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_CONVERT = ("Convert", "Transpose", "Copy", "QUANTIZE", "DEQUANTIZE", "CAST", "TRANSPOSE")
#: The first type in XNNPACK's name of a kernel: what it reads (QD8, QDU8: float32 quantized at run time to 8 bits).
_PRECISION = {
    "F32": "fp32", "F16": "fp16", "BF16": "bf16",
    "QS8": "int8", "QU8": "int8", "QC8": "int8", "QD8": "int8", "QDU8": "int8",
}  # fmt: skip


class _Pair:
    """``edgeq.backends.operators.Profiled``: the measured interpreter, and LiteRT's compiled model of the same file."""

    def __init__(self, plain: TfliteSession, compiled: CompiledModel, samples: Array) -> None:
        self._plain, self._compiled, self._samples = plain, compiled, in_turn(samples)
        self.events: list[list[Event]] = []

    def plain(self, count: int) -> list[float]:
        return timed(lambda: self._plain.infer(next(self._samples)), count)

    def profiled(self, count: int) -> list[float]:
        found: list[float] = []
        if count > 1:
            self._compiled.infer(next(self._samples))
        for _ in range(count):
            self.events.append(
                self._compiled.profiled(
                    lambda: found.extend(timed(lambda: self._compiled.infer(next(self._samples)), 1))
                )
            )
        return found

    def forget(self) -> None:
        self.events.clear()


def profile_operators(
    manifest: Manifest, path: Path, options: SessionOptions, samples: Array, seconds: float
) -> OperatorProfile:
    """``edgeq.backends.profile_operators``.

    The interpreter that is measured has no profiler in Python. The same file compiled by LiteRT runs the same XNNPACK
    kernels, which is checked: its logits must be the interpreter's, bit by bit.

    Raises:
        EdgeqError: there is no profiler that edgeq knows, or it computes other logits (code ``no-profiler``).
    """
    with (
        closing(CompiledModel(path, options.threads)) as compiled,
        closing(TfliteSession(manifest, path, SessionOptions(threads=options.threads))) as plain,
    ):
        if not np.array_equal(plain.infer(samples[:1]), compiled.infer(samples[:1])):
            raise no_profiler("LiteRT's compiled model gives other logits than the interpreter that is measured")
        pair = _Pair(plain, compiled, samples)
        timing = alternate(pair, seconds)
        runtime = str(plain.effective().extra["runtime"])
    return profile_of(
        times_of(pair.events, manifest.layers),
        tool=f"{runtime}, profiler of its compiled model (XNNPACK's own operator times)",
        threads=options.threads,
        inferences=timing.inferences,
        profiled_ms=timing.profiled_ms,
        plain_ms=timing.plain_ms,
    )


def times_of(runs: list[list[Event]], layers: list[Layer]) -> list[OperatorTime]:
    """Every operator of an inference with its mean milliseconds; ``runs`` are the events of each inference in order.

    Raises ``EdgeqError`` (code ``no-profiler``) where the inferences do not run the same operators.
    """
    names = [event.name for event in runs[0]]
    if any([event.name for event in run] != names for run in runs):
        raise no_profiler("not every inference ran the same operators")
    micros: defaultdict[int, int] = defaultdict(int)
    for run in runs:
        for position, event in enumerate(run):
            micros[position] += event.us
    macs = [position for position, name in enumerate(names) if name.startswith(_LAYERS)]
    ordered = dict(zip(macs, layers, strict=True)) if _same(macs, names, layers) else {}
    found = []
    for position, name in enumerate(names):
        layer = ordered.get(position)
        found.append(
            OperatorTime(
                name=layer.name if layer is not None else f"{name}, node {position}",
                operator=name,
                group=group_of(layer) if layer is not None else _group(name),
                precision=None if name.startswith(_CONVERT) else _precision(name),
                ms=micros[position] / len(runs) / 1e3,
            )
        )
    return found


def _same(macs: list[int], names: list[str], layers: list[Layer]) -> bool:
    """Whether the operators with weights are the float model's layers, one by one: as many, depthwise where it is."""
    return len(macs) == len(layers) and all(
        ("DWConv" in names[position] or names[position] == "DEPTHWISE_CONV_2D") == (layer.op == "depthwise")
        for position, layer in zip(macs, layers, strict=True)
    )


def _group(name: str) -> Group:
    if name.startswith(_CONVERT):
        return "convert"
    if "DWConv" in name or name == "DEPTHWISE_CONV_2D":
        return "depthwise"
    if name.startswith(("Fully Connected", "FULLY_CONNECTED")):
        return "fully connected"
    return "convolution" if name.startswith(_LAYERS) else "other"


def _precision(name: str) -> str | None:
    types = re.findall(r"\b(?:Q[SUDC]8|QDU8|BF16|F16|F32)\b", name)
    return _PRECISION[types[0]] if types else None
