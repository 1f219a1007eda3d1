from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeq.artifact import Manifest
from edgeq.run.accuracy import ArtifactAccuracy, loss_notes, write_result
from edgeq.run.job import AccuracyResult
from edgeq.run.record import Accuracy
from edgeq.spec.note import Note
from tests.manifests import manifest


def _figures(top1: float) -> Accuracy:
    return Accuracy(top1=top1, top5=min(1.0, top1 + 0.1), n=100, dataset="d", preprocessing="as is")


def _measured(folder: Path, scheme: str, top1: float, best: list[int]) -> ArtifactAccuracy:
    artifact = ArtifactAccuracy(folder, scheme, "key", fp32_key="key")
    artifact.folder.mkdir(parents=True)
    result = AccuracyResult(status="ok", artifact_key="key", accuracy=_figures(top1))
    write_result(artifact.folder, result, np.array([[b, -1, -1, -1, -1] for b in best], np.int32))
    return artifact


@pytest.mark.parametrize(("top1", "lost"), [(0.80, False), (0.771, False), (0.769, True), (0.01, True)])
def test_more_than_three_points_is_a_loss(top1: float, lost: bool) -> None:
    notes = loss_notes(_figures(top1), _figures(0.80))
    assert [note.code for note in notes] == (["accuracy-loss"] if lost else [])
    if lost:
        assert f"{100 * (0.80 - top1):.1f} points" in notes[0].text


def _record_part(artifact: ArtifactAccuracy, of: Manifest) -> tuple[Accuracy | None, list[Note]]:
    result = artifact.read()
    assert result is not None
    return artifact.for_record(result, of)


def test_agreement_is_with_the_same_frameworks_fp32(tmp_path: Path) -> None:
    _measured(tmp_path, "fp32", 0.80, [1, 2, 3, 4])
    found, notes = _record_part(_measured(tmp_path, "int8-static", 0.70, [1, 2, 3, 9]), manifest())
    assert found is not None
    assert found.agreement_with_fp32 == 0.75
    assert [note.code for note in notes] == ["accuracy-loss"]


def test_random_weights_have_agreement_but_no_loss(tmp_path: Path) -> None:
    _measured(tmp_path, "fp32", 0.80, [1, 2])
    found, notes = _record_part(_measured(tmp_path, "fp16", 0.10, [1, 3]), manifest(kind="random"))
    assert found is not None
    assert found.agreement_with_fp32 == 0.5
    assert notes == []


def test_an_fp32_artifact_that_was_exported_anew_is_no_measure(tmp_path: Path) -> None:
    _measured(tmp_path, "fp32", 0.80, [1, 2])
    _measured(tmp_path, "fp16", 0.10, [1, 3])
    found, notes = _record_part(ArtifactAccuracy(tmp_path, "fp16", "key", fp32_key="a newer one"), manifest())
    assert found is not None
    assert found.agreement_with_fp32 is None
    assert notes == []


def test_without_fp32_there_is_no_agreement(tmp_path: Path) -> None:
    found, notes = _record_part(_measured(tmp_path, "fp16", 0.80, [1]), manifest())
    assert found is not None
    assert found.agreement_with_fp32 is None
    assert notes == []


def test_a_failed_run_is_told_and_tried_again(tmp_path: Path) -> None:
    artifact = ArtifactAccuracy(tmp_path, "fp32", "key")
    artifact.folder.mkdir(parents=True)
    result = artifact.conclude(Note(code="killed", text="the worker was killed"))
    found, notes = artifact.for_record(result, manifest())
    assert found is None
    assert [note.code for note in notes] == ["accuracy-failed"]
    assert "the worker was killed" in notes[0].text
    assert artifact.read() is None


def test_another_artifacts_accuracy_does_not_count(tmp_path: Path) -> None:
    _measured(tmp_path, "fp32", 0.80, [1])
    assert ArtifactAccuracy(tmp_path, "fp32", "another key").read() is None
