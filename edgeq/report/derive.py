"""What the rows of a frame say of each other: speed-ups, losses, gates and ranks."""

from __future__ import annotations

from typing import Any

from edgeq.report.figures import Estimate, accuracy_drop, from_row, ranks, ratio, row_of
from edgeq.report.gating import Closeness, gate, too_far
from edgeq.report.reasons import explain
from edgeq.spec.names import NULL
from edgeq.spec.note import Note

Row = dict[str, Any]
Place = tuple[Any, ...]

OFFLINE = "offline"


def derive(rows: list[Row]) -> None:
    """Fills in what needs more than one record; ``rows`` are changed in place.

    ``speedup`` is against the same framework's fp32 of the same model, scenario and run; ``top1_drop`` and
    ``size_ratio`` against its artifact; ``rank`` is within model, scenario and run, among the cells that nothing gates
    and that have an interval (``edgeq.report.figures.ranks``). Why a cell is slower than its fp32 is
    ``edgeq.report.reasons``'s to say.
    """
    _share_artifacts(rows)
    _compare_artifacts(rows)
    for row in rows:
        row["precision"] = row["precision"] or row["scheme"]
        over_rounds = row["figure_of"] == "rounds"
        codes = [*row["warnings"].split(), *(["throttled"] if row["slowed_by"] else [])]
        gates = gate(row["status"], codes, row["top1_drop"], row["output_stable"],
                     over_rounds=over_rounds, closeness=_closeness(row))  # fmt: skip
        row["gates"] = " ".join(gates) if row["status"] == "ok" else row["status"]
        _note_disagreement(row)
    fp32 = {_place_of(row): row for row in rows if row["scheme"] == "fp32"}
    for row in rows:
        base = fp32.get(_place_of(row))
        # Nothing may speak against the fp32 figure either.
        if base is not None and not base["gates"] and row["status"] == "ok":
            row |= row_of("speedup", times_as_fast(row, base))
    explain(rows)
    _rank(rows)


def _closeness(row: Row) -> Closeness:
    return Closeness(row["agreement_with_fp32"], row["accuracy_n"], bool(row["checked"]), row["sqnr_db"])


def _note_disagreement(row: Row) -> None:
    """Says in a note why a cell agrees too little with float, where its record does not say so already."""
    codes = row["warnings"].split()
    if "low-agreement" not in row["gates"].split():
        return
    row["disagreement"] = too_far(_closeness(row), codes, row["top1_drop"])
    if "low-agreement" not in codes:
        hint = "measure top-1 with --dataset DIR of labelled images; else export anew with more calibration samples"
        note = Note(code="low-agreement", text=f"agrees too little with float: {row['disagreement']}", hint=hint)
        row["notes"] = [*row["notes"], note]
        row["warnings"] = " ".join([*codes, note.code])


def times_as_fast(row: Row, base: Row) -> Estimate | None:
    """How many times as fast ``row`` is as ``base``, a row of the same scenario; None without figures."""
    new, old = from_row("figure", row), from_row("figure", base)
    if new is None or old is None:
        return None
    if row is base:
        return Estimate(1.0, 1.0, 1.0, new.n, new.of)
    rounds = {"new_rounds": row["rounds"] or {}, "base_rounds": base["rounds"] or {}}
    return ratio(new, old, rate=row["scenario"] == OFFLINE, **rounds)


_ONCE_AN_ARTIFACT: dict[str, tuple[str, ...]] = {
    "accuracy_n": (
        *row_of("top1", None), *row_of("top5", None), *row_of("agreement_with_fp32", None), "accuracy_n", "dataset",
        "excluded_calibration", "bad_images", "accuracy_from",
    ),
    "operators": ("operators",),
    "probe_ok": ("probe_ok", "probe_recipe", "probe_expected", "probe_found"),
}  # fmt: skip
"""What is measured once an artifact → the columns that go with it: scenarios whose own record lacks it share it."""


def _share_artifacts(rows: list[Row]) -> None:
    for name, columns in _ONCE_AN_ARTIFACT.items():
        known = {_artifact_of(row): row for row in rows if row[name] is not None}
        for row in rows:
            other = known.get(_artifact_of(row))
            if other is not None and row[name] is None and row["artifact_key"] is not None:
                row |= {column: other[column] for column in columns}


def _compare_artifacts(rows: list[Row]) -> None:
    floats = [row for row in rows if row["scheme"] == "fp32"]
    told = {_place_of(row)[:-1]: row for row in floats if row["top1"] is not None}
    sized = {_place_of(row)[:-1]: row["size_mb"] for row in floats if row["size_mb"]}
    for row in rows:
        place = _place_of(row)[:-1]
        if row["size_mb"] and place in sized:
            row["size_ratio"] = row["size_mb"] / sized[place]
        base, own = told.get(place), from_row("top1", row)
        if base is None or own is None:
            continue
        other = from_row("top1", base)
        if other is not None and row["scheme"] == "fp32":
            row |= row_of("top1_drop", Estimate(other.value - own.value))
        elif other is not None:
            row |= row_of("top1_drop", accuracy_drop(other, own, row["agreement_with_fp32"]))


def may_be_ranked(row: Row) -> bool:
    """Whether a row has a figure that nothing speaks against; it has a rank if that has an interval, too."""
    return not row["gates"] and row["figure"] is not None and row["backend"] != NULL and not row["emulated"]


def _rank(rows: list[Row]) -> None:
    groups: dict[Place, list[tuple[Row, Estimate]]] = {}
    for row in rows:
        found = from_row("figure", row)
        if may_be_ranked(row) and found is not None and found.low is not None:
            place = row["device"], row["run"], row["model"], row["scenario"]
            groups.setdefault(place, []).append((row, found))
    for (*_, scenario), group in groups.items():
        found_ranks = ranks([found for _, found in group], rate=scenario == OFFLINE)
        for (row, _), rank in zip(group, found_ranks, strict=True):
            row["rank"] = rank


def _place_of(row: Row) -> Place:
    return row["device"], row["run"], row["model"], row["backend"], row["scenario"]


def _artifact_of(row: Row) -> Place:
    return row["device"], row["run"], row["model"], row["backend"], row["scheme"], row["artifact_key"]
