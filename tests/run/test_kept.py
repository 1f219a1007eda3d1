"""Accuracy is judged once as long as nothing changes; what is kept says so, and agreement stays of the right pairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from edgeq.artifact import Manifest, artifacts_dir, read_manifest
from edgeq.files import cache_dir
from edgeq.host.device import describe
from edgeq.run import runner
from edgeq.run.accuracy import PREDICTIONS, write_result
from edgeq.run.job import AccuracyResult, WorkerJob
from edgeq.run.kept import KeptAccuracy, accuracy_key
from edgeq.run.record import Accuracy, Record
from edgeq.run.runner import Runner, RunRequest, Watcher
from edgeq.setting import Setting
from edgeq.spec.note import Note
from edgeq.spec.profile import load_profile
from tests.manifests import manifest
from tests.run.small_models import small_images, small_models

SCHEMES = ("fp32", "int8-static")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_models(tmp_path_factory, SCHEMES)


@pytest.fixture
def asked(repo: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRequest:
    """One short scenario of both artifacts, over twelve labelled images, with a cache of its own."""
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))
    quick = load_profile(repo / "scenarios", "quick")
    short = quick.single_stream.model_copy(update={"min_duration_s": 0.05, "min_queries": 64})
    return RunRequest(
        models_dir=models, results=tmp_path / "results", models=("small",), backends=("onnxruntime",), schemes=SCHEMES,
        scenarios=("single-stream",), profile=quick.model_copy(update={"resident_samples": 4, "single_stream": short}),
        threads=1, target="x86_64-vnni", device={**describe(), "slug": "here"}, dataset=small_images(tmp_path / "images"),
    )  # fmt: skip


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The schemes whose accuracy was judged by a worker, in order."""
    found: list[str] = []

    def work(job: WorkerJob, what: str, watcher: Watcher) -> Any:
        if job.mode == "accuracy":
            found.append(job.cell.scheme)
        return real(job, what, watcher)

    real = runner.work
    monkeypatch.setattr(runner, "work", work)
    return found


class _Listening(Watcher):
    def __init__(self) -> None:
        self.said: list[str] = []

    def accuracy(self, what: str, text: str) -> None:
        self.said.append(text)


def _without_source(records: list[Record]) -> list[Any]:
    return [record.accuracy and record.accuracy.model_copy(update={"kept_from": None}) for record in records]


def _entries() -> list[Path]:
    return sorted((cache_dir() / "accuracy").glob("*.json"))


def test_a_second_run_takes_the_accuracy_of_the_first_and_says_so(asked: RunRequest, judged: list[str]) -> None:
    first = Runner(asked, Watcher())
    before = first.run()
    assert judged == list(SCHEMES)
    assert before[1].accuracy is not None
    assert before[1].accuracy.agreement_with_fp32 is not None
    watcher = _Listening()
    second = Runner(asked, watcher)
    after = second.run()
    assert judged == list(SCHEMES), "no worker judges again"
    assert _without_source(after) == _without_source(before)
    assert [record.accuracy and record.accuracy.kept_from for record in after] == [first.folder.id] * 2
    assert all(f"kept from run {first.folder.id}" in said for said in watcher.said)
    assert [note.code for record in after for note in record.warnings if "accura" in note.code] == []
    third = Runner(replace(asked, resume=True), Watcher()).run()
    assert third == after, "the result lies in the run's own folder too"


def test_what_is_judged_anew_is_compared_with_what_is_kept(asked: RunRequest, judged: list[str]) -> None:
    before = Runner(asked, Watcher()).run()
    for entry in _entries():
        kept = json.loads(entry.read_text())["result"]["artifact_key"]
        if kept == "key of int8-static":
            entry.unlink()
    after = Runner(asked, Watcher()).run()
    assert judged == [*SCHEMES, "int8-static"]
    assert _without_source(after) == _without_source(before)
    assert [record.accuracy is not None and record.accuracy.kept_from is not None for record in after] == [True, False]


@pytest.fixture
def kept(asked: RunRequest) -> tuple[KeptAccuracy, WorkerJob]:
    """An accuracy job of fp32 whose result is kept, as if a worker had judged it."""
    job, of = _job(asked)
    found = Accuracy(top1=0.25, top5=0.5, n=12, dataset="elsewhere", preprocessing="as is")
    result = AccuracyResult(status="ok", artifact_key=of.key, accuracy=found)
    write_result(job.folder, result, np.arange(60, dtype=np.int32).reshape(12, 5))
    assert KeptAccuracy(job, of).keep(result) == []
    (job.folder / "accuracy.json").unlink()
    (job.folder / PREDICTIONS).unlink()
    return KeptAccuracy(job, of), job


def test_what_is_taken_lies_in_the_runs_folder_and_names_its_run(kept: tuple[KeptAccuracy, WorkerJob]) -> None:
    entry, job = kept
    job.bad_images.append("broken.png")
    result = entry.take()
    assert result is not None
    assert result.accuracy is not None
    assert result.accuracy.kept_from == job.run.id
    assert (result.accuracy.dataset, result.accuracy.bad_images) == (job.dataset, ["broken.png"]), "of this run"
    assert AccuracyResult.model_validate_json((job.folder / "accuracy.json").read_text()) == result
    assert np.array_equal(np.load(job.folder / PREDICTIONS), np.arange(60).reshape(12, 5))


@pytest.mark.parametrize("damage", ["json", "predictions", "missing", "artifact"])
def test_a_damaged_entry_is_none(kept: tuple[KeptAccuracy, WorkerJob], asked: RunRequest, damage: str) -> None:
    (entry,) = _entries()
    predictions = entry.with_suffix(".npy")
    artifact = artifacts_dir(asked.models_dir, "small") / "onnxruntime" / "fp32.onnx"
    whole = artifact.read_bytes()
    if damage == "json":
        entry.write_text(entry.read_text()[:100])
    elif damage == "predictions":
        np.save(predictions, np.load(predictions) + 1)
    elif damage == "missing":
        predictions.unlink()
    else:
        artifact.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    try:
        assert kept[0].take() is None
    finally:
        artifact.write_bytes(whole)
    assert not (kept[1].folder / "accuracy.json").exists()


@pytest.mark.parametrize("status", ["skipped", "failed"])
def test_only_what_was_judged_is_kept(asked: RunRequest, status: Literal["skipped", "failed"]) -> None:
    job, of = _job(asked)
    note = Note(code="too-slow", text="too slow")
    assert KeptAccuracy(job, of).keep(AccuracyResult(status=status, artifact_key="k", reason=note)) == []
    assert _entries() == []


def test_a_cache_that_can_not_be_written_costs_a_warning(
    kept: tuple[KeptAccuracy, WorkerJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = kept[0].take()
    assert result is not None
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "file"))
    (note,) = KeptAccuracy(kept[1], manifest(scheme="fp32")).keep(result)
    assert note.code == "not-kept"
    assert "judged again next time" in note.text


def _changed(**samples: Any) -> Callable[[WorkerJob], WorkerJob]:
    return lambda job: job.model_copy(update={"samples": {**job.samples, **samples}})


@pytest.mark.parametrize(
    "change",
    [
        _changed(rows=[[1, 11]]),
        _changed(labels=[*range(1, 10), 0, 1, 2]),
        _changed(source={"file": "another.npy", "rows": 12}),
        _changed(preprocess={"mean": [0, 0, 0]}),
        _changed(preprocessing="as is"),
        lambda job: job.model_copy(update={"setting": Setting(threads=1, streams=1, batch=2)}),
        lambda job: job.model_copy(update={"threads": 2}),
        lambda job: job.model_copy(update={"device": {**job.device, "isa": ["avx"]}}),
        lambda job: job.model_copy(update={"device": {**job.device, "cpu": "another"}}),
    ],
)
def test_the_key_hangs_on_samples_setting_and_device(
    asked: RunRequest, change: Callable[[WorkerJob], WorkerJob]
) -> None:
    job, of = _job(asked)
    assert accuracy_key(change(job), of) != accuracy_key(job, of)


def test_the_key_hangs_on_the_artifact_the_environment_and_the_versions(
    asked: RunRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, of = _job(asked)
    key = accuracy_key(job, of)
    assert accuracy_key(job.model_copy(update={"dataset": "the same images elsewhere"}), of) == key
    assert accuracy_key(job.model_copy(update={"profile": asked.profile.model_copy(update={"name": "x"})}), of) == key
    assert accuracy_key(job, of.model_copy(update={"key": "another"})) != key
    files = [entry.model_copy(update={"sha256": "0"}) for entry in of.files]
    assert accuracy_key(job, of.model_copy(update={"files": files})) != key
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert accuracy_key(job, of) != key
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    assert accuracy_key(job, of) == key
    monkeypatch.setattr("edgeq.run.here.installed", lambda _: {"onnxruntime": "0"})
    assert accuracy_key(job, of) != key


def _job(asked: RunRequest) -> tuple[WorkerJob, Manifest]:
    run = Runner(asked, Watcher())
    cell = run.plan.planned[0].cell
    job = run._job("accuracy", cell, run.folder.path, run._info(0, 1))
    return job, read_manifest(artifacts_dir(asked.models_dir, "small") / "onnxruntime" / "fp32.json")
