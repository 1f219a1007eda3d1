"""Warnings as numbered notes: a number a code, so that a row's marks stay short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgeq.report.gating import ALL_GATING
from edgeq.report.wording import distinct, name_of
from edgeq.spec.note import Note

Row = dict[str, Any]


class Footnotes:
    """The notes of the rows of one model in one run. Codes that keep a cell out of the ranking come first."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = [row for row in rows if row["notes"]]
        codes = distinct(note.code for row in self._rows for note in row["notes"])
        order = [code for code in ALL_GATING if code in codes] + [code for code in codes if code not in ALL_GATING]
        self._numbers = {code: number for number, code in enumerate(order, start=1)}
        self._artifacts = _scenarios([row for row in rows if row["status"] in ("ok", "invalid")])

    def marks(self, rows: Sequence[Row]) -> str:
        """The marks of all notes that bear on ``rows``: ``[1][3]``."""
        numbers = {self._numbers[note.code] for row in rows for note in row["notes"]}
        return "".join(f"[{number}]" for number in sorted(numbers))

    def entries(self) -> list[tuple[str, Note, str, list[Row]]]:
        """Mark, note, the rows it bears on in words, and those rows; in the order of the marks."""
        found: dict[Note, list[Row]] = {}
        for row in self._rows:
            for note in dict.fromkeys(row["notes"]):
                found.setdefault(note, []).append(row)
        ordered = sorted(found.items(), key=lambda item: self._numbers[item[0].code])
        return [(f"[{self._numbers[note.code]}]", note, self._where(rows), rows) for note, rows in ordered]

    def _where(self, rows: Sequence[Row]) -> str:
        """``all measured cells``, ``tflite fp16``, or ``tflite fp16 (offline)`` where not all scenarios are meant."""
        here = _scenarios(rows)
        if here == self._artifacts:
            return "all measured cells"
        return ", ".join(
            name if scenarios == self._artifacts.get(name) else f"{name} ({', '.join(scenarios)})"
            for name, scenarios in here.items()
        )


def _scenarios(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Scenarios by artifact."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(name_of(row), []).append(row["scenario"])
    return found
