"""A cell as a plain value: all that a worker needs to know, whichever executor starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from edgeq.run.record import Accuracy, LoadgenInfo, RunInfo
from edgeq.spec.names import Cell
from edgeq.spec.note import Note
from edgeq.spec.profile import Profile

#: Results of the accuracy run of an artifact, beside the folders of its scenarios.
ACCURACY_DIR = "accuracy"


class WorkerJob(BaseModel):
    """One child process's work: a cell's measurement, or (``accuracy``) an artifact's accuracy run."""

    model_config = ConfigDict(extra="forbid")
    mode: Literal["performance", "accuracy"]
    cell: Cell
    manifest: Path | None
    """The artifact's manifest; None without a model."""
    artifact_key: str | None
    """Of the artifact that the run was planned with: another one in its place is not measured under its name."""
    target: str
    threads: int
    profile: Profile
    samples: dict[str, Any]
    """Description of the sample set, for ``edgeq.data.samples.open_samples``."""
    dataset: str | None
    preprocessing: str = "synthetic"
    bad_images: list[str] = []
    excluded_calibration: int = 0
    folder: Path
    """Where the logs and the result go."""
    run: RunInfo
    device: dict[str, Any]
    ms_per_sample: float | None = None
    """Measured by an earlier try that LoadGen ended too soon; plans instead of the canary."""
    accuracy: Accuracy | None = None
    """Of the artifact, where it was measured before: goes into the record as it is."""
    warnings: list[Note] = []


class AccuracyResult(BaseModel):
    """``accuracy.json``: outcome of an artifact's accuracy run; ``predictions`` are in ``predictions.npy``."""

    model_config = ConfigDict(extra="forbid")
    status: Literal["ok", "skipped", "failed"]
    artifact_key: str
    reason: Note | None = None
    accuracy: Accuracy | None = None
    loadgen: LoadgenInfo | None = None
