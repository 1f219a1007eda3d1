"""Exports what the benchmarks need and is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.bench import MODEL
from edgeq.artifact import find_manifest, read_manifest
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import BACKENDS

SCHEMES = ("fp32", "fp16", "int8-static")


def missing(models: Path, target: str) -> list[tuple[str, str]]:
    """Backend and scheme of every artifact of MobileNetV2 that the benchmarks use and is not there, or not whole."""
    found = []
    for backend in BACKENDS:
        for scheme in SCHEMES:
            try:
                there = read_manifest(find_manifest(models, MODEL, backend, scheme, target)).status == "ok"
            except EdgeqError:
                there = False
            if not there:
                found.append((backend, scheme))
    return found


def export_missing(models: Path, target: str, weights: str, calibration: Path | None) -> None:
    """Runs ``edgeq export`` where an artifact is missing.

    Raises:
        EdgeqError: it failed (code ``export-failed``).
    """
    if not missing(models, target):
        return
    argv = [sys.executable, "-m", "edgeq", "export", "--model", MODEL, "--weights", weights, "--out", str(models)]
    argv += [word for scheme in SCHEMES for word in ("--scheme", scheme)]
    argv += ["--calibration", str(calibration)] if calibration else []
    if subprocess.run(argv, check=False).returncode != 0:
        raise EdgeqError(
            f"{MODEL} could not be exported",
            "see above",
            "run: edgeq export --model mobilenet_v2",
            code="export-failed",
        )
