"""The pitfalls of LoadGen's Python binding (shared LOADGEN.md, by number), and traps 24 and 25 of TRAPS.md.

Where LoadGen's own behaviour can be shown without a crash it is, so that a test fails when the pitfall is gone.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeq.loadgen.accuracy import read_accuracy
from edgeq.loadgen.log import DETAIL, SUMMARY, read_outcome
from edgeq.loadgen.plan import Plan, plan_run
from tests.loadgen.runs import SCENARIOS, accuracy_plan, plan, profile, run

BARE = """
import sys
import mlperf_loadgen as lg
import numpy as np

def answer(queries):
    lg.QuerySamplesComplete([lg.QuerySampleResponse(query.id, row.ctypes.data, row.nbytes) for query in queries])

row = np.zeros(4, np.float32)
open("empty.conf", "w").close()
for _ in range(int(sys.argv[1])):
    settings = lg.TestSettings()
    settings.FromConfig("empty.conf", "edgeq", "SingleStream", 1)
settings.mode = lg.TestMode.PerformanceOnly
settings.min_duration_ms, settings.min_query_count = 0, 64
settings.performance_sample_count_override = 1024
log = lg.LogSettings()
log.enable_trace = False
samples = lg.ConstructQSL(100, 100, lambda indices: None, lambda indices: None)
lg.StartTestWithLogSettings(lg.ConstructSUT(answer, lambda: None), samples, settings, log)
"""


def bare(folder: Path, from_config_calls: int = 1) -> str:
    """The detail log of a run by LoadGen alone, with none of edgeq's precautions, in ``folder``."""
    subprocess.run([sys.executable, "-c", BARE, str(from_config_calls)], cwd=folder, check=True, timeout=60)
    return (folder / DETAIL).read_text()


def value(detail: str, key: str) -> str:
    found = re.search(rf'"key": "{key}", "value": ([^,]+),', detail)
    assert found is not None, key
    return found[1].strip('"')


def test_trap_24_mlcommons_inference_1629_63_queries_invalid_64_valid(tmp_path: Path) -> None:
    for queries, valid in ((63, False), (64, True)):
        asked = dataclasses.replace(plan("single-stream", min_duration_s=0), min_queries=queries, min_samples=queries)
        outcome = run("Classifier", asked, tmp_path / str(queries)).outcome
        assert outcome["queries"] == queries
        assert outcome["valid"] is valid
        assert ("at least 64 queries" in " ".join(outcome["reasons"])) is not valid
    assert plan_run(profile(min_queries=63), "single-stream", 0.01, 500).plan.min_queries == 64


def test_trap_24_at_p99_it_takes_662(tmp_path: Path) -> None:
    asked = plan("multi-stream", min_duration_s=0, min_queries=1, percentile=0.99)
    assert run("null", asked, tmp_path / "planned").outcome["valid"]
    fewer = dataclasses.replace(asked, min_queries=661, min_samples=661 * 8)
    assert not run("null", fewer, tmp_path / "fewer").outcome["valid"]


@pytest.mark.parametrize("system", ["Classifier", "Threaded"])
def test_trap_25_and_pitfalls_05_06_response_memory(system: str, tmp_path: Path) -> None:
    """mlcommons/inference#1337: systems that answer from temporaries; each of 2000 labels must be its sample's."""
    log_dir = tmp_path / "log"
    assert run(system, accuracy_plan("offline", 2000), log_dir).outcome["valid"]
    found = read_accuracy(log_dir, 2000)
    assert found.best[:, 0].tolist() == list(range(2000))
    entries = json.loads((log_dir / "mlperf_log_accuracy.json").read_text())
    assert {len(entry["data"]) for entry in entries} == {2 * 5 * 4}


def test_pitfall_01_second_from_config_forgets_the_seeds(tmp_path: Path) -> None:
    assert value(bare(tmp_path, 1), "effective_qsl_rng_seed") != "0"
    assert value(bare(tmp_path, 2), "effective_qsl_rng_seed") == "0"
    assert run("Classifier", plan("offline"), tmp_path / "log", runs=2).reply["code"] == "loadgen-conf"


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(
    ("system", "error"), [("Raising", "RuntimeError"), ("Exiting", "SystemExit"), ("Interrupted", "KeyboardInterrupt")]
)
def test_pitfall_02_exception_is_raised_and_no_segmentation_fault(
    system: str, error: str, scenario: str, tmp_path: Path
) -> None:
    done = run(system, plan(scenario), tmp_path / "log")
    assert done.code == 0
    assert done.reply["error"] == error
    assert not (tmp_path / "log" / SUMMARY).exists()


@pytest.mark.parametrize("asked", [*map(plan, SCENARIOS), accuracy_plan("offline", 500)])
def test_pitfall_02_exception_while_loading(asked: Plan, tmp_path: Path) -> None:
    done = run("Classifier", asked, tmp_path / "log", broken_library=True)
    assert done.code == 0
    assert done.reply["text"] == "the disk went away"


@pytest.mark.parametrize("scenario", ["multi-stream", "offline"])
def test_pitfall_03_sample_left_open_does_not_hang(scenario: str, tmp_path: Path) -> None:
    done = run("Forgetful", plan(scenario), tmp_path / "log")
    assert done.reply["code"] == "bad-output"
    assert "not answered" in done.reply["text"]


@pytest.mark.parametrize("scenario", ["multi-stream", "offline"])
def test_pitfall_04_answer_after_the_end_or_twice(scenario: str, tmp_path: Path) -> None:
    late = run("Late", plan(scenario), tmp_path / "late")
    assert late.code == 0
    assert late.reply["late"] == "_Stopped"
    twice = run("Twice", plan(scenario), tmp_path / "twice")
    assert twice.code == 0
    assert "answered twice" in twice.reply["text"]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pitfall_07_no_thread_beside_the_model(scenario: str, tmp_path: Path) -> None:
    assert run("Crowded", plan(scenario), tmp_path / "log").outcome["valid"]


def test_pitfall_08_trace_is_off(tmp_path: Path) -> None:
    run("Classifier", plan("single-stream"), tmp_path / "log")
    assert (tmp_path / "log" / "mlperf_log_trace.json").stat().st_size == 0


def test_pitfall_09_queries_generated_ahead_follow_the_canary(tmp_path: Path) -> None:
    run("Classifier", plan("single-stream", canary_s=0.001, min_duration_s=0.2), tmp_path / "log")
    assert int(value((tmp_path / "log" / DETAIL).read_text(), "generated_query_count")) == pytest.approx(400, abs=2)


def test_pitfall_10_nothing_is_set_by_a_file(tmp_path: Path) -> None:
    assert run("Classifier", plan("offline"), tmp_path / "log").outcome["notes"] == []
    assert (tmp_path / "log" / "user.conf").read_text() == ""


def test_pitfall_11_stray_audit_config(tmp_path: Path) -> None:
    (tmp_path / "audit.config").write_text("*.*.mode = 1\n")
    assert value(bare(tmp_path), "effective_test_mode") == "AccuracyOnly"
    log_dir = tmp_path / "log"
    log_dir.mkdir()
    for name in ("audit.config", "no-audit.config"):
        (log_dir / name).write_text("*.*.mode = 1\n")
    outcome = run("Classifier", plan("offline"), log_dir, cwd=tmp_path).outcome
    assert (outcome["mode"], outcome["valid"], outcome["notes"]) == ("PerformanceOnly", True, [])


def test_pitfall_12_library_smaller_than_performance_sample_count(tmp_path: Path) -> None:
    assert value(bare(tmp_path), "effective_performance_sample_count") == "1024"
    asked = plan("multi-stream", count=50, resident_samples=1024)
    done = run("Classifier", asked, tmp_path / "log")
    assert done.outcome["settings"]["performance_sample_count"] == 50
    assert sorted(done.reply["loads"][1]) == list(range(50))
    larger = dataclasses.replace(asked, resident_samples=1024)
    assert run("Classifier", larger, tmp_path / "larger").reply["code"] == "plan-differs"


def test_pitfall_13_multi_stream_pads_an_accuracy_run(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    run("Classifier", accuracy_plan("multi-stream", 500, resident_samples=500), log_dir)
    assert len(json.loads((log_dir / "mlperf_log_accuracy.json").read_text())) == 504
    found = read_accuracy(log_dir, 500)
    assert (found.n, found.repeats, found.top1(np.arange(500))) == (500, 4, 1)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("system", ["Dying", "NotANumber", "WrongShape"])
def test_pitfall_14_dead_model(system: str, scenario: str, tmp_path: Path) -> None:
    done = run(system, plan(scenario), tmp_path / "log")
    assert done.code == 0
    assert done.reply["code"] == "bad-output"


def test_pitfall_15_summary_valid_detail_log_with_errors(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    assert run("Classifier", plan("single-stream"), log_dir).outcome["valid"]
    entry = {"key": "error_runtime", "value": "a query was lost", "metadata": {"is_error": True, "is_warning": False}}
    with (log_dir / DETAIL).open("a") as detail:
        detail.write(f":::MLLOG {json.dumps(entry)}\n")
    outcome = read_outcome(log_dir)
    assert "Result is : VALID" in (log_dir / SUMMARY).read_text()
    assert (outcome.valid, outcome.errors, outcome.reasons) == (False, 1, ["error_runtime: a query was lost"])
