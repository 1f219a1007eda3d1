"""What the rows of a frame say of each other: speed-ups, losses, ranks, and why a cell is slower than its fp32."""

from __future__ import annotations

from typing import Any

from edgeq.operators import OperatorProfile
from edgeq.report.figures import Estimate, accuracy_drop, from_row, ranks, ratio, row_of
from edgeq.report.gating import gate
from edgeq.report.numbers import holds_one
from edgeq.spec.names import NULL, Cell
from edgeq.spec.note import Note
from edgeq.verdict import slower, slower_note, verdict

Row = dict[str, Any]
Place = tuple[Any, ...]

OFFLINE = "offline"


def derive(rows: list[Row]) -> None:
    """Fills in what needs more than one record; ``rows`` are changed in place.

    ``speedup`` is against the same framework's fp32 of the same model, scenario and run; ``top1_drop`` and
    ``size_ratio`` against its artifact; ``rank`` is within model, scenario and run, among the cells that nothing gates
    (``edgeq.report.figures.ranks``). A cell that is surely slower than its fp32 gets a note which says why.
    """
    _share_artifacts(rows)
    _compare_artifacts(rows)
    for row in rows:
        row["precision"] = row["precision"] or row["scheme"]
        over_rounds = row["figure_of"] == "rounds"
        gates = gate(row["status"], row["warnings"].split(), row["top1_drop"], row["output_stable"],
                     over_rounds=over_rounds)  # fmt: skip
        row["gates"] = " ".join(gates) if row["status"] == "ok" else row["status"]
    fp32 = {_place_of(row): row for row in rows if row["scheme"] == "fp32"}
    for row in rows:
        base = fp32.get(_place_of(row))
        # Nothing may speak against the fp32 figure either.
        if base is not None and not base["gates"] and row["status"] == "ok":
            row |= row_of("speedup", times_as_fast(row, base))
    _explain(rows)
    _rank(rows)


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
        "excluded_calibration", "bad_images",
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


def _explain(rows: list[Row]) -> None:
    """The verdict of each artifact with a profile, and the note of each cell that is slower than its fp32."""
    floats = {_place_of(row)[:-1]: row for row in rows if row["scheme"] == "fp32" and row["operators"] is not None}
    verdicts: dict[Place, str] = {}
    named: dict[Place, Cell] = {}
    for row in rows:
        key, profile = _artifact_of(row), row["operators"]
        base = floats.get(_place_of(row)[:-1])
        if profile is not None:
            if key not in verdicts:
                verdicts[key] = _verdict(row, profile, base)
            row |= _profile(profile) | {"verdict": verdicts[key]}
        if row["speedup"] and row["speedup"] < 1 and not holds_one(*_ends(row)) and not row["emulated"]:
            note = _slower(row, named.setdefault(key, _cell_of(row)), base)
            row["notes"] = [*row["notes"], note]
            row["warnings"] = f"{row['warnings']} {note.code}".strip()


def _ends(row: Row) -> tuple[float | None, float | None]:
    return row["speedup_low"], row["speedup_high"]


def _verdict(row: Row, profile: OperatorProfile, base: Row | None) -> str:
    own = row["scheme"] == "fp32"
    isa = frozenset((row["isa"] or "").split())
    return verdict(profile, None if base is None or own else base["operators"], backend=row["backend"],
                   scheme=row["scheme"], macs=row["macs_by"], isa=isa)  # fmt: skip


def _profile(profile: OperatorProfile) -> Row:
    groups = {f"ms_{name.replace(' ', '_')}": ms for name, ms in profile.groups.items()}
    return {"profiled_ms": profile.profiled_ms, "plain_ms": profile.plain_ms, "profile_tool": profile.tool,
            "profile_inferences": profile.inferences, **groups}  # fmt: skip


def _slower(row: Row, cell: Cell, base: Row | None) -> Note:
    """Why ``row`` is slower than its fp32: its verdict, or that there is none.

    All scenarios of an artifact get the same note, so that it is said once; ``cell`` is the first of them, and ``base``
    a row with the profile of its fp32. The profile is of single inferences, one after the other: where these are not
    slower, the sentence says so, instead of giving the cause of something else.
    """
    own = row["operators"]
    if own is None or base is None:
        lacking = "it" if own is None else "its fp32"
        text = f"slower than its fp32; the cause is not known, as {lacking} has no profile of operators"
        return slower_note(cell, text)
    if slower(own, base["operators"]):
        return slower_note(cell, row["verdict"])
    return slower_note(cell, f"measured slower than its fp32, which its profile does not show: {row['verdict']}")


def _rank(rows: list[Row]) -> None:
    groups: dict[Place, list[tuple[Row, Estimate]]] = {}
    for row in rows:
        found = from_row("figure", row)
        if not row["gates"] and found is not None and row["backend"] != NULL and not row["emulated"]:
            place = row["device"], row["run"], row["model"], row["scenario"]
            groups.setdefault(place, []).append((row, found))
    for (*_, scenario), group in groups.items():
        found_ranks = ranks([found for _, found in group], rate=scenario == OFFLINE)
        for (row, _), rank in zip(group, found_ranks, strict=True):
            row["rank"] = rank


def _cell_of(row: Row) -> Cell:
    return Cell(row["model"], row["backend"], row["scheme"], row["scenario"])


def _place_of(row: Row) -> Place:
    return row["device"], row["run"], row["model"], row["backend"], row["scenario"]


def _artifact_of(row: Row) -> Place:
    return row["device"], row["run"], row["model"], row["backend"], row["scheme"], row["artifact_key"]
