from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.loadgen.plan import OFFLINE_SLACK, Plan, early_stopping_queries, plan_run
from edgeq.spec.profile import load_profile
from tests.loadgen.runs import ROOT, SCENARIOS, profile


@pytest.mark.parametrize(("percentile", "queries"), [(0.5, 11), (0.9, 64), (0.99, 662)])
def test_early_stopping_queries(percentile: float, queries: int) -> None:
    assert early_stopping_queries(percentile) == queries


@given(st.sampled_from(SCENARIOS), st.floats(1e-4, 5), st.integers(1, 5000))
def test_planned_run_meets_minimum_counts_and_duration(scenario: str, canary_s: float, total: int) -> None:
    asked = profile(min_duration_s=3, min_queries=1)
    planning = plan_run(asked, scenario, canary_s, total)
    plan = planning.plan
    assert plan.resident_samples == min(64, total)
    assert plan.min_duration_s == 3
    assert planning.seconds >= 3
    if scenario == "offline":
        assert plan.min_samples >= 64
        assert plan.min_samples * canary_s >= OFFLINE_SLACK * 3 * 0.999
        assert planning.seconds == pytest.approx(plan.min_samples * canary_s)
    else:
        assert plan.min_queries == 64
        assert planning.seconds == pytest.approx(max(3, 64 * canary_s))
        assert plan.expected_latency_ms == pytest.approx(canary_s * 1e3, rel=1e-3)
    assert Plan(**json.loads(json.dumps(plan.as_dict()))) == plan


def test_too_few_queries_are_raised_and_said() -> None:
    planning = plan_run(profile(min_queries=10), "single-stream", 0.01, 500)
    assert planning.plan.min_queries == 64
    assert [note.code for note in planning.notes] == ["queries-raised"]


def test_small_library_is_said() -> None:
    planning = plan_run(profile(resident_samples=1024), "offline", 0.01, 500)
    assert planning.plan.resident_samples == 500
    assert [note.code for note in planning.notes] == ["resident-reduced"]
    assert "1024" in planning.notes[0].text


def test_run_too_large_for_memory_is_shortened_and_said() -> None:
    for scenario in SCENARIOS:
        planning = plan_run(profile(min_duration_s=600), scenario, 1e-6, 500, memory_mb=100)
        assert [note.code for note in planning.notes] == ["duration-shortened"]
        assert 0.1 < planning.plan.min_duration_s < 10
        assert plan_run(profile(min_duration_s=600), scenario, 0.01, 500, memory_mb=100).notes == ()


def test_very_fast_system_is_bound_by_what_answering_costs() -> None:
    fast, faster = (plan_run(profile(), "single-stream", s, 500, answer_s=1e-6).plan for s in (1e-7, 1e-9))
    assert fast == faster
    assert fast.expected_latency_ms == 0.012


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_accuracy_plan_covers_every_sample_once(scenario: str) -> None:
    planning = plan_run(profile(), scenario, 0.01, 500, mode="accuracy")
    assert planning.notes == ()
    assert planning.plan.min_samples == (504 if scenario == "multi-stream" else 500)
    queries = math.ceil(500 / 8) if scenario == "multi-stream" else 500
    assert planning.seconds == pytest.approx(queries * 0.01)


def test_mlperf_profile_is_planned_to_the_letter() -> None:
    rules = load_profile(ROOT / "scenarios", "mlperf")
    plans = {scenario: plan_run(rules, scenario, 0.05, 50000) for scenario in SCENARIOS}
    assert all(p.plan.resident_samples == 1024 and p.plan.min_duration_s == 600 and not p.notes for p in plans.values())
    assert plans["offline"].plan.min_samples == 24576
    assert plans["single-stream"].plan.min_queries == 64
    assert plans["multi-stream"].plan.min_queries == 662
    assert plans["multi-stream"].plan.percentile == 0.99
    assert plans["multi-stream"].plan.samples_per_query == 8


@pytest.mark.parametrize("canary_s", [0, -1, math.nan, math.inf])
def test_canary_must_be_a_duration(canary_s: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        plan_run(profile(), "offline", canary_s, 500)


def test_server_is_not_driven() -> None:
    with pytest.raises(ValueError, match="server"):
        plan_run(profile(), "server", 0.01, 500)
