"""What one exporter file gives: a recipe for a scheme and target, and an artifact built by it.

``edgeq/export/<backend>.py`` holds ``TOOLS``, ``recipe`` and ``build`` with the shapes below (module-level functions).
``recipe`` imports no framework: it decides from names alone, so that what is up to date is told without loading one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from edgeq.artifact import InputInfo, Layer
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import ModelSpec
from edgeq.spec.quantization import DEFAULTS, QuantizationOptions

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
    layers: Sequence[Layer] = ()
    """Its convolution and linear layers, in execution order."""


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

    def recipe(self, scheme: str, target: str, options: QuantizationOptions = DEFAULTS) -> Recipe:
        """``target`` is one of ``edgeq.artifact.TARGETS``; ``options`` concern int8 schemes only.

        Raises:
            RequestError: the framework lacks what ``options`` ask for (code ``not-offered``).
        """
        ...

    def build(self, source: FloatSource, scheme: str, recipe: Recipe, out: Path, name: str) -> Built:
        """Writes ``out/<name>.<ext>`` (``out`` is an empty folder). Raises whatever the tools raise."""
        ...


def nodes_of(kept: Sequence[str], layers: Sequence[Layer], nodes: Sequence[str]) -> list[str]:
    """Names of a framework's nodes for the torch layers ``kept``.

    Args:
        layers: The network's layers in execution order.
        nodes: The framework's convolution and linear nodes in the same order: names of modules do not survive
            conversion in every framework. That the right ones stay in float is checked in the finished artifact.

    Raises:
        EdgeqError: there are not as many nodes as layers (code ``layers-unmatched``).
    """
    if not kept:
        return []
    if len(nodes) != len(layers):
        raise EdgeqError(
            f"{', '.join(kept)} can't be kept in float",
            f"the converted graph has {len(nodes)} convolution and linear operators, the network {len(layers)} layers",
            "leave --keep-float out for this framework",
            code="layers-unmatched",
        )
    by_name = {layer.name: node for layer, node in zip(layers, nodes, strict=True)}
    return [by_name[name] for name in kept]
