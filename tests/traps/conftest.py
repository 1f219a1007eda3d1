"""Artifacts of the small network for the traps' tests, each made when the first test asks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.export import exported
from tests.export.exported import Exported

_REQUIRES = {
    "openvino": ("torch", "openvino", "nncf"),
    "tflite": ("torch", "litert_torch", "litert_quantizer", "ai_edge_litert"),
    "onnxruntime": ("torch", "onnx", "onnxruntime", "onnxconverter_common"),
    "pytorch": ("torch",),
}

Artifact = Callable[..., Exported]


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """``artifact(backend, scheme, target="x86_64-vnni")``; skips where the tools to make it are not installed."""
    made: dict[tuple[str, str, str], Exported] = {}
    folders: dict[str, Path] = {}

    def make(backend: str, scheme: str, target: str = "x86_64-vnni") -> Exported:
        for module in _REQUIRES[backend]:
            pytest.importorskip(module)
        key = (backend, scheme, target)
        if key not in made:
            if backend not in folders:
                folders[backend] = tmp_path_factory.mktemp(f"trap-{backend}")
            made[key] = exported.export(backend, scheme, folders[backend], target=target)
        return made[key]

    return make
