"""The run-time extras on the Pythons of Debian bookworm and trixie, and one between: install, and pass their tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.device import environments

pytestmark = pytest.mark.e2e

EXTRAS = ("tflite", "onnxruntime", "openvino")
#: A part of each of a device's steps, with the real frameworks and LoadGen; what exports is skipped, as there is no torch.
TESTS = (
    "tests/spec", "tests/host", "tests/data/test_preprocess.py", "tests/data/test_samples.py",
    "tests/backends/test_null.py", "tests/backends/test_pool.py", "tests/backends/test_probes.py",
    "tests/loadgen/test_plan.py", "tests/loadgen/test_drive.py", "tests/loadgen/test_log.py",
    "tests/run/test_imports.py", "tests/run/test_record.py", "tests/run/test_footprint.py",
    "tests/run/test_runner.py::test_every_scenario_is_valid_without_a_model",
    "tests/run/test_probing.py::test_every_probe_runs_once_and_is_kept",
)  # fmt: skip


@pytest.fixture(scope="module", params=["3.11", "3.12", "3.13"])
def python(request: pytest.FixtureRequest) -> str:
    return environments.environment(
        environments.interpreter(request.param),
        environments.requirements(*EXTRAS),
        environments.REPO / "constraints.txt",
    )


def test_every_framework_answers_right(python: str, tmp_path: Path) -> None:
    done = environments.run(python, "-m", "edgeq", "doctor", "--json", cwd=tmp_path, cache=tmp_path / "cache")
    found = json.loads(done.stdout)
    assert set(found["probes"]) == set(EXTRAS), done.stderr
    for backend, result in found["probes"].items():
        assert result["note"] is None
        assert all(each["computes"] for each in result["found"]), (backend, result)
    assert not found["backends"]["pytorch"]
    assert not {each["code"] for each in found["findings"]} & {"no-loadgen", "no-backend", "tflite-numpy"}


def test_its_own_tests_pass(python: str, tmp_path: Path) -> None:
    done = environments.run(
        python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}", *TESTS
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
