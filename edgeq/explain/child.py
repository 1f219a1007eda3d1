"""One artifact's operator profile, or two artifacts' layer errors, in a process: ``python -m edgeq.explain.child JOB``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgeq.artifact import Manifest, read_manifest, verify
from edgeq.backends import open_session, preload, profile_operators
from edgeq.backends.session import Array, SessionOptions
from edgeq.data.layout import to_layout
from edgeq.data.samples import open_samples
from edgeq.events import emit, leave, serve


class ExplainJob(BaseModel):
    """What a child is told."""

    model_config = ConfigDict(extra="forbid")
    task: Literal["profile", "layers"]
    manifest: Path
    threads: int
    seconds: float = 0.0
    """For the profile's inferences."""
    effective: bool = False
    """Say what really runs, too."""
    fp32: Path | None = None
    """Manifest of the float32 artifact, for ``layers``."""
    samples: dict[str, Any] | None = None
    """Of ``SampleSet.to_spec``; by default the artifact's reference samples."""


def profile(job: ExplainJob) -> None:
    """Emits ``profile``, and before it ``effective`` where that is asked for; ``phase`` as each begins."""
    emit("phase", name="reading the artifact")
    manifest, file = _artifact(job.manifest)
    emit("phase", name="importing the framework")
    preload(manifest.backend)
    options = SessionOptions(threads=job.threads)
    if job.effective:
        emit("phase", name="reading what runs")
        session = open_session(manifest, file, options)
        try:
            found = session.effective()
        finally:
            session.close()
        emit("effective", macs=found.macs, engine=found.engine, notes=[note.model_dump() for note in found.warnings])
    samples = to_layout(_samples(job, manifest), manifest.input.layout)
    emit("phase", name="operator profile")
    profiled = profile_operators(manifest, file, options, samples, job.seconds)
    emit("profile", profile=profiled.model_dump(mode="json"))


def layers(job: ExplainJob) -> None:
    """Emits ``layers``, and ``phase`` before."""
    from edgeq.backends.layers import layer_report

    assert job.fp32 is not None
    other, fp32 = _artifact(job.manifest), _artifact(job.fp32)
    preload(other[0].backend)
    emit("phase", name="comparing layers")
    report = layer_report(fp32, other, _samples(job, other[0]), job.threads)
    notes = [note.model_dump() for note in report.notes]
    emit(
        "layers",
        layers=[asdict(layer) for layer in report.layers],
        tool=report.tool,
        samples=report.samples,
        notes=notes,
    )


def _artifact(path: Path) -> tuple[Manifest, Path]:
    manifest = read_manifest(path)
    return manifest, verify(path, manifest, model=manifest.model, backend=manifest.backend, scheme=manifest.scheme)


def _samples(job: ExplainJob, manifest: Manifest) -> Array:
    """float32 ``[n, C, H, W]``."""
    if job.samples is not None:
        chosen = open_samples(job.samples)
        return chosen.load(range(chosen.count), "NCHW")
    with np.load(job.manifest.parent / manifest.reference.file) as stored:
        samples: Array = stored["samples"]
    return samples


def _work(job: ExplainJob) -> None:
    {"profile": profile, "layers": layers}[job.task](job)


def main(argv: Sequence[str]) -> int:
    return serve(argv, ExplainJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
