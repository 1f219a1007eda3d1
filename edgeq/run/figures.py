"""LoadGen's outcome → the figures of a record, each with its interval, and the warnings that the queries give."""

from __future__ import annotations

from typing import Any

from edgeq.loadgen.log import Outcome
from edgeq.run.intervals import FIGURES, latency_intervals, rate_intervals
from edgeq.run.job import LOADGEN_DIR
from edgeq.run.record import Interval, Latency, LoadgenInfo, Overhead
from edgeq.spec.profile import Profile


def figures(outcome: Outcome, profile: Profile, scenario: str) -> dict[str, Any]:
    """The fields of a record that a performance run gives, by name."""
    latency = None
    if outcome.latency_ms and scenario != "offline":
        latency = Latency(**{name: outcome.latency_ms[name] for name in Latency.model_fields})
    found: dict[str, Any] = {
        "latency_ms": latency,
        "samples_per_second": outcome.samples_per_second,
        "queries": outcome.queries,
        "samples": outcome.samples,
        "duration_s": outcome.duration_s,
        "loadgen": loadgen_info(outcome, profile, scenario),
        "intervals": intervals(outcome, scenario),
    }
    if outcome.cpu_s is not None and outcome.wall_s:
        found |= {"cpu_s": outcome.cpu_s, "cpu_per_wall": outcome.cpu_s / outcome.wall_s}
    return found


def intervals(outcome: Outcome, scenario: str) -> dict[str, Interval]:
    """Intervals from within the run, by the names of ``Record.intervals``; those that its queries are enough for."""
    if outcome.times is None:
        return {}
    if scenario != "offline":
        return latency_intervals(outcome.times.latencies_ms, {name: outcome.latency_ms[name] for name in FIGURES})
    return {} if outcome.samples_per_second is None else rate_intervals(outcome.times, outcome.samples_per_second)


def overhead(outcome: Outcome, scenario: str) -> Overhead:
    """What LoadGen and edgeq took, of a run without a model."""
    per_query = outcome.latency_ms["p50"] * 1e3 if scenario != "offline" else outcome.duration_s * 1e6 / outcome.queries
    return Overhead(per_query=per_query, per_sample=outcome.duration_s * 1e6 / outcome.samples)


def loadgen_info(outcome: Outcome, profile: Profile, scenario: str) -> LoadgenInfo:
    """What LoadGen's logs say of a run, and where they lie."""
    percentile = getattr(profile.scenario(scenario), "percentile", None)
    name = f"p{percentile * 100:g}" if percentile else ""
    return LoadgenInfo(
        version=outcome.version,
        scenario=outcome.scenario,
        settings=outcome.settings,
        valid=outcome.valid,
        errors=outcome.reasons,
        percentile=percentile,
        early_stopping_ms=outcome.early_stopping_ms.get(name),
        log_dir=LOADGEN_DIR,
    )
