"""The runner: one fresh child process a cell, watched, in order; every cell ends as a record."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edgeq import __version__
from edgeq.artifact import Manifest, exported, find_manifest, read_manifest
from edgeq.backends import installed, require
from edgeq.events import Child, cause_of_death
from edgeq.files import only_one, write_error, write_json
from edgeq.host.memory import OomKills, oom_kills
from edgeq.host.threads import environment
from edgeq.run.accuracy import ArtifactAccuracy
from edgeq.run.job import WorkerJob
from edgeq.run.record import Accuracy, ArtifactInfo, Record, Requested, RunInfo, read_record, write_record
from edgeq.run.samples import ModelSamples, samples_for
from edgeq.run.store import RunFolder, create_run, resume_run
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.matrix import Planned, matrix
from edgeq.spec.names import NO_MODEL, NULL, Cell
from edgeq.spec.note import Note
from edgeq.spec.profile import Profile

#: Below this much free disk no cell is started: its logs and record might not be written whole.
MIN_FREE_BYTES = 16 << 20

#: Seconds for a worker's first event: Python's start and the imports before it.
START_LIMIT_S = 120.0

#: How often the watchdog looks while a worker is silent.
TICK_S = 0.5


@dataclass(frozen=True)
class RunRequest:
    """Everything that ``edgeq run`` was asked for."""

    models_dir: Path
    results: Path
    models: Sequence[str]
    backends: Sequence[str]
    schemes: Sequence[str]
    scenarios: Sequence[str]
    profile: Profile
    threads: int
    target: str
    device: dict[str, Any]
    dataset: Path | None = None
    seed: int = 0
    resume: bool = False

    def as_json(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed: everything that bears on the figures."""
        return {
            "models": list(self.models),
            "backends": list(self.backends),
            "schemes": list(self.schemes),
            "scenarios": list(self.scenarios),
            "profile": self.profile.model_dump(mode="json", by_alias=True),
            "threads": self.threads,
            "target": self.target,
            "dataset": str(self.dataset.absolute()) if self.dataset else None,
            "versions": {"edgeq": __version__, **{b: installed(b) for b in self.backends if b != NULL}},
            "seed": self.seed,
        }


class Watcher:
    """What the runner tells whoever shows it; the base class shows nothing."""

    def began(self, run: RunFolder, total: int, finished: int) -> None:
        """A run of ``total`` cells starts (or goes on, with ``finished`` of them done)."""

    def preparing(self, what: str, done: int, total: int) -> None:
        """Samples are being preprocessed."""

    def phase(self, what: str, name: str) -> None:
        """``what`` (a cell or an accuracy run) has come to phase ``name``."""

    def ended(self, record: Record) -> None:
        """A cell has its record."""

    def accuracy(self, what: str, text: str) -> None:
        """An artifact's accuracy run has ended."""


class Runner:
    """One run: planned, then worked through cell by cell."""

    def __init__(self, request: RunRequest, watcher: Watcher) -> None:
        """Plans the run and makes or finds its folder.

        Raises:
            RequestError: the dataset is unusable, artifacts of one model come from different weights, or there is
                nothing to resume.
            EdgeqError: the results folder can't be written.
        """
        self.request, self.watcher = request, watcher
        self.planned = matrix(request.models, request.backends, request.schemes, request.scenarios)
        self.found, self.lacking = _manifests(request, self.planned)
        self.manifests = {key: manifest for key, (_, manifest) in self.found.items()}
        self._accuracy_tried: set[tuple[str, str, str]] = set()
        self.samples = {model: self._samples(model) for model in dict.fromkeys(p.cell.model for p in self.planned)}
        digests = {model: samples.sha256 for model, samples in self.samples.items()}
        asked, cells = request.as_json() | {"samples": digests}, [plan.cell for plan in self.planned]
        device = str(request.device["slug"])
        self.folder = (
            resume_run(request.results, device, asked)
            if request.resume
            else create_run(request.results, device, request.profile.name, asked, cells)
        )

    def run(self) -> list[Record]:
        """Measures every cell that has no record yet; returns all records in the order of the matrix.

        Raises:
            EdgeqError: nothing more can be recorded (full disk, damaged record). What is finished is kept.
            KeyboardInterrupt: as it came; the cell in hand leaves no record, the finished ones are kept.
        """
        with only_one(self.folder.path.parent, "edgeq run"):  # two on one device would disturb each other
            done = {plan.cell: record for plan in self.planned if (record := self._finished(plan.cell))}
            self.watcher.began(self.folder, len(self.planned), len(done))
            for order, plan in enumerate(self.planned):
                if plan.cell in done:
                    continue
                self._enough_disk()
                record = self._cell(plan, order)
                done[plan.cell] = record
                self.watcher.ended(record)
            return [done[plan.cell] for plan in self.planned]

    def _samples(self, model: str) -> ModelSamples:
        request = self.request
        manifests = [manifest for manifest in self.manifests.values() if manifest.model == model]
        return samples_for(
            model,
            request.models_dir,
            request.profile,
            request.dataset,
            request.seed,
            manifests,
            lambda done, total: self.watcher.preparing(model, done, total),
        )

    def _finished(self, cell: Cell) -> Record | None:
        record = self.folder.finished(cell)
        manifest = self.manifests.get(_artifact_of(cell))
        if record is None or record.artifact is None or manifest is None or record.artifact.key == manifest.key:
            return record
        raise RequestError(
            f"the artifact of {cell} has been exported anew since this run began",
            "its finished cells measured another file",
            "start a new run: the same command without --resume",
            code="artifact-changed",
        )

    def _cell(self, plan: Planned, order: int) -> Record:
        cell = plan.cell
        info = self._info(order)
        if plan.reason is not None:
            return self._write(Record.skipped(cell, plan.reason, info, **self._known(cell)))
        accuracy, warnings = None, [*self.samples[cell.model].warnings, *_thread_notes(self.request)]
        if cell.backend != NULL:
            try:
                require(cell.backend)
            except EdgeqError as error:
                return self._write(Record.skipped(cell, Note.of(error), info, **self._known(cell)))
            try:
                manifest = self._manifest(cell)
                exported(manifest)
            except EdgeqError as error:
                return self._write(Record.failed(cell, Note.of(error), info, **self._known(cell)))
            warnings += manifest.warnings
            accuracy, notes = self._accuracy(cell, manifest, info)
            warnings += [*notes, *_rule_notes(self.request.profile, manifest, accuracy)]
        job = self._job("performance", cell, self.folder.record(cell).parent, info).model_copy(
            update={"accuracy": accuracy, "warnings": _once(warnings)}
        )
        self.folder.set_aside(cell)
        failure = self._work(job, str(cell))
        record = self._recorded(cell)
        if record is not None and (again := _planned_anew(record, self.request.profile)) is not None:
            self.folder.set_aside(cell)
            failure = self._work(
                job.model_copy(update=again | {"warnings": [*job.warnings, *again["warnings"]]}), str(cell)
            )
            record = self._recorded(cell)
        if record is not None:
            return record
        reason = failure or Note(code="no-record", text="the worker ended without a record")
        known = {**self._known(cell), "accuracy": accuracy, "warnings": _once(warnings)}
        return self._write(Record.failed(cell, reason, info, **known))

    def _recorded(self, cell: Cell) -> Record | None:
        """What the worker wrote: its last act, so that a record is whole whatever became of the worker afterwards."""
        path = self.folder.record(cell)
        return read_record(path) if path.is_file() else None

    def _manifest(self, cell: Cell) -> Manifest:
        key = _artifact_of(cell)
        if key in self.lacking:
            raise self.lacking[key]
        return self.manifests[key]

    def _accuracy(self, cell: Cell, manifest: Manifest, info: RunInfo) -> tuple[Any, list[Note]]:
        """The artifact's accuracy (measured at its first cell), and what is to be said of it."""
        samples = self.samples[cell.model]
        if samples.dataset is None:
            return None, []
        folder = self.folder.path / cell.model / cell.backend
        fp32 = self.manifests.get((cell.model, cell.backend, "fp32"))
        artifact = ArtifactAccuracy(folder, cell.scheme, manifest.key, fp32.key if fp32 else None)
        result = artifact.read(failed=_artifact_of(cell) in self._accuracy_tried)
        if result is None:
            self._accuracy_tried.add(_artifact_of(cell))
            what = f"{cell.model}/{cell.backend}/{cell.scheme} accuracy"
            failure = self._work(self._job("accuracy", cell, artifact.folder, info), what)
            result = artifact.conclude(failure)
            self.watcher.accuracy(what, artifact.describe(result))
        return artifact.for_record(result, manifest)

    def _job(self, mode: Any, cell: Cell, folder: Path, info: RunInfo) -> WorkerJob:
        request, samples = self.request, self.samples[cell.model]
        path, manifest = self.found.get(_artifact_of(cell), (None, None))
        return WorkerJob(
            mode=mode,
            cell=cell,
            manifest=path.absolute() if path else None,
            artifact_key=manifest.key if manifest else None,
            target=request.target,
            threads=request.threads,
            profile=request.profile,
            samples=samples.spec,
            dataset=samples.dataset,
            preprocessing=samples.preprocessing,
            bad_images=samples.bad_images,
            excluded_calibration=samples.excluded,
            folder=folder.absolute(),
            run=info,
            device=request.device,
        )

    def _work(self, job: WorkerJob, what: str) -> Note | None:
        """Runs one worker to its end; returns why it failed, or None."""
        try:
            job.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(job.folder, error) from error
        job_file, log = job.folder / "job.json", job.folder / "worker.log"
        write_json(job_file, job.model_dump(mode="json", by_alias=True))
        oom = oom_kills()
        child = Child.start("edgeq.run.worker", job_file, log, environment(job.threads))
        try:
            return self._watch(child, job, what, log, oom)
        except BaseException:
            child.kill()
            if not (job.folder / "record.json").is_file():
                shutil.rmtree(job.folder / "loadgen", ignore_errors=True)
            raise
        finally:
            child.kill()

    def _watch(self, child: Child, job: WorkerJob, what: str, log: Path, oom: OomKills) -> Note | None:
        phase, deadline, limit = "start", time.monotonic() + START_LIMIT_S, START_LIMIT_S
        reported: Note | None = None
        for event in child.events(TICK_S):
            if event is None:
                if time.monotonic() > deadline:
                    return Note(
                        code="hung",
                        text=f"the worker was stopped: phase '{phase}' had not ended after {limit:.0f} s",
                        hint=f"see {log}; if the device is only slow, use a longer profile",
                    )
            elif event["event"] == "phase":
                phase, limit = event["name"], event["limit_s"]
                deadline = time.monotonic() + limit
                self.watcher.phase(what, phase)
            elif event["event"] == "error":
                reported = Note(code=event["code"], text=f"{event['what']}: {event['why']}", hint=event["hint"])
                if event["code"] in ("disk-full", "cannot-write"):
                    raise EdgeqError(event["what"], event["why"], event["hint"], code=event["code"])
        code = child.process.returncode
        if reported is not None or code == 0:
            return reported
        cause, text = cause_of_death(code, log, oom_kills().since(oom))
        return Note(code=cause, text=f"{text} (in phase '{phase}')", hint=f"see {log}, then: edgeq run --resume")

    def _write(self, record: Record) -> Record:
        self.folder.set_aside(record.cell)
        write_record(self.folder.record(record.cell), record)
        return record

    def _info(self, order: int) -> RunInfo:
        profile = self.request.profile
        return RunInfo(
            id=self.folder.id,
            profile=profile.name,
            title=profile.title,
            mlperf_rules=profile.mlperf_rules,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            order=order,
        )

    def _known(self, cell: Cell) -> dict[str, Any]:
        """What is known of a cell that was not measured."""
        request = self.request
        streams = 1 if cell.scenario == "single-stream" else request.threads
        requested = Requested(
            threads=request.threads,
            streams=streams,
            profile=request.profile.name,
            dataset=self.samples[cell.model].dataset,
        )
        path, manifest = self.found.get(_artifact_of(cell), (None, None))
        artifact = None
        if path is not None and manifest is not None and manifest.status == "ok":
            artifact = ArtifactInfo.of(manifest, path.parent / manifest.files[0].name)
        return {"device": request.device, "requested": requested, "artifact": artifact}

    def _enough_disk(self) -> None:
        free = shutil.disk_usage(self.folder.path).free
        if free < MIN_FREE_BYTES:
            raise write_error(self.folder.path, OSError(28, "No space left on device"))


Key = tuple[str, str, str]


def _manifests(
    request: RunRequest, planned: Sequence[Planned]
) -> tuple[dict[Key, tuple[Path, Manifest]], dict[Key, EdgeqError]]:
    """The manifest of every artifact that the run will use, and for the others why there is none.

    Raises:
        RequestError: artifacts of one model come from different weights (code ``mixed-weights``).
    """
    found: dict[Key, tuple[Path, Manifest]] = {}
    lacking: dict[Key, EdgeqError] = {}
    for key in dict.fromkeys(_artifact_of(plan.cell) for plan in planned if plan.cell.model != NO_MODEL):
        try:
            path = find_manifest(request.models_dir, *key, request.target)
            found[key] = path, read_manifest(path)
        except EdgeqError as error:
            lacking[key] = error
    for model in request.models:
        sources = {m.weights.sha256: m.weights.name for _, m in found.values() if m.model == model}
        if len(sources) > 1:
            raise RequestError(
                f"the artifacts of {model} come from different weights: {', '.join(sorted(sources.values()))}",
                "their figures could not be compared",
                f"run: edgeq export --model {model} --weights …",
                code="mixed-weights",
            )
    return found, lacking


def _thread_notes(request: RunRequest) -> list[Note]:
    allowed = request.device["cores"]
    if request.threads <= allowed:
        return []
    text = f"{request.threads} threads on {allowed} cores that this process may use"
    return [Note(code="oversubscribed", text=text, hint="leave out --threads, or pass the number of cores")]


def _rule_notes(profile: Profile, manifest: Manifest, accuracy: Accuracy | None) -> list[Note]:
    """``not-mlperf`` where a profile of MLPerf's rules is run without what the rules ask for."""
    if not profile.mlperf_rules:
        return []
    lacks = []
    if accuracy is None:
        lacks.append("no accuracy was measured (pass --dataset)")
    elif accuracy.n < profile.accuracy_samples:
        lacks.append(f"accuracy is of {accuracy.n} images, not {profile.accuracy_samples}")
    if manifest.weights.kind == "random":
        lacks.append("the weights are random")
    if not lacks:
        return []
    hint = "bring the validation set and the reference weights, or use another profile"
    return [Note(code="not-mlperf", text=f"not a result by MLPerf's rules: {'; '.join(lacks)}", hint=hint)]


def _planned_anew(record: Record, profile: Profile) -> dict[str, Any] | None:
    """How to try an invalid offline cell again: by the rate it showed, where the canary's was too low; else None.

    LoadGen is given offline's samples before it starts. Where a busy machine slowed the canary down, they are used up
    before the minimum duration is over, and the run is invalid.
    """
    if record.status != "invalid" or record.cell.scenario != "offline" or record.canary is None:
        return None
    if (
        record.samples_per_second is None
        or record.duration_s is None
        or record.duration_s >= profile.offline.min_duration_s
    ):
        return None
    ms_per_sample = 1e3 / record.samples_per_second
    note = Note(
        code="planned-anew",
        text=f"the first try ended after {record.duration_s:.1f} s, before its minimum duration: the canary took "
        f"{record.canary.ms_per_sample:.2f} ms a sample, the run {ms_per_sample:.2f} ms",
        hint="the figure is of the second try; a quiet machine needs only one",
    )
    return {"ms_per_sample": ms_per_sample, "warnings": [note]}


def _artifact_of(cell: Cell) -> tuple[str, str, str]:
    return cell.model, cell.backend, cell.scheme


def _once(notes: Sequence[Note]) -> list[Note]:
    return list(dict.fromkeys(notes))
