"""Where logits diverge first: signal-to-quantization-noise ratio of every layer, float32 artifact against another.

``layer_errors`` runs two artifact files of one backend side by side, sample by sample, and compares what comes out of
each convolution and linear layer, after the clamp (ReLU, ReLU6) that follows it alone. Each framework's part is in
``<backend>_layers.py``: it opens a file so that the layers can be read (``Taps``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from edgeq.artifact import Layer, Manifest
from edgeq.backends import REGISTRY, open_session, part_of, require
from edgeq.backends.macs import Executed, conv_macs, linear_macs
from edgeq.backends.session import Array, SessionOptions
from edgeq.data.layout import to_layout
from edgeq.logits import distance
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: Reading the layers may change what is computed (a fusion that no longer happens); by this much, or where all there is
#: to see is float32's own rounding, it does not matter.
_SAME_DB, _ROUNDING_DB = 1.0, 100.0
_MOST_PADDING = 4  # as in ``edgeq.backends.macs``: channels rounded up to a block


@dataclass(frozen=True)
class LayerError:
    """How far one layer's output lies from the float32 artifact's, over all samples and elements.

    Both ratios are 10 log10(sum signal² / sum error²) in dB, the signal being the float32 output; None where the
    error is exactly zero.
    """

    name: str
    """The torch module's name."""
    op: Literal["conv", "depthwise", "linear"]
    precision: str | None
    """What it is executed in (``int8``, ``fp16`` …), None where the framework's graph does not say."""
    sqnr_db: float | None
    """As it runs, with all errors of the layers before it."""
    local_sqnr_db: float | None
    """The layer alone, fed with the float32 artifact's input to it (with the quantization of that input, where the
    layer takes integers): by this, worst first, to choose layers to keep in float."""


@dataclass(frozen=True)
class LayerReport:
    """The layers in execution order, and what a reader of the figures must know."""

    layers: list[LayerError]
    tool: str
    """By what the layers were read."""
    samples: int
    logits_sqnr_db: float | None
    """Logits of the measured session against those of the float32 artifact; the last layer's ``sqnr_db``, unless
    reading the layers changes what is computed."""
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True)
class Tap:
    """A layer as it stands in the file."""

    key: str
    """Its name in the file, the same in the float and the quantized file; empty where files have no such names."""
    kind: Literal["conv", "linear"]
    weight: tuple[int, ...]
    """Shape of its weights, for ``conv`` as in ``edgeq.backends.macs.conv_macs``; for ``linear`` the last is the number
    of its inputs."""


@dataclass(frozen=True)
class Activations:
    """One sample's: float32, dequantized, in the order of ``Taps.layers``."""

    logits: Array
    outputs: list[Array]
    inputs: list[Array] = field(default_factory=list)
    """Empty where they were not asked for."""


class Taps(Protocol):
    """An artifact whose layers can be read while it runs."""

    layers: Sequence[Tap]
    tool: str

    def run(self, sample: Array) -> Activations:
        """Infers one sample ``[1, *input.shape]``."""
        ...

    def alone(self, inputs: Sequence[Array]) -> list[Array]:
        """Each layer's output where it is fed with its own of ``inputs``, quantized first where the layer takes
        integers. To be called after ``run``."""
        ...

    def executed(self) -> list[Executed]:
        """The layers that the measured session runs, in its own order, with their precisions."""
        ...

    def close(self) -> None:
        """Frees the model."""
        ...


class Opener(Protocol):
    """What each ``<backend>_layers`` module is."""

    def open_taps(self, manifest: Manifest, path: Path, options: SessionOptions, *, inputs: bool) -> Taps:
        """Opens the file with the measured session's own settings. ``inputs``: read the layers' inputs too.

        Raises:
            EdgeqError: a package that this needs is missing (``not-installed``), or the file is refused
                (``load-failed``).
        """
        ...


def layer_errors(fp32: tuple[Manifest, Path], other: tuple[Manifest, Path], samples: Array) -> list[LayerError]:
    """``layer_report(...).layers``: the layers in execution order. See there for arguments and errors."""
    return layer_report(fp32, other, samples).layers


def layer_report(
    fp32: tuple[Manifest, Path], other: tuple[Manifest, Path], samples: Array, threads: int = 1
) -> LayerReport:
    """Runs both artifacts over ``samples`` and compares them layer by layer.

    Holds the activations of one sample, and several copies of both models, in memory.

    Args:
        fp32: Manifest and file of the float32 artifact.
        other: Those of another artifact of the same backend and weights.
        samples: float32 ``[n, C, H, W]``, preprocessed, n at least 1.
        threads: Threads an inference.

    Raises:
        EdgeqError: the two artifacts do not belong together (code ``wrong-artifact``); the layers found are not those
            of the manifest (``layers-unmatched``); a package is missing (``not-installed``); a file is refused
            (``load-failed``); a layer's values are not finite (``not-finite``); edgeq can't read this backend's layers
            (``no-layers``).
        ValueError: ``samples`` are of another shape.
    """
    if samples.ndim != 4 or not len(samples):
        raise ValueError(f"samples of shape {samples.shape}, expected [n, C, H, W] with n at least 1")
    _belong_together(fp32[0], other[0])
    backend = other[0].backend
    require(backend)
    opener = _opener(backend)
    options = SessionOptions(threads)
    with ExitStack() as stack:
        float_taps = stack.enter_context(closing(opener.open_taps(*fp32, options, inputs=True)))
        taps = stack.enter_context(closing(opener.open_taps(*other, options, inputs=False)))
        session = stack.enter_context(closing(open_session(*other, options)))
        compared = _Compared(fp32[0].layers, float_taps, taps)
        expected, found = [], []
        for sample in samples:
            own = to_layout(sample[None], other[0].input.layout)
            expected.append(compared.add(to_layout(sample[None], fp32[0].input.layout), own))
            found.append(session.infer(own))
        layers = compared.errors(taps.executed())
    logits = distance(np.concatenate(found), np.concatenate(expected)).sqnr_db
    return LayerReport(layers, taps.tool, len(samples), logits, _disturbed(logits, layers))


def _opener(backend: str) -> Opener:
    found = part_of(backend, "layers")
    if found is None:
        raise EdgeqError(
            f"the layers of {backend} can't be compared",
            f"edgeq has no module {REGISTRY[backend].module}_layers",
            "leave out --layers, or write this module (CONTRIBUTING.md, Add a backend)",
            code="no-layers",
        )
    opener: Opener = found
    return opener


class _Compared:
    """Sums of squares, layer by layer, in the manifest's order."""

    def __init__(self, layers: Sequence[Layer], float_taps: Taps, taps: Taps) -> None:
        self._layers, self._float, self._taps = layers, float_taps, taps
        self._float_order = _order(float_taps.layers, layers)
        self._order = _same_order(taps.layers, float_taps.layers, self._float_order)
        self._signal, self._noise, self._local = np.zeros((3, len(layers)))

    def add(self, float_sample: Array, sample: Array) -> Array:
        """Runs one sample through both; returns the float32 logits."""
        expected, found = self._float.run(float_sample), self._taps.run(sample)
        inputs = [np.empty(0, np.float32)] * len(self._order)
        for own, reference in zip(self._order, self._float_order, strict=True):
            inputs[own] = expected.inputs[reference]
        local = self._taps.alone(inputs)
        for index, (own, reference) in enumerate(zip(self._order, self._float_order, strict=True)):
            self._check(index, expected.outputs[reference], found.outputs[own], local[own])
            signal = expected.outputs[reference].astype(np.float64)
            self._signal[index] += np.sum(signal**2)
            self._noise[index] += np.sum((found.outputs[own] - signal) ** 2)
            self._local[index] += np.sum((local[own] - signal) ** 2)
        return expected.logits

    def _check(self, index: int, expected: Array, *others: Array) -> None:
        layer, tap = self._layers[index], self._float.layers[self._float_order[index]]
        for found in others:
            if found.shape != expected.shape:
                raise _unmatched(f"{layer.name} gives {list(found.shape)}, in float {list(expected.shape)}")
        cost = (
            conv_macs(expected.shape, tap.weight) if tap.kind == "conv" else linear_macs(expected.shape, tap.weight[-1])
        )
        if cost != layer.macs:
            raise _unmatched(f"{layer.name} has {layer.macs:,} multiply-adds, its place in the file {cost:,}")
        for found in (expected, *others):
            if not np.all(np.isfinite(found)):
                raise EdgeqError(
                    f"layer {layer.name} gives values that are not finite", "they do not fit its number format",
                    "keep this layer in float32, or use another scheme", code="not-finite",
                )  # fmt: skip

    def errors(self, executed: Sequence[Executed]) -> list[LayerError]:
        precisions = _precisions(executed, self._layers)
        sums = zip(self._layers, precisions, self._signal, self._noise, self._local, strict=True)
        return [
            LayerError(layer.name, layer.op, precision, _sqnr(signal, noise), _sqnr(signal, local))
            for layer, precision, signal, noise, local in sums
        ]


def _sqnr(signal: float, noise: float) -> float | None:
    """As ``edgeq.logits.distance`` has it."""
    return None if noise == 0 else 10 * math.log10(max(float(signal), np.finfo(np.float64).tiny) / float(noise))


def _belong_together(fp32: Manifest, other: Manifest) -> None:
    mine = (fp32.model, fp32.backend, fp32.weights.sha256, fp32.layers)
    if fp32.scheme == "fp32" and mine == (other.model, other.backend, other.weights.sha256, other.layers):
        return
    raise EdgeqError(
        f"{other.model}/{other.backend}/{other.scheme} can't be compared with {fp32.model}/{fp32.backend}/{fp32.scheme}",
        "layers are compared with the fp32 artifact of the same model, backend and weights",
        f"run: edgeq export --model {other.model} --backend {other.backend}, to export both from the same weights",
        code="wrong-artifact",
    )


def _order(taps: Sequence[Tap], layers: Sequence[Layer]) -> list[int]:
    """For each layer of the manifest its place among ``taps``: by module name where keys hold one, else by order."""
    if len(taps) != len(layers):
        raise _unmatched(f"the file has {len(taps)} convolution and linear layers, the model {len(layers)}")
    found = [[i for i, tap in enumerate(taps) if layer.name in _modules(tap.key)] for layer in layers]
    named = all(len(places) == 1 for places in found) and len({places[0] for places in found}) == len(layers)
    order = [places[0] for places in found] if named else list(range(len(layers)))
    kinds = ["linear" if layer.op == "linear" else "conv" for layer in layers]
    if [taps[i].kind for i in order] != kinds:
        raise _unmatched("convolution and linear layers come in another order")
    return order


def _modules(key: str) -> list[str]:
    """Parts of a key that may be a module's name: ``/features/features.0/Conv``, ``__module.features.0/aten::conv``."""
    return [part.removeprefix("__module.") for part in key.split("/")]


def _same_order(taps: Sequence[Tap], float_taps: Sequence[Tap], float_order: Sequence[int]) -> list[int]:
    """The places of the float file's layers, in ``float_order``, in the other file: by key, else the same places."""
    if len(taps) != len(float_taps):
        raise _unmatched(f"the file has {len(taps)} convolution and linear layers, the float32 file {len(float_taps)}")
    keys, float_keys = [tap.key for tap in taps], [tap.key for tap in float_taps]
    by_key = len(set(keys)) == len(keys) and sorted(keys) == sorted(float_keys)
    order = [keys.index(float_keys[i]) if by_key else i for i in float_order]
    for own, reference in zip(order, float_order, strict=True):
        if taps[own].kind != float_taps[reference].kind:
            raise _unmatched("convolution and linear layers come in another order than in the float32 file")
    return order


def _precisions(executed: Sequence[Executed], layers: Sequence[Layer]) -> list[str | None]:
    """One a layer, where what runs is the layers one by one, by their multiply-adds; None for all where it is not."""
    pairs = zip(executed, layers, strict=False)
    if len(executed) == len(layers) and all(
        layer.macs <= ran.macs <= _MOST_PADDING * layer.macs for ran, layer in pairs
    ):
        return [ran.precision for ran in executed]
    return [None] * len(layers)


def _disturbed(logits: float | None, layers: Sequence[LayerError]) -> tuple[Note, ...]:
    pair = [min(_ROUNDING_DB, math.inf if value is None else value) for value in (logits, layers[-1].sqnr_db)]
    if abs(pair[0] - pair[1]) <= _SAME_DB:
        return ()
    return (
        Note(
            code="layers-disturbed",
            text=f"reading the layers changes what is computed: the logits' SQNR is {pair[0]:.1f} dB as measured, "
            f"{pair[1]:.1f} dB here",
            hint="take the figures of this artifact's layers for an estimate",
        ),
    )


def _unmatched(why: str) -> EdgeqError:
    return EdgeqError(
        "the layers of the artifact are not those of its manifest", why,
        "run: edgeq export, to write both artifacts anew; if that does not help, report this with the model",
        code="layers-unmatched",
    )  # fmt: skip
