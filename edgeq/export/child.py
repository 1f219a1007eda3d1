"""One family's artifacts of one model, in a process of its own: ``python -m edgeq.export.child JOB``.

Each artifact is built in a scratch folder, loaded and run from there, and only then moved to its place; its manifest
is written last. What fails, fails alone.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgeq.artifact import (
    ANY_TARGET,
    Check,
    FileEntry,
    InputInfo,
    Manifest,
    artifacts_dir,
    manifest_path,
    read_manifest,
    stem,
    write_manifest,
)
from edgeq.backends import installed, open_session
from edgeq.backends.session import SessionOptions
from edgeq.events import emit, leave, serve
from edgeq.export.check import check
from edgeq.export.family import Built, Exporter, FloatSource, Recipe
from edgeq.export.judge import Artifact
from edgeq.export.keys import artifact_key, tool_versions
from edgeq.export.prepare import (
    Prepared,
    PrepareJob,
    calibration_of,
    log_path,
    read_prepared,
    read_selection,
    work_dir,
)
from edgeq.export.search import Search, manifest_of
from edgeq.export.smallest import Layers
from edgeq.files import sha256_file
from edgeq.host.device import describe
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import ModelSpec, load_model
from edgeq.spec.note import Note
from edgeq.spec.quantization import DEFAULTS, INT8_SCHEMES, QuantizationOptions

#: Calibration samples on which the layers' errors are ranked.
_RANKING_SAMPLES = 8


class FamilyJob(BaseModel):
    """What a family's child is told."""

    model_config = ConfigDict(extra="forbid")
    prepare: PrepareJob
    backend: str
    schemes: list[str]
    target: str
    options: QuantizationOptions = DEFAULTS
    max_top1_drop: float | None = None
    """Points; None where no layers are searched for."""

    def searches(self, scheme: str) -> float | None:
        """``max_top1_drop``, where it concerns ``scheme``."""
        return self.max_top1_drop if scheme in INT8_SCHEMES else None


def exporter_of(backend: str) -> Exporter:
    """The exporter file of a backend."""
    return cast(Exporter, importlib.import_module(f"edgeq.export.{backend}"))


class Family:
    """The float network, loaded once, and the artifacts made of it one after the other."""

    def __init__(self, job: FamilyJob) -> None:
        self.job = job
        self.models_dir, self.model = job.prepare.models_dir, job.prepare.model
        self.spec: ModelSpec = load_model(self.models_dir, self.model)
        self.prepared: Prepared = read_prepared(self.models_dir, self.model)
        self.exporter = exporter_of(job.backend)
        self.folder = artifacts_dir(self.models_dir, self.model) / job.backend
        self._source: FloatSource | None = None
        self._float_differs: Note | None = None
        self._float_artifact: Artifact | None = None

    def source(self) -> FloatSource:
        """The float network with its weights; built at the first call."""
        if self._source is None:
            from safetensors.torch import load_file

            from edgeq.export.network import build_network

            work = work_dir(self.models_dir, self.model)
            module = build_network(self.spec, self.job.prepare.seed)
            module.load_state_dict(load_file(work / "float.safetensors"), strict=True)
            calibration = calibration_of(self.job.prepare, self.spec)
            if calibration.info().sha256 != self.prepared.calibration.sha256:
                raise EdgeqError(
                    f"{self.job.prepare.calibration} has changed since this export began",
                    "other images would be used than the manifests say",
                    "start the export again",
                    code="calibration-changed",
                )
            family = work / self.job.backend
            family.mkdir(parents=True, exist_ok=True)
            self._source = FloatSource(
                spec=self.spec,
                module=module.eval(),
                work=family,
                calibration=calibration.samples,
                layers=self.prepared.layers,
            )
        return self._source

    def blank(self, scheme: str, recipe: Recipe) -> Manifest:
        """The manifest of an artifact that is not there yet."""
        channels, height, width = self.spec.input_shape
        return Manifest(
            model=self.model,
            backend=self.job.backend,
            scheme=scheme,
            target=recipe.target,
            status="failed",
            key=artifact_key(
                self.exporter,
                self.job.backend,
                scheme,
                recipe,
                self.prepared,
                self.spec,
                self.job.searches(scheme),
            ),
            weights=self.prepared.weights,
            calibration=self.prepared.calibration,
            selection=self.prepared.selection if self.job.searches(scheme) is not None else None,
            details=recipe.settings,
            versions={**tool_versions(self.exporter), **installed(self.job.backend)},
            host=describe(),
            input=InputInfo(shape=(channels, height, width), layout="NCHW"),
            classes=self.spec.classes,
            reference=self.prepared.reference,
            layers=self.prepared.layers,
            warnings=self.prepared.warnings,
        )

    def export(self, scheme: str) -> Manifest:
        """Builds, checks and places one artifact; a failure becomes its manifest's reason."""
        recipe = self.exporter.recipe(scheme, self.job.target, self.job.options)
        manifest = self.blank(scheme, recipe)
        path = manifest_path(self.models_dir, self.model, self.job.backend, scheme, recipe.target)
        try:
            if self._float_differs is not None:
                return self._place_failure(path, manifest, self._float_differs)
            manifest = self._build(manifest, recipe, path)
        except EdgeqError as error:
            if error.code in ("disk-full", "cannot-write"):
                raise
            manifest = manifest.model_copy(update={"reason": Note.of(error)})
            if error.code == "float-differs":  # whatever is made of this float graph is not the network either
                self._float_differs = manifest.reason
        except Exception as error:  # any tool may raise anything; the cause goes into the manifest and the log
            traceback.print_exc()
            manifest = manifest.model_copy(update={"reason": self._tool_failed(scheme, error)})
        if manifest.status == "failed":
            return self._place_failure(path, manifest, manifest.reason)
        write_manifest(path, manifest)
        return manifest

    def _place_failure(self, path: Path, manifest: Manifest, reason: Note | None) -> Manifest:
        """Leaves a manifest that says why, and no artifact."""
        manifest = manifest.model_copy(update={"reason": reason})
        remove_artifact(path)
        write_manifest(path, manifest)
        return manifest

    def _build(self, manifest: Manifest, recipe: Recipe, path: Path) -> Manifest:
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=self.folder, prefix=".partial-"))
        try:
            if self.job.searches(manifest.scheme) is None:
                manifest, file = self._made(manifest, recipe, scratch)
            else:
                manifest, file = self._search(manifest, scratch)
            found, notes = self._check(manifest, file)
            remove_artifact(path)
            for entry in manifest.files:
                (file.parent / entry.name).replace(self.folder / entry.name)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return manifest.model_copy(update={"status": "ok", "check": found, "warnings": [*manifest.warnings, *notes]})

    def _made(self, manifest: Manifest, recipe: Recipe, folder: Path) -> Artifact:
        """Builds the artifact into the empty ``folder``."""
        built = self.exporter.build(
            self.source(), manifest.scheme, recipe, folder, stem(manifest.scheme, recipe.target)
        )
        return self._described(manifest, built), built.files[0]

    def _search(self, blank: Manifest, scratch: Path) -> Artifact:
        """The artifact with the fewest layers in float that keeps its top-1."""

        def build(layers: Layers, folder: Path) -> Artifact:
            recipe = self.exporter.recipe(blank.scheme, self.job.target, self.job.options.keeping(layers))
            return self._made(blank.model_copy(update={"details": recipe.settings}), recipe, folder)

        def told(count: int, text: str) -> None:
            emit("progress", scheme=blank.scheme, what=f"layers to keep, trial {count}, {text}")

        with np.load(work_dir(self.models_dir, self.model) / "check.npz") as answers:
            ranking = answers["samples"][:_RANKING_SAMPLES]
        search = Search(
            build=build,
            fp32=self._fp32(),
            selection=read_selection(self.models_dir, self.model),
            options=SessionOptions(threads=self.job.prepare.threads),
            limit=self.job.searches(blank.scheme) or 0.0,
            ranking=ranking,
            scratch=scratch,
            on_trial=told,
        )
        (manifest, file), found, notes = search.run()
        return manifest_of(manifest, found, notes), file

    def _fp32(self) -> Artifact:
        """This family's float32 artifact to judge by: made once, beside the float graph, whatever stands in models."""
        if self._float_artifact is None:
            source = self.source()
            recipe = self.exporter.recipe("fp32", self.job.target)
            folder = Path(tempfile.mkdtemp(dir=source.work, prefix="fp32-"))
            self._float_artifact = self._made(self.blank("fp32", recipe), recipe, folder)
        return self._float_artifact

    def _described(self, manifest: Manifest, built: Built) -> Manifest:
        files = [FileEntry(name=f.name, sha256=sha256_file(f), bytes=f.stat().st_size) for f in built.files]
        details: dict[str, Any] = {**manifest.details, **built.details}
        return manifest.model_copy(update={"files": files, "input": built.input, "details": details})

    def _check(self, manifest: Manifest, file: Path) -> tuple[Check, list[Note]]:
        with np.load(work_dir(self.models_dir, self.model) / "check.npz") as answers:
            samples, logits = answers["samples"], answers["logits"]
        session = open_session(manifest, file, SessionOptions(threads=self.job.prepare.threads))
        try:
            return check(session, manifest, samples, logits, self._fp32_bytes(manifest))
        finally:
            session.close()

    def _tool_failed(self, scheme: str, error: BaseException) -> Note:
        """An exception out of a framework's tool, as a reason."""
        text = " ".join(str(error).split())[:300]
        return Note(
            code="export-failed",
            text=f"{scheme}: {type(error).__name__}: {text}",
            hint=f"the whole story is in {log_path(self.models_dir, self.model, self.job.backend)}",
        )

    def _fp32_bytes(self, manifest: Manifest) -> int | None:
        """Bytes of this family's fp32 artifact from the same weights, or None where there is none."""
        if manifest.scheme == "fp32":
            return manifest.bytes
        path = manifest_path(self.models_dir, self.model, self.job.backend, "fp32", ANY_TARGET)
        if not path.is_file():
            return None
        fp32 = read_manifest(path)
        return fp32.bytes if fp32.status == "ok" and fp32.weights.sha256 == manifest.weights.sha256 else None


def remove_artifact(manifest: Path) -> None:
    """Removes an artifact, its manifest first, so that no moment shows a manifest without its file."""
    manifest.unlink(missing_ok=True)
    for file in manifest.parent.glob(f"{manifest.stem}.*"):
        if file.suffix in (".xml", ".bin", ".tflite", ".onnx", ".data", ".pt") and file.stem == manifest.stem:
            file.unlink()


def _work(job: FamilyJob) -> None:
    family = Family(job)
    for scheme in job.schemes:
        emit("start", scheme=scheme)
        manifest = family.export(scheme)
        emit("done", scheme=scheme, manifest=manifest.model_dump(mode="json", by_alias=True))


def main(argv: Sequence[str]) -> int:
    return serve(argv, FamilyJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
