"""What one exporter file gives: a recipe for a scheme and target, and an artifact built by it.

``edgeq/export/<backend>.py`` holds ``TOOLS``, ``recipe`` and ``build`` with the shapes below (module-level functions).
``recipe`` imports no framework: it decides from names alone, so that what is up to date is told without loading one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from edgeq.artifact import InputInfo
from edgeq.spec.model import ModelSpec

if TYPE_CHECKING:
    import torch


class CalibrationSamples(Protocol):
    """Preprocessed calibration samples, float32 ``[C, H, W]``, read from disk one at a time."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[npt.NDArray[np.float32]]: ...


@dataclass(frozen=True)
class Recipe:
    """How a scheme is made for a target."""

    target: str
    """The target in the artifact's name: ``any`` where the file does not depend on the target."""
    settings: dict[str, Any] = field(default_factory=dict)
    """JSON values; part of the artifact's key and of its manifest's ``details``."""


@dataclass(frozen=True)
class FloatSource:
    """The float32 network that all of a model's artifacts come from."""

    spec: ModelSpec
    module: torch.nn.Module
    """In eval mode, float32, NCHW."""
    work: Path
    """A folder of this family's own, for its float graph: made once, used by all its schemes."""
    calibration: CalibrationSamples


@dataclass(frozen=True)
class Built:
    """What ``build`` wrote. The first file is the one that a session loads."""

    files: list[Path]
    input: InputInfo
    details: dict[str, Any] = field(default_factory=dict)


class Exporter(Protocol):
    """The functions of an exporter file."""

    TOOLS: tuple[str, ...]
    """Distributions whose versions are part of an artifact's key, such as ``("onnx", "onnxruntime")``."""

    def recipe(self, scheme: str, target: str) -> Recipe:
        """``target`` is one of ``edgeq.artifact.TARGETS``."""
        ...

    def build(self, source: FloatSource, scheme: str, recipe: Recipe, out: Path, name: str) -> Built:
        """Writes ``out/<name>.<ext>`` (``out`` is an empty folder). Raises whatever the tools raise."""
        ...
