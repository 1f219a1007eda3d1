from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from edgeq.loadgen import settings
from edgeq.loadgen.plan import Plan
from edgeq.loadgen.settings import check_in_force, expected_in_force
from edgeq.spec.errors import EdgeqError
from tests.loadgen.runs import SCENARIOS, accuracy_plan, plan, run

SEEDS = {"qsl_rng_seed": 1, "sample_index_rng_seed": 2, "schedule_rng_seed": 3}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_force_is_what_was_planned(scenario: str, tmp_path: Path) -> None:
    asked = plan(scenario, percentile=0.5, min_queries=70, resident_samples=48, min_duration_s=0.123)
    found = run("Classifier", asked, tmp_path / "log").outcome["settings"]
    assert check_in_force(asked, found) == []
    assert found["min_duration_ms"] == 123
    assert found["performance_sample_count"] == 48
    assert found["accuracy_sample_count"] == 500
    assert found["samples_per_query"] == {"single-stream": 1, "multi-stream": 8}.get(scenario, asked.min_samples)
    if scenario != "offline":
        assert found["target_latency_percentile"] == 0.5
        assert found["min_query_count"] == 70
    assert all(found[seed] != 0 for seed in SEEDS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_in_force_in_an_accuracy_run(scenario: str, tmp_path: Path) -> None:
    asked = accuracy_plan(scenario, 70)
    assert run("Classifier", asked, tmp_path / "log").outcome["notes"] == []


def test_six_digits_are_enough_for_a_rate() -> None:
    asked = plan("single-stream", canary_s=1 / 3)
    assert check_in_force(asked, {**expected_in_force(asked), **SEEDS, "target_qps": 3.00000}) == []


@pytest.mark.parametrize("key", sorted(expected_in_force(plan("multi-stream"))))
def test_each_difference_is_a_note(key: str) -> None:
    asked = plan("multi-stream")
    found = {**expected_in_force(asked), **SEEDS}
    assert check_in_force(asked, found) == []
    for wrong in ({**found, key: "other"}, {k: v for k, v in found.items() if k != key}):
        notes = check_in_force(asked, wrong)
        assert [note.code for note in notes] == ["settings-differ"]
        assert key in notes[0].text


def test_seeds_of_zero_are_a_difference() -> None:
    asked = plan("offline")
    notes = check_in_force(asked, {**expected_in_force(asked), **SEEDS, "schedule_rng_seed": 0})
    assert [note.code for note in notes] == ["settings-differ"]


def test_expected_covers_every_number_of_the_plan() -> None:
    """A field added to Plan without being checked in the log would go unnoticed."""
    asked = plan("multi-stream")
    changed: dict[str, object] = {
        "scenario": "single-stream", "mode": "accuracy", "min_duration_s": 9.0, "min_queries": 99, "percentile": 0.7,
        "samples_per_query": 4, "resident_samples": 3, "total_samples": 7, "expected_latency_ms": math.pi,
        "expected_qps": math.e, "min_samples": 5,
    }  # fmt: skip
    assert set(changed) == {field.name for field in dataclasses.fields(Plan)}
    for name, value in changed.items():
        other = Plan(**{**asked.as_dict(), name: value})
        assert expected_in_force(other) != expected_in_force(asked), name


def test_missing_loadgen_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(EdgeqError, match="LoadGen is not installed") as caught:
        settings.loadgen_module()
    assert caught.value.code == "not-installed"
