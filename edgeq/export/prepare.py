"""Once a model: weights, calibration set and torch's own answers, on disk for every family's child process.

Run as ``python -m edgeq.export.prepare JOB``, so that torch's memory goes when it is done.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from edgeq.artifact import CalibrationInfo, Layer, Reference, SelectionInfo, WeightsInfo, artifacts_dir
from edgeq.data.calibration import CalibrationSet, choose_calibration, choose_selection
from edgeq.data.samples import SampleSet, open_samples
from edgeq.events import emit, leave, serve
from edgeq.files import atomic_path, sha256_file, sha256_json, write_json
from edgeq.installing import pip_install
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import ModelSpec, load_model
from edgeq.spec.note import Note

if TYPE_CHECKING:
    import torch

REFERENCE_SAMPLES = 4
CHECK_SAMPLES = 32


class PrepareJob(BaseModel):
    """What the prepare child is told."""

    model_config = ConfigDict(extra="forbid")
    models_dir: Path
    model: str
    weights: str
    seed: int
    calibration: Path | None
    calibration_count: int
    threads: int
    selection_count: int = 0
    """Labelled images to judge int8 artifacts by while they are made; none where nothing is searched for."""


class Prepared(BaseModel):
    """``prepared.json``: what all of a model's artifacts have in common."""

    model_config = ConfigDict(extra="forbid")
    weights: WeightsInfo
    calibration: CalibrationInfo
    spec_sha256: str
    """Of the model's spec: another mean or size makes other samples of the same images."""
    reference: Reference
    layers: list[Layer]
    warnings: list[Note]
    selection: SelectionInfo | None = None


def work_dir(models_dir: Path, model: str) -> Path:
    """Scratch space of a model's export: the float state dict, check samples, each family's float graph."""
    return artifacts_dir(models_dir, model) / ".work"


def log_path(models_dir: Path, model: str, step: str) -> Path:
    """Where the export child of ``step`` (a backend, or ``prepare``) leaves what its tools print."""
    return artifacts_dir(models_dir, model) / ".logs" / f"{step}.log"


def read_prepared(models_dir: Path, model: str) -> Prepared:
    return Prepared.model_validate_json((work_dir(models_dir, model) / "prepared.json").read_text(encoding="utf-8"))


def calibration_of(job: PrepareJob, spec: ModelSpec) -> CalibrationSet:
    return choose_calibration(job.calibration, spec, count=job.calibration_count, seed=job.seed)


def read_selection(models_dir: Path, model: str) -> SampleSet:
    """The selection images of the preparation in force. Raises ``EdgeqError`` where their samples are gone."""
    return open_samples(json.loads((work_dir(models_dir, model) / _SELECTION).read_text(encoding="utf-8")))


_SELECTION, _STAMP = "selection.json", "stamp.json"
#: Packages that networks come from, whose version stands in the stamp.
_VERSIONED = ("torchvision",)
#: What a preparation leaves beside the reference.
_ANSWERS = ("float.safetensors", "check.npz", "prepared.json")


def is_current(job: PrepareJob) -> bool:
    """Whether ``prepare`` would find everything as it left it, told without torch.

    Not where it would try to get other weights than the last time (``auto`` that ended with random ones), where the network
    is of another package than torchvision, whose version nothing here knows, or where images to judge by are asked for.

    Raises:
        EdgeqError, RequestError: what is wrong with the model's folder or the calibration folder.
    """
    work = work_dir(job.models_dir, job.model)
    if job.selection_count or not all((work / name).is_file() for name in (*_ANSWERS, _STAMP)):
        return False
    spec = load_model(job.models_dir, job.model)
    try:
        stamp = json.loads((work / _STAMP).read_text(encoding="utf-8"))
        prepared = read_prepared(job.models_dir, job.model)
    except (OSError, ValueError):  # ValidationError is one: of an earlier edgeq
        return False
    if spec.source.package.split(".")[0] not in _VERSIONED:
        return False
    if job.weights in ("auto", "pretrained") and prepared.weights.kind != "pretrained":
        return False
    calibration = calibration_of(job, spec)
    return bool(stamp == _stamp(job, spec, calibration)) and _reference_is_whole(job, prepared)


def _stamp(job: PrepareJob, spec: ModelSpec, calibration: CalibrationSet) -> dict[str, Any]:
    """What a preparation follows from, and the file that says what came of it."""
    here, file = Path(__file__).parent, Path(job.weights)
    code = [here / f"{name}.py" for name in ("prepare", "weights", "random_weights", "network", "download", "macs")]
    return {
        "weights": [job.weights, sha256_file(file) if file.is_file() else None],
        "seed": job.seed,
        "calibration": [calibration.info().sha256, [note.text for note in calibration.notes]],
        "spec": spec_sha256(spec),
        "code": [sha256_file(file) for file in code],
        "versions": {name: _version(name) for name in ("edgeq", "numpy", "torch", "torchvision")},
        "prepared": sha256_file(work_dir(job.models_dir, job.model) / "prepared.json"),
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def prepare(job: PrepareJob) -> Prepared:
    """Loads weights and calibration samples, and writes torch's float32 logits where they are not up to date.

    Raises:
        EdgeqError: anything that is wrong with the weights, the model's declared facts or the calibration folder.
    """
    torch = _torch()
    from edgeq.export.macs import layers
    from edgeq.export.weights import load_weights

    torch.set_num_threads(job.threads)
    spec = load_model(job.models_dir, job.model)
    work = work_dir(job.models_dir, job.model)
    (work / _STAMP).unlink(missing_ok=True)
    calibration = calibration_of(job, spec)
    module, weights, notes = load_weights(spec, job.weights, seed=job.seed)
    notes = [*notes, *calibration.notes]
    chosen = _selection(job, spec, calibration) if job.selection_count else None
    selection = None if chosen is None else _describe(chosen)
    old = _reusable(job, spec, weights, calibration.info())
    if old is not None:
        prepared = old.model_copy(update={"weights": weights, "warnings": notes, "selection": selection})
    else:
        _drop_old_answers(work)
        _save_weights(work / "float.safetensors", module)
        reference = _save_answers(job, spec, work, module, calibration)
        prepared = Prepared(
            weights=weights,
            calibration=calibration.info(),
            spec_sha256=spec_sha256(spec),
            reference=reference,
            layers=layers(module, spec),
            warnings=notes,
            selection=selection,
        )
    if chosen is not None:
        write_json(work / _SELECTION, chosen.to_spec())
    write_json(work / "prepared.json", prepared.model_dump(mode="json"))
    write_json(work / _STAMP, _stamp(job, spec, calibration))
    return prepared


def _selection(job: PrepareJob, spec: ModelSpec, calibration: CalibrationSet) -> SampleSet:
    def progress(done: int, total: int) -> None:
        if done == total or done % 50 == 0:
            emit("progress", what="images to judge by", done=done, total=total)

    return choose_selection(job.calibration, spec, calibration, job.selection_count, progress)


def _describe(chosen: SampleSet) -> SelectionInfo:
    return SelectionInfo(path=chosen.path, count=chosen.count, sha256=chosen.sha256, images=list(chosen.file_hashes))


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise EdgeqError(
            "export needs PyTorch, whatever it exports for",
            str(error),
            f"run: {pip_install('edgeq[export]')}, or export on another machine and copy models/",
            code="not-installed",
        ) from error
    return torch


def spec_sha256(spec: ModelSpec) -> str:
    return sha256_json(spec.model_dump(mode="json"))


def _reusable(job: PrepareJob, spec: ModelSpec, weights: WeightsInfo, calibration: CalibrationInfo) -> Prepared | None:
    """The earlier preparation, where it is whole and came from the same weights, spec and calibration set."""
    work = work_dir(job.models_dir, job.model)
    if not all((work / name).is_file() for name in _ANSWERS):
        return None
    try:
        old = read_prepared(job.models_dir, job.model)
    except ValidationError:  # of an earlier edgeq: prepared anew
        return None
    same = (old.weights.sha256, old.calibration.sha256, old.spec_sha256) == (
        weights.sha256,
        calibration.sha256,
        spec_sha256(spec),
    )
    return old if same and _reference_is_whole(job, old) else None


def _reference_is_whole(job: PrepareJob, prepared: Prepared) -> bool:
    file = artifacts_dir(job.models_dir, job.model) / Path(prepared.reference.file).name
    return file.is_file() and sha256_file(file) == prepared.reference.sha256


def _drop_old_answers(work: Path) -> None:
    """Removes what belongs to other weights, so that an interruption leaves nothing that mixes the two."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True, exist_ok=True)


def _save_weights(path: Path, module: torch.nn.Module) -> None:
    from safetensors.torch import save_file

    with atomic_path(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, temporary)


def _save_answers(
    job: PrepareJob, spec: ModelSpec, work: Path, module: torch.nn.Module, calibration: CalibrationSet
) -> Reference:
    """Writes ``check.npz`` (what each artifact is checked on) and ``reference-*.npz`` (the few samples that go with it)."""
    import torch

    samples = []
    for sample in calibration.samples:
        samples.append(np.array(sample))
        if len(samples) == CHECK_SAMPLES:
            break
    logits = []
    with torch.inference_mode():
        for index, sample in enumerate(samples):
            logits.append(module(torch.from_numpy(sample[None])).numpy()[0])
            emit("progress", what="torch's float32 answers", done=index + 1, total=len(samples))
    _save_npz(work / "check.npz", samples=np.stack(samples), logits=np.stack(logits))
    few = work / "reference.npz"
    _save_npz(few, samples=np.stack(samples[:REFERENCE_SAMPLES]), logits=np.stack(logits[:REFERENCE_SAMPLES]))
    digest = sha256_file(few)
    # Named by content: artifacts of other weights or calibration sets keep the answers that they were checked with.
    path = artifacts_dir(job.models_dir, job.model) / f"reference-{digest[:12]}.npz"
    few.replace(path)
    return Reference(file=f"../{path.name}", sha256=digest)


def _save_npz(path: Path, **arrays: Any) -> None:
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)


def _work(job: PrepareJob) -> None:
    prepared = prepare(job)
    emit("prepared", warnings=[note.model_dump() for note in prepared.warnings])


def main(argv: Sequence[str]) -> int:
    return serve(argv, PrepareJob, _work)


if __name__ == "__main__":
    leave(main(sys.argv))
