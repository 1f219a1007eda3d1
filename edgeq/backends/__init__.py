"""artifact → ``Session``. A framework is imported in its own file, and only when a session is opened."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

from edgeq.artifact import Manifest
from edgeq.backends.session import Session, SessionOptions
from edgeq.spec.errors import EdgeqError

#: Backend → module with ``open_session``, modules any one of which must be importable, and the extra that brings them.
REGISTRY: dict[str, dict[str, Any]] = {
    "openvino": {"module": "edgeq.backends.openvino", "needs": ("openvino",), "extra": "openvino"},
    "tflite": {
        "module": "edgeq.backends.tflite",
        "needs": ("ai_edge_litert", "tflite_runtime"),
        "extra": "tflite",
    },
    "onnxruntime": {"module": "edgeq.backends.onnxruntime", "needs": ("onnxruntime",), "extra": "onnxruntime"},
    "pytorch": {"module": "edgeq.backends.pytorch", "needs": ("torch",), "extra": "pytorch"},
}

_DISTRIBUTIONS = {
    "openvino": "openvino",
    "ai_edge_litert": "ai-edge-litert",
    "tflite_runtime": "tflite-runtime",
    "onnxruntime": "onnxruntime",
    "torch": "torch",
}


def installed(backend: str) -> dict[str, str]:
    """Distribution → version of what ``backend`` runs on, without importing it; empty where it is not installed."""
    found: dict[str, str] = {}
    for module in REGISTRY[backend]["needs"]:
        if importlib.util.find_spec(module) is None:
            continue
        distribution = _DISTRIBUTIONS[module]
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            found[distribution] = "unknown"
    return found


def require(backend: str) -> None:
    """Raises ``EdgeqError`` (code ``not-installed``) where nothing that ``backend`` can run on is installed."""
    if not installed(backend):
        entry = REGISTRY[backend]
        raise EdgeqError(
            f"backend {backend} is not installed",
            f"no module named {' or '.join(entry['needs'])}",
            f"run: pip install -c constraints.txt 'edgeq[{entry['extra']}]'",
            code="not-installed",
        )


def open_session(manifest: Manifest, path: Path, options: SessionOptions) -> Session:
    """Loads the artifact at ``path``, which ``manifest`` describes.

    Raises:
        EdgeqError: the backend is not installed (``not-installed``), or its framework refuses the file
            (``load-failed``).
    """
    require(manifest.backend)
    module = importlib.import_module(REGISTRY[manifest.backend]["module"])
    session: Session = module.open_session(manifest, path, options)
    return session
