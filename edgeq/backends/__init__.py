"""artifact → ``Session``. A framework is imported in its own file, and only when a session is opened."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgeq.installing import pip_install
from edgeq.spec.errors import EdgeqError

if TYPE_CHECKING:  # the registry is asked by verbs that load no model, and need no numpy
    from edgeq.artifact import Manifest
    from edgeq.backends.session import Array, Session, SessionOptions
    from edgeq.operators import OperatorProfile


@dataclass(frozen=True)
class Backend:
    """A line of the registry."""

    module: str
    """Its file, with ``open_session``."""
    runs_on: tuple[str, ...]
    """Modules of frameworks, any one of which will do; the first that is installed is taken."""
    extra: str
    """The extra of ``pyproject.toml`` that brings it."""


REGISTRY = {
    "openvino": Backend("edgeq.backends.openvino", ("openvino",), "openvino"),
    "tflite": Backend("edgeq.backends.tflite", ("ai_edge_litert.interpreter", "tflite_runtime.interpreter"), "tflite"),
    "onnxruntime": Backend("edgeq.backends.onnxruntime", ("onnxruntime",), "onnxruntime"),
    "pytorch": Backend("edgeq.backends.pytorch", ("torch",), "pytorch"),
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
    for module in _present(backend):
        distribution = _DISTRIBUTIONS.get(module.split(".")[0], module)
        try:
            found[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            found[distribution] = "unknown"
    return found


def _present(backend: str) -> list[str]:
    """The modules of ``runs_on`` whose package is installed."""
    return [name for name in REGISTRY[backend].runs_on if importlib.util.find_spec(name.split(".")[0]) is not None]


def require(backend: str) -> None:
    """Raises ``EdgeqError`` (code ``not-installed``) where nothing that ``backend`` can run on is installed."""
    if not _present(backend):
        entry = REGISTRY[backend]
        packages = " or ".join(name.split(".")[0] for name in entry.runs_on)
        raise EdgeqError(
            f"backend {backend} is not installed",
            f"no module named {packages}",
            f"run: {pip_install(f'edgeq[{entry.extra}]')}",
            code="not-installed",
        )


def preload(backend: str) -> None:
    """Imports what ``backend`` runs on, so that the import does not count as the model's load.

    Raises:
        EdgeqError: it is not installed (``not-installed``), or its import fails (``import-failed``).
    """
    require(backend)
    name = _present(backend)[0]
    try:
        importlib.import_module(name)
    except ImportError as error:
        raise EdgeqError(
            f"{name} is installed, but can't be imported", str(error), "run: edgeq doctor", code="import-failed"
        ) from error


def open_session(manifest: Manifest, path: Path, options: SessionOptions) -> Session:
    """Loads the artifact at ``path``, which ``manifest`` describes.

    Raises:
        EdgeqError: the backend is not installed (``not-installed``), or its framework refuses the file
            (``load-failed``).
    """
    require(manifest.backend)
    module = importlib.import_module(REGISTRY[manifest.backend].module)
    session: Session = module.open_session(manifest, path, options)
    return session


def profile_operators(
    manifest: Manifest, path: Path, options: SessionOptions, samples: Array, seconds: float
) -> OperatorProfile:
    """Where an inference's time goes, by the framework's own profiler, over about ``seconds``.

    One inference at a time on ``options.threads`` threads (``options.streams`` has no say), in sessions of their own
    with the options of measured cells; inferences with the profiler on take turns with others without it, for
    ``plain_ms``. A model too slow for that is inferred twice with the profiler and twice without, of which the second
    counts: ``OperatorProfile.inferences`` is 1 then.

    Args:
        samples: float32 ``[n, *manifest.input.shape]``, in the artifact's layout; taken in turn.

    Raises:
        EdgeqError: as ``open_session``; or there is no profiler for this backend here (code ``no-profiler``).
    """
    require(manifest.backend)
    profile: OperatorProfile = _operators_of(manifest.backend).profile_operators(
        manifest, path, options, samples, seconds
    )
    return profile


def unseen_by_profiler(backend: str) -> str:
    """What the profiler of ``backend`` does not tell, in words. Imports no framework.

    Raises:
        EdgeqError: edgeq has no profiler for it (code ``no-profiler``).
    """
    text: str = _operators_of(backend).UNSEEN
    return text


def _operators_of(backend: str) -> ModuleType:
    found = part_of(backend, "operators")
    if found is None:
        raise EdgeqError(
            f"there is no profile of {backend}'s operators",
            f"edgeq has no module {REGISTRY[backend].module}_operators",
            "profile a cell of another backend, or write this module (CONTRIBUTING.md, Add a backend)",
            code="no-profiler",
        )
    return found


def part_of(backend: str, part: str) -> ModuleType | None:
    """The module ``<fw>_<part>`` beside a backend's own, such as its ``operators``; None where it has none."""
    name = f"{REGISTRY[backend].module}_{part}"
    return importlib.import_module(name) if importlib.util.find_spec(name) is not None else None
