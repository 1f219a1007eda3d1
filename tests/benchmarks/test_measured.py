"""Real LoadGen, in processes of its own, without a framework."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.bench import Bench, python_path
from benchmarks.cells import cell, job_for, profile
from edgeq.spec.names import NO_MODEL, NULL, OFFLINE, SINGLE_STREAM

#: Runs ``run_loadgen`` over a system that answers with the sample's number; prints what LoadGen says.
REFERENCE = """
import json, sys
from pathlib import Path
import numpy as np
from benchmarks.cells import profile
from benchmarks.reference import Job
from benchmarks.reference_child import Resident, run_loadgen, seconds_a_sample
from edgeq.data.samples import synthetic
from edgeq.loadgen.plan import plan_run
from edgeq.spec.model import NO_MODEL_SPEC

library = synthetic(NO_MODEL_SPEC, 4, 0)
folder = Path(sys.argv[1])
job = Job(manifest=folder, file=folder, threads=2, batch=3, samples={}, seconds=0.2, log_dir=folder / "loadgen")
shapes = set()

def predict(batch):
    shapes.add(batch.shape[1:])
    return np.eye(10, dtype=np.float32)[np.arange(len(batch))]

resident = Resident(library, "NHWC")
seconds = seconds_a_sample(predict, resident, job)
plan = plan_run(profile(job.seconds, 4), "offline", seconds, 4).plan
outcome = run_loadgen(predict, resident, plan, job)
print(json.dumps([outcome.scenario, outcome.samples, plan.min_samples, outcome.samples_per_second, sorted(shapes)]))
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "models", threads=2, rounds=1, target="x86_64", scratch=tmp_path)


@pytest.mark.parametrize("scenario", [SINGLE_STREAM, OFFLINE])
def test_overhead_is_read_from_a_real_run_without_a_model(
    bench: Bench, scenario: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "NULL_S", 0.2)
    name = f"harness/null/{scenario}"
    (step,) = (step for step in harness.steps(bench) if step.claims[0].name == name)
    (figures,) = step.run(0).values()
    assert 0.05 < figures.ours < 1000  # microseconds; no limit is tested here, but the unit is
    assert figures.theirs == {SINGLE_STREAM: 10.0, OFFLINE: 5.0}[scenario]
    assert figures.detail["valid"] is True


def test_loadgen_drives_the_reference_harness(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", REFERENCE, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"PYTHONPATH": python_path()})
    scenario, samples, planned, rate, shapes = json.loads(done.stdout.splitlines()[-1])
    assert scenario == "Offline"
    assert samples == planned
    assert rate > 0
    assert shapes == [[224, 224, 3]]


def test_a_cell_runs_with_edgeqs_defaults_on_as_many_samples_as_asked_for(bench: Bench) -> None:
    job = job_for(bench, cell(NULL, NO_MODEL, OFFLINE), profile(1.5, resident=2), "row", 3)
    assert (job.setting.threads, job.setting.streams, job.setting.batch) == (2, 2, 1)
    assert job.tuned is False
    assert job.run.round == 4
    assert job.profile.resident_samples == 2
    assert job.profile.offline.min_duration_s == 1.5
