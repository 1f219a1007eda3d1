"""The runner: one fresh child process a cell and round, in order; every cell ends as a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from edgeq.artifact import exported
from edgeq.backends import require
from edgeq.files import only_one
from edgeq.peaks import Peaks
from edgeq.run import cooling, disk
from edgeq.run.accuracy import ArtifactAccuracy, lacks_accuracy, with_accuracy
from edgeq.run.again import cut_short, fatal, left_over, planned_anew, told
from edgeq.run.job import AccuracyResult, WorkerJob, driven_as
from edgeq.run.kept import KeptAccuracy
from edgeq.run.peaks import LIBRARIES, measure_peaks
from edgeq.run.plan import Key, RunPlan, RunRequest, artifact_of, rule_notes, thread_notes
from edgeq.run.preflight import Preflight
from edgeq.run.progress import CellProgress
from edgeq.run.record import (
    FILE_NAME,
    Accuracy,
    ArtifactInfo,
    Record,
    Requested,
    RunInfo,
    read_record,
    write_record,
)
from edgeq.run.rounds import Step, steps, with_round
from edgeq.run.store import create_run, next_try, resume_run, set_aside
from edgeq.run.watchdog import Watcher, work
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.names import NULL, Cell
from edgeq.spec.note import Note

__all__ = ["RunRequest", "Runner", "Watcher"]

#: Tries of a turn at most, where LoadGen ends them too soon: a very short one shows a rate that is still too low.
MOST_TRIES = 3


@dataclass(frozen=True)
class Judged:
    """An artifact's accuracy, and what is to be said of it."""

    accuracy: Accuracy | None = None
    notes: list[Note] = field(default_factory=list)


class Runner:
    """One run: planned, then worked through turn by turn."""

    def __init__(self, request: RunRequest, watcher: Watcher) -> None:
        """Plans the run and makes or finds its folder.

        Raises:
            RequestError: the dataset is unusable, artifacts of one model come from different weights, there is nothing to
                resume, or no sensor to cool by.
            EdgeqError: the results folder can't be written.
        """
        cooling.check(request.cool_to)
        self.request, self.watcher = request, watcher
        self.plan = RunPlan(request, watcher.preparing)
        asked, cells = self.plan.as_json(), [plan.cell for plan in self.plan.planned]
        device = str(request.device["slug"])
        self.folder = (
            resume_run(request.results, device, asked)
            if request.resume
            else create_run(request.results, device, request.profile.name, asked, cells)
        )
        self.progress: dict[Cell, CellProgress] = {}
        self._judged: dict[Key, Judged] = {}
        self.preflight = Preflight(self.plan, watcher)

    def run(self) -> list[Record]:
        """Runs every turn that has no record yet; returns the cells' records in the order of the matrix.

        Raises:
            EdgeqError: nothing more can be recorded (full disk, damaged record). What is finished is kept.
            KeyboardInterrupt: as it came; the turn in hand leaves no record, the finished ones are kept.
        """
        with only_one(self.folder.path.parent, "edgeq run"):  # two on one device would disturb each other
            cells = [plan.cell for plan in self.plan.planned]
            self.progress = {cell: CellProgress(self.folder, cell, self.request.rounds) for cell in cells}
            for progress in self.progress.values():
                self._same_artifact(progress)
                progress.settle()
            turns = steps(self.plan.planned, self.request.rounds, self.request.seed)
            left = sum(progress.left for progress in self.progress.values())
            self.watcher.began(self.folder, len(cells), self.request.rounds, len(turns) - left)
            for note in self.preflight.notes():
                self.watcher.told(note)
            self._judge_all()
            for turn in turns:
                if self.progress[turn.plan.cell].wants(turn.round):
                    disk.enough_disk(self.folder.path, disk.needed())
                    self._turn(turn)
            return [record for cell in cells if (record := self.progress[cell].record) is not None]

    def _same_artifact(self, progress: CellProgress) -> None:
        record, manifest = progress.record, self.plan.manifest(progress.cell)
        if record is None or record.artifact is None or manifest is None or record.artifact.key == manifest.key:
            return
        raise RequestError(
            f"the artifact of {progress.cell} has been exported anew since this run began",
            "its finished cells measured another file",
            "start a new run: the same command without --resume",
            code="artifact-changed",
        )

    def _judge_all(self) -> None:
        """Measures the accuracy of every artifact that has a cell to be measured, before any of them is timed.

        Where a finished cell lacks it, as an earlier try failed, its records get it, and what was timed stands. fp32 comes
        first in the matrix, and by the first timed cell all know how far they agree with it.
        """
        if self.request.dataset is None:
            return
        for order, plan in enumerate(self.plan.planned):
            cell, key, progress = plan.cell, artifact_of(plan.cell), self.progress[plan.cell]
            waits = progress.left or any(map(lacks_accuracy, progress.measured))
            if plan.reason is not None or cell.backend == NULL or not waits or self._refusal(cell) is not None:
                continue
            if key not in self._judged:
                self._judged[key] = self._judge(cell, self._info(order, 1))
            found, notes = self._judged[key].accuracy, self._accuracy_notes(cell)
            progress.change(partial(with_accuracy, accuracy=found, notes=notes))

    def _judge(self, cell: Cell, info: RunInfo) -> Judged:
        manifest = self.plan.manifest(cell)
        if manifest is None or self.plan.samples[cell.model].dataset is None:
            return Judged()
        folder = self.folder.path / cell.model / cell.backend
        fp32 = self.plan.manifest(Cell(cell.model, cell.backend, "fp32", cell.scenario))
        artifact = ArtifactAccuracy(folder, cell.scheme, manifest.key, fp32.key if fp32 else None)
        result, unkept = artifact.read(), []
        if result is None:
            what = f"{cell.model}/{cell.backend}/{cell.scheme} accuracy"
            job = self._job("accuracy", cell, artifact.folder, info)
            kept = KeptAccuracy(job, manifest)
            result = kept.take()
            refusal = None if result else self.preflight.refusal(cell, "accuracy")
            if refusal is not None:
                result = AccuracyResult(status="skipped", artifact_key=manifest.key, reason=refusal[1])
            if result is None:
                disk.enough_disk(self.folder.path, disk.needed(self.plan.samples[cell.model].count))
                failure = work(job, what, self.watcher)
                result = artifact.conclude(failure.note if failure else None)
                unkept = kept.keep(result)
            self.watcher.accuracy(what, artifact.describe(result))
        accuracy, notes = artifact.for_record(result, manifest)
        return Judged(accuracy, [*notes, *unkept])

    def _refusal(self, cell: Cell) -> tuple[str, Note] | None:
        """Why a cell is not measured in any round: the status of its record and the reason."""
        if cell.backend == NULL:
            return None
        try:
            require(cell.backend)
        except EdgeqError as error:
            return "skipped", Note.of(error)
        try:
            if artifact_of(cell) in self.plan.lacking:
                raise self.plan.lacking[artifact_of(cell)]
            exported(self.plan.found[artifact_of(cell)][1])
        except EdgeqError as error:
            return "failed", Note.of(error)
        # What has been measured here in an earlier round fits.
        return None if self.progress[cell].measured else self.preflight.refusal(cell)

    def _turn(self, turn: Step) -> None:
        cell, info = turn.plan.cell, self._info(turn.order, turn.round)
        progress = self.progress[cell]
        refusal = ("skipped", turn.plan.reason) if turn.plan.reason is not None else self._refusal(cell)
        left = progress.left
        if refusal is not None:
            status, reason = refusal
            make = Record.skipped if status == "skipped" else Record.failed
            self.watcher.ended(progress.refuse(make(cell, reason, info, **self._known(cell))), left)
            return
        record = self._measure(turn, info)
        if self.request.cool_to is not None and record.host.slowed_by:
            record = self._measure_cooler(turn, record, self.request.cool_to)
        progress.add(turn.round, record)
        self.watcher.ended(record, left - progress.left)

    def _measure_cooler(self, turn: Step, first: Record, to_c: float) -> Record:
        """Measures a turn once more when the device has cooled; ``first``, which stands until then, is kept beside."""
        cell = turn.plan.cell
        cooled = cooling.cool(to_c, lambda now_c: self.watcher.cooling(str(cell), now_c, to_c))
        kept = next_try(self.progress[cell].folder(turn.round) / FILE_NAME).name
        return self._measure(turn, self._info(turn.order, turn.round), cooling.notes(first, kept, to_c, cooled))

    def _measure(self, turn: Step, info: RunInfo, notes: Sequence[Note] = ()) -> Record:
        """One turn of a cell in a worker of its own; in another one, where LoadGen ended a try too soon.

        ``notes`` go into the record.
        """
        cell, progress = turn.plan.cell, self.progress[turn.plan.cell]
        judged = self._judged.get(artifact_of(cell), Judged())
        warnings = [*self.plan.samples[cell.model].warnings, *thread_notes(self.request), *self.plan.setting(cell)[2]]
        warnings += notes
        manifest = self.plan.manifest(cell)
        if manifest is not None and cell.backend != NULL:
            warnings += [*manifest.warnings, *self._accuracy_notes(cell), *self.preflight.warnings(cell)]
        kin = [record for each in self._kin(cell) for record in each.measured]
        # What killed a worker of this artifact is not tried again: a probe's every cell must say so, a profile is had once.
        deadly = [note for record in kin for note in fatal(record, "probe")][:1]
        probed = any(told(record, "probe") for record in progress.measured)
        warnings += [] if probed else deadly
        job = self._job("performance", cell, progress.folder(turn.round), info).model_copy(
            update={
                "place": progress.place(turn.round),
                "accuracy": judged.accuracy,
                "warnings": _once(warnings),
                "probe": not probed and not deadly,
                "operators": not any(told(record, "profile") for record in kin),
                "peaks": self._peaks if cell.backend != NULL else None,
            }
        )
        what = str(cell) if self.request.rounds == 1 else f"{cell} (round {turn.round} of {self.request.rounds})"
        record, failure = self._try(job, what)
        for _ in range(MOST_TRIES - 1):
            again = planned_anew(record) if record is not None else None
            if again is None:
                break
            notes = [*job.warnings, *again["warnings"]]
            record, failure = self._try(job.model_copy(update=again | {"warnings": notes}), what)
        if record is not None:
            return record
        reason = failure or Note(code="no-record", text="the worker ended without a record")
        known = {**self._known(cell), "accuracy": judged.accuracy, "warnings": job.warnings}
        record = with_round(Record.failed(cell, reason, info, **known), job.place)
        write_record(job.folder / FILE_NAME, record)
        return record

    @cached_property
    def _peaks(self) -> Peaks | None:
        """The machine's, whichever backends the run has: measured before its first cell with a model is timed, or as kept by
        an earlier run. None of an emulated device, whose times mean nothing."""
        request = self.request
        if request.device["emulated"]:
            return None

        def watch(library: str, step: str) -> None:
            self.watcher.phase("the machine's peak", f"{library}: {step}")

        alive = [name for name in LIBRARIES if not self.preflight.dead(name)]
        return measure_peaks(alive, request.device, request.threads, watch)

    def _try(self, job: WorkerJob, what: str) -> tuple[Record | None, Note | None]:
        """What one worker wrote, and why it failed, where it did."""
        path = job.folder / FILE_NAME
        set_aside(path)
        if (record := left_over(job)) is not None:
            return record, None
        failure = work(job, what, self.watcher)
        if path.is_file():  # its last act, so that it is whole whatever became of the worker afterwards
            return read_record(path), None
        if failure is None:
            return None, None
        return cut_short(job, failure), failure.note

    def _kin(self, cell: Cell) -> list[CellProgress]:
        """The cells of the same artifact, this one among them."""
        return [each for other, each in self.progress.items() if artifact_of(other) == artifact_of(cell)]

    def _accuracy_notes(self, cell: Cell) -> list[Note]:
        """What is to be said of the accuracy of a cell's artifact."""
        judged, manifest = self._judged.get(artifact_of(cell), Judged()), self.plan.manifest(cell)
        assert manifest is not None
        return [*judged.notes, *rule_notes(self.request.profile, manifest, judged.accuracy)]

    def _job(self, mode: Any, cell: Cell, folder: Path, info: RunInfo) -> WorkerJob:
        request, samples = self.request, self.plan.samples[cell.model]
        path, manifest = self.plan.found.get(artifact_of(cell), (None, None))
        setting, tuned, _ = self.plan.setting(replace(cell, scenario=driven_as(mode, cell.scenario)))
        return WorkerJob(
            mode=mode,
            cell=cell,
            manifest=path.absolute() if path else None,
            artifact_key=manifest.key if manifest else None,
            target=request.target,
            threads=request.threads,
            setting=setting,
            tuned=tuned,
            profile=request.profile,
            samples=samples.spec,
            dataset=samples.dataset,
            preprocessing=samples.preprocessing,
            bad_images=samples.bad_images,
            excluded_calibration=samples.excluded,
            folder=folder.absolute(),
            rounds=request.rounds,
            run=info,
            device=request.device,
        )

    def _info(self, order: int, number: int) -> RunInfo:
        profile = self.request.profile
        return RunInfo(
            id=self.folder.id,
            profile=profile.name,
            title=profile.title,
            mlperf_rules=profile.mlperf_rules,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            order=order,
            round=number,
        )

    def _known(self, cell: Cell) -> dict[str, Any]:
        """What is known of a cell that was not measured."""
        request = self.request
        setting, tuned, _ = self.plan.setting(cell)
        requested = Requested(
            **setting.model_dump(),
            setting="tuned" if tuned else "default",
            profile=request.profile.name,
            rounds=request.rounds,
            dataset=self.plan.samples[cell.model].dataset,
        )
        path, manifest = self.plan.found.get(artifact_of(cell), (None, None))
        artifact = None
        if path is not None and manifest is not None and manifest.status == "ok":
            artifact = ArtifactInfo.of(manifest, path.parent / manifest.files[0].name)
        return {"device": request.device, "requested": requested, "artifact": artifact}


def _once(notes: Sequence[Note]) -> list[Note]:
    return list(dict.fromkeys(notes))
