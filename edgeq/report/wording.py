"""Sentences about rows of the frame: the line over a table, a figure with its unit, and the answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgeq.report.numbers import percent, significant, times

Row = dict[str, Any]

OFFLINE = "offline"


def distinct(values: Iterable[Any]) -> list[Any]:
    """The different values that are there, in the order of their first appearance."""
    return list(dict.fromkeys(value for value in values if value not in (None, "")))


def joined(values: Iterable[Any]) -> str:
    """The different values that are there, separated by `` / ``."""
    return " / ".join(str(value) for value in distinct(values))


def name_of(row: Row) -> str:
    """``openvino int8-static``."""
    return f"{row['backend']} {row['scheme']}"


def figure(row: Row) -> str:
    """The scenario's figure with its unit: ``4.12 ms at p90``, ``310 samples/s``."""
    value = significant(row["figure"])
    return f"{value} samples/s" if row["scenario"] == OFFLINE else f"{value} ms at {row['judged']}"


def figure_in_full(row: Row) -> str:
    """As ``figure``, and says what a query is where it is not one sample: ``20.8 ms at p90 a query of 8 samples``."""
    count = significant_count(row["samples_per_query"]) if row["scenario"] == "multi-stream" else ""
    return figure(row) + (f" a query of {count} samples" if count else "")


def figure_header(scenario: str, rows: Sequence[Row]) -> str:
    """Header of a column of figures: ``multi-stream p99 ms (8 samples a query)``."""
    if scenario == OFFLINE:
        return "offline samples/s"
    ran = [row for row in rows if row["scenario"] == scenario and row["figure"] is not None]
    sizes = distinct(significant_count(row["samples_per_query"]) for row in ran if row["scenario"] == "multi-stream")
    judged = joined(row["judged"] for row in ran)
    return " ".join(
        [*filter(None, [scenario, judged]), "ms", *([f"({joined(sizes)} samples a query)"] if sizes else [])]
    )


def significant_count(value: float | None) -> str:
    """A count of samples: whole where it is whole."""
    return "" if value is None else f"{value:g}"


def weights_line(rows: Sequence[Row]) -> str:
    """Which weights, and what that means for accuracy."""
    found = distinct((row["weights_kind"], row["weights"]) for row in rows if row["weights"])
    if not found:
        return "unknown (no artifact ran)"
    return " / ".join(
        f"{name} (accuracy means nothing; speed and size are real)" if kind == "random" else f"{name}"
        for kind, name in found
    )


def context(rows: Sequence[Row], *, full: bool = True) -> str:
    """The line over a table: device, weights, profile, run, dates and versions."""
    days = sorted({row["started"][:16].replace("T", " ") for row in rows if row["started"]})
    dates = f", {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "") if days else ""
    parts = [f"device: {joined(row['device_name'] for row in rows)}"]
    if any(row["model"] != "none" for row in rows):
        parts.append(f"weights: {weights_line(rows)}")
    profiles = distinct((row["profile"], row["profile_title"]) for row in rows if row["profile"])
    parts.append("profile: " + (" / ".join(title or name for name, title in profiles) or "unknown"))
    parts.append(f"run: {joined(row['run'] for row in rows)}{dates if full else ''}")
    if full:
        parts.append(f"threads: {joined(row['threads'] for row in rows) or 'unknown'}")
        versions = distinct(part for row in rows for part in (row["versions"] or "").split(", "))
        loadgen = distinct(f"loadgen {row['loadgen_version']}" for row in rows if row["loadgen_version"])
        parts.append(f"versions: {', '.join(sorted(versions) + loadgen) or 'unknown'}")
    return "; ".join(parts)


def answer(scenario: str, rows: Sequence[Row]) -> str:
    """One sentence or two: the fastest cell that may be ranked, its figure, what it gains, and what it costs."""
    best = next((row for row in rows if row["rank"] == 1), None)
    if best is None:
        return f"{scenario}: no cell can be ranked ({_tally(rows)})."
    gain = _gain(best, rows)
    return f"{scenario}: {name_of(best)} is fastest, {figure_in_full(best)}{gain}. {_cost(best)}"


def _tally(rows: Sequence[Row]) -> str:
    states = [row["gates"] or row["status"] for row in rows]
    return ", ".join(f"{states.count(state)} {state}" for state in distinct(states)) or "none was asked for"


def _gain(best: Row, rows: Sequence[Row]) -> str:
    floats = [row for row in rows if row["scheme"] == "fp32" and row["rank"] is not None]
    if not floats:
        return " (no fp32 figure to compare with)"
    slowest = max(floats, key=lambda row: row["rank"])
    if slowest is best:
        return ", the only fp32 that can be ranked" if len(floats) == 1 else ""
    ratio = best["figure"] / slowest["figure"]
    faster = times(ratio if best["scenario"] == OFFLINE else 1 / ratio)
    return f", {faster} as fast as the slowest framework's fp32 ({slowest['backend']}, {figure(slowest)})"


def _cost(best: Row) -> str:
    if best["top1"] is not None:
        counted = f"Top-1 {percent(best['top1'])} % of {best['accuracy_n']} images"
        drop = best["top1_drop"]
        if best["scheme"] == "fp32" or drop is None:
            return f"{counted}."
        side = "below" if drop >= 0 else "above"
        return f"{counted}, {abs(100 * drop):.1f} points {side} its own fp32."
    agreement, n = best["output_agreement"], best["output_n"]
    agrees = f"; same top-1 as torch fp32 on {percent(agreement)} % of {n} check samples" if best["checked"] else ""
    if best["weights_kind"] == "random":
        return f"The weights are random, so that this says nothing of accuracy{agrees}."
    return f"Accuracy was not measured{agrees}."
