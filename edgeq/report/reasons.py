"""Why a cell is slower or faster than its fp32, as far as what was measured and its profile tell the same."""

from __future__ import annotations

from typing import Any

from edgeq.operators import OperatorProfile
from edgeq.report.numbers import holds_one, times
from edgeq.spec.names import SCENARIOS, Cell
from edgeq.verdict import SAME, slower, slower_note, verdict

Row = dict[str, Any]
Place = tuple[Any, ...]


def explain(rows: list[Row]) -> None:
    """The verdict of each artifact with a profile, and the note of each cell that is slower than its fp32.

    A profile is a second of single inferences, whose times are not interleaved with fp32's: it may say why a measured
    difference is there, and never that there is one. What was measured is single-stream's speed-up, where there is one.
    """
    floats = {_twin_of(row): row for row in rows if row["scheme"] == "fp32" and row["operators"] is not None}
    groups: dict[Place, list[Row]] = {}
    for row in rows:
        groups.setdefault(_artifact_of(row), []).append(row)
    for group in groups.values():
        measured = sorted((row for row in group if row["speedup"] is not None), key=_by_scenario)
        named = _cell_of(next(iter(measured), group[0]))
        for row in group:
            base = floats.get(_twin_of(row))
            if row["operators"] is not None:
                row |= _profile(row["operators"]) | {"verdict": sentence(measured[0] if measured else row, row, base)}
            if _is_slower(row):
                note = slower_note(named, _slower(row, base))
                row["notes"] = [*row["notes"], note]
                row["warnings"] = f"{row['warnings']} {note.code}".strip()


def sentence(measured: Row, row: Row, base: Row | None) -> str:
    """What ``row``'s profile tells: causes only where ``measured`` is surely another speed, and the profile goes its way.

    Args:
        measured: The cell whose speed-up is to be explained; of the same artifact as ``row``.
        row: A row with the artifact's profile.
        base: A row with its fp32's profile, or None.
    """
    profile: OperatorProfile = row["operators"]
    if row["scheme"] == "fp32" or base is None:
        return _told(row, profile, None)
    speedup, ends = measured["speedup"], (measured["speedup_low"], measured["speedup_high"])
    if speedup is None:
        return f"not measured against its fp32; {_where(profile)}"
    if ends[0] is None:
        return f"measured {times(speedup, *ends)} as fast as its fp32 (no interval); {_where(profile)}"
    if holds_one(*ends):
        return f"no difference from its fp32 was shown, {times(speedup, *ends)}; {_where(profile)}"
    if not _agrees(speedup, profile, base["operators"]):
        return f"measured {times(speedup, *ends)} as fast as its fp32; its profile does not show why; {_where(profile)}"
    return _told(row, profile, base["operators"])


def _where(profile: OperatorProfile) -> str:
    group = max(profile.groups, key=lambda name: profile.groups[name])
    return f"by the profile {100 * profile.share(group):.0f} % of its time goes into {_NAMES.get(group, group)}"


_NAMES = {
    "convolution": "convolutions",
    "depthwise": "depthwise convolutions",
    "convert": "conversions",
    "fully connected": "fully connected layers",
    "other": "other operators",
    "untimed": "what no operator accounts for",
}


def _agrees(speedup: float, own: OperatorProfile, base: OperatorProfile) -> bool:
    """Whether the profiles differ by more than 5 % in the direction of the measured speed-up."""
    return slower(own, base) if speedup < 1 else slower(base, own)


def _told(row: Row, profile: OperatorProfile, base: OperatorProfile | None) -> str:
    isa = frozenset((row["isa"] or "").split())
    return verdict(profile, base, backend=row["backend"], scheme=row["scheme"], macs=row["macs_by"], isa=isa,
                   certain=True)  # fmt: skip


def _profile(profile: OperatorProfile) -> Row:
    groups = {f"ms_{name.replace(' ', '_')}": ms for name, ms in profile.groups.items()}
    return {"profiled_ms": profile.profiled_ms, "plain_ms": profile.plain_ms, "profile_tool": profile.tool,
            "profile_inferences": profile.inferences, **groups}  # fmt: skip


def _is_slower(row: Row) -> bool:
    """Surely slower than its fp32; or, without an interval that could say so, by more than the 5 % that are nothing."""
    if not row["speedup"] or row["emulated"]:
        return False
    if row["speedup_low"] is None:
        return bool(row["speedup"] < 1 / SAME)
    return row["speedup"] < 1 and not holds_one(row["speedup_low"], row["speedup_high"])


def _slower(row: Row, base: Row | None) -> str:
    """Why ``row`` is slower than its fp32, or that nothing says it; the same for all scenarios where it is."""
    own = row["operators"]
    if own is None or base is None:
        lacking = "it" if own is None else "its fp32"
        sure = "" if row["speedup_low"] is not None else " (no interval)"
        return f"slower than its fp32{sure}; the cause is not known, as {lacking} has no profile of operators"
    if row["speedup_low"] is None:
        return "measured slower than its fp32 (no interval), so that no cause is named; use --rounds 3"
    if not slower(own, base["operators"]):
        return "measured slower than its fp32, which its profile does not show"
    return sentence(row, row, base)


def _by_scenario(row: Row) -> int:
    return SCENARIOS.index(row["scenario"])


def _cell_of(row: Row) -> Cell:
    return Cell(row["model"], row["backend"], row["scheme"], row["scenario"])


def _twin_of(row: Row) -> Place:
    return row["device"], row["run"], row["model"], row["backend"]


def _artifact_of(row: Row) -> Place:
    return row["device"], row["run"], row["model"], row["backend"], row["scheme"], row["artifact_key"]
