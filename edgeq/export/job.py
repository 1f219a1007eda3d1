"""``edgeq export``: which artifacts are out of date, and a child process a family to make them anew."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgeq.artifact import FileEntry, Manifest, artifacts_dir, manifest_path, read_manifest, write_manifest
from edgeq.export.child import Family, FamilyJob, exporter_of
from edgeq.export.children import ChildDied, Children, side_by_side
from edgeq.export.keys import artifact_key
from edgeq.export.memory import family_bytes, room
from edgeq.export.prepare import PrepareJob, is_current, read_prepared, work_dir
from edgeq.files import only_one, sha256_file
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import load_model
from edgeq.spec.note import Note
from edgeq.spec.quantization import DEFAULTS, INT8_SCHEMES, QuantizationOptions, check_layers, check_options

#: Codes of what is wrong with one model and no other: its package, its weights, its model.toml.
_OF_ONE_MODEL = (
    "not-installed", "bad-source", "parameters-differ", "macs-differ", "degenerate-weights", "no-pretrained", "no-network",
    "bad-download",
)  # fmt: skip

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
    options: QuantizationOptions = DEFAULTS
    max_top1_drop: float | None = None
    """Points below fp32 that an int8 artifact may lose before layers are searched for to keep in float."""
    selection_count: int = 300
    """Labelled images of ``calibration`` to judge by where ``max_top1_drop`` is given."""
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
        RequestError: a framework does not offer an option (code ``not-offered``), before anything is started.
        EdgeqError: what stops a whole model: its weights, its calibration folder, a full disk, another export running.
            What concerns one of several models only is raised when the others are done.
    """
    check_options(request.options, request.backends, request.schemes)
    failed: list[tuple[str, EdgeqError]] = []
    for model in request.models:
        try:
            with only_one(artifacts_dir(request.models_dir, model), "edgeq export"):
                yield from _export_model(request, model, on_progress)
        except EdgeqError as error:
            if error.code not in _OF_ONE_MODEL or len(request.models) == 1:
                raise
            failed.append((model, error))
            on_progress(f"{model}: not exported: {error.what}", 0, 1)
    if failed:
        first = failed[0][1]
        names = ", ".join(model for model, _ in failed)
        raise EdgeqError(
            f"not exported: {names} (the other models are)",
            "; ".join(f"{error.what}: {error.why}" for _, error in failed),
            first.hint,
            code=first.code,
        )


def _export_model(request: ExportRequest, model: str, on_progress: OnProgress) -> Iterator[Exported]:
    searching = request.max_top1_drop is not None and any(scheme in INT8_SCHEMES for scheme in request.schemes)
    prepare = PrepareJob(
        models_dir=request.models_dir.absolute(),
        model=model,
        weights=weights_path(request.weights),
        seed=request.seed,
        calibration=request.calibration.absolute() if request.calibration else None,
        calibration_count=request.calibration_count,
        threads=request.threads,
        selection_count=request.selection_count if searching else 0,
    )
    children = Children()
    prepare_model(prepare, children, on_progress)
    check_layers(request.options, model, [layer.name for layer in read_prepared(prepare.models_dir, model).layers])
    jobs = []
    for backend in request.backends:
        whole = FamilyJob(
            prepare=prepare,
            backend=backend,
            schemes=list(request.schemes),
            target=request.target,
            options=request.options,
            max_top1_drop=request.max_top1_drop,
        )
        todo = []
        for scheme in request.schemes:
            current = None if request.force else up_to_date(whole, scheme)
            if current is None:
                todo.append(scheme)
            else:
                yield Exported(model, backend, scheme, "unchanged", current)
        if todo:
            jobs.append(whole.model_copy(update={"schemes": todo}))
    need = family_bytes(load_model(request.models_dir, model).parameters)
    # As many as there are threads: most steps keep one core busy only.
    for manifest in side_by_side(
        jobs,
        request.threads,
        lambda job: export_family(job, children, on_progress),
        children,
        room=room(),
        need=lambda job: need,
    ):
        outcome: Literal["exported", "failed"] = "exported" if manifest.status == "ok" else "failed"
        yield Exported(model, manifest.backend, manifest.scheme, outcome, manifest)


def up_to_date(job: FamilyJob, scheme: str) -> Manifest | None:
    """The manifest of an artifact that is there, whole and made from the same inputs; None where it is to be made."""
    prepare, exporter = job.prepare, exporter_of(job.backend)
    recipe = exporter.recipe(scheme, job.target, job.options)
    path = manifest_path(prepare.models_dir, prepare.model, job.backend, scheme, recipe.target)
    if not path.is_file():
        return None
    try:
        manifest = read_manifest(path)
    except EdgeqError:  # an older schema, or damage: made anew, which the caller reports
        return None
    spec = load_model(prepare.models_dir, prepare.model)
    prepared = read_prepared(prepare.models_dir, prepare.model)
    key = artifact_key(exporter, job.backend, scheme, recipe, prepared, spec, job.searches(scheme))
    if manifest.status != "ok" or manifest.key != key:
        return None
    whole = all(_is_whole(path.parent / entry.name, entry) for entry in manifest.files)
    return manifest if whole else None


def _is_whole(file: Path, entry: FileEntry) -> bool:
    return file.is_file() and file.stat().st_size == entry.bytes and sha256_file(file) == entry.sha256


def weights_path(weights: str) -> str:
    """A file's path from the root, so that a child finds it; a word as it is."""
    return weights if weights in ("pretrained", "random", "auto") else str(Path(weights).absolute())


def prepare_model(job: PrepareJob, children: Children, on_progress: OnProgress) -> None:
    """Weights, calibration set and torch's answers, by a child process. Raises ``EdgeqError`` as ``prepare`` does.

    Where nothing has changed no child is started: torch alone takes seconds to load.
    """
    if is_current(job):
        return
    on_progress(f"{job.model}: weights and torch's float32 answers", 0, 1)
    for event in children.run("edgeq.export.prepare", "prepare", job, job.model_dump(mode="json")):
        if event["event"] == "progress":
            on_progress(f"{job.model}: {event['what']}", event["done"], event["total"])


def export_family(
    job: FamilyJob, children: Children, on_progress: OnProgress, float_graph: Literal["once", "kept"] = "once"
) -> Iterator[Manifest]:
    """Runs the family's child; where it dies, the artifact in hand is marked failed and a new child goes on.

    ``kept``: the float graph of an earlier call is used where there is one, and left for the next.
    """
    folder = artifacts_dir(job.prepare.models_dir, job.prepare.model) / job.backend
    todo = list(job.schemes)
    total = len(todo)
    # A float graph left by an interrupted export may be of other tools than the artifacts to come.
    if float_graph == "once":
        shutil.rmtree(work_dir(job.prepare.models_dir, job.prepare.model) / job.backend, ignore_errors=True)
    while todo:
        for leftover in folder.glob(".partial-*"):  # of an interrupted export; the lock says that nobody uses it
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
        current = todo[0]
        rest = job.model_copy(update={"schemes": todo})
        try:
            for event in children.run("edgeq.export.child", job.backend, job.prepare, rest.model_dump(mode="json")):
                if event["event"] == "start":
                    current = event["scheme"]
                    on_progress(f"{job.prepare.model}: {job.backend} {current}", total - len(todo), total)
                elif event["event"] == "progress":
                    what = f"{job.prepare.model}: {job.backend} {current}, {event['what']}"
                    on_progress(what, total - len(todo), total)
                elif event["event"] == "done":
                    todo.remove(event["scheme"])
                    yield Manifest.model_validate(event["manifest"])
        except ChildDied as death:
            if children.stopped or not todo:  # stopped by us; or it died on its way out, with everything done
                break
            current = current if current in todo else todo[0]
            todo.remove(current)
            yield _mark_failed(job, current, death)
    if float_graph == "once":
        shutil.rmtree(work_dir(job.prepare.models_dir, job.prepare.model) / job.backend, ignore_errors=True)


def _mark_failed(job: FamilyJob, scheme: str, death: ChildDied) -> Manifest:
    family = Family(job)
    recipe = family.exporter.recipe(scheme, job.target, job.options)
    manifest = family.blank(scheme, recipe).model_copy(update={"reason": Note.of(death)})
    write_manifest(
        manifest_path(job.prepare.models_dir, job.prepare.model, job.backend, scheme, recipe.target), manifest
    )
    return manifest
