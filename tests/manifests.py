"""Manifests for tests that need one but not its artifact."""

from __future__ import annotations

from typing import Any, Literal

from edgeq.artifact import CalibrationInfo, InputInfo, Manifest, Reference, WeightsInfo


def manifest(kind: Literal["pretrained", "random", "file"] = "file", **changes: Any) -> Manifest:
    """A whole manifest of ``m/tflite/fp32`` with 3x8x8 samples and 10 classes, changed as told."""
    fields: dict[str, Any] = {
        "model": "m",
        "backend": "tflite",
        "scheme": "fp32",
        "target": "any",
        "status": "ok",
        "key": "k",
        "weights": WeightsInfo(kind=kind, name="w", sha256="w"),
        "calibration": CalibrationInfo(kind="synthetic", count=1, seed=0, sha256="c"),
        "input": InputInfo(shape=(3, 8, 8), layout="NCHW"),
        "classes": 10,
        "reference": Reference(file="../reference.npz", sha256="r"),
    }
    return Manifest(**{**fields, **changes})
