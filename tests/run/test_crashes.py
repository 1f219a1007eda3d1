"""Cells of a small real artifact whose workers die after the measurement, or in the accuracy run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from edgeq.artifact import Reference, artifacts_dir, read_manifest, write_manifest
from edgeq.events import Child
from edgeq.files import sha256_file
from edgeq.host.device import describe
from edgeq.run.record import Record, read_record
from edgeq.run.runner import Runner, RunRequest, Watcher
from edgeq.spec.profile import load_profile
from tests.run.small_models import EXPORTS_WARNING, small_images, small_models


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test keeps, such as a probe's answer, would spare the next one's workers their death."""
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with one, ``small``, as ``onnxruntime/int8-static``."""
    return small_models(tmp_path_factory)


@pytest.fixture
def asked(repo: Path, models: Path, tmp_path: Path) -> RunRequest:
    """Two scenarios in two rounds, a tenth of a second each."""
    quick = load_profile(repo / "scenarios", "quick")
    names = ("single_stream", "multi_stream")
    short = {name: getattr(quick, name).model_copy(update={"min_duration_s": 0.1}) for name in names}
    return RunRequest(
        models_dir=models, results=tmp_path / "results", models=("small",), backends=("onnxruntime",),
        schemes=("int8-static",), scenarios=("single-stream", "multi-stream"), threads=1, target="x86_64-vnni",
        profile=quick.model_copy(update={"resident_samples": 4, **short}), device={**describe(), "slug": "here"}, rounds=2,
    )  # fmt: skip


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Has every worker die in a function of ``aftermath``; returns the exit codes of all workers, as they end."""
    codes: list[str] = []

    class Dying(Child):
        @classmethod
        def start(cls, module: str, *rest: Any) -> Child:
            return super().start("tests.run.dying_worker", *rest)

        def kill(self) -> None:
            super().kill()
            codes.append(str(self.process.returncode))

    def make(function: str) -> list[str]:
        monkeypatch.setenv("EDGEQ_TEST_DIES", function)
        monkeypatch.setattr("edgeq.run.watchdog.Child", Dying)
        return codes

    return make


def _codes(record: Record) -> set[str]:
    return {note.code for note in record.warnings}


def test_a_profiler_that_kills_its_process_costs_one_profile_and_nothing_else(
    asked: RunRequest, dying: Callable[[str], list[str]]
) -> None:
    codes = dying("profile_operators")
    records = Runner(asked, Watcher()).run()
    assert sum(code != "0" for code in codes) == 1, "it is not asked for again, in no round and in no scenario"
    assert len(codes) == 4
    for record in records:
        assert [each.status for each in record.rounds] == ["ok", "ok"]
        assert record.profile is None
        assert record.effective is not None
        assert record.probe is not None
    (note,) = [note for record in records for note in record.warnings if note.code == "no-profile"]
    assert "SIGSEGV" in note.text
    assert "cut-short" in set().union(*map(_codes, records))


def test_a_probe_that_kills_its_process_is_run_once_and_every_cell_says_so(
    asked: RunRequest, dying: Callable[[str], list[str]]
) -> None:
    codes = dying("probe")
    records = Runner(asked, Watcher()).run()
    assert sum(code != "0" for code in codes) == 1
    for record in records:
        assert record.status == "ok"
        assert record.probe is None
        assert "no-probe" in _codes(record)
        assert record.effective is not None
    assert any(record.profile is not None for record in records), "the next turn profiles"


@pytest.mark.parametrize("far", [False, True])
def test_a_device_says_its_own_distance_in_the_place_of_the_exporters(
    asked: RunRequest, tmp_path: Path, far: bool
) -> None:
    models = tmp_path / "models"
    shutil.copytree(asked.models_dir, models)
    backend = artifacts_dir(models, "small") / "onnxruntime"
    if far:
        with np.load(backend / "reference.npz") as stored:
            samples, logits = stored["samples"], stored["logits"]
        np.savez(backend / "reference.npz", samples=samples, logits=np.roll(logits, 3, axis=1))
        made = read_manifest(backend / "int8-static.json")
        stands = Reference(file="reference.npz", sha256=sha256_file(backend / "reference.npz"))
        write_manifest(backend / "int8-static.json", made.model_copy(update={"reference": stands}))
    asked = replace(asked, models_dir=models, rounds=1, scenarios=("single-stream",))
    (record,) = Runner(asked, Watcher()).run()
    assert record.output_check is not None
    assert record.output_check.sqnr_db is not None
    assert (record.output_check.sqnr_db < 10) == far
    (note,) = [note for note in record.warnings if note.code == "low-agreement"]
    assert ("on this device" in note.text) == far, "what the exporter saw stands where the device saw nothing"
    assert (note == EXPORTS_WARNING) == (not far)


class _Killing(Watcher):
    """Kills the worker of an accuracy run."""

    def __init__(self, kills: bool) -> None:
        self.kills, self.turns = kills, 0

    def phase(self, what: str, name: str) -> None:
        if self.kills and what.endswith("accuracy") and name == "LoadGen":
            (worker,) = [each for each in psutil.Process().children() if "edgeq.run.worker" in each.cmdline()]
            worker.kill()

    def ended(self, record: Record, turns: int = 1) -> None:
        self.turns += turns


def test_an_accuracy_run_that_failed_is_made_up_for_and_no_round_is_lost(asked: RunRequest, tmp_path: Path) -> None:
    images = small_images(tmp_path / "images")
    asked = replace(asked, dataset=images, scenarios=("single-stream",))
    first = Runner(asked, _Killing(kills=True))
    (before,) = first.run()
    assert before.status == "ok"
    assert "accuracy-failed" in _codes(before)
    watcher = _Killing(kills=False)
    (after,) = Runner(replace(asked, resume=True), watcher).run()
    assert watcher.turns == 0, "nothing is timed again"
    assert after.accuracy is not None
    assert after.accuracy.n == 12
    assert "accuracy-failed" not in _codes(after)
    assert (after.latency_ms, after.intervals) == (before.latency_ms, before.intervals)
    path = first.folder.record(after.cell)
    assert read_record(path) == after
    assert read_record(path.with_name("record.try-1.json")) == before
