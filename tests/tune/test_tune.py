"""``edgeq tune`` on the small network: real sessions in real processes, and a run that uses what was found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from edgeq.artifact import Reference, read_manifest, write_manifest
from edgeq.events import Child
from edgeq.files import only_one, sha256_file
from edgeq.host.device import describe
from edgeq.run.plan import tuning_versions
from edgeq.run.runner import Runner, RunRequest, Watcher
from edgeq.setting import Setting, Tuned, default_setting, read_tuned, store_tuned, tuned_path, tuning_key
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import STUDY_SCENARIOS
from edgeq.spec.profile import load_profile
from edgeq.tune import workers as workers_module
from edgeq.tune.job import TunedCell, TuneRequest, tune
from edgeq.tune.search import Limits
from edgeq.tune.workers import Workers
from tests.export.exported import export
from tests.model_folders import model_toml

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

DEVICE = {**describe(), "slug": "here"}
LATENCY = ["single-stream", "multi-stream"]
#: Three processes, and turns that are over at once.
QUICK = Limits(rounds=3, seconds=0.005)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with the small network's fp32 artifact for ONNX Runtime."""
    models = tmp_path_factory.mktemp("models")
    out = models / "small/artifacts/onnxruntime"
    out.mkdir(parents=True)
    (models / "small/model.toml").write_text(model_toml("small", "nowhere", "small", mean=0, std=1))
    exported = export("onnxruntime", "fp32", tmp_path_factory.mktemp("fp32"))
    np.savez(out.parent / "reference-0.npz", samples=exported.samples, logits=exported.logits)
    for entry in exported.manifest.files:
        shutil.copy(exported.path.parent / entry.name, out)
    reference = Reference(file="../reference-0.npz", sha256=sha256_file(out.parent / "reference-0.npz"))
    write_manifest(out / "fp32.json", exported.manifest.model_copy(update={"reference": reference, "key": "k"}))
    return models


@pytest.fixture
def models(made: Path, tmp_path: Path) -> Path:
    """The same, without anything tuned."""
    shutil.copytree(made, tmp_path / "models")
    return tmp_path / "models"


@pytest.fixture
def request_(models: Path, tmp_path: Path) -> TuneRequest:
    return TuneRequest(
        models_dir=models, results=tmp_path / "results", models=["small"], backends=["onnxruntime"], schemes=["fp32"],
        scenarios=STUDY_SCENARIOS, threads=2, target="x86_64", device=DEVICE, limits=QUICK,
    )  # fmt: skip


def manifest_of(models: Path) -> Path:
    return models / "small/artifacts/onnxruntime/fp32.json"


def key_of(models: Path) -> str:
    return tuning_key(read_manifest(manifest_of(models)), DEVICE, tuning_versions("onnxruntime"), 2)


def search(request: TuneRequest, progress: Callable[[str, str], None] = lambda *_: None) -> list[TunedCell]:
    return list(tune(request, progress))


def no_process(*_: Any, **__: Any) -> Any:
    raise AssertionError("a process was started")


def test_a_search_tries_real_sessions_stores_and_keeps(
    request_: TuneRequest, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_ = replace(request_, scenarios=LATENCY)
    found = search(request_)
    assert [each.cell.scenario for each in found] == LATENCY
    assert {each.outcome for each in found} <= {"changed", "default"}
    stored = read_tuned(tuned_path(manifest_of(models), DEVICE))
    assert stored is not None
    assert set(stored.found) == {f"{scenario}/2" for scenario in LATENCY}
    for each in found:
        tuned = each.tuned
        assert tuned is not None
        assert stored.found[f"{tuned.scenario}/2"] == tuned
        assert tuned.key == key_of(models)
        assert tuned.default == default_setting(tuned.scenario, 2)
        tried = {one.setting: one for one in tuned.candidates}
        assert len(tried) == {"single-stream": 2, "multi-stream": 4}[tuned.scenario]
        for one in tried.values():
            assert one.note is None, "every setting gives the default's logits"
            assert all(rate > 0 for rate in one.samples_per_second)
        rounds = len(tried[tuned.default].samples_per_second)
        assert rounds == 1 + 3 or all(len(one.samples_per_second) == 1 for one in tried.values())
    monkeypatch.setattr(workers_module.Child, "start", no_process)
    again = search(request_)
    assert [each.outcome for each in again] == ["kept"] * 2
    assert [each.tuned for each in again] == [each.tuned for each in found]
    with pytest.raises(AssertionError, match="started"):
        search(replace(request_, again=True))
    with pytest.raises(AssertionError, match="started"):
        search(replace(request_, threads=1))


def test_a_run_uses_what_was_found(models: Path, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeq.run.runner.measure_peaks", lambda *_: None)  # of no interest here, and a minute's work
    chosen = Setting(threads=2, streams=1, batch=4)
    tuned = Tuned(
        scenario="offline", key=key_of(models), setting=chosen, default=default_setting("offline", 2), gain=1.2,
        when="2026-01-02T03:04:05+00:00",
    )  # fmt: skip
    profile = load_profile(repo / "scenarios", "quick")
    shorter = {
        s.replace("-", "_"): profile.scenario(s).model_copy(update={"min_duration_s": 0.05}) for s in STUDY_SCENARIOS
    }
    run = RunRequest(
        models_dir=models, results=tmp_path / "results", models=["small"], backends=["onnxruntime"], schemes=["fp32"],
        scenarios=["multi-stream", "offline"], profile=profile.model_copy(update=shorter), threads=2, target="x86_64",
        device=DEVICE,
    )  # fmt: skip
    store_tuned(manifest_of(models), DEVICE, 2, tuned)
    multi, offline = Runner(run, Watcher()).run()
    for record in (multi, offline):
        assert record.status == "ok", record.reason
        assert record.requested is not None
        assert record.effective is not None
    assert offline.requested is not None
    assert offline.effective is not None
    assert (offline.requested.setting, offline.requested.streams, offline.requested.batch) == ("tuned", 1, 4)
    assert (offline.effective.streams, offline.effective.batch) == (1, 4)
    assert multi.requested is not None
    assert multi.requested.setting == "default"
    plain = Runner(replace(run, use_tuned=False, scenarios=["offline"]), Watcher()).run()[0]
    assert plain.requested is not None
    assert (plain.requested.setting, plain.requested.streams, plain.requested.batch) == ("default", 2, 1)
    store_tuned(manifest_of(models), DEVICE, 2, tuned.model_copy(update={"key": "of another version"}))
    stale = Runner(replace(run, scenarios=["offline"]), Watcher()).run()[0]
    assert stale.requested is not None
    assert (stale.requested.setting, stale.requested.batch) == ("default", 1)
    assert "tuned-stale" in [note.code for note in stale.warnings]


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "edgeq.tune.child" in child.cmdline()]


@pytest.fixture
def workers(models: Path, tmp_path: Path) -> Iterator[Workers]:
    path = manifest_of(models)
    found = Workers(path, read_manifest(path), path.with_suffix(".onnx"), tmp_path)
    yield found
    found.close()
    assert not children()


def test_a_killed_process_costs_the_turn_in_hand(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    one, tell = Setting(threads=1), Child.tell

    def tell_and_kill(self: Child, line: str) -> None:
        tell(self, line)
        self.process.kill()

    monkeypatch.setattr(Child, "tell", tell_and_kill)
    with pytest.raises(EdgeqError) as caught:
        workers.turn(one, "single-stream", 60.0)
    assert caught.value.code in ("killed", "out-of-memory")
    assert "1 thread, 1 stream, batch 1" in str(caught.value)
    monkeypatch.setattr(Child, "tell", tell)
    assert workers.turn(one, "single-stream", 0.01).rate > 0


def test_a_process_that_died_between_turns_is_started_anew(workers: Workers) -> None:
    one = Setting(threads=1)
    first = workers.turn(one, "single-stream", 0.01)
    (running,) = workers._running.values()
    running.child.process.kill()
    running.child.process.wait()
    second = workers.turn(one, "single-stream", 0.01)
    assert first.logits is not None
    assert second.logits == first.logits, "its session is opened, and looked at, anew"


def test_what_is_finished_is_stored_when_it_is_stopped(request_: TuneRequest, models: Path) -> None:
    int8 = manifest_of(models).with_name("int8-static.json")
    write_manifest(int8, read_manifest(manifest_of(models)).model_copy(update={"scheme": "int8-static", "key": "k8"}))

    def stop(artifact: str, what: str) -> None:
        if artifact.endswith("int8-static") and what.startswith("first look, 1"):
            raise KeyboardInterrupt

    request = replace(request_, schemes=["fp32", "int8-static"], scenarios=["single-stream"], threads=1)
    found: list[TunedCell] = []
    with pytest.raises(KeyboardInterrupt):
        found.extend(each for each in tune(request, stop))
    assert [str(each.cell) for each in found] == ["small/onnxruntime/fp32/single-stream"]
    assert read_tuned(tuned_path(manifest_of(models), DEVICE)) is not None
    assert read_tuned(tuned_path(int8, DEVICE)) is None
    assert not children()
    assert [each.outcome == "kept" for each in search(request)] == [True, False]


def test_one_on_a_device_at_a_time(request_: TuneRequest) -> None:
    with only_one(request_.results / "here", "edgeq run"), pytest.raises(EdgeqError) as caught:
        search(request_)
    assert caught.value.code == "busy"


@pytest.mark.parametrize("damage", ["gone", "truncated", "not exported"])
def test_an_artifact_that_is_not_there_is_told(request_: TuneRequest, models: Path, damage: str) -> None:
    path = manifest_of(models)
    if damage == "gone":
        path.unlink()
    elif damage == "truncated":
        path.with_suffix(".onnx").write_bytes(b"")
    else:
        write_manifest(path, read_manifest(path).model_copy(update={"status": "failed"}))
    found = search(request_)
    assert [each.outcome for each in found] == ["failed"] * 3
    codes = {each.reason.code for each in found if each.reason}
    assert codes == {{"gone": "no-artifact", "truncated": "truncated", "not exported": "export-failed"}[damage]}
    assert not tuned_path(path, DEVICE).exists()


def test_an_artifact_exported_anew_meanwhile_is_not_tuned(request_: TuneRequest, models: Path) -> None:
    def export_anew(_: str, what: str) -> None:
        if what == "first inference":
            path = manifest_of(models)
            write_manifest(path, read_manifest(path).model_copy(update={"key": "another"}))

    found = search(request_, export_anew)
    assert {each.reason.code for each in found if each.reason} == {"artifact-changed"}
    assert len(found) == 3
    assert not tuned_path(manifest_of(models), DEVICE).exists()


def test_too_little_memory_costs_large_batches_not_the_default(
    request_: TuneRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "available", lambda: 1_000_000)
    (found,) = search(replace(request_, scenarios=["offline"]))
    assert found.outcome == "default"
    assert found.tuned is not None
    notes = {one.setting: one.note for one in found.tuned.candidates}
    assert notes[default_setting("offline", 2)] is None
    large = notes[Setting(threads=2, streams=2, batch=32)]
    assert large is not None
    assert large.code == "memory"
    assert json.dumps(found.as_json())


def test_a_process_that_does_not_answer_is_ended(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "LIMIT_S", 0.0)
    with pytest.raises(EdgeqError) as caught:
        workers.turn(Setting(threads=1), "single-stream", 60.0)
    assert caught.value.code == "hung"
    assert not children()


def test_a_turn_of_a_session_that_is_open_needs_no_new_one(workers: Workers) -> None:
    one = Setting(threads=1, batch=4)
    first = workers.turn(one, "offline", 0.01)
    other = workers.turn(one, "multi-stream", 0.01)
    again = workers.turn(one, "offline", 0.01)
    assert first.grown is not None
    assert other.grown is again.grown is None
    assert first.logits is not None
    assert other.logits is not None
    assert again.logits is None
    np.testing.assert_array_equal(np.load(first.logits), np.load(other.logits))
    assert len(np.load(first.logits)) == 8, "all reference samples, and every row of a batch"


def test_a_session_that_refuses_does_not_end_its_process(
    models: Path, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(
        manifest_of(models), read_manifest(manifest_of(models)).model_copy(update={"scheme": "int8-dynamic"})
    )
    with pytest.raises(EdgeqError) as caught:
        workers.turn(Setting(threads=1, batch=8), "offline", 0.01)
    assert caught.value.code == "no-batch"
    monkeypatch.setattr(workers_module.Child, "start", no_process)
    assert workers.turn(Setting(threads=1), "offline", 0.01).rate > 0
