"""LoadGen's own logs → what was in force, whether it counts, and the figures.

LoadGen writes the same run twice: ``mlperf_log_detail.txt`` (a JSON object a line, all settings, errors one by one) and
``mlperf_log_summary.txt`` (for people). The summary may say VALID while the detail log holds errors: both are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from edgeq.loadgen.times import Times
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

DETAIL, SUMMARY, ACCURACY = "mlperf_log_detail.txt", "mlperf_log_summary.txt", "mlperf_log_accuracy.json"

#: How the keys of settings and results begin; and of what else is read. An accuracy run over 50,000 samples logs 9,000
#: entries, of samples loaded and of the logger itself, that are not kept.
_SINGLE = ("effective_", "result_", "early_stopping_", "loadgen_version", "num_errors")
_READ = (*_SINGLE, "generated_", "power_")

_PREFIX = ":::MLLOG "
_NS_PER_MS = 1e6
_PERCENTILE = re.compile(r"result_(\d+\.\d+)_percentile_latency_ns")
_PERCENTILE_QUERY = re.compile(r"result_(\d+\.\d+)_percentile_per_query_latency_ns")
_POWER_TIME = "%m-%d-%Y %H:%M:%S.%f"

#: Lines of the summary that repeat a value of the detail log: pattern → key there.
_REPEATED = {
    r"^Scenario : (\S+)$": "effective_scenario",
    r"^Mode +: (\S+)$": "effective_test_mode",
    r"^Result is : (\S+)$": "result_validity",
    r"^Samples per second: (\S+)$": "result_samples_per_second",
    r"^samples_per_query : (\d+)$": "effective_samples_per_query",
    r"^min_query_count : (\d+)$": "effective_min_query_count",
    r"^qsl_rng_seed : (\d+)$": "effective_qsl_rng_seed",
    r"^performance_sample_count : (\d+)$": "effective_performance_sample_count",
}


@dataclass(frozen=True)
class Outcome:
    """One LoadGen run, as its logs tell it."""

    version: str
    commit: str
    scenario: str
    """LoadGen's name, such as ``SingleStream``."""
    mode: str
    valid: bool
    """LoadGen's verdict, and no error in its detail log."""
    reasons: list[str]
    """Why it is not valid, in LoadGen's words; empty where it is."""
    errors: int
    warnings: int
    settings: dict[str, Any]
    """Settings in force: LoadGen's ``effective_*`` keys without that prefix."""
    queries: int
    samples: int
    duration_s: float
    """From the first query issued to the last answer."""
    latency_ms: dict[str, float] = field(default_factory=dict)
    """Of a query: ``mean``, ``min``, ``max``, ``p50``, ``p90``, ``p95``, ``p97``, ``p99``, ``p99.9``.

    Multi-stream: until its last sample is answered. Offline: of a sample, counted from the start of the run, which is
    not what an inference takes. Empty in accuracy mode.
    """
    early_stopping_ms: dict[str, float] = field(default_factory=dict)
    """LoadGen's estimate of a percentile with 99 % confidence, such as ``p90``: what MLPerf reports."""
    samples_per_second: float | None = None
    """Offline only."""
    notes: list[Note] = field(default_factory=list)
    cpu_s: float | None = None
    """CPU time of this process while queries were issued and answered, and the wall time of the same span (``wall_s``):
    measured by ``drive``, not in the logs."""
    wall_s: float | None = None
    times: Times | None = None
    """Of each query, or block of offline's: kept by the SUT, not in the logs."""


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    value: Any
    error: bool
    warning: bool


def read_outcome(log_dir: Path) -> Outcome:
    """Reads the detail log and the summary of one run.

    Raises:
        EdgeqError: a log is missing, truncated or damaged, or the two disagree (code ``loadgen-log``).
    """
    detail, summary = log_dir / DETAIL, log_dir / SUMMARY
    entries = [each for each in _parse(detail) if each.key.startswith(_READ) or each.error or each.warning]
    values = _single_values(detail, entries)
    settings = {key.removeprefix("effective_"): value for key, value in values.items() if key.startswith("effective_")}
    errors = [entry for entry in entries if entry.error]
    _compare(summary, _read(summary), values, len(errors))
    performance = _need(values, detail, "effective_test_mode") == "PerformanceOnly"
    scenario, version = _need(values, detail, "effective_scenario"), str(_need(values, detail, "loadgen_version"))
    reasons = _reasons(values, detail, errors) if performance else _error_reasons(errors)
    queries, samples = _counts(values, entries, detail, performance)
    return Outcome(
        version=version.partition(" @ ")[0],
        commit=version.partition(" @ ")[2],
        scenario=scenario,
        mode=values["effective_test_mode"],
        valid=not reasons,
        reasons=reasons,
        errors=len(errors),
        warnings=sum(entry.warning for entry in entries),
        settings=settings,
        queries=queries,
        samples=samples,
        duration_s=_duration(detail, entries),
        latency_ms=_latencies(values, detail, scenario) if performance else {},
        early_stopping_ms=_early_stopping(values, scenario) if performance else {},
        samples_per_second=float(_need(values, detail, "result_samples_per_second"))
        if performance and scenario == "Offline"
        else None,
    )


def _parse(detail: Path) -> Iterator[_Entry]:
    """The entries of a detail log, one in memory at a time.

    Raises:
        EdgeqError: it can't be read, or a line is not LoadGen's: a damaged one may have been an error's.
    """
    try:
        with detail.open(encoding="utf-8") as lines:
            yield from _entries(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_log(detail, str(error)) from error


def _entries(lines: Iterable[str]) -> Iterator[_Entry]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if not line.startswith(_PREFIX):
                raise ValueError(f"no {_PREFIX.strip()} at its start")
            entry = json.loads(line[len(_PREFIX) :])
            metadata = entry["metadata"]
            yield _Entry(str(entry["key"]), entry["value"], bool(metadata["is_error"]), bool(metadata["is_warning"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _bad_log(DETAIL, f"line {number} is damaged ({error})") from error


def _single_values(detail: Path, entries: list[_Entry]) -> dict[str, Any]:
    """Key → value of settings and results, each of which a run logs once."""
    values: dict[str, Any] = {}
    for entry in entries:
        if not entry.key.startswith(_SINGLE):
            continue
        if entry.key in values and values[entry.key] != entry.value:
            raise _bad_log(detail, f"{entry.key} is both {values[entry.key]} and {entry.value}")
        values[entry.key] = entry.value
    return values


def _compare(path: Path, summary: str, values: dict[str, Any], errors: int) -> None:
    """Raises where the summary is cut short or tells another run than the detail log."""
    counted = re.search(r"^(No|\d+) errors? encountered", summary, re.MULTILINE | re.IGNORECASE)
    if counted is None:
        raise _bad_log(path, "it ends before the count of errors")
    stated = 0 if counted[1].lower() == "no" else int(counted[1])
    # The summary counts what happened before it was written, so it may fall short of the detail log, never exceed it.
    if stated > errors or values.get("num_errors", stated) > errors:
        raise _bad_log(path, f"it counts {stated} errors, {DETAIL} holds {errors}")
    if "result_validity" in values and not re.search(r"^Result is : ", summary, re.MULTILINE):
        raise _bad_log(path, "it does not say whether the result is valid")
    for pattern, key in _REPEATED.items():
        found = re.search(pattern, summary, re.MULTILINE)
        if found and found[1] != str(values.get(key)) and not _same_number(found[1], values.get(key)):
            raise _bad_log(path, f"it says {found[0].strip()!r}, {DETAIL} has {key} = {values.get(key)}")


def _same_number(text: str, value: Any) -> bool:
    try:
        return abs(float(text) - float(value)) <= 1e-5 * abs(float(value))
    except (TypeError, ValueError):
        return False


def _reasons(values: dict[str, Any], detail: Path, errors: list[_Entry]) -> list[str]:
    """Why a performance run does not count; empty where it does."""
    reasons = _error_reasons(errors)
    validity = _need(values, detail, "result_validity")
    if validity == "VALID":
        return reasons
    if not _need(values, detail, "early_stopping_met"):
        reasons.append(" ".join(str(values.get("early_stopping_result", "")).replace(" * ", " ").split()))
    reasons.append(str(values.get("result_invalid_reason", "")).strip())
    if not _need(values, detail, "result_min_queries_met"):
        reasons.append("The minimum query count was not reached.")
    reasons = [reason for reason in reasons if reason]
    return reasons or [f"LoadGen says {validity}"]


def _error_reasons(errors: list[_Entry]) -> list[str]:
    return [f"{entry.key}: {entry.value}" for entry in errors]


def _counts(values: dict[str, Any], entries: list[_Entry], detail: Path, performance: bool) -> tuple[int, int]:
    """Queries and samples issued."""
    counts = [int(entry.value) for entry in entries if entry.key == "generated_query_count"]
    sizes = [int(entry.value) for entry in entries if entry.key == "generated_samples_per_query"]
    if not counts or len(counts) != len(sizes):
        raise _bad_log(detail, "it lacks generated_query_count or generated_samples_per_query")
    if performance:
        _need(values, detail, "num_errors")  # its last line
        queries = int(_need(values, detail, "result_query_count"))
        return queries, queries * sizes[0]
    samples = sum(count * size for count, size in zip(counts, sizes, strict=True))
    if samples < int(_need(values, detail, "effective_accuracy_sample_count")):
        raise _bad_log(detail, f"it ends after {samples} samples")
    return sum(counts), samples


def _duration(detail: Path, entries: list[_Entry]) -> float:
    """Seconds between ``power_begin`` and ``power_end``, summed over the passes of an accuracy run."""
    stamps = {
        key: [datetime.strptime(str(entry.value), _POWER_TIME) for entry in entries if entry.key == key]
        for key in ("power_begin", "power_end")
    }
    if not stamps["power_begin"] or len(stamps["power_begin"]) != len(stamps["power_end"]):
        raise _bad_log(detail, "it lacks power_begin or power_end: the run did not end")
    begins, ends = sorted(stamps["power_begin"]), sorted(stamps["power_end"])
    return sum((end - begin).total_seconds() for begin, end in zip(begins, ends, strict=True))


def _latencies(values: dict[str, Any], detail: Path, scenario: str) -> dict[str, float]:
    per_query = scenario == "MultiStream"
    pattern, unit = (_PERCENTILE_QUERY, "_query") if per_query else (_PERCENTILE, "")
    latencies = {
        name: _need(values, detail, f"result_{name}{unit}_latency_ns") / _NS_PER_MS for name in ("mean", "min", "max")
    }
    for key, value in values.items():
        if match := pattern.fullmatch(key):
            latencies[f"p{float(match[1]):g}"] = value / _NS_PER_MS
    if "p50" not in latencies or "p90" not in latencies or "p99" not in latencies:
        raise _bad_log(detail, "it lacks latency percentiles")
    return latencies


def _early_stopping(values: dict[str, Any], scenario: str) -> dict[str, float]:
    """Estimates by percentile; LoadGen logs 0, or nothing, where the queries were too few."""
    asked = f"p{float(values.get('effective_target_latency_percentile', 0)) * 100:g}"
    # early_stopping_latency_ms is "multi-stream": in single-stream an estimate at p99 from the same queries.
    keys = {"early_stopping_latency_ms": "p99" if scenario == "SingleStream" else asked}
    if scenario == "SingleStream":
        keys = {**keys, "early_stopping_latency_ss": asked}
    return {name: values[key] / _NS_PER_MS for key, name in keys.items() if values.get(key)}


def _need(values: dict[str, Any], path: Path, key: str) -> Any:
    if key not in values:
        raise _bad_log(path, f"it lacks {key}: the run did not end, or the file is truncated")
    return values[key]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad_log(path, str(error)) from error


def _bad_log(path: Path | str, why: str) -> EdgeqError:
    return EdgeqError(
        f"LoadGen's log {path} can't be used",
        why,
        "run the cell again; check that the disk is not full",
        code="loadgen-log",
    )
