"""``edgeq export``: which artifacts are out of date, and a child process a family to make them anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgeq.artifact import FileEntry, Manifest, artifacts_dir, manifest_path, read_manifest, write_manifest
from edgeq.events import Child, cause_of_death
from edgeq.export.child import Family, FamilyJob, exporter_of
from edgeq.export.keys import artifact_key
from edgeq.export.prepare import PrepareJob, log_path, read_prepared, work_dir
from edgeq.files import only_one, sha256_file, write_error, write_json
from edgeq.host.memory import oom_kills
from edgeq.host.threads import environment
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import load_model
from edgeq.spec.note import Note

#: Called with what is going on: a short text, and how much of it is done (done, total) where that is known.
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class ExportRequest:
    """Everything that ``edgeq export`` was asked for."""

    models_dir: Path
    models: Sequence[str]
    backends: Sequence[str]
    schemes: Sequence[str]
    weights: str
    target: str
    threads: int
    seed: int = 0
    calibration: Path | None = None
    calibration_count: int = 128
    force: bool = False


@dataclass(frozen=True)
class Exported:
    """What became of one artifact."""

    model: str
    backend: str
    scheme: str
    outcome: Literal["exported", "unchanged", "failed"]
    manifest: Manifest


def export(request: ExportRequest, on_progress: OnProgress) -> Iterator[Exported]:
    """Exports what is out of date, model by model, and yields each artifact's outcome as it is known.

    Raises:
        EdgeqError: what stops a whole model: its weights, its calibration folder, a full disk, another export running.
    """
    for model in request.models:
        with only_one(artifacts_dir(request.models_dir, model), "edgeq export"):
            yield from _export_model(request, model, on_progress)


def _export_model(request: ExportRequest, model: str, on_progress: OnProgress) -> Iterator[Exported]:
    prepare = PrepareJob(
        models_dir=request.models_dir.absolute(),
        model=model,
        weights=_weights_path(request.weights),
        seed=request.seed,
        calibration=request.calibration.absolute() if request.calibration else None,
        calibration_count=request.calibration_count,
        threads=request.threads,
    )
    _prepare(prepare, on_progress)
    for backend in request.backends:
        todo = []
        for scheme in request.schemes:
            current = None if request.force else up_to_date(prepare, backend, scheme, request.target)
            if current is None:
                todo.append(scheme)
            else:
                yield Exported(model, backend, scheme, "unchanged", current)
        job = FamilyJob(prepare=prepare, backend=backend, schemes=todo, target=request.target)
        for manifest in _export_family(job, on_progress):
            outcome: Literal["exported", "failed"] = "exported" if manifest.status == "ok" else "failed"
            yield Exported(model, backend, manifest.scheme, outcome, manifest)


def up_to_date(prepare: PrepareJob, backend: str, scheme: str, target: str) -> Manifest | None:
    """The manifest of an artifact that is there, whole and made from the same inputs; None where it is to be made."""
    exporter = exporter_of(backend)
    recipe = exporter.recipe(scheme, target)
    path = manifest_path(prepare.models_dir, prepare.model, backend, scheme, recipe.target)
    if not path.is_file():
        return None
    try:
        manifest = read_manifest(path)
    except EdgeqError:  # an older schema, or damage: made anew, which the caller reports
        return None
    spec = load_model(prepare.models_dir, prepare.model)
    key = artifact_key(exporter, backend, scheme, recipe, read_prepared(prepare.models_dir, prepare.model), spec)
    if manifest.status != "ok" or manifest.key != key:
        return None
    whole = all(_is_whole(path.parent / entry.name, entry) for entry in manifest.files)
    return manifest if whole else None


def _is_whole(file: Path, entry: FileEntry) -> bool:
    return file.is_file() and file.stat().st_size == entry.bytes and sha256_file(file) == entry.sha256


def _weights_path(weights: str) -> str:
    return weights if weights in ("pretrained", "random", "auto") else str(Path(weights).absolute())


def _prepare(job: PrepareJob, on_progress: OnProgress) -> None:
    on_progress(f"{job.model}: weights and torch's float32 answers", 0, 1)
    for event in _run_child("edgeq.export.prepare", "prepare", job, job.model_dump(mode="json")):
        if event["event"] == "progress":
            on_progress(f"{job.model}: {event['what']}", event["done"], event["total"])


def _export_family(job: FamilyJob, on_progress: OnProgress) -> Iterator[Manifest]:
    """Runs the family's child; where it dies, the artifact in hand is marked failed and a new child goes on."""
    folder = artifacts_dir(job.prepare.models_dir, job.prepare.model) / job.backend
    todo = list(job.schemes)
    total = len(todo)
    # A float graph left by an interrupted export may be of other tools than the artifacts to come.
    shutil.rmtree(work_dir(job.prepare.models_dir, job.prepare.model) / job.backend, ignore_errors=True)
    while todo:
        for leftover in folder.glob(".partial-*"):  # of an interrupted export; the lock says that nobody uses it
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        current = todo[0]
        rest = job.model_copy(update={"schemes": todo})
        try:
            for event in _run_child("edgeq.export.child", job.backend, job.prepare, rest.model_dump(mode="json")):
                if event["event"] == "start":
                    current = event["scheme"]
                    on_progress(f"{job.prepare.model}: {job.backend} {current}", total - len(todo), total)
                elif event["event"] == "done":
                    todo.remove(event["scheme"])
                    yield Manifest.model_validate(event["manifest"])
        except ChildDied as death:
            if not todo:  # it died on its way out, with everything done
                break
            current = current if current in todo else todo[0]
            todo.remove(current)
            yield _mark_failed(job, current, death)
    shutil.rmtree(work_dir(job.prepare.models_dir, job.prepare.model) / job.backend, ignore_errors=True)


class ChildDied(EdgeqError):
    """An export child that ended without saying why."""


def _run_child(module: str, step: str, of: PrepareJob, job: Any) -> Iterator[dict[str, Any]]:
    """Runs an export child with ``job`` and yields its events; ``of`` says for which model and with what threads.

    Raises:
        EdgeqError: what the child reported as the user's error.
        ChildDied: it ended by a signal or a non-zero exit code without a word.
    """
    log = log_path(of.models_dir, of.model, step)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(log, error) from error
    job_file = log.with_suffix(".job.json")
    write_json(job_file, job)
    oom = oom_kills()
    child = Child.start(module, job_file, log, environment(of.threads))
    try:
        for event in child.events():
            if event is None:
                continue
            if event["event"] == "error":
                fields = {name: event[name] for name in ("what", "why", "hint", "code", "exit_code")}
                raise EdgeqError(**fields)
            yield event
    finally:
        child.kill()
    code = child.process.returncode
    if code != 0:
        cause, text = cause_of_death(code, log, oom_kills().since(oom))
        raise ChildDied(f"the export of {of.model} ({step}) died", text, f"the whole story is in {log}", code=cause)


def _mark_failed(job: FamilyJob, scheme: str, death: ChildDied) -> Manifest:
    family = Family(job)
    recipe = family.exporter.recipe(scheme, job.target)
    manifest = family.blank(scheme, recipe).model_copy(update={"reason": Note.of(death)})
    write_manifest(
        manifest_path(job.prepare.models_dir, job.prepare.model, job.backend, scheme, recipe.target), manifest
    )
    return manifest
