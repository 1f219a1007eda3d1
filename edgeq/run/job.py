"""A cell as a plain value: all that a worker needs to know, whichever executor starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from edgeq.peaks import Peaks
from edgeq.run.record import Accuracy, LoadgenInfo, RunInfo
from edgeq.setting import Setting
from edgeq.spec.names import OFFLINE, Cell
from edgeq.spec.note import Note
from edgeq.spec.profile import Profile

#: Names in a worker's folder: LoadGen's logs; the result; and the result of a measurement whose worker has not told yet
#: what ran, which is thus not lost where the worker dies of telling it.
LOADGEN_DIR, MEASURED = "loadgen", "measured.json"

#: Results of the accuracy run of an artifact, beside the folders of its scenarios.
ACCURACY_DIR = "accuracy"


def driven_as(mode: str, scenario: str) -> str:
    """The scenario that a job is driven by: an accuracy run's is offline, the fastest, as the answers are the same."""
    return OFFLINE if mode == "accuracy" else scenario


class WorkerJob(BaseModel):
    """One child process's work: a cell's measurement, or (``accuracy``) an artifact's accuracy run."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    mode: Literal["performance", "accuracy"]
    cell: Cell
    manifest: Path | None
    """The artifact's manifest; None without a model."""
    artifact_key: str | None
    """Of the artifact that the run was planned with: another one in its place is not measured under its name."""
    target: str
    threads: int
    """Allowed to the cell, whatever its setting makes of them."""
    setting: Setting
    tuned: bool = False
    profile: Profile
    samples: dict[str, Any]
    """Description of the sample set, for ``edgeq.data.samples.open_samples``."""
    dataset: str | None
    preprocessing: str = "synthetic"
    bad_images: list[str] = []
    excluded_calibration: int = 0
    folder: Path
    """Where the logs and the result go."""
    place: str = "."
    """The same from the folder of the cell's record: ``round-2``."""
    rounds: int = 1
    """How many rounds the run has; ``run.round`` is this one's number."""
    probe: bool = False
    """Whether to run the saturation probe of the artifact's recipe."""
    operators: bool = False
    """Whether to profile the artifact's operators."""
    run: RunInfo
    device: dict[str, Any]
    ms_per_sample: float | None = None
    """Measured by an earlier try that LoadGen ended too soon; plans instead of the canary, however fast it is."""
    accuracy: Accuracy | None = None
    """Of the artifact, where it was measured before: goes into the record as it is."""
    warnings: list[Note] = []
    peaks: Peaks | None = None
    """Of the machine; goes into the record as it is."""


class AccuracyResult(BaseModel):
    """``accuracy.json``: outcome of an artifact's accuracy run; ``predictions`` are in ``predictions.npy``."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    status: Literal["ok", "skipped", "failed"]
    artifact_key: str
    reason: Note | None = None
    accuracy: Accuracy | None = None
    loadgen: LoadgenInfo | None = None
