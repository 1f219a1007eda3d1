"""Runs → one pandas frame with a row a cell. Every table is made from its columns and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pandas as pd

from edgeq.operators import GROUPS
from edgeq.report import efficiency
from edgeq.report.derive import derive
from edgeq.report.figures import by_round, figure, judged, overhead, proportion, row_of
from edgeq.report.numbers import counted, precision_label
from edgeq.report.runs import Run
from edgeq.run.record import Record

Row = dict[str, Any]

MISSING, CORRUPT = "not run yet", "corrupt"

#: Columns that hold objects and not figures: for the tables, and in no file.
OBJECTS = ("notes", "rounds", "macs_by", "float_ops_by", "operators")


def frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row a cell of each run, with all its figures; absent values are None (columns are of type object).

    Fractions stay fractions, times are milliseconds, sizes 10^6 bytes. ``figure`` is what the scenario is judged by;
    it, ``top1``, ``agreement_with_fp32`` and what ``edgeq.report.derive`` adds come with ``_low``, ``_high``, ``_n``
    and ``_of``: their 95 % interval, and what it was drawn from. ``OBJECTS`` are not for files.
    """
    return frame_of(rows_of(runs))


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """The rows of ``frame``, as mappings."""
    rows = [row for run in runs for row in _rows(run)]
    derive(rows)
    return rows


def frame_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Rows of ``rows_of`` as a frame."""
    return pd.DataFrame(rows, dtype=object)


def plain(table: pd.DataFrame) -> pd.DataFrame:
    """The frame without ``OBJECTS``: what goes into files."""
    return table.drop(columns=list(OBJECTS))


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
    notes = [*record.warnings, *efficiency.notes(record)]
    return {
        "profile": record.run.profile, "profile_title": record.run.title, "mlperf_rules": record.run.mlperf_rules,
        "started": record.run.started, "order": record.run.order, "round": record.run.round,
        "status": record.status, "reason_code": reason and reason.code, "reason": reason and reason.text,
        "hint": reason and reason.hint,
        **_artifact(record), **_execution(record), **_speed(record), **_quality(record), **_proof(record),
        **efficiency.columns(record),
        "warnings": " ".join(dict.fromkeys(note.code for note in notes)), "notes": notes,
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
        "macs": json.dumps(macs) if macs else None, "macs_by": macs or None,
        "int8_macs": macs.get("int8", 0.0) if macs else None,
        "float_ops": counted(effective.float_ops, most=99) if effective else None,
        "float_ops_by": effective.float_ops if effective else None,
        "engine": effective and effective.engine, "threads": effective and effective.threads,
        "streams": effective and effective.streams, "batch": effective and effective.batch,
        "setting": record.requested and record.requested.setting,
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(record.versions.items())),
        "loadgen_version": record.loadgen and record.loadgen.version,
    }  # fmt: skip


def _speed(record: Record) -> Row:
    latency, loadgen, canary = record.latency_ms, record.loadgen, record.canary
    size = record.samples / record.queries if record.samples and record.queries else None
    per_query, per_sample = overhead(record)
    values = latency.model_dump() if latency else {}
    return {
        "judged": judged(record), **row_of("figure", figure(record)), "rounds": by_round(record),
        "rounds_ok": sum(each.status == "ok" for each in record.rounds) if record.rounds else None,
        "rounds_run": len(record.rounds) or None,
        **{f"{name}_ms": value for name, value in values.items()},
        "early_stopping_ms": loadgen and loadgen.early_stopping_ms, "loadgen_valid": loadgen and loadgen.valid,
        "samples_per_second": record.samples_per_second, "queries": record.queries, "samples": record.samples,
        "samples_per_query": size, "duration_s": record.duration_s, "load_ms": record.load_ms,
        "first_inference_ms": record.first_inference_ms, "warmup": record.warmup, "peak_rss_mb": record.peak_rss_mb,
        "cpu_s": record.cpu_s, "cpu_per_wall": record.cpu_per_wall,
        "canary_ms_per_sample": canary and canary.ms_per_sample, "canary_estimate_s": canary and canary.estimate_s,
        **row_of("overhead_us_per_query", per_query), **row_of("overhead_us_per_sample", per_sample),
        **_host(record),
    }  # fmt: skip


def _host(record: Record) -> Row:
    """What the device did; the hottest of its sensors, whichever that is."""
    host, during = record.host, record.host.during
    clocks = during and during.frequency_mhz
    return {
        "temperature_before_c": _hottest(host.before), "temperature_after_c": _hottest(host.after),
        "temperature_max_c": max((each.max for each in ((during and during.temperature_c) or {}).values()), default=None),
        "frequency_min_mhz": clocks and clocks.min, "frequency_median_mhz": clocks and clocks.median,
        "frequency_max_mhz": clocks and clocks.max, "slowed_by": ", ".join(host.slowed_by) or None,
        "available_min_mb": during and during.available_mb, "swap_max_mb": during and during.swap_mb,
        "watts": during and during.watts, "joules_per_sample": during and during.joules_per_sample,
    }  # fmt: skip


def _quality(record: Record) -> Row:
    accuracy, check = record.accuracy, record.output_check
    # Random weights have no accuracy: what a run counts with them is chance. Agreement with float still holds.
    told = None if record.artifact and record.artifact.weights.kind == "random" else accuracy
    agreed = accuracy.agreement_with_fp32 if accuracy else None
    return {
        **row_of("top1", proportion(told.top1, told.n) if told else None),
        **row_of("top5", proportion(told.top5, told.n) if told else None),
        **row_of("agreement_with_fp32", None if agreed is None or not accuracy else proportion(agreed, accuracy.n)),
        "accuracy_n": accuracy and accuracy.n,
        "dataset": accuracy and accuracy.dataset,
        "excluded_calibration": accuracy and accuracy.excluded_calibration,
        "bad_images": len(accuracy.bad_images) if accuracy else None,
        "accuracy_from": accuracy and accuracy.kept_from,
        "checked": check is not None, "sqnr_db": check and check.sqnr_db,
        "output_agreement": check and check.top1_agreement, "output_n": check and check.n,
        "output_stable": check and check.stable,
    }  # fmt: skip


def _hottest(state: dict[str, Any] | None) -> float | None:
    return max(((state or {}).get("temperature_c") or {}).values(), default=None)


def _proof(record: Record) -> Row:
    """The saturation probe, and where the time goes."""
    probe, profile = record.probe, record.profile
    return {
        "probe_ok": probe and probe.ok, "probe_recipe": probe and probe.recipe,
        "probe_expected": probe and probe.expected, "probe_found": probe and probe.found, "operators": profile,
    }  # fmt: skip


def _spread(name: str) -> str:
    return " ".join(row_of(name, None))


_COLUMNS = (
    "device device_name cpu isa cores ram_mb os kernel governor virtualised emulated run profile profile_title "
    "mlperf_rules started order round rounds_run rounds_ok model backend scheme scenario status reason_code reason "
    f"hint precision int8_macs macs float_ops {_spread('figure')} judged {_spread('speedup')} rank gates disagreement "
    "engine threads streams batch setting weights_kind weights weights_sha256 artifact artifact_key target size_mb "
    f"size_ratio calibration {_spread('top1')} {_spread('top5')} {_spread('top1_drop')} {_spread('agreement_with_fp32')} "
    "accuracy_n dataset excluded_calibration bad_images accuracy_from checked sqnr_db "
    "output_agreement output_n output_stable "
    "probe_ok probe_recipe probe_expected probe_found mean_ms p50_ms "
    "p90_ms p95_ms p99_ms max_ms early_stopping_ms loadgen_valid loadgen_version samples_per_second queries "
    "samples samples_per_query duration_s load_ms first_inference_ms warmup peak_rss_mb cpu_s cpu_per_wall "
    "canary_ms_per_sample canary_estimate_s macs_per_sample macs_per_second peak_share peak_library peaks "
    f"{_spread('overhead_us_per_query')} {_spread('overhead_us_per_sample')} temperature_before_c "
    "temperature_after_c temperature_max_c frequency_min_mhz frequency_median_mhz frequency_max_mhz slowed_by "
    "available_min_mb swap_max_mb watts joules_per_sample profiled_ms plain_ms profile_tool profile_inferences "
    + " ".join(f"ms_{group.replace(' ', '_')}" for group in GROUPS)
    + " verdict versions warnings"
)

_EMPTY: Row = {**dict.fromkeys(_COLUMNS.split()), **dict.fromkeys(OBJECTS), "warnings": "", "notes": []}
