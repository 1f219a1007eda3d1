"""Workers and scripts timed from outside: the null backend and a small ONNX network, in real processes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import linear, resources, stopwatch
from benchmarks.bench import Bench
from benchmarks.cells import cell, job_for, profile
from edgeq.host.device import describe
from edgeq.run.job import WorkerJob
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import NULL, SINGLE_STREAM, Cell
from edgeq.spec.note import Note
from tests.report import factory


@pytest.fixture
def job(tmp_path: Path) -> WorkerJob:
    bench = Bench(tmp_path / "models", 1, 1, "x86_64", tmp_path / "logs", describe())
    return job_for(bench, cell(NULL, "none", SINGLE_STREAM), profile(0.3, resident=2), "row", 0)


def test_a_worker_is_timed_to_its_end_and_phase_by_phase(job: WorkerJob) -> None:
    timed = stopwatch.run(job)
    assert timed.record.duration_s is not None
    assert sum(timed.phases_s.values()) == pytest.approx(timed.wall_s, abs=1e-3)
    assert list(timed.phases_s)[:2] == ["start", "load"]
    assert timed.phases_s["LoadGen"] >= timed.record.duration_s
    assert timed.wall_s > resources.loadgen_s(timed.record)


def test_a_worker_is_stopped_at_its_first_result(job: WorkerJob) -> None:
    assert stopwatch.first_result_s(job) > 0
    assert not (job.folder / "record.json").exists()


@pytest.mark.parametrize("ask", [stopwatch.run, stopwatch.first_result_s])
def test_a_worker_that_fails_gives_no_time(job: WorkerJob, ask: object) -> None:
    assert callable(ask)
    broken = job.model_copy(update={"cell": Cell("m", "tflite", "fp32", SINGLE_STREAM), "manifest": job.folder / "no"})
    with pytest.raises(EdgeqError, match="m/tflite/fp32"):
        ask(broken)


def test_a_bare_script_is_timed_to_its_first_result(tmp_path: Path) -> None:
    path, _ = linear.write_artifact(tmp_path)
    file, sample = path.with_suffix(".onnx"), tmp_path / "sample.npy"
    np.save(sample, np.ones((1, 3, linear.SIDE, linear.SIDE), np.float32))
    assert stopwatch.bare_first_result_s("onnxruntime", file, sample, 1, tmp_path) > 0
    np.save(sample, np.full((1, 3, linear.SIDE, linear.SIDE), np.nan, np.float32))
    with pytest.raises(EdgeqError, match="not finite"):
        stopwatch.bare_first_result_s("onnxruntime", file, sample, 1, tmp_path)


def test_memory_is_what_lies_beyond_the_artifact_and_the_samples() -> None:
    samples_mb, artifact_mb = resources.RESIDENT * 3 * 224 * 224 * 4 / 1e6, 14.0
    record = factory.record("m/tflite/fp32/offline", mb=artifact_mb)
    record = record.model_copy(update={"peak_rss_mb": samples_mb + artifact_mb + 104.8576})
    assert resources.beyond_mib(record) == pytest.approx(100)
    with pytest.raises(EdgeqError, match="no peak memory"):
        resources.beyond_mib(record.model_copy(update={"peak_rss_mb": None}))


def test_a_skipped_cell_has_no_measured_time() -> None:
    record = factory.record("m/tflite/fp32/offline")
    assert resources.loadgen_s(record) == 3.0
    reason = Note(code="too-slow", text="it takes hours")
    with pytest.raises(EdgeqError, match="it takes hours"):
        resources.loadgen_s(record.model_copy(update={"status": "skipped", "reason": reason, "duration_s": None}))


def test_every_backend_has_its_rows_and_only_tflite_a_bar_for_memory(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2, 1, "x86_64", tmp_path, {})
    claims = {claim.name: claim for step in resources.steps(bench) for claim in step.claims}
    memory = {name: claim.bar for name, claim in claims.items() if name.endswith("/memory")}
    assert len(memory) == 4 * 2 * 2
    assert {name.split("/")[1] for name, bar in memory.items() if bar is not None} == {"tflite"}
    assert len([name for name in claims if name.endswith("/checks")]) == 4 * 2 * 2
