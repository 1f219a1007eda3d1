"""How much memory a cell's worker will take at its peak, before it is started. Pure: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgeq.setting import Setting


@dataclass(frozen=True)
class Footprint:
    """Bytes of one worker's peak, by what they are for."""

    framework: int
    """Python, edgeq, LoadGen and the framework, with no model."""
    model: int
    """The artifact as it is read, and what kernels make of it, of all streams."""
    activations: int
    samples: int
    """Resident ones, as float32."""
    spread: float
    """How many times as much as the least measured peak ``most`` may be."""

    @property
    def most(self) -> int:
        """No worker measured took more (``tests/run/test_footprint.py``)."""
        return self.framework + self.model + self.activations + self.samples

    @property
    def least(self) -> int:
        """No worker measured took less: with less than this it would be killed."""
        return round(self.most / self.spread)

    def words(self) -> str:
        """Such as ``1310 MB (framework 82, model 1149, activations 39, samples 39)``."""
        parts = ("framework", "model", "activations", "samples")
        return f"{self.most / 1e6:.0f} MB ({', '.join(f'{part} {getattr(self, part) / 1e6:.0f}' for part in parts)})"


@dataclass(frozen=True)
class _Kind:
    """What a session takes on top of its framework, as measured."""

    always: int
    """Bytes: what the first inference allocates whatever the model, and the samples that the output is checked with."""
    loading: float
    """Times the artifact's bytes, at the peak: the file, what is read from it, and what kernels make of that."""
    a_stream: float
    """The same for each stream beyond the first, where streams share nothing."""
    a_sample: float
    """Times the bytes of a float32 sample, for each one inferred at once: activations and scratch memory."""
    each: int = 0
    """Bytes for each stream beyond the first."""
    spread: float = 1.5
    """See ``Footprint``."""


_MB = 10**6
#: Backend → scheme → kind. Drawn from MobileNetV2, DenseNet-121 and VGG-19 (ImageNet's shape, x86-64, versions of
#: ``constraints.txt``) so that no peak lies above the sum, and none below a ``spread``-th of it; the peaks are in
#: ``tests/run/test_footprint.py``.
_KINDS: Mapping[str, Mapping[str, _Kind]] = {
    "openvino": {
        "fp32": _Kind(65 * _MB, 2.05, 0.0, 48),
        "fp16": _Kind(62 * _MB, 3.1, 0.0, 48),
        # Hangs on the graph: compiling DenseNet-121 takes 300 MB, MobileNetV2 60; why was not found out.
        "int8-static": _Kind(300 * _MB, 2.05, 0.0, 51, spread=3.3),
        # Each stream compiles a model of its own.
        "int8-dynamic": _Kind(115 * _MB, 3.0, 3.0, 48, each=70 * _MB, spread=1.7),
    },
    # Each stream is an interpreter of its own: it maps the file, and packs the weights for itself.
    "tflite": {
        "fp32": _Kind(19 * _MB, 2.05, 2.05, 64),
        "fp16": _Kind(19 * _MB, 4.1, 3.2, 60),
        "int8-static": _Kind(19 * _MB, 2.05, 2.05, 30),
        "int8-dynamic": _Kind(19 * _MB, 2.05, 2.05, 50),
    },
    "onnxruntime": {
        "fp32": _Kind(28 * _MB, 2.05, 0.0, 48),
        "fp16": _Kind(28 * _MB, 4.0, 0.0, 48),
        "int8-static": _Kind(22 * _MB, 2.6, 0.0, 24),
        "int8-dynamic": _Kind(22 * _MB, 1.6, 0.0, 84),
    },
    "pytorch": {
        "fp32": _Kind(45 * _MB, 1.25, 0.0, 48),
        "fp16": _Kind(45 * _MB, 2.0, 0.0, 48),
        "int8-static": _Kind(45 * _MB, 2.3, 0.0, 16),
        "int8-dynamic": _Kind(45 * _MB, 2.0, 0.0, 48),
    },
}  # fmt: skip
#: For a backend of one's own: enough for the file and a copy of it.
_ANY = _Kind(16 * _MB, 2.0, 2.0, 64)


def footprint(
    backend: str, scheme: str, *, framework: int, artifact: int, sample: int, resident: int, setting: Setting
) -> Footprint:
    """Bytes of a cell's worker, to the end of its measurement.

    LoadGen's queries, generated ahead, are not in it: they are planned by the memory that is free by then
    (``edgeq.loadgen.plan``). What is asked of the framework after the measurement may take more, and costs no figure.

    Args:
        framework: Peak of a process that has loaded all but a model (``edgeq.run.imports``).
        artifact: Of the files that the backend loads.
        sample: Of one float32 sample.
        resident: Samples in memory while LoadGen runs.
        setting: The cell's.
    """
    kind = _KINDS.get(backend, {}).get(scheme, _ANY)
    copies = kind.loading + kind.a_stream * (setting.streams - 1)
    return Footprint(
        framework=framework,
        model=kind.always + kind.each * (setting.streams - 1) + round(copies * artifact),
        activations=round(kind.a_sample * setting.streams * setting.batch * sample),
        samples=resident * sample,
        spread=kind.spread,
    )
