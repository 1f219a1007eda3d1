"""The runner with the backend that has no model: real workers, real LoadGen, a fifth of a second a cell."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgeq.host.device import describe
from edgeq.run.record import Record
from edgeq.run.runner import Runner, RunRequest, Watcher
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.names import STUDY_SCENARIOS, Cell
from edgeq.spec.profile import Profile, load_profile

SINGLE = Cell("none", "null", "none", "single-stream")


@pytest.fixture
def blink(repo: Path) -> Profile:
    """The quick profile, shortened."""
    profile = load_profile(repo / "scenarios", "quick")
    short = {"min_duration_s": 0.1}
    return profile.model_copy(
        update={
            "resident_samples": 4,
            **{s.replace("-", "_"): profile.scenario(s).model_copy(update=short) for s in STUDY_SCENARIOS},
        }
    )


@pytest.fixture
def request_(repo: Path, tmp_path: Path, blink: Profile) -> Callable[..., RunRequest]:
    def make(**changes: Any) -> RunRequest:
        fields: dict[str, Any] = {
            "models_dir": repo / "models",
            "results": tmp_path / "results",
            "models": (),
            "backends": ("null",),
            "schemes": (),
            "scenarios": STUDY_SCENARIOS,
            "profile": blink,
            "threads": 1,
            "target": "x86_64",
            "device": {**describe(), "slug": "here"},
        }
        return RunRequest(**{**fields, **changes})

    return make


class At(Watcher):
    """Does something once, when a phase of a cell begins."""

    def __init__(self, phase: str, scenario: str, action: Callable[[], None]) -> None:
        self.wanted, self.scenario, self.action, self.done = phase, scenario, action, False
        self.records: list[Record] = []

    def phase(self, what: str, name: str) -> None:
        if name == self.wanted and self.scenario in what and not self.done:
            self.done = True
            self.action()

    def ended(self, record: Record) -> None:
        self.records.append(record)


def _kill_worker() -> None:
    workers = [child for child in psutil.Process().children() if "edgeq.run.worker" in child.cmdline()]
    assert len(workers) == 1
    workers[0].kill()


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_every_scenario_is_valid_without_a_model(request_: Callable[..., RunRequest]) -> None:
    records = Runner(request_(), Watcher()).run()
    assert [record.cell.scenario for record in records] == list(STUDY_SCENARIOS)
    for record in records:
        assert record.status == "ok", record.reason
        assert record.loadgen is not None
        assert record.loadgen.valid
        assert record.loadgen.settings["qsl_rng_seed"] != 0
        assert record.overhead_us is not None
        assert record.overhead_us.per_sample > 0
        assert record.effective is not None
        assert record.effective.engine == "none"
        assert record.peak_rss_mb is not None
        assert not [note for note in record.warnings if note.code == "settings-differ"]


def test_a_killed_worker_fails_its_own_cell_and_resume_tries_it_again(request_: Callable[..., RunRequest]) -> None:
    watcher = At("LoadGen", "multi-stream", _kill_worker)
    records = Runner(request_(), watcher).run()
    assert [record.status for record in records] == ["ok", "failed", "ok"]
    reason = records[1].reason
    assert reason is not None
    assert reason.code == "killed"
    assert "SIGKILL" in reason.text
    assert "phase 'LoadGen'" in reason.text
    first = Runner(request_(resume=True), again := At("none", "", _interrupt))
    resumed = first.run()
    assert [record.status for record in resumed] == ["ok", "ok", "ok"]
    assert [record.cell.scenario for record in again.records] == ["multi-stream"], "finished cells are not run again"
    assert (resumed[0], resumed[2]) == (records[0], records[2])
    kept = list(first.folder.path.glob("none/null/none/multi-stream/record.try-1.json"))
    assert len(kept) == 1, "the failure stays on record"


def test_an_interrupt_keeps_what_is_finished(request_: Callable[..., RunRequest]) -> None:
    runner = Runner(request_(), At("LoadGen", "multi-stream", _interrupt))
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert not [child for child in psutil.Process().children() if "edgeq.run.worker" in child.cmdline()]
    assert runner.folder.finished(SINGLE) is not None
    left = [path.parent.name for path in runner.folder.path.rglob("record.json")]
    assert left == ["single-stream"]
    watcher = At("none", "", _interrupt)
    resumed = Runner(request_(resume=True), watcher)
    assert resumed.folder.path == runner.folder.path
    resumed.run()
    assert [record.cell.scenario for record in watcher.records] == ["multi-stream", "offline"]


def test_a_second_run_stands_beside_the_first(request_: Callable[..., RunRequest]) -> None:
    asked = request_(scenarios=("offline",))
    one, two = Runner(asked, Watcher()), Runner(asked, Watcher())
    assert one.folder.path != two.folder.path
    assert one.run()[0].run.id != two.run()[0].run.id


def test_a_full_disk_stops_the_run_with_everything_kept(
    request_: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.disk_usage

    def fill() -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=1))

    runner = Runner(request_(), At("LoadGen", "single-stream", fill))
    with pytest.raises(EdgeqError) as caught:
        runner.run()
    assert caught.value.code == "disk-full"
    assert "--resume" in caught.value.hint
    assert runner.folder.finished(SINGLE) is not None
    monkeypatch.undo()
    assert [record.status for record in Runner(request_(resume=True), Watcher()).run()] == ["ok"] * 3


def test_resume_without_a_run_and_with_another_request(
    request_: Callable[..., RunRequest],
) -> None:
    with pytest.raises(RequestError, match="nothing to resume"):
        Runner(request_(resume=True), Watcher())
    Runner(request_(scenarios=("offline",)), Watcher())
    with pytest.raises(RequestError) as caught:
        Runner(request_(resume=True), Watcher())
    assert "scenarios" in caught.value.why


def test_a_hung_worker_is_stopped(request_: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeq.run.runner.START_LIMIT_S", -1.0)
    monkeypatch.setattr("edgeq.run.runner.TICK_S", 0.001)
    (record,) = Runner(request_(scenarios=("offline",)), Watcher()).run()
    assert record.status == "failed"
    assert record.reason is not None
    assert record.reason.code == "hung"
    assert "'start'" in record.reason.text


def test_a_cell_without_an_artifact_fails_alone_and_says_what_to_type(
    request_: Callable[..., RunRequest], repo: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    shutil.copytree(repo / "models" / "vgg19", models / "vgg19", ignore=shutil.ignore_patterns("artifacts"))
    asked = request_(
        models_dir=models, models=("vgg19",), backends=("null", "tflite"), schemes=("fp32",), scenarios=("offline",)
    )
    null, tflite = Runner(asked, Watcher()).run()
    assert (null.status, tflite.status) == ("ok", "failed")
    assert tflite.reason is not None
    assert tflite.reason.code == "no-artifact"
    assert "edgeq export --model vgg19 --backend tflite --scheme fp32" in tflite.reason.hint


def test_the_server_scenario_is_skipped_with_its_reason(request_: Callable[..., RunRequest]) -> None:
    (record,) = Runner(request_(scenarios=("server",)), Watcher()).run()
    assert record.status == "skipped"
    assert record.reason is not None
    assert record.reason.code == "not-offered"
