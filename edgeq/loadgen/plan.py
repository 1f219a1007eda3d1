"""A profile and a canary's figure → one LoadGen run, planned before it starts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from edgeq.spec.note import Note
from edgeq.spec.profile import MultiStream, Offline, Profile, SingleStream

Mode = Literal["performance", "accuracy"]

#: Offline, LoadGen must be given its samples before it starts: so many more than the canary's rate asks for, lest a
#: rate that rises after warm-up end the run below its minimum duration (LoadGen's own slack is 1.1).
OFFLINE_SLACK = 1.3

#: Seconds that one answer takes in Python on a usual machine; ``edgeq.loadgen.sut.answer_cost`` measures it here.
ANSWER_S = 6e-7

#: A query, and offline a sample, takes at least so many times that, however fast the system: a lower expectation than
#: this would only pre-generate queries in vain (measured with ``null``: 12 to 15, and 1.2 to 3.5).
QUERY_FLOOR, SAMPLE_FLOOR = 12, 1.0

#: Memory that LoadGen and its Python binding take for what they generate before a run, as measured (6.0.17, x86-64).
BYTES_PER_QUERY, BYTES_PER_QUERY_SAMPLE, BYTES_PER_OFFLINE_SAMPLE = 430, 40, 200


@dataclass(frozen=True)
class Plan:
    """Everything that edgeq sets in LoadGen for one run. JSON values only."""

    scenario: str
    mode: Mode
    min_duration_s: float
    min_queries: int
    """Queries to issue at least; 1 in offline, where all samples are one query."""
    percentile: float | None
    """Latency percentile that the run is judged at, 0 to 1; None in offline."""
    samples_per_query: int
    resident_samples: int
    """Samples held in memory at once (LoadGen's performance sample count)."""
    total_samples: int
    """Samples in the library."""
    expected_latency_ms: float | None
    """Of a query, from the canary: LoadGen pre-generates ``2 * min_duration_s`` / this. None in offline."""
    expected_qps: float | None
    """Samples a second, from the canary; offline only."""
    min_samples: int
    """Samples to issue at least; in offline, exactly so many."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Planning:
    """A plan, how long LoadGen will take by it, and where it differs from what the profile asked for."""

    plan: Plan
    seconds: float
    notes: tuple[Note, ...] = ()


def early_stopping_queries(percentile: float) -> int:
    """The fewest queries that LoadGen accepts at ``percentile`` (0 to 1): 64 at 0.90, 662 at 0.99.

    The least n with P(at most one of n queries lies over the percentile) ≤ 1 %, that is
    pⁿ + n (1-p) pⁿ⁻¹ ≤ 0.01: LoadGen's early_stopping.cc with one query discarded, tolerance 0, confidence 99 %.
    """
    if not 0 < percentile < 1:
        raise ValueError(f"percentile {percentile} is not between 0 and 1")
    p, n = percentile, 2
    while p**n + n * (1 - p) * p ** (n - 1) > 0.01:
        n += 1
    return n


def plan_run(
    profile: Profile,
    scenario: str,
    canary_s: float,
    total: int,
    *,
    mode: Mode = "performance",
    resident: int | None = None,
    memory_mb: float = 2048,
    answer_s: float = ANSWER_S,
) -> Planning:
    """Plans one LoadGen run.

    Args:
        profile: What is asked for.
        scenario: ``single-stream``, ``multi-stream`` or ``offline``.
        canary_s: Seconds a query (multi-stream: of all its samples), measured after warm-up; offline: a sample.
        total: Samples in the library.
        mode: ``accuracy`` sends each sample of the library once, whatever the profile's durations and counts.
        resident: Samples in memory at once; by default the profile's.
        memory_mb: What LoadGen may take for queries generated ahead; a longer run is shortened, with a note.
        answer_s: Seconds that answering a sample takes by itself: bounds what a very fast system can be expected to do.

    Returns:
        The plan; the estimate in seconds; notes ``resident-reduced``, ``queries-raised``, ``duration-shortened``.

    Raises:
        ValueError: ``canary_s`` or ``total`` is not positive, or edgeq does not drive the scenario.
    """
    if not (math.isfinite(canary_s) and canary_s > 0 and total > 0):
        raise ValueError(f"canary_s = {canary_s}, total = {total}: both must be positive")
    wanted = resident or profile.resident_samples
    asked = profile.scenario(scenario)
    base = Plan(
        scenario=scenario, mode=mode, min_duration_s=0.0, min_queries=1, percentile=None, samples_per_query=1,
        resident_samples=min(wanted, total), total_samples=total, expected_latency_ms=None, expected_qps=None,
        min_samples=total,
    )  # fmt: skip
    if isinstance(asked, Offline):
        planning = _offline(base, asked, max(canary_s, SAMPLE_FLOOR * answer_s), memory_mb)
    elif isinstance(asked, SingleStream):
        planning = _streams(base, asked, max(canary_s, QUERY_FLOOR * answer_s), memory_mb)
    else:
        raise ValueError(f"edgeq does not drive scenario {scenario!r}")
    if total < wanted and mode == "performance":
        # LoadGen would go on claiming the larger number in its log.
        note = Note(
            code="resident-reduced",
            text=f"the data holds {total} samples; profile {profile.name} asks for {wanted} in memory",
            hint="give --dataset a folder with more images",
        )
        return replace(planning, notes=(note, *planning.notes))
    return planning


def _streams(base: Plan, asked: SingleStream, query_s: float, memory_mb: float) -> Planning:
    per_query = asked.samples_per_query if isinstance(asked, MultiStream) else 1
    notes: tuple[Note, ...] = ()
    duration, queries = 0.0, math.ceil(base.total_samples / per_query)
    if base.mode == "performance":
        queries = max(asked.min_queries, early_stopping_queries(asked.percentile))
        query_bytes = BYTES_PER_QUERY + per_query * BYTES_PER_QUERY_SAMPLE
        duration, notes = _fit(asked.min_duration_s, memory_mb * 1e6 / query_bytes * query_s / 2, memory_mb)
        if queries > asked.min_queries:
            notes = (*notes, _raised(asked, queries))
    plan = replace(
        base, min_duration_s=duration, min_queries=queries, percentile=asked.percentile, samples_per_query=per_query,
        expected_latency_ms=round(query_s * 1e3, 6), min_samples=queries * per_query,
    )  # fmt: skip
    return Planning(plan, max(duration, queries * query_s), notes)


def _offline(base: Plan, asked: Offline, sample_s: float, memory_mb: float) -> Planning:
    notes: tuple[Note, ...] = ()
    duration, samples = 0.0, base.total_samples
    if base.mode == "performance":
        longest = memory_mb * 1e6 / BYTES_PER_OFFLINE_SAMPLE * sample_s / OFFLINE_SLACK
        duration, notes = _fit(asked.min_duration_s, longest, memory_mb)
        samples = max(asked.min_samples, math.ceil(OFFLINE_SLACK * duration / sample_s))
    plan = replace(
        base, min_duration_s=duration, samples_per_query=samples, expected_qps=1 / sample_s, min_samples=samples
    )
    return Planning(plan, samples * sample_s, notes)


def _fit(asked_s: float, longest_s: float, memory_mb: float) -> tuple[float, tuple[Note, ...]]:
    """The duration asked for, or the longest that memory allows, with a note."""
    if asked_s <= longest_s:
        return round(asked_s, 3), ()
    shorter = max(math.floor(longest_s * 1000), 1) / 1000
    note = Note(
        code="duration-shortened",
        text=f"{shorter:g} s planned instead of {asked_s:g} s: so fast a system needs more than {memory_mb:g} MB "
        "for the queries that LoadGen generates ahead",
        hint="not comparable with a run of the profile's full duration",
    )
    return shorter, (note,)


def _raised(asked: SingleStream, queries: int) -> Note:
    return Note(
        code="queries-raised",
        text=f"{asked.min_queries} queries are too few for LoadGen's early stopping at p{asked.percentile * 100:g}: "
        f"{queries} planned",
        hint=f"set min_queries = {queries} in the profile",
    )
