"""Runs → one pandas frame with a row a cell. Every table is made from its columns and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from edgeq.report.gating import gate
from edgeq.report.numbers import precision_label
from edgeq.report.runs import Run
from edgeq.run.record import Record
from edgeq.spec.names import NULL

Row = dict[str, Any]

MISSING, CORRUPT = "not run yet", "corrupt"

#: Percentiles that a record holds.
_PERCENTILES = {0.5: "p50", 0.9: "p90", 0.95: "p95", 0.99: "p99"}


def frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row a cell of each run, with all its figures; absent values are None (columns are of type object).

    Fractions stay fractions, times are milliseconds, sizes 10^6 bytes. Derived: ``figure`` (what the scenario is judged
    by), ``speedup`` (against the same framework's fp32, same model, scenario and run), ``top1_drop``, ``gates`` and
    ``rank`` (within model, scenario and run, among the cells that nothing gates).
    """
    rows = [row for run in runs for row in _rows(run)]
    for row in rows:
        row["notes"] = row.pop("_notes")
    _derive(rows)
    return pd.DataFrame(rows, dtype=object)


def records_of(table: pd.DataFrame) -> list[Row]:
    """The frame's rows as mappings."""
    return [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]


def _rows(run: Run) -> list[Row]:
    found = []
    for cell in run.cells:
        row = {**_place(run), **cell.as_dict()}
        record = run.records.get(cell)
        if record is not None:
            row |= _measured(record)
        elif cell in run.corrupt:
            row |= _nothing(CORRUPT, run.corrupt[cell].text, run.corrupt[cell].hint, run.corrupt[cell].code)
        else:
            row |= _nothing(MISSING, "the run ended before this cell", "run: edgeq run --resume", "not-run-yet")
        found.append({**_EMPTY, **row})
    return found


def _place(run: Run) -> Row:
    device = run.device
    return {
        "device": device["slug"], "device_name": device["name"], "cpu": device.get("cpu"),
        "isa": " ".join(device.get("isa") or []), "cores": device.get("cores"), "ram_mb": device.get("ram_mb"),
        "os": device.get("os"), "kernel": device.get("kernel"), "governor": device.get("governor"),
        "virtualised": device.get("virtualised"), "emulated": run.emulated, "run": run.id,
        "profile": run.profile.get("name"), "profile_title": run.profile.get("title"),
    }  # fmt: skip


def _nothing(status: str, text: str, hint: str, code: str) -> Row:
    return {"status": status, "reason_code": code, "reason": text, "hint": hint}


def _measured(record: Record) -> Row:
    reason = record.reason
    return {
        "profile": record.run.profile, "profile_title": record.run.title, "mlperf_rules": record.run.mlperf_rules,
        "started": record.run.started, "order": record.run.order, "round": record.run.round,
        "status": record.status, "reason_code": reason and reason.code, "reason": reason and reason.text,
        "hint": reason and reason.hint,
        **_artifact(record), **_execution(record), **_speed(record), **_quality(record),
        "warnings": " ".join(dict.fromkeys(note.code for note in record.warnings)), "_notes": record.warnings,
    }  # fmt: skip


def _artifact(record: Record) -> Row:
    artifact = record.artifact
    if artifact is None:
        return {}
    calibration = artifact.calibration
    return {
        "weights_kind": artifact.weights.kind, "weights": artifact.weights.name,
        "weights_sha256": artifact.weights.sha256, "artifact": artifact.file, "artifact_key": artifact.key,
        "target": artifact.target, "size_mb": artifact.bytes / 1e6,
        "calibration": f"{calibration.path or calibration.kind}, {calibration.count} samples, seed {calibration.seed}",
    }  # fmt: skip


def _execution(record: Record) -> Row:
    effective, cell = record.effective, record.cell
    ran = effective is not None and record.status in ("ok", "invalid")
    macs = effective.macs if effective else None
    return {
        "precision": precision_label(cell.scheme, macs, cell.backend) if ran or macs else cell.scheme,
        "macs": json.dumps(macs) if macs else None,
        "engine": effective and effective.engine, "threads": effective and effective.threads,
        "streams": effective and effective.streams, "batch": effective and effective.batch,
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items())),
        "loadgen_version": record.loadgen and record.loadgen.version,
    }  # fmt: skip


def _speed(record: Record) -> Row:
    latency, loadgen, canary, overhead = record.latency_ms, record.loadgen, record.canary, record.overhead_us
    judged = _judged(loadgen.percentile if loadgen else None)
    per_query = record.samples / record.queries if record.samples and record.queries else None
    values = latency.model_dump() if latency else {}
    offline = record.cell.scenario == "offline"
    return {
        "judged": None if offline else judged,
        "figure": record.samples_per_second if offline else _latency_figure(record, values.get(judged)),
        **{f"{name}_ms": value for name, value in values.items()},
        "early_stopping_ms": loadgen and loadgen.early_stopping_ms, "loadgen_valid": loadgen and loadgen.valid,
        "samples_per_second": record.samples_per_second, "queries": record.queries, "samples": record.samples,
        "samples_per_query": per_query, "duration_s": record.duration_s, "load_ms": record.load_ms,
        "first_inference_ms": record.first_inference_ms, "warmup": record.warmup, "peak_rss_mb": record.peak_rss_mb,
        "cpu_s": record.cpu_s, "cpu_per_wall": record.cpu_per_wall,
        "canary_ms_per_sample": canary and canary.ms_per_sample, "canary_estimate_s": canary and canary.estimate_s,
        "overhead_us_per_query": overhead and overhead.per_query,
        "overhead_us_per_sample": overhead and overhead.per_sample,
        "temperature_before_c": _hottest(record.host.before), "temperature_after_c": _hottest(record.host.after),
    }  # fmt: skip


def _latency_figure(record: Record, measured: float | None) -> float | None:
    """The percentile as measured; by MLPerf's rules it is LoadGen's early-stopping estimate of it, an upper bound."""
    estimate = record.loadgen.early_stopping_ms if record.loadgen and record.run.mlperf_rules else None
    return measured if estimate is None else estimate


def _judged(percentile: float | None) -> str:
    """The percentile of the record that LoadGen judged at; where it holds another, the next higher that is there."""
    asked = 0.9 if percentile is None else percentile
    return next((name for value, name in _PERCENTILES.items() if value >= asked - 1e-9), "max")


def _quality(record: Record) -> Row:
    accuracy, check = record.accuracy, record.output_check
    # Random weights have no accuracy: what a run counts with them is chance. Agreement with float still holds.
    told = None if record.artifact and record.artifact.weights.kind == "random" else accuracy
    return {
        "top1": told and told.top1, "top5": told and told.top5,
        "agreement_with_fp32": accuracy and accuracy.agreement_with_fp32, "accuracy_n": accuracy and accuracy.n,
        "dataset": accuracy and accuracy.dataset,
        "excluded_calibration": accuracy and accuracy.excluded_calibration,
        "bad_images": len(accuracy.bad_images) if accuracy else None,
        "checked": check is not None, "sqnr_db": check and check.sqnr_db,
        "output_agreement": check and check.top1_agreement, "output_n": check and check.n,
        "output_stable": check and check.stable,
    }  # fmt: skip


def _hottest(state: dict[str, Any] | None) -> float | None:
    return max(((state or {}).get("temperature_c") or {}).values(), default=None)


def _columns() -> Row:
    names = (
        "device device_name cpu isa cores ram_mb os kernel governor virtualised emulated run profile profile_title "
        "mlperf_rules started order round model backend scheme scenario status reason_code reason hint precision macs "
        "engine threads streams batch weights_kind weights weights_sha256 artifact artifact_key target size_mb "
        "calibration top1 top5 top1_drop agreement_with_fp32 accuracy_n dataset excluded_calibration bad_images "
        "checked sqnr_db output_agreement output_n output_stable figure judged speedup rank gates mean_ms p50_ms "
        "p90_ms p95_ms p99_ms max_ms early_stopping_ms loadgen_valid loadgen_version samples_per_second queries "
        "samples samples_per_query duration_s load_ms first_inference_ms warmup peak_rss_mb cpu_s cpu_per_wall "
        "canary_ms_per_sample canary_estimate_s overhead_us_per_query overhead_us_per_sample temperature_before_c "
        "temperature_after_c versions warnings"
    )
    return dict.fromkeys(names.split())


_EMPTY: Row = {**_columns(), "warnings": "", "_notes": []}


def _derive(rows: list[Row]) -> None:
    _share_accuracy(rows)
    fp32 = _index(rows, lambda row: row["scheme"] == "fp32")
    told = {_place_of(row)[:-1]: row["top1"] for row in rows if row["scheme"] == "fp32" and row["top1"] is not None}
    for row in rows:
        base = told.get(_place_of(row)[:-1])
        row["precision"] = row["precision"] or row["scheme"]
        row["top1_drop"] = None if base is None or row["top1"] is None else base - row["top1"]
        gates = gate(row["status"], row["warnings"].split(), row["top1_drop"], row["output_stable"])
        row["gates"] = " ".join(gates) if row["status"] == "ok" else row["status"]
    for row in rows:
        row["speedup"] = _speedup(row, fp32.get(_place_of(row)))
    _rank(rows)


_ACCURACY = ("top1", "top5", "agreement_with_fp32", "accuracy_n", "dataset", "excluded_calibration", "bad_images")


def _share_accuracy(rows: list[Row]) -> None:
    """The accuracy run is once an artifact: scenarios whose own record lacks it have what another one's says."""
    known = {_artifact_of(row): row for row in rows if row["accuracy_n"] is not None}
    for row in rows:
        other = known.get(_artifact_of(row))
        if other is not None and row["accuracy_n"] is None and row["artifact_key"] is not None:
            row |= {name: other[name] for name in _ACCURACY}


def _artifact_of(row: Row) -> tuple[Any, ...]:
    return row["device"], row["run"], row["model"], row["backend"], row["scheme"], row["artifact_key"]


def _index(rows: list[Row], wanted: Callable[[Row], bool]) -> dict[tuple[Any, ...], Row]:
    return {_place_of(row): row for row in rows if wanted(row)}


def _place_of(row: Row) -> tuple[Any, ...]:
    return row["device"], row["run"], row["model"], row["backend"], row["scenario"]


def _speedup(row: Row, base: Row | None) -> float | None:
    """How many times as fast as fp32; None unless both are ``ok`` and nothing speaks against the fp32 figure."""
    if base is None or base["gates"] or row["status"] != "ok" or not row["figure"] or not base["figure"]:
        return None
    ratio = row["figure"] / base["figure"]
    return float(ratio if row["scenario"] == "offline" else 1 / ratio)


def _rank(rows: list[Row]) -> None:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if not row["gates"] and row["figure"] is not None and row["backend"] != NULL and not row["emulated"]:
            groups.setdefault((row["device"], row["run"], row["model"], row["scenario"]), []).append(row)
    for (*_, scenario), group in groups.items():
        group.sort(key=lambda row: row["figure"], reverse=scenario == "offline")
        for place, row in enumerate(group, start=1):
            row["rank"] = place
