"""Accuracy, measured once an artifact and shared by its scenarios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from edgeq.artifact import Manifest
from edgeq.files import write_json
from edgeq.loadgen.accuracy import Predictions
from edgeq.run.job import ACCURACY_DIR, AccuracyResult
from edgeq.run.record import Accuracy, Record, loses_accuracy
from edgeq.run.rounds import with_round
from edgeq.spec.note import Note

#: In an accuracy run's folder: int32 ``[n, 5]``, by sample.
PREDICTIONS = "predictions.npy"

#: Codes of warnings that follow from an artifact's accuracy, or from its lack.
_OF_ACCURACY = {"accuracy-failed", "accuracy-skipped", "accuracy-loss", "not-mlperf"}


class ArtifactAccuracy:
    """The accuracy run of one artifact: ``<run>/<model>/<backend>/<scheme>/accuracy/``."""

    def __init__(self, backend_folder: Path, scheme: str, artifact_key: str, fp32_key: str | None = None) -> None:
        """``fp32_key`` is the key of the same backend's fp32 artifact, where there is one to compare with."""
        self.scheme, self.key, self.fp32_key = scheme, artifact_key, fp32_key
        self.folder = backend_folder / scheme / ACCURACY_DIR
        self._fp32 = backend_folder / "fp32" / ACCURACY_DIR

    def read(self) -> AccuracyResult | None:
        """The outcome, where this artifact has one that did not fail."""
        result = _read(self.folder)
        return None if result is None or result.artifact_key != self.key or result.status == "failed" else result

    def conclude(self, failure: Note | None) -> AccuracyResult:
        """The outcome after the worker has ended; ``failure`` says why it failed, or is None."""
        result = None if failure else _read(self.folder)
        if result is None:
            reason = failure or Note(code="no-result", text="the worker ended without a result")
            result = AccuracyResult(status="failed", artifact_key=self.key, reason=reason)
            write_json(self.folder / "accuracy.json", result.model_dump(mode="json"))
        return result

    def describe(self, result: AccuracyResult) -> str:
        """One line for the terminal."""
        if result.accuracy is None:
            return f"{result.status}: {result.reason.text if result.reason else ''}"
        found = result.accuracy
        kept = "" if found.kept_from is None else f", kept from run {found.kept_from}: nothing has changed since"
        return f"top-1 {found.top1:.1%}, top-5 {found.top5:.1%} on {found.n} images{kept}"

    def for_record(self, result: AccuracyResult, manifest: Manifest) -> tuple[Accuracy | None, list[Note]]:
        """What goes into the records of the artifact's cells: the figures with fp32 agreement, and warnings."""
        if result.accuracy is None:
            reason = result.reason or Note(code="no-result", text="no reason was recorded")
            return None, [
                Note(
                    code=f"accuracy-{result.status}", text=f"accuracy was not measured: {reason.text}", hint=reason.hint
                )
            ]
        fp32 = _read(self._fp32)
        if fp32 is None or fp32.accuracy is None or fp32.artifact_key != self.fp32_key:
            return result.accuracy, []
        ours, theirs = _predictions(self.folder), _predictions(self._fp32)
        agreement = ours.agreement(theirs) if ours.n == theirs.n else None
        found = result.accuracy.model_copy(update={"agreement_with_fp32": agreement})
        return found, [] if manifest.weights.kind == "random" else loss_notes(found, fp32.accuracy)


def loss_notes(found: Accuracy, fp32: Accuracy) -> list[Note]:
    """The warning ``accuracy-loss``, where top-1 lies more than ``MAX_TOP1_DROP`` below fp32 on the same images."""
    drop = fp32.top1 - found.top1
    if not loses_accuracy(found.top1, fp32.top1):
        return []
    return [
        Note(
            code="accuracy-loss",
            text=f"top-1 {found.top1:.1%}, {100 * drop:.1f} points below this framework's fp32 ({fp32.top1:.1%}) "
            f"on {found.n} images",
            hint="its speed is shown, but not ranked; another framework or scheme keeps the accuracy",
        )
    ]


def lacks_accuracy(record: Record) -> bool:
    """Whether a record's accuracy run failed, or fp32's that it is compared with: both are tried again."""
    if any(note.code == "accuracy-failed" for note in record.warnings):
        return True
    found = record.accuracy
    return found is not None and found.agreement_with_fp32 is None and record.cell.scheme != "fp32"


def with_accuracy(record: Record, accuracy: Accuracy | None, notes: Sequence[Note]) -> Record:
    """A turn's record with its artifact's ``accuracy`` and those of ``notes`` that are about it, in place of its own.

    The record as it is where it lacks nothing, or there is nothing new to be known.
    """
    if accuracy is None or accuracy == record.accuracy or not lacks_accuracy(record):
        return record
    kept = [note for note in record.warnings if note.code not in _OF_ACCURACY]
    warnings = [*kept, *(note for note in notes if note.code in _OF_ACCURACY)]
    record = record.model_copy(update={"accuracy": accuracy, "warnings": warnings})
    return with_round(record, record.rounds[0].folder) if record.rounds else record


def write_result(folder: Path, result: AccuracyResult, top5: npt.NDArray[np.int32] | None) -> None:
    """Writes predictions (``[n, 5]`` class indices by sample), then ``accuracy.json``, which makes them count."""
    folder.mkdir(parents=True, exist_ok=True)
    if top5 is not None:
        np.save(folder / PREDICTIONS, top5)
    write_json(folder / "accuracy.json", result.model_dump(mode="json"))


def _read(folder: Path) -> AccuracyResult | None:
    path = folder / "accuracy.json"
    if not path.is_file():
        return None
    try:
        return AccuracyResult.model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError:  # another schema: measured anew
        return None


def _predictions(folder: Path) -> Predictions:
    return Predictions(np.load(folder / PREDICTIONS), repeats=0)
