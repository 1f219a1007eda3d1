"""Once a model: weights, calibration set and torch's own answers, on disk for every family's child process.

Run as ``python -m edgeq.export.prepare JOB``, so that torch's memory goes when it is done.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgeq.artifact import CalibrationInfo, Layer, Reference, WeightsInfo, artifacts_dir
from edgeq.data.calibration import CalibrationSet, choose_calibration
from edgeq.events import die_with_parent, emit
from edgeq.files import atomic_path, sha256_file, write_json
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


class Prepared(BaseModel):
    """``prepared.json``: what all of a model's artifacts have in common."""

    model_config = ConfigDict(extra="forbid")
    weights: WeightsInfo
    calibration: CalibrationInfo
    reference: Reference
    layers: list[Layer]
    warnings: list[Note]


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


def prepare(job: PrepareJob) -> Prepared:
    """Loads weights and calibration samples, and writes torch's float32 logits where they are not up to date.

    Raises:
        EdgeqError: anything that is wrong with the weights, the model's declared facts or the calibration folder.
    """
    import torch

    from edgeq.export.macs import layers
    from edgeq.export.weights import load_weights

    torch.set_num_threads(job.threads)
    spec = load_model(job.models_dir, job.model)
    work = work_dir(job.models_dir, job.model)
    calibration = calibration_of(job, spec)
    module, weights, notes = load_weights(spec, job.weights, seed=job.seed)
    notes = [*notes, *calibration.notes]
    old = _reusable(job, weights, calibration.info())
    if old is not None:
        prepared = old.model_copy(update={"weights": weights, "warnings": notes})
    else:
        _drop_old_answers(work)
        _save_weights(work / "float.safetensors", module)
        reference = _save_answers(job, spec, work, module, calibration)
        prepared = Prepared(
            weights=weights,
            calibration=calibration.info(),
            reference=reference,
            layers=layers(module, spec),
            warnings=notes,
        )
    write_json(work / "prepared.json", prepared.model_dump(mode="json"))
    return prepared


def _reusable(job: PrepareJob, weights: WeightsInfo, calibration: CalibrationInfo) -> Prepared | None:
    """The earlier preparation, where it is whole and came from the same weights and calibration set."""
    work, folder = work_dir(job.models_dir, job.model), artifacts_dir(job.models_dir, job.model)
    names = [work / "float.safetensors", work / "check.npz", work / "prepared.json", folder / "reference.npz"]
    if not all(path.is_file() for path in names):
        return None
    old = read_prepared(job.models_dir, job.model)
    same = old.weights.sha256 == weights.sha256 and old.calibration.sha256 == calibration.sha256
    return old if same and sha256_file(folder / "reference.npz") == old.reference.sha256 else None


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
    """Writes ``check.npz`` (what each artifact is checked on) and ``reference.npz`` (the few samples that go with it)."""
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
    path = artifacts_dir(job.models_dir, job.model) / "reference.npz"
    _save_npz(work / "check.npz", samples=np.stack(samples), logits=np.stack(logits))
    _save_npz(path, samples=np.stack(samples[:REFERENCE_SAMPLES]), logits=np.stack(logits[:REFERENCE_SAMPLES]))
    return Reference(file="../reference.npz", sha256=sha256_file(path))


def _save_npz(path: Path, **arrays: Any) -> None:
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, **arrays)


def main(argv: list[str]) -> int:
    die_with_parent()
    job = PrepareJob.model_validate(json.loads(Path(argv[1]).read_text(encoding="utf-8")))
    try:
        prepared = prepare(job)
    except EdgeqError as error:
        emit("error", what=error.what, why=error.why, hint=error.hint, code=error.code, exit_code=error.exit_code)
        return 1
    emit("prepared", warnings=[note.model_dump() for note in prepared.warnings])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
