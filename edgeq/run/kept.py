"""Accuracy from one run to the next: judged once as long as nothing changes that it hangs on, then kept in the cache.

An entry is ``<key>.npy``, the predictions int32 ``[n, 5]``, and ``<key>.json``, which says what they are and makes them
count. One that is damaged is none: the artifact is judged again.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from edgeq.artifact import Manifest, verify
from edgeq.files import atomic_path, cache_dir, sha256_file, sha256_json, write_json
from edgeq.loadgen.sut import TOP
from edgeq.run.accuracy import PREDICTIONS, write_result
from edgeq.run.here import conditions, kept, package_files
from edgeq.run.job import AccuracyResult, WorkerJob
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note


class _Entry(BaseModel):
    """``<key>.json``."""

    model_config = ConfigDict(extra="forbid", defer_build=True)
    run: str
    """Id of the run that judged."""
    predictions_sha256: str
    result: AccuracyResult


def accuracy_key(job: WorkerJob, manifest: Manifest) -> str:
    """Hash of what an artifact's answers over a dataset hang on.

    The samples are told by the name of their cache file, which is made of the images' content in order, and by which of
    its rows are judged by which labels: predictions go by position, so that the order counts.
    """
    samples = job.samples
    content = {
        "artifact": manifest.key,
        "files": [[entry.name, entry.sha256, entry.bytes] for entry in manifest.files],
        "pixels": Path(samples["source"]["file"]).name,
        "samples": {name: samples[name] for name in ("rows", "labels", "preprocess", "size", "preprocessing")},
        "setting": job.setting.model_dump(),
    }
    code = package_files("backends", "data", "loadgen")
    return sha256_json([content, conditions(job.cell.backend, job.device, job.threads, code)])


class KeptAccuracy:
    """The cache entry of one accuracy job."""

    def __init__(self, job: WorkerJob, manifest: Manifest) -> None:
        """``job`` is of a dataset, not of synthetic samples."""
        self._job, self._manifest = job, manifest
        self._file = cache_dir() / "accuracy" / f"{accuracy_key(job, manifest)[:32]}.json"

    def take(self) -> AccuracyResult | None:
        """The result of an earlier run, as if judged now: with its predictions in the job's folder. None where there is none.

        The artifact's files are read to see that they are the ones that were judged.

        Raises:
            EdgeqError: the job's folder can't be written.
        """
        found = self._read()
        if found is None or found[0].result.accuracy is None:
            return None
        (entry, best), job = found, self._job
        accuracy = found[0].result.accuracy.model_copy(
            update={
                "dataset": str(job.dataset),
                "bad_images": job.bad_images,
                "excluded_calibration": job.excluded_calibration,
                "kept_from": entry.run,
            }
        )
        result = entry.result.model_copy(update={"accuracy": accuracy})
        write_result(job.folder, result, best)
        return result

    def _read(self) -> tuple[_Entry, npt.NDArray[np.int32]] | None:
        predictions, job = self._file.with_suffix(".npy"), self._job
        entry = kept(self._file, _Entry)
        if entry is None:
            return None
        try:
            if sha256_file(predictions) != entry.predictions_sha256:
                return None
            best = np.load(predictions, allow_pickle=False)
            assert job.manifest is not None
            cell = job.cell
            verify(job.manifest, self._manifest, model=cell.model, backend=cell.backend, scheme=cell.scheme)
        except (OSError, ValueError, EdgeqError):
            return None  # nothing is lost but time; what is wrong with the artifact, its worker says
        accuracy = entry.result.accuracy
        whole = accuracy is not None and best.dtype == np.int32 and best.shape == (accuracy.n, TOP)
        return (entry, best) if whole else None

    def keep(self, result: AccuracyResult) -> list[Note]:
        """Keeps the result that the worker left in the job's folder; one that is not ok is not kept.

        Returns:
            The note ``not-kept`` where the cache can't be written.
        """
        if result.status != "ok" or result.accuracy is None:
            return []
        logs = None if result.loadgen is None else result.loadgen.model_copy(update={"log_dir": None})
        try:
            best = np.load(self._job.folder / PREDICTIONS, allow_pickle=False)
            _save(self._file.with_suffix(".npy"), best)
            entry = _Entry(
                run=self._job.run.id,
                predictions_sha256=sha256_file(self._file.with_suffix(".npy")),
                result=result.model_copy(update={"loadgen": logs}),
            )
            write_json(self._file, entry.model_dump(mode="json"))
        except EdgeqError as error:
            text = f"the accuracy could not be kept, and is judged again next time: {error.what}: {error.why}"
            return [Note(code="not-kept", text=text, hint=error.hint)]
        return []


def _save(path: Path, best: npt.NDArray[np.int32]) -> None:
    stream = io.BytesIO()
    np.save(stream, best)
    with atomic_path(path) as temporary:
        temporary.write_bytes(stream.getvalue())
