"""Rows of the frame → the study's tables, as text; nothing is computed here that is not a column of the frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from edgeq.report.artifacts import points_below, quality, top1
from edgeq.report.derive import OFFLINE, may_be_ranked
from edgeq.report.footnotes import Footnotes
from edgeq.report.gating import GATE_LEGEND, explain
from edgeq.report.numbers import NOTHING, share, significant, spread, tenth, times, whole
from edgeq.report.table import (
    BROAD,
    FULL,
    MIDDLE,
    WIDE,
    Column,
    Table,
    by_artifact,
    first,
    lay_out,
    order,
    tags,
    whose,
    worst,
)
from edgeq.report.wording import (
    RANK_LEGEND,
    TUNED,
    WITHOUT_INTERVAL,
    context,
    energy_legend,
    figure,
    figure_header,
    interval_legend,
    joined,
    peak_legend,
    speedup_legend,
)
from edgeq.spec.names import SCENARIOS

Row = dict[str, Any]


def summary(rows: Sequence[Row], notes: Footnotes, *, devices: bool) -> Table:
    """One row an artifact: precision, size, top-1, the figure of each scenario with its speed-up, memory, marks."""
    columns = [
        *whose(rows, devices),
        Column("framework", lambda group: group[0]["backend"], True),
        Column("precision", lambda group: joined(row["precision"] for row in _ran(group)), True),
        Column("size MB", first(lambda row: tenth(row["size_mb"])), width=MIDDLE),
    ]
    if any(row["top1"] is not None for row in rows):
        columns.append(replace(top1(rows), width=MIDDLE))
    for scenario in [name for name in SCENARIOS if any(row["scenario"] == name for row in rows)]:
        columns.append(Column(figure_header(scenario, rows), _in(scenario, _figure)))
        columns.append(Column(f"{scenario} against its fp32", _in(scenario, _speedup), width=FULL))
        if any(row["peak_share"] is not None for row in rows):
            columns.append(Column(f"{scenario} of peak", _in(scenario, _of_peak), width=BROAD))
        if any(row["joules_per_sample"] is not None for row in rows):
            columns.append(Column(f"{scenario} J/sample", _in(scenario, _energy), width=BROAD))
    columns += [Column("peak RSS MB", lambda group: whole(worst(group, "peak_rss_mb", max)), width=WIDE),
                Column("notes", lambda group: _marks(group, notes), True)]  # fmt: skip
    legend = [interval_legend(rows), speedup_legend(rows), peak_legend(rows), energy_legend(rows),
              "Peak RSS: of the worker process, one reading a scenario, the largest of them."]  # fmt: skip
    return lay_out("summary", "Summary", context(rows), columns, by_artifact(rows), " ".join(filter(None, legend)))


def _marks(group: list[Row], notes: Footnotes) -> str:
    """Marks of the notes, and which scenarios' figures are not ranked for them."""
    out = [row["scenario"] for row in group if row["status"] == "ok" and row["gates"]]
    whole_row = len(out) == sum(row["status"] == "ok" for row in group)
    refused = "" if not out else "not ranked" if whole_row else f"not ranked in {', '.join(out)}"
    return " ".join(filter(None, [notes.marks(group), refused]))


def _ran(group: list[Row]) -> list[Row]:
    """The rows that say what was computed; all of them where none ran."""
    return [row for row in group if row["macs"]] or group


def _in(scenario: str, shown: Callable[[Row], str]) -> Callable[[list[Row]], str]:
    return lambda group: " / ".join(shown(row) for row in group if row["scenario"] == scenario) or NOTHING


def _figure(row: Row) -> str:
    """The figure with its interval, or the status of a cell without one."""
    if row["status"] != "ok" or row["figure"] is None:
        return str(row["status"])
    figure = spread(row["figure"], row["figure_low"], row["figure_high"])
    return f"{figure} {TUNED}" if row["setting"] == "tuned" else figure


def _speedup(row: Row) -> str:
    if row["scheme"] == "fp32":
        return NOTHING
    return times(row["speedup"], row["speedup_low"], row["speedup_high"])


def _of_peak(row: Row) -> str:
    return NOTHING if row["status"] != "ok" or row["peak_share"] is None else share(row["peak_share"])


def _energy(row: Row) -> str:
    return NOTHING if row["status"] != "ok" else significant(row["joules_per_sample"])


def ranking(scenario: str, rows: Sequence[Row], notes: Footnotes, *, devices: bool) -> Table:
    """All cells of a scenario, the fastest first; those that can't be ranked follow, each with its reason."""
    columns = [
        Column("rank", lambda group: whole(group[0]["rank"])),
        Column("framework", lambda group: group[0]["backend"], True),
        Column("precision", lambda group: group[0]["precision"], True),
        Column(figure_header(scenario, rows), _plain_figure),
        Column("against its fp32", lambda group: _speedup(group[0])),
    ]
    if any(row["peak_share"] is not None for row in rows):
        columns.append(Column("of peak", lambda group: _of_peak(group[0])))
    if any(row["joules_per_sample"] is not None for row in rows):
        columns.append(Column("J/sample", lambda group: _energy(group[0])))
    if any(row["top1"] is not None for row in rows):
        columns.append(top1(rows))
    columns += [Column("why not ranked", lambda group: _why(group[0]), True), Column("notes", notes.marks, True)]
    columns[:0] = whose(rows, devices)
    ordered = [[row] for row in sorted(rows, key=_by_rank)]
    parts = [RANK_LEGEND, interval_legend(rows), speedup_legend(rows), peak_legend(rows), energy_legend(rows),
             GATE_LEGEND]  # fmt: skip
    legend = " ".join(filter(None, parts))
    return lay_out("ranking", f"Ranking, {scenario}", context(rows), columns, ordered, legend)


def _by_rank(row: Row) -> tuple[Any, ...]:
    """By rank, in one rank the better figure first; then those that only lack an interval, by figure; then the others."""
    free = may_be_ranked(row)
    better = 0.0 if not free else -row["figure"] if row["scenario"] == OFFLINE else row["figure"]
    return row["rank"] or 1 << 30, not free, row["status"] != "ok", better, order(row)


def _plain_figure(group: list[Row]) -> str:
    return _figure(group[0]) if group[0]["status"] == "ok" else NOTHING


def _why(row: Row) -> str:
    """Empty where there is a rank; else the status with its code, that there is no interval, or what gates."""
    if row["rank"] is not None:
        return ""
    if may_be_ranked(row):
        return WITHOUT_INTERVAL
    if row["status"] != "ok":
        return f"{row['status']}: {row['reason_code']}" if _tells(row) else str(row["status"])
    lost = f"{points_below(row)} points of top-1" if (row["top1_drop"] or 0) > 0 else ""
    details = {"accuracy-loss": lost, "low-agreement": row["disagreement"], "throttled": row["slowed_by"]}
    return explain(row["gates"].split(), {code: text or "" for code, text in details.items()})


def not_measured(rows: Sequence[Row]) -> Table:
    """Every cell without a valid figure, with its reason; scenarios that share one share a row."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in sorted(rows, key=order):
        if row["status"] != "ok":
            groups.setdefault((row["backend"], row["scheme"], row["status"], _reason(row), row["hint"]), []).append(row)
    columns = [
        Column("framework", lambda group: group[0]["backend"], True),
        Column("scheme", lambda group: group[0]["scheme"], True),
        Column("scenario", lambda group: ", ".join(row["scenario"] for row in group), True),
        Column("status", lambda group: group[0]["status"], True),
        Column("why", lambda group: _reason(group[0]), True),
        Column("what to do", lambda group: group[0]["hint"] or NOTHING, True),
    ]
    return lay_out("not-measured", "Cells without a figure", context(rows, full=False), columns, list(groups.values()))


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
        tags=[{**tags(found), "warnings": note.code} for _, note, _, found in entries], text=frozenset(range(5)),
    )  # fmt: skip


def overhead(rows: Sequence[Row]) -> Table:
    """LoadGen and edgeq with no model behind them: what is part of every other figure."""
    columns = [
        Column("scenario", lambda group: group[0]["scenario"], True),
        Column("status", lambda group: group[0]["status"], True),
        Column("µs a query (LoadGen's median latency)", _spread("overhead_us_per_query")),
        Column("µs a sample (time of the run)", _spread("overhead_us_per_sample")),
        Column("queries", lambda group: whole(group[0]["queries"])),
        Column("why", lambda group: _reason(group[0]) if group[0]["status"] != "ok" else "", True),
    ]
    ordered = sorted(rows, key=order)
    groups = [[row] for row in ordered]
    legend = (
        "A query: the latency that LoadGen itself measured, from issuing it to its answer. A sample: the run's wall time "
        "over its samples, with what LoadGen does between queries. Offline has one query, the run itself: no figure a query."
    )
    names = ("overhead_us_per_query", "overhead_us_per_sample")
    how = interval_legend(rows, names, lacking="one round has one time of the run, or its record is an older one")
    return lay_out("overhead", "Harness overhead", context(rows), columns, groups, f"{legend} {how}".strip())


def _spread(name: str) -> Callable[[list[Row]], str]:
    return lambda group: spread(*(group[0][f"{name}{end}"] for end in ("", "_low", "_high")))


def emulated(rows: Sequence[Row]) -> Table:
    """Cells of emulated devices: what can be said of their output. Their times and memory mean nothing."""
    columns = [
        Column("device", lambda group: group[0]["device_name"], True),
        Column("model", lambda group: group[0]["model"], True),
        Column("framework", lambda group: group[0]["backend"], True),
        Column("precision", lambda group: joined(row["precision"] for row in _ran(group)), True),
        Column(
            "scenario: status", lambda group: ", ".join(f"{row['scenario']}: {row['status']}" for row in group), True
        ),
        *quality(rows),
        Column("why", lambda group: joined(_reason(row) for row in group if row["status"] != "ok"), True),
    ]
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=order):
        groups.setdefault((row["device"], row["run"], row["model"], row["backend"], row["scheme"]), []).append(row)
    return lay_out("emulated", "Emulated devices", context(rows), columns, list(groups.values()))
