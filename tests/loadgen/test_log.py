from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from edgeq.loadgen.log import DETAIL, SUMMARY, Outcome, read_outcome
from edgeq.spec.errors import EdgeqError
from tests.loadgen.runs import SCENARIOS, accuracy_plan, plan, run

Logs = dict[str, tuple[str, str]]
same_folder = hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Logs:
    """Scenario → (detail log, summary) of real runs; ``accuracy`` holds an accuracy run's."""
    found = {}
    plans = {scenario: plan(scenario) for scenario in SCENARIOS}
    for name, asked in {**plans, "accuracy": accuracy_plan("offline", 100)}.items():
        log_dir = tmp_path_factory.mktemp("logs") / name
        assert run("Classifier", asked, log_dir).outcome["valid"]
        found[name] = ((log_dir / DETAIL).read_text(), (log_dir / SUMMARY).read_text())
    return found


def read(folder: Path, detail: str, summary: str) -> Outcome:
    (folder / DETAIL).write_text(detail)
    (folder / SUMMARY).write_text(summary)
    return read_outcome(folder)


def line(key: str, value: object, error: bool = False) -> str:
    entry = {"key": key, "value": value, "metadata": {"is_error": error, "is_warning": False}}
    return f":::MLLOG {json.dumps(entry)}\n"


def set_value(detail: str, key: str, value: object) -> str:
    changed, count = re.subn(rf'("key": "{re.escape(key)}", "value": )[^,]+,', rf"\g<1>{json.dumps(value)},", detail)
    assert count == 1, key
    return changed


def test_figures_are_the_summary_s(logs: Logs, tmp_path: Path) -> None:
    for scenario in SCENARIOS:
        detail, summary = logs[scenario]
        outcome = read(tmp_path, detail, summary)
        stated = re.findall(r"^(\d+\.\d+) percentile latency \(ns\) +: (\d+)$", summary, re.MULTILINE)
        assert len(stated) == 6
        for percentile, ns in stated:
            assert outcome.latency_ms[f"p{float(percentile):g}"] == int(ns) / 1e6
        for name in ("Mean", "Min", "Max"):
            found = re.search(rf"^{name} latency \(ns\) +: (\d+)$", summary, re.MULTILINE)
            assert found is not None
            assert outcome.latency_ms[name.lower()] == int(found[1]) / 1e6
        estimate = re.search(r"Early stopping 90.0th percentile estimate: (\d+)", summary)
        assert outcome.early_stopping_ms.get("p90") == (int(estimate[1]) / 1e6 if estimate else None)
    assert outcome.samples_per_second is not None
    assert outcome.samples_per_second * outcome.latency_ms["max"] / 1e3 == pytest.approx(outcome.samples, rel=1e-4)


def test_accuracy_run_has_no_latency(logs: Logs, tmp_path: Path) -> None:
    outcome = read(tmp_path, *logs["accuracy"])
    assert (outcome.valid, outcome.mode, outcome.latency_ms, outcome.samples) == (True, "AccuracyOnly", {}, 100)


@pytest.mark.parametrize("missing", [DETAIL, SUMMARY])
def test_missing_log(logs: Logs, tmp_path: Path, missing: str) -> None:
    read(tmp_path, *logs["offline"])
    (tmp_path / missing).unlink()
    with pytest.raises(EdgeqError) as caught:
        read_outcome(tmp_path)
    assert caught.value.code == "loadgen-log"


def test_validity_must_agree(logs: Logs, tmp_path: Path) -> None:
    detail, summary = logs["single-stream"]
    with pytest.raises(EdgeqError, match="result_validity") as caught:
        read(tmp_path, set_value(detail, "result_validity", "INVALID"), summary)
    assert caught.value.code == "loadgen-log"


def test_logs_of_two_runs(logs: Logs, tmp_path: Path) -> None:
    with pytest.raises(EdgeqError):
        read(tmp_path, logs["single-stream"][0], logs["offline"][1])
    with pytest.raises(EdgeqError, match="is both"):
        read(tmp_path, logs["single-stream"][0] + logs["offline"][0], logs["offline"][1])


def test_verdict_comes_with_reasons(logs: Logs, tmp_path: Path) -> None:
    detail, summary = logs["single-stream"]
    detail = set_value(detail, "result_validity", "INVALID")
    detail = set_value(detail, "result_min_queries_met", False)
    detail += line("result_invalid_reason", "Decrease the expected latency.")
    outcome = read(tmp_path, detail, summary.replace("Result is : VALID", "Result is : INVALID"))
    assert not outcome.valid
    assert outcome.reasons == ["Decrease the expected latency.", "The minimum query count was not reached."]


@hypothesis_settings(same_folder, max_examples=20)
@given(seed=st.integers(0, 1000))
def test_order_of_lines_does_not_matter(logs: Logs, tmp_path: Path, seed: int) -> None:
    for name, (detail, summary) in logs.items():
        lines = detail.splitlines(keepends=True)
        random.Random(seed).shuffle(lines)
        assert read(tmp_path, "".join(lines), summary) == read(tmp_path, detail, summary), name


@same_folder
@given(data=st.data(), name=st.sampled_from([*SCENARIOS, "accuracy"]))
def test_cut_detail_log_is_an_error(logs: Logs, tmp_path: Path, data: st.DataObject, name: str) -> None:
    detail, summary = logs[name]
    # An accuracy run's log ends in counters that nothing depends on; its figures end with power_end.
    end = detail.rindex('{"key": "power_end"') if name == "accuracy" else len(detail.rstrip())
    with pytest.raises(EdgeqError) as caught:
        read(tmp_path, detail[: data.draw(st.integers(0, end - 1))], summary)
    assert caught.value.code == "loadgen-log"


@same_folder
@given(data=st.data(), name=st.sampled_from([*SCENARIOS, "accuracy"]))
def test_cut_summary_is_an_error(logs: Logs, tmp_path: Path, data: st.DataObject, name: str) -> None:
    detail, summary = logs[name]
    end = summary.index("No errors encountered")
    with pytest.raises(EdgeqError) as caught:
        read(tmp_path, detail, summary[: data.draw(st.integers(0, end))])
    assert caught.value.code == "loadgen-log"


@same_folder
@given(data=st.data())
def test_damaged_line_is_an_error(logs: Logs, tmp_path: Path, data: st.DataObject) -> None:
    detail, summary = logs["multi-stream"]
    lines = detail.splitlines(keepends=True)
    number = data.draw(st.integers(0, len(lines) - 1))
    at = data.draw(st.integers(0, len(lines[number]) - 3))
    lines[number] = lines[number][:at] + "\x00" + lines[number][at + 1 :]
    with pytest.raises(EdgeqError, match=f"line {number + 1} ") as caught:
        read(tmp_path, "".join(lines), summary)
    assert caught.value.code == "loadgen-log"


@same_folder
@given(ns=st.integers(1, 10**13))
def test_latency_is_nanoseconds_in_milliseconds(logs: Logs, tmp_path: Path, ns: int) -> None:
    detail, summary = logs["multi-stream"]
    changed = set_value(detail, "result_99.00_percentile_per_query_latency_ns", ns)
    assert read(tmp_path, changed, summary).latency_ms["p99"] == pytest.approx(ns / 1e6)


@given(text=st.text(max_size=300))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    with pytest.raises(EdgeqError):
        read(folder, text.encode("utf-8", "replace").decode(), text.encode("utf-8", "replace").decode())
