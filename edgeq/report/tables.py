"""Rows of the frame → the study's tables, as text; nothing is computed here that is not a column of the frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgeq.report.footnotes import Footnotes
from edgeq.report.gating import explain
from edgeq.report.numbers import NOTHING, percent, significant, tenth, times, whole
from edgeq.report.wording import context, distinct, figure, figure_header, joined, name_of
from edgeq.spec.names import BACKENDS, SCENARIOS, SCHEMES

Row = dict[str, Any]

#: Terminals in characters: what a summary without, and one with all the figures of quality needs.
_MIDDLE, _WIDE = 120, 160

_TAGS = ("device", "run", "weights", "profile", "warnings")


@dataclass(frozen=True)
class Table:
    """One table, ready to be written in any format."""

    kind: str
    """``summary``, ``ranking``, ``not-measured``, ``notes``, ``overhead`` or ``emulated``: the stem of its CSV file."""
    title: str
    context: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    tags: list[dict[str, str]]
    """For each row: device, run, weights, profile and codes of the warnings that bear on it."""
    legend: str = ""
    text: frozenset[int] = field(default_factory=frozenset)
    """Columns of words (left-aligned); the others hold figures."""
    widths: tuple[int, ...] = ()
    """For each column, the width of terminal from which on it is shown there; empty where all always are."""


@dataclass(frozen=True)
class _Column:
    header: str
    value: Callable[[list[Row]], str]
    words: bool = False
    width: int = 0


def by_artifact(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows grouped by backend and scheme, in the contract's order, each group by scenario."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=_order):
        groups.setdefault((row["backend"], row["scheme"]), []).append(row)
    return list(groups.values())


def summary(rows: Sequence[Row], notes: Footnotes, *, devices: bool) -> Table:
    """One row an artifact: precision, size, quality, the figure of each scenario with its speed-up, memory, marks."""
    columns = [_Column("framework", lambda group: group[0]["backend"], True),
               _Column("precision", lambda group: joined(row["precision"] for row in _ran(group)), True),
               _Column("size MB", lambda group: joined(tenth(row["size_mb"]) for row in group
                                                       if row["size_mb"]))]  # fmt: skip
    columns[:0] = _whose(rows, devices)
    columns += _quality(rows)
    for scenario in [name for name in SCENARIOS if any(row["scenario"] == name for row in rows)]:
        columns.append(_Column(figure_header(scenario, rows), _figure_of(scenario)))
    columns += [_Column("peak RSS MB", lambda group: whole(_worst(group, "peak_rss_mb", max)), width=_MIDDLE),
                _Column("notes", lambda group: _marks(group, notes), True)]  # fmt: skip
    return _table("summary", "Summary", context(rows), columns, by_artifact(rows), _legend(rows))


def _marks(group: list[Row], notes: Footnotes) -> str:
    """Marks of the notes, and which scenarios' figures are not ranked for them."""
    out = [row["scenario"] for row in group if row["status"] == "ok" and row["gates"]]
    whole_row = len(out) == sum(row["status"] == "ok" for row in group)
    refused = "" if not out else "not ranked" if whole_row else f"not ranked in {', '.join(out)}"
    return " ".join(filter(None, [notes.marks(group), refused]))


def _legend(rows: Sequence[Row]) -> str:
    parts = ["In brackets: times as fast as the same framework's fp32."]
    if any(row["checked"] for row in rows):
        parts.append("Output check: logits against torch's float32 on this device, the worst of the scenarios.")
    judged = [row for row in rows if row["accuracy_n"] is not None]
    if judged:
        used, bad = (joined(row[name] for row in judged) for name in ("excluded_calibration", "bad_images"))
        parts.append(
            f"Accuracy: on the images of {joined(row['dataset'] for row in judged)} alone; {used} of them left out "
            f"because they served for calibration, {bad} because they can't be read."
        )
    parts.append("Peak RSS: of the worker process, the largest of the scenarios.")
    return " ".join(parts)


def _quality(rows: Sequence[Row]) -> list[_Column]:
    columns: list[_Column] = []
    if any(row["top1"] is not None for row in rows):
        counts = joined(row["accuracy_n"] for row in rows if row["top1"] is not None)
        columns += [_Column(f"top-1 % (n = {counts})", _first("top1", percent)),
                    _Column("top-5 %", _first("top5", percent), width=_WIDE)]  # fmt: skip
    if any(row["agreement_with_fp32"] is not None for row in rows):
        columns.append(_Column("same top-1 as its fp32 %", _first("agreement_with_fp32", percent), width=_WIDE))
    if any(row["checked"] for row in rows):
        counts = joined(row["output_n"] for row in rows)
        columns += [_Column("output check, SQNR dB", _sqnr, width=_MIDDLE),
                    _Column(f"output check, same top-1 % (n = {counts})", _worst_percent, width=_WIDE)]  # fmt: skip
    return columns


def _first(name: str, shown: Callable[[float | None], str]) -> Callable[[list[Row]], str]:
    """An artifact's scenarios share its accuracy run; figures that differ all the same are all shown."""
    return lambda group: joined(shown(row[name]) for row in group if row[name] is not None) or NOTHING


def _sqnr(group: list[Row]) -> str:
    checked = [row["sqnr_db"] for row in group if row["checked"]]
    finite = [value for value in checked if value is not None]
    return tenth(min(finite)) if finite else "exact" if checked else NOTHING


def _worst_percent(group: list[Row]) -> str:
    return percent(_worst(group, "output_agreement", min))


def _worst(group: list[Row], name: str, choose: Callable[..., Any]) -> float | None:
    values = [row[name] for row in group if row[name] is not None]
    return float(choose(values)) if values else None


def _ran(group: list[Row]) -> list[Row]:
    """The rows that say what was computed; all of them where none ran."""
    return [row for row in group if row["macs"]] or group


def _figure_of(scenario: str) -> Callable[[list[Row]], str]:
    def value(group: list[Row]) -> str:
        return " / ".join(_figure(row) for row in group if row["scenario"] == scenario) or NOTHING

    return value


def _figure(row: Row) -> str:
    if row["status"] != "ok" or row["figure"] is None:
        return str(row["status"])
    speedup = f" ({times(row['speedup'])})" if row["speedup"] is not None and row["scheme"] != "fp32" else ""
    return significant(row["figure"]) + speedup


def ranking(scenario: str, rows: Sequence[Row], notes: Footnotes, *, devices: bool) -> Table:
    """All cells of a scenario, the fastest first; those that can't be ranked follow, each with its reason."""
    columns = [
        _Column("rank", lambda group: whole(group[0]["rank"])),
        _Column("framework", lambda group: group[0]["backend"], True),
        _Column("precision", lambda group: group[0]["precision"], True),
        _Column(figure_header(scenario, rows), _plain_figure),
        _Column("against its fp32", lambda group: times(group[0]["speedup"])),
    ]
    if any(row["top1"] is not None for row in rows):
        columns.append(_Column("top-1 %", _first("top1", percent)))
    columns += [_Column("why not ranked", lambda group: _why(group[0]), True), _Column("notes", notes.marks, True)]
    columns[:0] = _whose(rows, devices)
    ordered = sorted(rows, key=lambda row: (row["rank"] or 1 << 30, row["status"] != "ok", _order(row)))
    return _table("ranking", f"Ranking, {scenario}", context(rows), columns, [[row] for row in ordered])


def _whose(rows: Sequence[Row], devices: bool) -> list[_Column]:
    """Columns for what differs: the device where a report holds several, the weights where these rows do."""
    columns = [_Column("device", lambda group: joined(row["device_name"] for row in group), True)] if devices else []
    if len(distinct(row["weights_sha256"] for row in rows)) > 1:
        columns.append(_Column("weights", lambda group: joined(row["weights"] for row in group), True))
    return columns


def _plain_figure(group: list[Row]) -> str:
    return significant(group[0]["figure"]) if group[0]["status"] == "ok" else NOTHING


def _why(row: Row) -> str:
    """Empty where there is a rank; else the status with its code, or the warnings that gate."""
    if row["rank"] is not None:
        return ""
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason_code']}" if _tells(row) else str(row["status"])
    lost = f" ({100 * row['top1_drop']:.1f} points of top-1)" if (row["top1_drop"] or 0) > 0 else ""
    return explain(row["gates"].split()) + (lost if "accuracy-loss" in row["gates"] else "")


def not_measured(rows: Sequence[Row]) -> Table:
    """Every cell without a valid figure, with its reason; scenarios that share one share a row."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=_order):
        if row["status"] != "ok":
            groups.setdefault((row["backend"], row["scheme"], row["status"], _reason(row), row["hint"]), []).append(row)
    columns = [
        _Column("framework", lambda group: group[0]["backend"], True),
        _Column("scheme", lambda group: group[0]["scheme"], True),
        _Column("scenario", lambda group: ", ".join(row["scenario"] for row in group), True),
        _Column("status", lambda group: group[0]["status"], True),
        _Column("why", lambda group: _reason(group[0]), True),
        _Column("what to do", lambda group: group[0]["hint"] or NOTHING, True),
    ]
    return _table("not-measured", "Cells without a figure", context(rows, full=False), columns, list(groups.values()))


def _reason(row: Row) -> str:
    text = row["reason"] or "no reason was recorded"
    measured = f" (measured, but not valid: {figure(row)})" if row["status"] == "invalid" and row["figure"] else ""
    return (f"{row['reason_code']}: " if _tells(row) else "") + text + measured


def _tells(row: Row) -> bool:
    """Whether the reason's code says more than the status does."""
    return row["reason_code"] not in (None, row["status"], "not-run-yet")


def notes_table(rows: Sequence[Row], notes: Footnotes) -> Table:
    """Every warning: its mark, what it says, the rows it bears on, and what to do about it."""
    entries = notes.entries()
    cells = [(mark, note.code, note.text, where, note.hint or NOTHING) for mark, note, where, _ in entries]
    return Table(
        kind="notes", title="Notes", context=context(rows, full=False),
        header=("note", "code", "what", "bears on", "what to do"), rows=cells,
        tags=[{**_tags(found), "warnings": note.code} for _, note, _, found in entries], text=frozenset(range(5)),
    )  # fmt: skip


def overhead(rows: Sequence[Row]) -> Table:
    """LoadGen and edgeq with no model behind them: what is part of every other figure."""
    columns = [
        _Column("scenario", lambda group: group[0]["scenario"], True),
        _Column("status", lambda group: group[0]["status"], True),
        _Column("µs a query", lambda group: significant(group[0]["overhead_us_per_query"])),
        _Column("µs a sample", lambda group: significant(group[0]["overhead_us_per_sample"])),
        _Column("queries", lambda group: whole(group[0]["queries"])),
        _Column("why", lambda group: _reason(group[0]) if group[0]["status"] != "ok" else "", True),
    ]
    ordered = sorted(rows, key=_order)
    return _table("overhead", "Harness overhead", context(rows), columns, [[row] for row in ordered])


def emulated(rows: Sequence[Row]) -> Table:
    """Cells of emulated devices: what can be said of their output. Their times and memory mean nothing."""
    columns = [
        _Column("device", lambda group: group[0]["device_name"], True),
        _Column("model", lambda group: group[0]["model"], True),
        _Column("framework", lambda group: group[0]["backend"], True),
        _Column("precision", lambda group: joined(row["precision"] for row in _ran(group)), True),
        _Column(
            "scenario: status", lambda group: ", ".join(f"{row['scenario']}: {row['status']}" for row in group), True
        ),
        *_quality(rows),
        _Column("why", lambda group: joined(_reason(row) for row in group if row["status"] != "ok"), True),
    ]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=_order):
        groups.setdefault((row["device"], row["run"], row["model"], row["backend"], row["scheme"]), []).append(row)
    return _table("emulated", "Emulated devices", context(rows), columns, list(groups.values()))


def _order(row: Row) -> tuple[int, int, int]:
    backend = BACKENDS.index(row["backend"]) if row["backend"] in BACKENDS else len(BACKENDS)
    scheme = SCHEMES.index(row["scheme"]) if row["scheme"] in SCHEMES else len(SCHEMES)
    return backend, scheme, SCENARIOS.index(row["scenario"])


def _table(kind: str, title: str, line: str, columns: Sequence[_Column], groups: Sequence[list[Row]],
           legend: str = "") -> Table:  # fmt: skip
    rows = [tuple(column.value(group) or ("" if column.words else NOTHING) for column in columns) for group in groups]
    return Table(
        kind=kind, title=title, context=line, header=tuple(column.header for column in columns), rows=rows,
        tags=[_tags(group) for group in groups], legend=legend,
        text=frozenset(index for index, column in enumerate(columns) if column.words),
        widths=tuple(column.width for column in columns),
    )  # fmt: skip


def _tags(group: Sequence[Row]) -> dict[str, str]:
    """Warnings of all rows of a group, and what they share."""
    codes = distinct(code for row in group for code in row["warnings"].split())
    shared = {name: joined(row[name] for row in group) for name in _TAGS}
    return {**shared, "cells": ", ".join(f"{name_of(row)} {row['scenario']}" for row in group),
            "warnings": " ".join(codes)}  # fmt: skip
