"""A cell's trial of a small artifact, as its worker would make it, without a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgeq.artifact import Reference, write_manifest
from edgeq.files import sha256_file
from edgeq.host.device import describe
from edgeq.run.job import WorkerJob, driven_as
from edgeq.run.trial import Trial
from edgeq.setting import default_setting
from edgeq.spec.names import Cell
from edgeq.spec.profile import load_profile
from tests.export.exported import Exported
from tests.report.factory import run_info


def trial(
    exported: Exported, repo: Path, tmp_path: Path, *, mode: Literal["performance", "accuracy"] = "performance",
    scenario: str = "single-stream", target: str = "x86_64-vnni", threads: int = 2, **changes: Any,
) -> Trial:  # fmt: skip
    """A job for the cell, with the manifest and torch's answers beside the artifact; ``changes`` are the profile's."""
    samples = exported.samples
    if exported.manifest.input.layout == "NHWC":
        samples = np.ascontiguousarray(samples.transpose(0, 3, 1, 2))
    reference = exported.path.parent / "reference.npz"
    np.savez(reference, samples=samples[:4], logits=exported.logits[:4])
    info = Reference(file=reference.name, sha256=sha256_file(reference))
    made = exported.manifest.model_copy(update={"reference": info, "key": "k"})
    path = exported.path.with_suffix(".json")
    write_manifest(path, made)
    job = WorkerJob(
        mode=mode,
        cell=Cell(made.model, made.backend, made.scheme, scenario),
        manifest=path,
        artifact_key="k",
        target=target,
        threads=threads,
        setting=default_setting(driven_as(mode, scenario), threads),
        profile=load_profile(repo / "scenarios", "quick").model_copy(update=changes),
        samples={},
        dataset=None,
        folder=tmp_path,
        run=run_info(),
        device=describe(),
    )
    return Trial(job)
