"""A plan → LoadGen's settings, all set in code; and what its log says was in force, against the plan."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from types import ModuleType
from typing import Any

from edgeq.installing import pip_install
from edgeq.loadgen.plan import Plan
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: The contract's names → LoadGen's.
SCENARIO_NAMES = {"single-stream": "SingleStream", "multi-stream": "MultiStream", "offline": "Offline"}
MODE_NAMES = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly"}

#: A model name that LoadGen's embedded configuration does not know: only the round's seeds come from there.
CONF_MODEL = "edgeq"


def loadgen_module() -> ModuleType:
    """The module ``mlperf_loadgen``. Raises ``EdgeqError`` (code ``not-installed``) where it can't be imported."""
    try:
        return importlib.import_module("mlperf_loadgen")
    except ImportError as error:
        raise EdgeqError(
            "LoadGen is not installed",
            str(error),
            f"run: {pip_install('mlcommons-loadgen')} (on ARM it is built, which takes g++ and minutes)",
            code="not-installed",
        ) from error


def apply(plan: Plan, user_conf: Path) -> Any:
    """``plan`` as LoadGen's ``TestSettings``. Writes an empty file at ``user_conf``.

    Every value is set in code: LoadGen's configuration files drop lines without spaces around ``=``, read ``1e5`` as 1
    and ignore unknown scenarios. One ``FromConfig`` call with an empty file applies the embedded one, for its seeds.

    Raises:
        EdgeqError: LoadGen refused (code ``loadgen-conf``), or ran in this process before: its second ``FromConfig``
            silently drops the embedded configuration.
    """
    lg = loadgen_module()
    settings = lg.TestSettings()
    user_conf.write_text("", encoding="utf-8")
    status = settings.FromConfig(str(user_conf), CONF_MODEL, SCENARIO_NAMES[plan.scenario], 1)
    if status != 0:
        raise EdgeqError(
            "LoadGen refused its configuration",
            f"FromConfig({user_conf}) returned {status}",
            "check that the folder can be read",
            code="loadgen-conf",
        )
    if 0 in (settings.qsl_rng_seed, settings.sample_index_rng_seed, settings.schedule_rng_seed):
        raise EdgeqError(
            "LoadGen's seeds are zero",
            "it was configured before in this process, and then forgets the round's seeds",
            "start each run in a process of its own",
            code="loadgen-conf",
        )
    settings.scenario = getattr(lg.TestScenario, SCENARIO_NAMES[plan.scenario])
    settings.mode = getattr(lg.TestMode, MODE_NAMES[plan.mode])
    settings.min_duration_ms = round(plan.min_duration_s * 1000)
    settings.max_duration_ms = settings.max_query_count = 0
    settings.min_query_count = plan.min_samples if plan.scenario == "offline" else plan.min_queries
    settings.performance_sample_count_override = plan.resident_samples
    settings.accuracy_log_probability = 0.0
    settings.sample_concatenate_permutation = False
    _apply_scenario(plan, settings)
    return settings


def _apply_scenario(plan: Plan, settings: Any) -> None:
    if plan.scenario == "offline":
        settings.offline_expected_qps = plan.expected_qps
        return
    assert plan.expected_latency_ms is not None
    latency_ns = round(plan.expected_latency_ms * 1e6)
    if plan.scenario == "single-stream":
        settings.single_stream_expected_latency_ns = latency_ns
        settings.single_stream_target_latency_percentile = plan.percentile
    else:
        settings.multi_stream_expected_latency_ns = latency_ns
        settings.multi_stream_target_latency_percentile = plan.percentile
        settings.multi_stream_samples_per_query = plan.samples_per_query


def expected_in_force(plan: Plan) -> dict[str, Any]:
    """What LoadGen's detail log must report as ``effective_*`` for ``plan`` (rules: its test_settings_internal.cc)."""
    rate = plan.expected_qps or 1e3 / (plan.expected_latency_ms or math.inf)
    expected: dict[str, Any] = {
        "scenario": SCENARIO_NAMES[plan.scenario],
        "test_mode": MODE_NAMES[plan.mode],
        "samples_per_query": plan.samples_per_query,
        "target_qps": rate,
        "min_duration_ms": round(plan.min_duration_s * 1000),
        "max_duration_ms": 0,
        "min_query_count": plan.min_queries,
        "max_query_count": 0,
        "min_sample_count": plan.min_samples,
        "performance_sample_count": plan.resident_samples,
        "accuracy_sample_count": plan.total_samples,
        "performance_issue_unique": False,
        "performance_issue_same": False,
        "sample_concatenate_permutation": False,
        "accuracy_log_probability": 0,
    }
    if plan.percentile is not None:
        expected["target_latency_percentile"] = plan.percentile
    return expected


def check_in_force(plan: Plan, settings: dict[str, Any]) -> list[Note]:
    """Compares the settings that LoadGen's log reports with ``plan``; a note ``settings-differ`` for each difference.

    Args:
        plan: What was asked for.
        settings: ``Outcome.settings``, from ``edgeq.loadgen.log.read_outcome``.
    """
    notes = [
        _differs(key, settings.get(key), wanted)
        for key, wanted in expected_in_force(plan).items()
        if not _same(settings.get(key), wanted)
    ]
    seeds = ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed")
    return notes + [_differs(key, settings.get(key), "the round's seed") for key in seeds if not settings.get(key)]


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, (int, float)):
        return math.isclose(found, wanted, rel_tol=1e-5)  # LoadGen prints six digits
    return bool(found == wanted)


def _differs(key: str, found: Any, wanted: Any) -> Note:
    return Note(
        code="settings-differ",
        text=f"LoadGen ran with {key} = {found}, planned was {wanted}",
        hint="do not compare this cell; report it, with its mlperf_log_detail.txt",
    )
