"""``edgeq sweep calibration``: int8 made in many ways, each judged on the same images.

Every choice is exported to a scratch folder of models, never over the artifacts that are measured, and judged by the
session that is. What was judged stays there by key, so that a sweep that is run again goes on where it stopped.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from edgeq.artifact import Manifest, manifest_path
from edgeq.binomial import interval, paired
from edgeq.data.calibration import choose_calibration, exclude_calibration
from edgeq.data.images import list_images
from edgeq.data.samples import SampleSet, prepare
from edgeq.export.child import FamilyJob, exporter_of
from edgeq.export.children import ChildDied, Children
from edgeq.export.job import OnProgress, export_family, prepare_model, weights_path
from edgeq.export.judge import Classes, JudgeJob
from edgeq.export.keys import artifact_key
from edgeq.export.prepare import PrepareJob, read_prepared
from edgeq.files import only_one, sha256_json, write_json
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.model import load_model
from edgeq.spec.quantization import GRANULARITIES, METHODS, QuantizationOptions, resolve

DEFAULT = "default"


@dataclass(frozen=True)
class SweepRequest:
    """What ``edgeq sweep calibration`` was asked for. ``methods`` may hold ``default``: each framework's own."""

    models_dir: Path
    models: Sequence[str]
    backends: Sequence[str]
    schemes: Sequence[str]
    methods: Sequence[str]
    """Empty for all that each framework offers."""
    granularities: Sequence[str]
    counts: Sequence[int]
    weights: str
    calibration: Path
    dataset: Path
    target: str
    threads: int
    work: Path
    seed: int = 0


class Row(BaseModel):
    """One choice and how it did. Shares are from 0 to 1, drops in percentage points below fp32 of the same backend."""

    model_config = ConfigDict(extra="forbid")
    model: str
    backend: str
    scheme: str
    method: str | None
    granularity: str | None
    count: int | None
    """Calibration images; None where nothing is calibrated."""
    default: bool = False
    """Method and granularity are the framework's defaults."""
    status: Literal["ok", "not-offered", "failed"]
    text: str = ""
    n: int = 0
    top1: float | None = None
    """None with random weights."""
    top1_low: float | None = None
    top1_high: float | None = None
    """95 %, Clopper and Pearson."""
    drop: float | None = None
    drop_low: float | None = None
    drop_high: float | None = None
    """95 %, for the same images (Newcombe's for paired shares)."""
    agreement: float | None = None
    """Share of images with the same class as fp32."""
    sqnr_db: float | None = None
    int8_macs: float | None = None
    bytes: int | None = None
    export_s: float | None = None


@dataclass(frozen=True)
class _Choice:
    scheme: str
    method: str | None
    granularity: str | None
    count: int

    def options(self) -> QuantizationOptions:
        return QuantizationOptions(method=self.method, granularity=self.granularity)


@dataclass
class _Model:
    """A model's sweep: its judged images, and the scratch folder of each calibration count."""

    request: SweepRequest
    name: str
    on_progress: OnProgress
    children: Children = field(default_factory=Children)
    _prepared: dict[int, PrepareJob] = field(default_factory=dict)
    _fresh: set[tuple[str, int]] = field(default_factory=set)

    def rows(self) -> Iterator[Row]:
        self.samples = self._samples()
        for backend in self.request.backends:
            fp32 = self._fp32(backend)
            yield fp32[0]
            for choice in _choices(self.request, backend):
                yield self._row(backend, choice, fp32[1])

    def _samples(self) -> SampleSet:
        """The dataset without the images that any of the choices is calibrated on."""
        request = self.request
        spec = load_model(request.models_dir, self.name)
        used: set[str] = set()
        for count in request.counts:
            chosen = choose_calibration(request.calibration, spec, count, request.seed)
            used |= set(chosen.samples.file_hashes)
        images = list_images(request.dataset, spec.classes, spec.label_offset)

        def told(done: int, total: int) -> None:
            self.on_progress(f"{self.name}: images to judge by", done, total)

        return exclude_calibration(prepare(images, spec, told), used)[0]

    def _prepare(self, count: int) -> PrepareJob:
        """The scratch folder for ``count`` calibration images, prepared once a sweep."""
        if count not in self._prepared:
            models_dir = self.request.work / self.name / f"{count}-images"
            folder = models_dir / self.name
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.request.models_dir / self.name / "model.toml", folder / "model.toml")
            job = PrepareJob(
                models_dir=models_dir.absolute(),
                model=self.name,
                weights=weights_path(self.request.weights),
                seed=self.request.seed,
                calibration=self.request.calibration.absolute(),
                calibration_count=count,
                threads=self.request.threads,
            )
            prepare_model(job, self.children, self.on_progress)
            self._prepared[count] = job
        return self._prepared[count]

    def _fp32(self, backend: str) -> tuple[Row, Classes | None]:
        choice = _Choice("fp32", None, None, self.request.counts[0])
        row, found = self._judged(backend, choice)
        return self._measured(row, found, None), found

    def _row(self, backend: str, choice: _Choice, fp32: Classes | None) -> Row:
        try:
            resolve(choice.options(), backend, choice.scheme)
        except RequestError as error:
            return _blank(self.name, backend, choice).model_copy(
                update={"status": "not-offered", "text": f"not offered: {error.why}"}
            )
        row, found = self._judged(backend, choice)
        return self._measured(row, found, fp32)

    def _measured(self, row: Row, found: Classes | None, fp32: Classes | None) -> Row:
        """The row with figures of its predictions, compared with fp32's where there are any."""
        if found is None:
            return row
        figures: dict[str, Any] = {"n": len(found)}
        if fp32 is not None:
            figures["agreement"] = float(np.mean(found == fp32))
        if read_prepared(self._prepare(self.request.counts[0]).models_dir, self.name).weights.kind != "random":
            assert self.samples.labels is not None
            right = found == self.samples.labels
            low, high = interval(int(right.sum()), len(right))
            figures |= {"top1": float(right.mean()), "top1_low": low, "top1_high": high}
            if fp32 is not None:
                gap = paired(fp32 == self.samples.labels, right)
                figures |= {"drop": 100 * gap.drop, "drop_low": 100 * gap.low, "drop_high": 100 * gap.high}
        return row.model_copy(update=figures)

    def _judged(self, backend: str, choice: _Choice) -> tuple[Row, Classes | None]:
        """What this choice's artifact answers, from an earlier sweep or now; None where it can't be made."""
        job = FamilyJob(
            prepare=self._prepare(choice.count),
            backend=backend,
            schemes=[choice.scheme],
            target=self.request.target,
            options=choice.options(),
        )
        kept = self.request.work / self.name / "judged" / f"{self._key(job, choice.scheme)}.json"
        try:
            return Row.model_validate_json(kept.read_text(encoding="utf-8")), np.load(kept.with_suffix(".npy"))
        except (OSError, ValueError, ValidationError):  # not there, or not whole: made now
            pass
        row = _blank(self.name, backend, choice)
        began = time.monotonic()
        manifest = self._exported(job)
        if manifest.status != "ok":
            reason = manifest.reason.text if manifest.reason else "no reason was recorded"
            return row.model_copy(update={"status": "failed", "text": reason}), None
        row = row.model_copy(update={"export_s": round(time.monotonic() - began, 1), **_of(manifest)})
        try:
            self._judge(job, manifest, kept.with_suffix(".npy"), _named(choice))
        except ChildDied as death:
            return row.model_copy(update={"status": "failed", "text": f"{death.what}: {death.why}"}), None
        write_json(kept, row.model_dump(mode="json"))
        return row, np.load(kept.with_suffix(".npy"))

    def _key(self, job: FamilyJob, scheme: str) -> str:
        exporter, of = exporter_of(job.backend), job.prepare
        recipe = exporter.recipe(scheme, job.target, job.options)
        prepared, spec = read_prepared(of.models_dir, of.model), load_model(of.models_dir, of.model)
        key = artifact_key(exporter, job.backend, scheme, recipe, prepared, spec)
        return sha256_json([key, self.samples.sha256, list(self.samples.file_hashes)])[:32]

    def _exported(self, job: FamilyJob) -> Manifest:
        first = (job.backend, job.prepare.calibration_count)
        if first not in self._fresh:  # a float graph of an earlier sweep may be of other tools
            shutil.rmtree(job.prepare.models_dir / self.name / "artifacts" / ".work" / job.backend, ignore_errors=True)
            self._fresh.add(first)
        return next(export_family(job, self.children, self.on_progress, "kept"))

    def _judge(self, job: FamilyJob, manifest: Manifest, out: Path, what: str) -> None:
        of = job.prepare
        judging = JudgeJob(
            manifest=manifest_path(of.models_dir, of.model, job.backend, manifest.scheme, manifest.target),
            samples=self.samples.to_spec(),
            threads=of.threads,
            out=out.absolute(),
        )
        for event in self.children.run("edgeq.export.judge", "judge", of, judging.model_dump(mode="json")):
            if event["event"] == "progress":
                self.on_progress(f"{self.name}: {job.backend} {what}, judging", event["done"], event["total"])


def sweep(request: SweepRequest, on_progress: OnProgress) -> Iterator[Row]:
    """Exports and judges every choice, and yields its row as it is known; each backend's fp32 first.

    Raises:
        EdgeqError: what stops a whole model: its weights, a folder of images, a full disk, another sweep running.
    """
    for model in request.models:
        with only_one(request.work / model, "edgeq sweep"):
            yield from _Model(request, model, on_progress).rows()


def total_rows(request: SweepRequest) -> int:
    """How many rows ``sweep`` will yield."""
    per_model = sum(1 + len(_choices(request, backend)) for backend in request.backends)
    return per_model * len(request.models)


def _choices(request: SweepRequest, backend: str) -> list[_Choice]:
    """Every combination; a scheme that calibrates nothing takes no method, and only int8-static counts images."""
    found = []
    for scheme in request.schemes:
        offered = METHODS[backend, scheme]
        methods: list[str | None] = [offered[0] if name == DEFAULT and offered else name for name in request.methods]
        methods = list(dict.fromkeys(methods or offered)) if offered else [None]
        first = GRANULARITIES[backend, scheme][0]
        granularities = [first if name == DEFAULT else name for name in request.granularities]
        counts = request.counts if scheme == "int8-static" else request.counts[:1]
        every = itertools.product(methods, dict.fromkeys(granularities), counts)
        found += [_Choice(scheme, method, granularity, count) for method, granularity, count in every]
    return found


def _named(choice: _Choice) -> str:
    return " ".join(part for part in (choice.scheme, choice.method, choice.granularity) if part)


def _blank(model: str, backend: str, choice: _Choice) -> Row:
    methods = METHODS.get((backend, choice.scheme), ())
    granularities = GRANULARITIES.get((backend, choice.scheme), (None,))
    return Row(
        model=model,
        backend=backend,
        scheme=choice.scheme,
        method=choice.method,
        granularity=choice.granularity,
        count=choice.count if choice.scheme == "int8-static" else None,
        default=choice.method == (methods[0] if methods else None) and choice.granularity == granularities[0],
        status="ok",
    )


def _of(manifest: Manifest) -> dict[str, Any]:
    check = manifest.check
    if check is None:
        raise EdgeqError("an artifact without a check", "its export was interrupted", "run the sweep again")
    return {"sqnr_db": check.sqnr_db, "int8_macs": check.quantized_macs, "bytes": manifest.bytes}
