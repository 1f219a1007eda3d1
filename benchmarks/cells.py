"""One cell measured as ``edgeq run`` measures it: by its own worker, in a fresh process, through LoadGen."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from benchmarks.bench import MODEL, Bench
from edgeq.data.samples import kept_synthetic
from edgeq.run.again import planned_anew
from edgeq.run.job import WorkerJob
from edgeq.run.record import FILE_NAME, Record, RunInfo, read_record
from edgeq.run.runner import MOST_TRIES
from edgeq.run.samples import SEED_OFFSET
from edgeq.run.watchdog import Watcher, work
from edgeq.setting import Setting, default_setting
from edgeq.spec.errors import EdgeqError
from edgeq.spec.model import NO_MODEL_SPEC, load_model
from edgeq.spec.names import NO_MODEL, NULL, OFFLINE, Cell
from edgeq.spec.profile import Profile

#: Samples in memory, as many as in edgeq's profile ``quick``: 38 MB of MobileNetV2's inputs, more than a core's own caches.
RESIDENT = 64


def profile(seconds: float, resident: int = RESIDENT, offline_samples: int = RESIDENT) -> Profile:
    """``seconds`` of LoadGen in every scenario, and no more queries than its statistics ask for."""
    streams = {"min_duration_s": seconds, "min_queries": 64, "percentile": 0.9}
    return Profile.model_validate(
        {
            "name": "bench",
            "title": "a benchmark's round (not comparable with MLPerf)",
            "resident_samples": resident,
            "cell_budget_s": 600,
            "accuracy_budget_s": 600,
            "single-stream": streams,
            "multi-stream": streams,
            "offline": {"min_duration_s": seconds, "min_samples": offline_samples},
            "server": {**streams, "latency_ms": 100},
        }
    )


def run_info(wanted: Profile, turn: int) -> RunInfo:
    """Of a job of round ``turn``, from 0, that begins now."""
    began = datetime.now(UTC).isoformat(timespec="seconds")
    return RunInfo(id="bench", profile=wanted.name, title=wanted.title, started=began, order=0, round=turn + 1)


def synthetic_samples(bench: Bench, model: str = MODEL, count: int = RESIDENT) -> dict[str, Any]:
    """The samples that ``edgeq run`` takes without a dataset, for ``edgeq.data.samples.open_samples``."""
    spec = NO_MODEL_SPEC if model == NO_MODEL else load_model(bench.models, model)
    return kept_synthetic(spec, count, SEED_OFFSET).to_spec()


def job_for(
    bench: Bench, cell: Cell, wanted: Profile, name: str, turn: int, *, setting: Setting | None = None
) -> WorkerJob:
    """A worker's job for ``cell``, with edgeq's default setting unless another is given, on synthetic samples.

    Args:
        name: Of the row, for the folder of its logs.
        turn: The round, from 0.
    """
    path = manifest = None
    if cell.backend != NULL:
        path, manifest, _ = bench.artifact(cell.backend, cell.scheme, cell.model)
    return WorkerJob(
        mode="performance",
        cell=cell,
        manifest=path,
        artifact_key=manifest.key if manifest else None,
        target=bench.target,
        threads=bench.threads,
        setting=setting or default_setting(cell.scenario, bench.threads, manifest),
        profile=wanted,
        samples=synthetic_samples(bench, cell.model, wanted.resident_samples),
        dataset=None,
        folder=bench.folder(name, turn),
        run=run_info(wanted, turn),
        device=dict(bench.device),
    )


def measure_cell(
    bench: Bench,
    cell: Cell,
    seconds: float,
    name: str,
    turn: int,
    *,
    resident: int = RESIDENT,
    setting: Setting | None = None,
) -> Record:
    """Runs the worker over about ``seconds`` of LoadGen with ``resident`` samples; other arguments as in ``job_for``.

    Raises:
        EdgeqError: the cell failed, was skipped, or LoadGen calls it invalid, after some tries, too.
    """
    job = job_for(bench, cell, profile(seconds, resident), name, turn, setting=setting)
    record = _measured(job)
    for number in range(1, MOST_TRIES):
        again = planned_anew(record)  # as edgeq run does it where a rate rises after the canary
        if again is None:
            break
        record = _measured(job.model_copy(update={**again, "folder": job.folder / f"try-{number + 1}"}))
    if record.status != "ok":
        why = record.reason.text if record.reason else record.status
        raise EdgeqError(f"{cell} was not measured", why, "run it again on a quiet machine", code="no-figure")
    return record


def _measured(job: WorkerJob) -> Record:
    failure = work(job, str(job.cell), Watcher())
    if failure is not None:
        raise EdgeqError(f"{job.cell} was not measured", failure.note.text, failure.note.hint, code=failure.note.code)
    return read_record(job.folder / FILE_NAME)


def rate(record: Record) -> float:
    """Samples a second of an offline record."""
    if record.samples_per_second is None:
        raise ValueError(f"{record.cell} has no rate")
    return record.samples_per_second


def cpu_ms(record: Record) -> float:
    """CPU time of a sample, which a neighbour on the machine hardly changes."""
    if record.cpu_s is None or record.samples is None:
        raise ValueError(f"{record.cell} has no CPU time")
    return record.cpu_s / record.samples * 1e3


def p50_ms(record: Record) -> float:
    """Median latency of a query, of LoadGen's own figures."""
    if record.latency_ms is None:
        raise ValueError(f"{record.cell} has no latency")
    return record.latency_ms.p50


def in_force(record: Record, *, alone: bool = True) -> dict[str, object]:
    """What a results' file keeps of how a cell ran.

    Args:
        alone: Nothing else of the benchmark's ran at the same time; else the warnings tell of that, and are left out.
    """
    effective = record.effective
    warnings = {"warnings": sorted({note.code for note in record.warnings})} if alone else {}
    return {
        "setting": record.requested.setting if record.requested else None,
        "threads": effective.threads if effective else None,
        "streams": effective.streams if effective else None,
        "batch": effective.batch if effective else None,
        "valid": record.loadgen.valid if record.loadgen else None,
        "duration_s": record.duration_s,
        "cpu_per_wall": record.cpu_per_wall,
        **warnings,
    }


def cell(backend: str, scheme: str, scenario: str = OFFLINE) -> Cell:
    """MobileNetV2's, or the cell without a model."""
    return Cell(NO_MODEL if backend == NULL else MODEL, backend, scheme, scenario)
