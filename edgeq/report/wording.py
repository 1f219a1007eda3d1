"""Sentences about rows of the frame: the line over a table, a figure with its unit, and the answer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from edgeq.report.derive import OFFLINE, may_be_ranked, times_as_fast
from edgeq.report.numbers import NO_INTERVAL, holds_one, percent, percent_spread, significant, spread, times
from edgeq.run.intervals import BEYOND, FEWEST_BLOCKS, FEWEST_IN_BLOCK, FIGURES

Row = dict[str, Any]

#: After a figure whose threads, streams and batch ``edgeq tune`` found.
TUNED = "†"


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
    """The scenario's figure with its interval and unit: ``4.12 ±0.05 ms at p90``, ``310 ±10 samples/s``."""
    known = row["figure_low"] is not None
    value = spread(row["figure"], row["figure_low"], row["figure_high"]) if known else significant(row["figure"])
    return f"{value} {unit(row['scenario'], row['judged'])}"


def unit(scenario: str, judged: str | None) -> str:
    """``ms at p90``, ``samples/s``."""
    return "samples/s" if scenario == OFFLINE else f"ms at {judged}"


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
        if any(row["setting"] == "tuned" for row in rows):
            parts.append(f"{TUNED} threads, streams and batch by edgeq tune, elsewhere the defaults")
        versions = distinct(part for row in rows for part in (row["versions"] or "").split(", "))
        loadgen = distinct(f"loadgen {row['loadgen_version']}" for row in rows if row["loadgen_version"])
        parts.append(f"versions: {', '.join(sorted(versions) + loadgen) or 'unknown'}")
    return "; ".join(parts)


RANK_LEGEND = (
    "Rank: cells whose interval overlaps that of the best of a rank share the rank; a cell without an interval has none, as "
    "it might belong anywhere."
)

#: Why a cell that nothing speaks against has no rank.
WITHOUT_INTERVAL = "no interval: use --rounds 3"


def interval_legend(rows: Sequence[Row], names: Sequence[str] = ("figure",), lacking: str = "") -> str:
    """How the intervals of the rows' figures (the columns ``names``) were got, and why some have none (``lacking``)."""
    shown = [(row, name) for row in rows for name in names if row["status"] == "ok" and row[name] is not None]
    sources = [(row[f"{name}_of"], row[f"{name}_n"]) for row, name in shown]
    counts = {kind: sorted({n for of, n in sources if of == kind}) for kind in ("rounds", "blocks")}
    parts = []
    if counts["rounds"]:
        parts.append(f"±: 95 % interval over {_to(counts['rounds'])} rounds.")
    if counts["blocks"]:
        head = "For other cells ±" if parts else "±"
        parts.append(f"{head}: 95 % interval within one run, which knows nothing of how runs differ; use --rounds 3.")
    without = [row for row, name in shown if row[f"{name}_of"] is None]
    if without:
        why = lacking or f"{_lacking(without)}), and so no rank"
        parts.append(f"{NO_INTERVAL}: no interval ({why}{')' if lacking else ''}; use --rounds 3.")
    return " ".join(parts)


def _lacking(rows: Sequence[Row]) -> str:
    """Why rows have no interval."""
    if all(row["mlperf_rules"] and row["scenario"] != OFFLINE for row in rows):
        return "one round's early-stopping estimate has none"
    judged = sorted(name for name in distinct(row["judged"] for row in rows) if name in _QUANTILES)
    needs = " and ".join(f"{queries_for_interval(_QUANTILES[name])} at {name}" for name in judged)
    return f"an older record, or too few queries in one round{f': it takes {needs}' if needs else ''}"


_QUANTILES = {name: quantile for name, quantile in FIGURES.items() if quantile is not None}


def queries_for_interval(quantile: float) -> int:
    """The fewest queries of one round that have an interval of a quantile (see ``edgeq.run.intervals.within_run``)."""
    return FEWEST_BLOCKS * max(FEWEST_IN_BLOCK, math.ceil(round(BEYOND / min(quantile, 1 - quantile), 9)))


def speedup_legend(rows: Sequence[Row]) -> str:
    """How the intervals of the rows' speed-ups were got."""
    shown = [row for row in rows if row["scheme"] != "fp32" and row["speedup"] is not None]
    ways = {"rounds": "paired by round", "intervals": "the two intervals at their worst"}
    found = [ways[of] for of in distinct(row["speedup_of"] for row in shown)]
    if not shown:
        return ""
    how = f", with a 95 % interval ({', or '.join(found)})" if found else ""
    equal = any(row["speedup_low"] is not None and holds_one(row["speedup_low"], row["speedup_high"]) for row in shown)
    return f"Against its fp32: times as fast{how}." + (" ~1: no difference was shown." if equal else "")


def peak_legend(rows: Sequence[Row]) -> str:
    """How to read the rows' shares of the machine's peak."""
    shown = [row for row in rows if row["status"] == "ok" and row["peak_share"] is not None]
    if not shown:
        return ""
    return (
        "Of peak: the time that a sample's multiply-adds would take at the highest rate measured on this machine in the "
        f"precision of each ({joined(row['peaks'] for row in shown)}), over the time that it took; what is missing to "
        "100 % went into memory, small layers, other operators, conversions and waiting."
    )


def energy_legend(rows: Sequence[Row]) -> str:
    """How to read the rows' energy a sample."""
    if not any(row["status"] == "ok" and row["joules_per_sample"] is not None for row in rows):
        return ""
    return (
        "J/sample: energy of the CPU's whole packages (RAPL) while queries were answered, over the samples; what they take "
        "when idle is in it, memory and board are not."
    )


def _to(counts: Sequence[int]) -> str:
    return f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


@dataclass(frozen=True)
class Answer:
    """A sentence or two on one scenario; ``sure`` where it names a winner that this run shows to be one."""

    text: str
    sure: bool = False


def answer(scenario: str, rows: Sequence[Row]) -> Answer:
    """The fastest cell that may be ranked, its figure, what it gains and costs; or those that share the first place."""
    found = sorted((row for row in rows if may_be_ranked(row)), key=lambda row: row["figure"],
                   reverse=scenario == OFFLINE)  # fmt: skip
    if not found:
        return Answer(f"{scenario}: no cell can be ranked ({_tally(rows)}).")
    best, unsure = found[0], [row for row in found if row["figure_low"] is None]
    shown = f"{name_of(best)} {{}}, {figure_in_full(best)}"
    if unsure:
        has = "alone can be compared" if len(found) == 1 else "has the best figure"
        whose = "it has no interval" if best in unsure else f"{len(unsure)} of {len(found)} cells have no interval"
        doubt = f"{whose}, so that nothing says how sure this is: use --rounds 3"
        return Answer(f"{scenario}: {shown.format(has)}{_gain(found)}; {doubt}. {_cost(best)}")
    if len(found) == 1:
        return Answer(f"{scenario}: {shown.format('alone can be ranked')}{_gain(found)}. {_cost(best)}")
    first = [row for row in found if row["rank"] == 1]
    if len(first) > 1:
        return Answer(
            f"{scenario}: {_tie(first, found)} {' '.join(f'{name_of(row)}: {_cost(row)}' for row in first[:_NAMED])}"
        )
    return Answer(f"{scenario}: {shown.format('is fastest')}{_gain(found)}. {_cost(best)}", sure=True)


#: So many of those that share the first place are named; a sentence with more is not read.
_NAMED = 3


def _tie(first: Sequence[Row], found: Sequence[Row]) -> str:
    """The best, and whom this run does not show to be slower: each overlaps the best, and not always one another."""
    best, others = first[0], first[1:]
    names = [f"{name_of(row)} ({figure_in_full(row)})" for row in others[: _NAMED - 1]]
    names += [f"{len(first) - _NAMED} more"] if len(first) > _NAMED else []
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    whose = "whose interval overlaps" if len(others) == 1 else "each of whose intervals overlaps"
    gain = _gain(found).removeprefix(", ")
    text = f"{name_of(best)} ({figure_in_full(best)}) can't be told apart by this run from {listed}, {whose} its own."
    # Against one it is tied with, a gain would say the opposite of this.
    tied = _slowest_float(found) in first
    return text if tied or not gain else f"{text} {name_of(best)}: {gain.strip()}."


def _tally(rows: Sequence[Row]) -> str:
    states = [row["gates"] or row["status"] for row in rows]
    return ", ".join(f"{states.count(state)} {state}" for state in distinct(states)) or "none was asked for"


def _gain(ranked: Sequence[Row]) -> str:
    """What the best of ``ranked`` (best first) gains over the slowest framework's fp32."""
    best, slowest = ranked[0], _slowest_float(ranked)
    if slowest is None:
        return " (no fp32 figure to compare with)"
    if slowest is best:
        return ", the only fp32 that can be ranked"
    found = times_as_fast(best, slowest)
    if found is None:
        return ""
    what = f"the slowest framework's fp32 ({slowest['backend']}, {figure(slowest)})"
    if found.low is None:
        return f", {significant(found.value)}x (no interval) as fast as {what}"
    shown = times(found.value, found.low, found.high)
    if holds_one(found.low, found.high):
        return f", not shown to be faster than {what}: {shown}"
    return f", {shown} as fast as {what}"


def _slowest_float(ranked: Sequence[Row]) -> Row | None:
    """The last fp32 of ``ranked`` (best first)."""
    return next((row for row in reversed(ranked) if row["scheme"] == "fp32"), None)


def _cost(best: Row) -> str:
    if best["top1"] is not None:
        shown = percent_spread(best["top1"], best["top1_low"], best["top1_high"])
        counted = f"Top-1 {shown} % of {best['accuracy_n']} images"
        drop = best["top1_drop"]
        if best["scheme"] == "fp32" or drop is None:
            return f"{counted}."
        ends = [best["top1_drop_low"], best["top1_drop_high"]]
        if drop < 0:
            drop, ends = -drop, [None if end is None else -end for end in reversed(ends)]
        side = "below" if best["top1_drop"] >= 0 else "above"
        return f"{counted}, {percent_spread(drop, *ends, difference=True)} points {side} its own fp32."
    agreement, n = best["output_agreement"], best["output_n"]
    agrees = f"; same top-1 as torch fp32 on {percent(agreement)} % of {n} check samples" if best["checked"] else ""
    if best["weights_kind"] == "random":
        return f"The weights are random, so that this says nothing of accuracy{agrees}."
    return f"Accuracy was not measured{agrees}."
