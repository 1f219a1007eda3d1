"""The command line as a user types it: exit codes, three-line errors, nothing started on a wrong request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model_folders import profile_toml


@pytest.fixture
def project(repo: Path, tmp_path: Path) -> Path:
    """A folder with the models' specs and one short profile."""
    for model in (repo / "models").glob("*/model.toml"):
        (tmp_path / "models" / model.parent.name).mkdir(parents=True)
        shutil.copy(model, tmp_path / "models" / model.parent.name)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "blink.toml").write_text(profile_toml("blink"))
    return tmp_path


def edgeq(project: Path, *args: str) -> subprocess.CompletedProcess[str]:
    repo = Path(__file__).resolve().parents[2]
    return subprocess.run(
        [sys.executable, "-m", "edgeq", *args], cwd=project, env={**os.environ, "PYTHONPATH": str(repo)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["rnu"], "did you mean 'run'"),
        (["run", "--modle", "x"], "--model"),
        (["run", "--model", "mobilenetv2"], "did you mean 'mobilenet_v2'"),
        (["run", "--backend", "tflight"], "did you mean 'tflite'"),
        (["run", "--scheme", "int8static"], "did you mean 'int8-static'"),
        (["run", "--scenario", "multistream"], "did you mean 'multi-stream'"),
        (["run", "--profile", "blnk"], "did you mean 'blink'"),
        (["export", "--target", "arm64"], "aarch64"),
        (["export", "--scheme", "fp61"], "did you mean 'fp16'"),
        (["run", "--threads", "0"], "--threads"),
        (["report", "--format", "pdf"], "md"),
        (["run", "--resume", "--backend", "null", "--profile", "blink"], "nothing to resume"),
        (["run", "--dataset", "models/vgg19/model.toml", "--profile", "blink"], "model.toml"),
        (["run", "--dataset", "nowhere", "--profile", "blink"], "nowhere"),
    ],
)
def test_a_wrong_request_exits_2_names_the_way_out_and_starts_nothing(
    project: Path, args: list[str], says: str
) -> None:
    done = edgeq(project, *args)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert not (project / "results").exists()


@pytest.mark.parametrize(
    ("weights", "code"), [("nowhere.safetensors", "nowhere.safetensors"), ("scenarios/blink.toml", ".safetensors")]
)
def test_unusable_weights_are_the_requests_mistake(project: Path, weights: str, code: str) -> None:
    done = edgeq(project, "export", "--model", "mobilenet_v2", "--weights", weights)
    assert done.returncode == 2, done.stderr
    assert code in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_is_recorded_reported_and_resumed(project: Path) -> None:
    args = ["run", "--backend", "null", "--scenario", "offline", "--profile", "blink", "--json"]
    done = edgeq(project, *args)
    assert done.returncode == 0, done.stderr
    (record,) = json.loads(done.stdout)
    assert record["status"] == "ok"
    assert "[1/1] none/null/none/offline  ok" in done.stderr
    again = edgeq(project, *args, "--resume")
    assert json.loads(again.stdout) == [record]
    report = edgeq(project, "report")
    assert report.returncode == 0, report.stderr
    assert "Harness overhead" in (project / "results" / "report" / "report.md").read_text()


def test_a_cell_that_fails_makes_exit_1(project: Path) -> None:
    done = edgeq(
        project, "run", "--model", "vgg19", "--backend", "tflite", "--scheme", "fp32", "--scenario", "offline",
        "--profile", "blink",
    )  # fmt: skip
    assert done.returncode == 1
    assert "no artifact for vgg19/tflite/fp32" in done.stderr


def test_doctor_speaks_json(project: Path) -> None:
    done = edgeq(project, "doctor", "--json")
    found = json.loads(done.stdout)
    assert found["device"]["cores"] >= 1
    assert set(found["backends"]) == {"openvino", "tflite", "onnxruntime", "pytorch"}
    assert done.returncode == (1 if any(finding["wrong"] for finding in found["findings"]) else 0)


@pytest.mark.parametrize("verb", ["doctor", "export", "run", "report", "bundle", "deploy"])
def test_every_verb_has_an_example(project: Path, verb: str) -> None:
    done = edgeq(project, verb, "--help")
    assert done.returncode == 0
    assert f"Example: edgeq {verb}" in done.stdout
