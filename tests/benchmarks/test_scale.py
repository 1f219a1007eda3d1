from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import linear, many_records, scale
from benchmarks.bars import Row
from benchmarks.bench import Bench, Step
from edgeq.artifact import find_manifest, read_manifest, verify
from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.data.samples import open_samples
from edgeq.host.device import describe
from edgeq.report.runs import load_runs
from edgeq.run.canary import load_reference
from edgeq.run.record import record_path, write_record
from edgeq.run.rounds import with_round
from edgeq.spec.names import BACKENDS, SCHEMES, STUDY_SCENARIOS, Cell
from tests.report import factory

SINGLE = Cell("m", "onnxruntime", "fp32", "single-stream")
MATRIX = len(BACKENDS) * len(SCHEMES) * len(STUDY_SCENARIOS)


def bench(tmp_path: Path, threads: int = 2) -> Bench:
    return Bench(tmp_path / "models", threads, 1, "x86_64", tmp_path / "logs", describe())


def only(steps: list[Step], name: str) -> Step:
    (found,) = [step for step in steps if any(claim.name == name for claim in step.claims)]
    return found


@pytest.fixture
def template(tmp_path: Path) -> many_records.Template:
    made = factory.record(SINGLE, 10.0, profile=factory.profile(10.0, convolution=0.7, depthwise=0.3))
    made = made.model_copy(update={"samples_per_second": None})
    path = record_path(tmp_path / "one", SINGLE)
    write_record(path, with_round(made, "."))
    return many_records.Template.read(path)


@pytest.mark.parametrize(("count", "devices"), [(7, 1), (100, 2), (523, 10)])
def test_every_record_of_the_devices_is_in_the_report(
    template: many_records.Template, tmp_path: Path, count: int, devices: int
) -> None:
    template.write_devices(tmp_path / "results", count)
    runs = load_runs(tmp_path / "results")
    assert len(runs) == devices
    assert [note for run in runs for note in run.notes] == []
    assert [run.corrupt or run.missing for run in runs] == [[]] * devices
    assert sum(len(run.records) for run in runs) == count


def test_records_differ_and_have_what_their_scenario_has(template: many_records.Template, tmp_path: Path) -> None:
    template.write_devices(tmp_path / "results", MATRIX)
    (run,) = load_runs(tmp_path / "results")
    assert len({str(cell) for cell in run.records}) == MATRIX
    by_scenario = {
        scenario: [r for c, r in run.records.items() if c.scenario == scenario] for scenario in STUDY_SCENARIOS
    }
    assert len({r.samples_per_second for r in by_scenario["offline"]}) > 1
    for record in run.records.values():
        assert record.run.id == run.id
        assert record.device["slug"] == "device-0"
        assert (record.samples_per_second is None) == (record.latency_ms is not None)
        assert (record.profile is not None) == (record.cell.scenario == "single-stream")
        assert record.intervals
        assert record.rounds[0].latency_ms == record.latency_ms


def test_a_history_shows_its_newest_run(template: many_records.Template, tmp_path: Path) -> None:
    template.write_history(tmp_path / "results", 2 * MATRIX + 5)
    assert len(list((tmp_path / "results").rglob("record.json"))) == 2 * MATRIX + 5
    (shown,) = load_runs(tmp_path / "results")
    assert len(shown.records) == 5
    assert shown.id == max(path.name for path in (tmp_path / "results" / "device-0").iterdir())


def test_the_small_artifact_computes_its_reference(tmp_path: Path) -> None:
    written, manifest = linear.write_artifact(tmp_path)
    cell = linear.CELL
    path = find_manifest(tmp_path, cell.model, cell.backend, cell.scheme, "x86_64")
    assert (path, read_manifest(path)) == (written, manifest)
    file = verify(path, manifest, model=cell.model, backend=cell.backend, scheme=cell.scheme)
    samples, logits = load_reference(manifest, path)
    found = open_session(manifest, file, SessionOptions(threads=1)).infer(samples)
    np.testing.assert_allclose(found, logits, rtol=1e-4, atol=1e-4)


def test_samples_are_read_back_as_they_were_made(tmp_path: Path) -> None:
    samples = linear.write_samples(tmp_path / "s.npy", 5)
    pixels = np.load(tmp_path / "s.npy")
    expected = pixels[[4, 0]].transpose(0, 3, 1, 2) / np.float32(127.5) - 1
    again = open_samples(samples.to_spec())
    np.testing.assert_allclose(again.load([4, 0], "NCHW"), expected, atol=1e-6)
    assert again.labels is not None
    assert len(again.labels) == again.count == 5


def test_an_accuracy_run_over_more_samples_takes_no_more_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "FEW", 100)
    monkeypatch.setattr(scale, "MANY", 1000)
    step = only(scale.steps(bench(tmp_path)), "scale/accuracy/memory")
    measured = step.run(0)["scale/accuracy/memory"]
    assert measured.ours > 20  # of megabytes: a process with numpy and a framework
    assert Row(step.claims[0], (measured,)).verdict == "met, not certain"  # of a single round


def test_one_thread_is_not_compared_with_itself(tmp_path: Path) -> None:
    names = [claim.name for step in scale.steps(bench(tmp_path, threads=1)) for claim in step.claims]
    assert not [name for name in names if name.startswith("scale/threads")]
    (claim,) = only(scale.steps(bench(tmp_path, threads=4)), "scale/threads/tflite").claims
    assert claim.bar is not None
    assert claim.bar.ratio == pytest.approx(3.2)
