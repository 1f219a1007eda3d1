"""What an artifact depends on, as one hash: the same key means that there is nothing to export anew."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from edgeq.artifact import SCHEMA
from edgeq.export.family import Exporter, Recipe
from edgeq.export.prepare import Prepared
from edgeq.files import sha256_file, sha256_json
from edgeq.spec.model import ModelSpec


def tool_versions(exporter: Exporter) -> dict[str, str]:
    """Distribution → version of the tools that a family exports with; ``missing`` where one is not installed."""
    versions = {}
    for tool in exporter.TOOLS:
        try:
            versions[tool] = importlib.metadata.version(tool)
        except importlib.metadata.PackageNotFoundError:
            versions[tool] = "missing"
    return versions


def artifact_key(
    exporter: Exporter,
    backend: str,
    scheme: str,
    recipe: Recipe,
    prepared: Prepared,
    spec: ModelSpec,
    max_top1_drop: float | None = None,
) -> str:
    """Hash over weights, calibration set, model spec, recipe, tool versions and the exporter's own code.

    ``max_top1_drop`` (points) counts, with the images judged by, where layers are searched for: what is found follows.
    """
    here = Path(__file__).parent
    code = [sha256_file(path) for path in [*sorted(here.glob(f"{backend}*.py")), here / "network.py"]]
    return sha256_json(
        {
            "schema": SCHEMA,
            "backend": backend,
            "scheme": scheme,
            "target": recipe.target,
            "settings": recipe.settings,
            "weights": [prepared.weights.kind, prepared.weights.name, prepared.weights.sha256],
            "notes": sorted(note.code for note in prepared.warnings),
            "calibration": prepared.calibration.sha256,
            "reference": prepared.reference.sha256,
            "spec": spec.model_dump(mode="json"),
            "tools": tool_versions(exporter),
            "code": code,
            **_search(max_top1_drop, prepared),
        }
    )


def _search(max_top1_drop: float | None, prepared: Prepared) -> dict[str, object]:
    if max_top1_drop is None or prepared.selection is None:
        return {}
    return {"max_top1_drop": max_top1_drop, "selection": prepared.selection.sha256}
