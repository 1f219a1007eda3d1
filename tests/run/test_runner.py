"""The runner with the backend that has no model: real workers, real LoadGen, a fifth of a second a cell."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgeq.cli.run import _fell_short
from edgeq.host.device import describe
from edgeq.run import cooling, runner
from edgeq.run.again import planned_anew
from edgeq.run.job import MEASURED, WorkerJob
from edgeq.run.phases import OPERATORS, SATURATION
from edgeq.run.record import (
    FILE_NAME,
    ArtifactInfo,
    Canary,
    LoadgenInfo,
    Record,
    RunInfo,
    read_record,
    write_record,
)
from edgeq.run.runner import Runner, RunRequest, Watcher
from edgeq.run.store import RunFolder
from edgeq.run.watchdog import Failure, work
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.names import STUDY_SCENARIOS, Cell
from edgeq.spec.note import Note
from edgeq.spec.profile import Profile, load_profile
from tests.manifests import manifest

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
        self.began_with: tuple[int, int, int] | None = None
        self.turns = 0

    def began(self, run: RunFolder, cells: int, rounds: int, finished: int) -> None:
        self.began_with = (cells, rounds, finished)

    def phase(self, what: str, name: str) -> None:
        if name == self.wanted and self.scenario in what and not self.done:
            self.done = True
            self.action()

    def ended(self, record: Record, turns: int = 1) -> None:
        self.records.append(record)
        self.turns += turns


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


def test_the_device_is_watched_while_a_cell_is_timed(request_: Callable[..., RunRequest]) -> None:
    runner = Runner(request_(scenarios=("single-stream",), rounds=2), Watcher())
    (record,) = runner.run()
    during = record.host.during
    assert during is not None
    assert during.samples == sum(each.host.during.samples for each in record.rounds if each.host.during)
    assert during.samples >= 4, "one at the start and one at the end of each round"
    assert "not-watched" not in {note.code for note in record.warnings}
    for number in (1, 2):
        file = runner.folder.record(SINGLE).parent / f"round-{number}/host.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert "about" in lines[0]
        assert lines[-1]["end"] is True


def test_a_sampler_that_cannot_start_costs_a_warning(request_: Callable[..., RunRequest]) -> None:
    runner = Runner(request_(scenarios=("single-stream",)), Watcher())
    in_its_place = runner.folder.record(SINGLE).parent / "host.jsonl"
    in_its_place.mkdir(parents=True)
    (record,) = runner.run()
    assert record.status == "ok"
    assert record.host.during is None
    (note,) = [note for note in record.warnings if note.code == "not-watched"]
    assert "could not be started" in note.text


@pytest.mark.skipif(bool(shutil.which("vcgencmd")), reason="a Raspberry Pi's own firmware answers here")
@pytest.mark.parametrize(("word", "told"), [("0x50005", ["under-voltage", "throttled"]), ("0x50000", [])])
def test_a_board_that_lacks_voltage_is_unsteady(
    request_: Callable[..., RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, told: list[str]
) -> None:
    tool = tmp_path / "bin/vcgencmd"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho throttled={word}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (record,) = Runner(request_(scenarios=("single-stream",)), Watcher()).run()
    assert record.host.slowed_by == told
    assert record.host.during is not None
    assert record.host.during.throttled == told
    notes = [note.text for note in record.warnings if note.code == "unsteady" and "firmware" in note.text]
    assert len(notes) == bool(told)
    assert all("under-voltage (before, during, after)" in text for text in notes)


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
    assert runner.folder.record(SINGLE).is_file()
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
    assert runner.folder.record(SINGLE).is_file()
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
    monkeypatch.setattr("edgeq.run.watchdog.START_LIMIT_S", -1.0)
    monkeypatch.setattr("edgeq.run.watchdog.TICK_S", 0.001)
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


def _no_times(record: Record) -> list[tuple[int, str, str]]:
    return [(each.round, each.status, each.folder) for each in record.rounds]


def test_rounds_are_interleaved_and_make_one_record_a_cell(request_: Callable[..., RunRequest]) -> None:
    watcher = At("none", "", _interrupt)
    runner = Runner(request_(rounds=2, seed=3), watcher)
    records = runner.run()
    assert watcher.began_with == (3, 2, 0)
    assert watcher.turns == 6
    first, second = watcher.records[:3], watcher.records[3:]
    assert [record.run.round for record in watcher.records] == [1, 1, 1, 2, 2, 2]
    assert {record.cell for record in first} == {record.cell for record in second} == {r.cell for r in records}
    assert [record.run.order for record in watcher.records] == list(range(6))
    assert [record.cell.scenario for record in records] == list(STUDY_SCENARIOS), "handed back by the matrix"
    for record in records:
        assert record.status == "ok", record.reason
        assert _no_times(record) == [(1, "ok", "round-1"), (2, "ok", "round-2")]
        assert record.requested is not None
        assert record.requested.rounds == 2
        path = runner.folder.record(record.cell)
        assert read_record(path) == record
        name = "samples_per_second" if record.cell.scenario == "offline" else "latency_ms.p90"
        assert record.intervals[name].of == "rounds"
        for each in record.rounds:
            assert (path.parent / each.folder / "loadgen" / "mlperf_log_summary.txt").is_file()
            assert read_record(path.parent / each.folder / FILE_NAME).rounds == [each]
        assert record.loadgen is not None
        assert (path.parent / str(record.loadgen.log_dir)).is_dir()


def test_one_round_has_its_logs_and_its_intervals_where_they_always_were(request_: Callable[..., RunRequest]) -> None:
    runner = Runner(request_(scenarios=("single-stream",)), Watcher())
    (record,) = runner.run()
    assert _no_times(record) == [(1, "ok", ".")]
    assert (runner.folder.record(SINGLE).parent / "loadgen" / "mlperf_log_detail.txt").is_file()
    assert record.intervals == record.rounds[0].intervals
    assert record.latency_ms is not None
    interval = record.intervals["latency_ms.p90"]
    assert interval.of == "blocks"
    assert interval.low <= record.latency_ms.p90 <= interval.high
    assert not list(runner.folder.path.rglob("measured.json"))


class InRound(At):
    """``At``, in round 2 only."""

    def phase(self, what: str, name: str) -> None:
        if "round 2" in what:
            super().phase(what, name)


def test_an_interrupt_in_round_2_keeps_every_finished_round(request_: Callable[..., RunRequest]) -> None:
    watcher = InRound("LoadGen", "multi-stream", _interrupt)
    runner = Runner(request_(rounds=2), watcher)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    multi = runner.folder.record(SINGLE).parent.parent / "multi-stream"
    cut = read_record(multi / FILE_NAME)
    assert _no_times(cut) == [(1, "ok", "round-1")]
    assert "rounds-missing" in {note.code for note in cut.warnings}
    assert not (multi / "round-2" / "loadgen").exists()
    before = len(watcher.records)
    again = At("none", "", _interrupt)
    resumed = Runner(request_(rounds=2, resume=True), again)
    assert resumed.folder.path == runner.folder.path
    records = resumed.run()
    assert again.began_with == (3, 2, before)
    assert before + again.turns == 6
    for record in records:
        assert _no_times(record) == [(1, "ok", "round-1"), (2, "ok", "round-2")]
        assert "rounds-missing" not in {note.code for note in record.warnings}


def test_a_worker_killed_in_round_2_costs_that_round_alone(request_: Callable[..., RunRequest]) -> None:
    asked = request_(rounds=3, scenarios=("multi-stream", "offline"))
    runner = Runner(asked, InRound("LoadGen", "multi-stream", _kill_worker))
    records = {record.cell.scenario: record for record in runner.run()}
    hit = records["multi-stream"]
    assert [each.status for each in hit.rounds] == ["ok", "failed", "ok"]
    assert hit.status == "ok"
    assert hit.rounds[1].reason is not None
    assert hit.rounds[1].reason.code == "killed"
    assert "round-lost" in {note.code for note in hit.warnings}
    assert hit.intervals["latency_ms.p90"].n == 2
    assert _fell_short(hit), "edgeq run exits with 1"
    assert not _fell_short(records["offline"])
    assert [each.status for each in records["offline"].rounds] == ["ok"] * 3
    watcher = At("none", "", _interrupt)
    resumed = {record.cell.scenario: record for record in Runner(replace(asked, resume=True), watcher).run()}
    assert [(record.cell.scenario, record.run.round) for record in watcher.records] == [("multi-stream", 2)]
    assert [each.status for each in resumed["multi-stream"].rounds] == ["ok"] * 3
    assert "round-lost" not in {note.code for note in resumed["multi-stream"].warnings}
    assert resumed["offline"] == records["offline"]


def _dying(
    whole: Record, phase: str, **changes: Any
) -> tuple[list[WorkerJob], Callable[[WorkerJob, str, Watcher], Failure]]:
    """In the place of ``work``: leaves the measurement, and dies in ``phase``."""
    jobs: list[WorkerJob] = []

    def dies(job: WorkerJob, what: str, watcher: Watcher) -> Failure:
        jobs.append(job)
        write_record(job.folder / MEASURED, whole.model_copy(update={"run": job.run, "cell": job.cell, **changes}))
        return Failure(Note(code="killed", text=f"the worker was killed (in phase '{phase}')"), phase)

    return jobs, dies


def test_a_worker_that_dies_of_telling_what_ran_keeps_its_measurement(
    request_: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request_(scenarios=("single-stream",))
    (whole,) = Runner(asked, Watcher()).run()
    _, dies = _dying(whole, "reading what ran", effective=None)
    monkeypatch.setattr(runner, "work", dies)
    run = Runner(asked, Watcher())
    (record,) = run.run()
    assert (record.status, record.latency_ms) == ("ok", whole.latency_ms)
    (note,) = [note for note in record.warnings if note.code == "cut-short"]
    assert "the worker was killed" in note.text
    assert record.rounds[0].warnings[-1] == "cut-short"
    assert read_record(run.folder.record(SINGLE)) == record
    assert not list(run.folder.path.rglob(MEASURED))


@pytest.mark.parametrize(("phase", "what"), [(OPERATORS, "profile"), (SATURATION, "probe")])
def test_what_killed_a_worker_is_told_and_not_asked_for_again(
    request_: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch, phase: str, what: str
) -> None:
    asked = request_(scenarios=("single-stream", "multi-stream"), rounds=2)
    (whole, _) = Runner(replace(asked, rounds=1), Watcher()).run()
    jobs, dies = _dying(whole, phase)
    monkeypatch.setattr(runner, "work", dies)
    records = Runner(asked, Watcher()).run()
    assert [getattr(job, "operators" if what == "profile" else what) for job in jobs] == [True, False, False, False]
    asked_first = next(record for record in records if record.cell == jobs[0].cell)
    (note,) = [note for note in asked_first.warnings if note.code == f"no-{what}"]
    assert f"phase '{phase}'" in note.text
    assert "in round" not in note.text
    told = [f"no-{what}" in {note.code for note in record.warnings} for record in records]
    assert told == [True, True] if what == "probe" else any(told), "every cell says why it has no probe"


def test_a_measurement_whose_runner_was_killed_is_taken_over(request_: Callable[..., RunRequest]) -> None:
    asked = request_(scenarios=("single-stream", "offline"))
    first = Runner(asked, Watcher())
    whole, _ = first.run()
    path = first.folder.record(SINGLE)
    path.rename(path.with_name(MEASURED))  # as it lies while the worker profiles
    watcher = At("none", "", _interrupt)
    record, _ = Runner(replace(asked, resume=True), watcher).run()
    assert [each.cell for each in watcher.records] == [SINGLE]
    assert (record.status, record.latency_ms, record.run) == ("ok", whole.latency_ms, whole.run)
    assert record.rounds[0].warnings[-1] == "cut-short"
    assert read_record(path) == record
    assert not path.with_name(MEASURED).exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"run": RunInfo(id="another", profile="quick", title="t", started="now", order=0)},
        {"cell": replace(SINGLE, scenario="multi-stream")},
        {"artifact": ArtifactInfo.of(manifest(), "a.tflite")},
        {"status": "invalid", "reason": Note(code="loadgen-invalid", text="too short")},
    ],
    ids=["another run", "another cell", "another artifact", "invalid"],
)
def test_another_measurement_is_not_taken_over(request_: Callable[..., RunRequest], changes: dict[str, Any]) -> None:
    asked = request_(scenarios=("single-stream",))
    first = Runner(asked, Watcher())
    (whole,) = first.run()
    path = first.folder.record(SINGLE)
    write_record(path.with_name(MEASURED), whole.model_copy(update=changes))
    path.unlink()
    (record,) = Runner(replace(asked, resume=True), Watcher()).run()
    assert record.status == "ok"
    assert record.latency_ms != whole.latency_ms
    assert "cut-short" not in {note.code for note in record.warnings}


def test_an_interrupt_after_the_measurement_keeps_it(
    request_: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request_(scenarios=("single-stream",))
    (whole,) = Runner(asked, Watcher()).run()
    interrupted = Runner(asked, Watcher())
    path = interrupted.folder.record(SINGLE)

    def stopped(*_: Any) -> None:
        info = whole.run.model_copy(update={"id": interrupted.folder.id})
        write_record(path.with_name(MEASURED), whole.model_copy(update={"run": info}))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("edgeq.run.watchdog._watch", stopped)
        with pytest.raises(KeyboardInterrupt):
            interrupted.run()
    (record,) = Runner(replace(asked, resume=True), Watcher()).run()
    assert (record.status, record.latency_ms) == ("ok", whole.latency_ms)


def test_a_cell_that_is_not_offered_is_skipped_once_for_all_rounds(request_: Callable[..., RunRequest]) -> None:
    watcher = At("none", "", _interrupt)
    records = Runner(request_(scenarios=("offline", "server"), rounds=2), watcher).run()
    assert [record.status for record in records] == ["ok", "skipped"]
    assert records[1].rounds == []
    assert [record.cell.scenario for record in watcher.records].count("server") == 1
    assert watcher.turns == 4


def test_a_cell_too_slow_for_its_budget_is_skipped_in_its_first_round(
    request_: Callable[..., RunRequest], blink: Profile
) -> None:
    watcher = At("none", "", _interrupt)
    profile = blink.model_copy(update={"cell_budget_s": 0.05})
    (record,) = Runner(request_(scenarios=("single-stream",), rounds=3, profile=profile), watcher).run()
    assert record.status == "skipped"
    assert record.reason is not None
    assert record.reason.code == "too-slow"
    assert (len(watcher.records), watcher.turns) == (1, 3)


def test_another_number_of_rounds_is_another_run(request_: Callable[..., RunRequest]) -> None:
    Runner(request_(scenarios=("offline",), rounds=2), Watcher())
    with pytest.raises(RequestError, match="differs in: rounds"):
        Runner(request_(scenarios=("offline",), rounds=3, resume=True), Watcher())


def _invalid(scenario: str, settings: dict[str, Any], **changes: Any) -> Record:
    """400 samples in 80 of 100 ms, by a plan of 1 ms a sample."""
    in_force = {"target_qps": 1000.0, "min_duration_ms": 100, "samples_per_query": 1, **settings}
    fields: dict[str, Any] = {
        "cell": replace(SINGLE, scenario=scenario), "status": "invalid",
        "reason": Note(code="loadgen-invalid", text="too short"), "samples": 400, "duration_s": 0.08,
        "run": RunInfo(id="r", profile="quick", title="t", started="now", order=0),
        "loadgen": LoadgenInfo(version="6", scenario="S", valid=False, settings=in_force),
        "canary": Canary(ms_per_sample=0.001, n=5, estimate_s=0.1),
    }  # fmt: skip
    return Record(**{**fields, **changes})


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [
        ("single-stream", {}),
        ("multi-stream", {"target_qps": 125.0, "samples_per_query": 8}),
        ("offline", {"samples_per_query": 400}),
    ],
)
def test_a_run_that_used_up_its_queries_is_planned_by_its_own_rate(scenario: str, settings: dict[str, Any]) -> None:
    again = planned_anew(_invalid(scenario, settings))  # its canary was faster than the run: it is the plan that counts
    assert again is not None
    assert again["ms_per_sample"] == pytest.approx(0.2)
    (note,) = again["warnings"]
    assert note.code == "planned-anew"
    assert "planned were 1 ms a sample" in note.text
    for unlike in ({"duration_s": 0.1}, {"samples": 70}, {"samples": None}, {"loadgen": None}, {"status": "failed"}):
        assert planned_anew(_invalid(scenario, settings, **unlike)) is None
    assert planned_anew(_invalid(scenario, {**settings, "min_duration_ms": 80})) is None, "shortened by the plan"


def test_a_system_faster_than_planned_is_planned_anew_and_then_valid(
    request_: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[[WorkerJob, str, Watcher], Failure | None] = work
    jobs: list[WorkerJob] = []

    def slow_plan(job: WorkerJob, what: str, watcher: Watcher) -> Failure | None:
        jobs.append(job)
        # A plan of 5 samples a millisecond: with no model behind it, LoadGen runs out of samples too soon.
        return real(job if len(jobs) > 1 else job.model_copy(update={"ms_per_sample": 0.2}), what, watcher)

    monkeypatch.setattr(runner, "work", slow_plan)
    (record,) = Runner(request_(scenarios=("single-stream",)), Watcher()).run()
    assert len(jobs) in (2, 3), "LoadGen gets twice the queries, but so short a run may be a slow one"
    assert record.status == "ok", record.reason
    assert "planned-anew" in {note.code for note in record.warnings}
    assert record.loadgen is not None
    assert jobs[-1].ms_per_sample is not None
    assert record.loadgen.settings["target_qps"] == pytest.approx(1e3 / jobs[-1].ms_per_sample, rel=1e-3)


def test_a_run_from_before_there_were_rounds_is_resumed_as_one_round(request_: Callable[..., RunRequest]) -> None:
    first = Runner(request_(scenarios=("offline",)), Watcher())
    document = json.loads((first.folder.path / "run.json").read_text())
    del document["request"]["rounds"]
    (first.folder.path / "run.json").write_text(json.dumps(document))
    assert Runner(request_(scenarios=("offline",), resume=True), Watcher()).folder.path == first.folder.path


@pytest.fixture
def throttled_at_first(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the first so many measurements look like those of a board on a weak power supply, at 55 °C."""
    monkeypatch.setattr(cooling.state, "temperatures", lambda: {"cpu-thermal": 55.0})
    done: list[WorkerJob] = []

    def make(times: int) -> None:
        def measure(job: WorkerJob, what: str, watcher: Watcher) -> Failure | None:
            failure = work(job, what, watcher)
            done.append(job)
            if len(done) <= times:
                path = job.folder / FILE_NAME
                record = read_record(path)
                host = record.host.model_copy(update={"slowed_by": ["under-voltage", "throttled"]})
                write_record(path, record.model_copy(update={"host": host}))
            return failure

        monkeypatch.setattr(runner, "work", measure)

    return make


def test_a_throttled_turn_is_measured_once_more_when_the_device_is_cool(
    request_: Callable[..., RunRequest], throttled_at_first: Callable[[int], None]
) -> None:
    throttled_at_first(1)
    run = Runner(request_(scenarios=("single-stream", "offline"), cool_to=60), watcher := At("none", "", _interrupt))
    first, second = run.run()
    (note,) = [note for note in first.warnings if note.code == "measured-again"]
    assert "under-voltage, throttled" in note.text
    assert "record.try-1.json" in note.text
    kept = read_record(run.folder.record(SINGLE).with_name("record.try-1.json"))
    assert kept.host.slowed_by == ["under-voltage", "throttled"]
    assert first.host.slowed_by == []
    assert "measured-again" not in {note.code for note in second.warnings}
    assert watcher.turns == 2


def test_a_turn_that_is_slowed_down_again_is_left_at_that(
    request_: Callable[..., RunRequest], throttled_at_first: Callable[[int], None]
) -> None:
    throttled_at_first(9)
    run = Runner(request_(scenarios=("single-stream",), cool_to=60), Watcher())
    (record,) = run.run()
    assert record.host.slowed_by == ["under-voltage", "throttled"]
    assert "measured-again" in {note.code for note in record.warnings}
    assert len(list(run.folder.path.rglob("record.try-*.json"))) == 1


def test_without_cool_to_a_throttled_turn_stands(
    request_: Callable[..., RunRequest], throttled_at_first: Callable[[int], None]
) -> None:
    throttled_at_first(1)
    run = Runner(request_(scenarios=("single-stream",)), Watcher())
    (record,) = run.run()
    assert record.host.slowed_by == ["under-voltage", "throttled"]
    assert not list(run.folder.path.rglob("record.try-*.json"))


def test_ctrl_c_while_it_cools_keeps_the_measurement_that_there_is(
    request_: Callable[..., RunRequest], throttled_at_first: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    throttled_at_first(1)

    class Impatient(Watcher):
        def cooling(self, what: str, now_c: float | None, to_c: float) -> None:
            assert (what, now_c, to_c) == (str(SINGLE), 55.0, 40)
            raise KeyboardInterrupt

    asked = request_(scenarios=("single-stream",), cool_to=40)
    run = Runner(asked, Impatient())
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert read_record(run.folder.record(SINGLE)).host.slowed_by == ["under-voltage", "throttled"]
    (record,) = Runner(replace(asked, resume=True, cool_to=None), Watcher()).run()
    assert record.host.slowed_by == ["under-voltage", "throttled"], "resumed without --cool-to, it stands"


def test_a_device_without_a_sensor_is_refused_before_anything_runs(
    request_: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cooling.state, "temperatures", lambda: None)
    asked = request_(cool_to=60)
    with pytest.raises(RequestError) as caught:
        Runner(asked, Watcher())
    assert caught.value.code == "no-sensor"
    assert not asked.results.exists()
