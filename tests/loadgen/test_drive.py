from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgeq.loadgen.accuracy import read_accuracy
from edgeq.loadgen.log import read_outcome
from edgeq.spec.errors import EdgeqError
from tests.loadgen.runs import SCENARIOS, accuracy_plan, plan, run

LOGS = {"mlperf_log_accuracy.json", "mlperf_log_detail.txt", "mlperf_log_summary.txt", "mlperf_log_trace.json"}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_null_is_valid_and_ran_by_the_plan(scenario: str, tmp_path: Path) -> None:
    """Also the record of what edgeq and LoadGen cost by themselves: printed, since a shared machine can't assert it."""
    planned = plan(scenario, canary_s=1e-7, answer_s=2e-7, min_duration_s=0.2)
    done = run("null", planned, tmp_path / "not" / "there")
    outcome = done.outcome
    assert outcome["valid"], outcome["reasons"]
    assert outcome["reasons"] == []
    assert outcome["notes"] == []
    assert outcome["errors"] == 0
    assert outcome["version"].startswith("6.")
    assert outcome["samples"] >= planned.min_samples
    assert outcome["duration_s"] >= 0.2
    assert done.stdout == done.stderr == ""
    assert {path.name for path in (tmp_path / "not" / "there").iterdir()} == LOGS | {"user.conf"}
    assert (tmp_path / "not" / "there" / "mlperf_log_trace.json").stat().st_size == 0
    if scenario == "offline":
        print(f"offline: {1e6 / outcome['samples_per_second']:.2f} µs a sample")
    else:
        print(f"{scenario}: p50 {outcome['latency_ms']['p50'] * 1e3:.2f} µs a query")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_samples_are_loaded_once_and_only_those_wanted(scenario: str, tmp_path: Path) -> None:
    probe, *loads = run("Classifier", plan(scenario), tmp_path / "log").reply["loads"]
    assert probe == [0]
    assert [sorted(indices) for indices in loads] == [list(range(64))]


@pytest.mark.parametrize("system", ["Classifier", "Threaded"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_system_with_threads_or_blocks(scenario: str, system: str, tmp_path: Path) -> None:
    assert run(system, plan(scenario), tmp_path / "log").outcome["valid"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_accuracy_of_every_sample(scenario: str, tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    outcome = run("Threaded", accuracy_plan(scenario, 100, resident_samples=40), log_dir).outcome
    assert outcome["valid"]
    assert outcome["mode"] == "AccuracyOnly"
    assert outcome["latency_ms"] == {}
    found = read_accuracy(log_dir, 100)
    assert found.top1(np.arange(100)) == 1
    assert found.top5(np.arange(100) + 1) == 1
    assert found.top1(np.arange(100) + 1) == 0


def test_second_run_in_a_process_is_refused(tmp_path: Path) -> None:
    done = run("Classifier", plan("single-stream"), tmp_path / "log", runs=2)
    assert done.code == 0
    assert done.reply["code"] == "loadgen-conf"


def test_earlier_logs_never_pass_for_this_run(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    assert run("Classifier", plan("offline"), log_dir).outcome["valid"]
    assert run("Raising", plan("offline"), log_dir).reply["error"] == "RuntimeError"
    with pytest.raises(EdgeqError) as caught:
        read_outcome(log_dir)
    assert caught.value.code == "loadgen-log"


def test_log_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("Classifier", plan("offline"), tmp_path / "file" / "log", reply=str(tmp_path / "reply.json"))
    assert done.code == 0
    assert json.loads((tmp_path / "reply.json").read_text())["code"] == "cannot-write"
