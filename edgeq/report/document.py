"""The report as a whole: the answers first, then the tables of each model and run, overhead and emulation last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from edgeq.report import artifacts, tables
from edgeq.report.footnotes import Footnotes
from edgeq.report.frames import frame_of, rows_of
from edgeq.report.runs import Run, load_runs, older_runs
from edgeq.report.table import Table
from edgeq.report.wording import Answer, answer, distinct
from edgeq.spec.names import NULL, SCENARIOS

Row = dict[str, Any]


@dataclass(frozen=True)
class Section:
    """One model in one run; or the overhead, or the emulated devices."""

    title: str
    tables: list[Table]
    cautions: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


@dataclass(frozen=True)
class Report:
    """Everything that is written, in order; ``cells`` is the frame it is all made from."""

    cautions: list[str]
    sections: list[Section]
    cells: pd.DataFrame


def build(results: Path, named: Sequence[Path] | None = None) -> Report:
    """Loads the runs and lays out the report. Raises as ``edgeq.report.runs.load_runs`` does."""
    runs = load_runs(results, named)
    rows, cautions = rows_of(runs), _cautions(results, runs, named)
    del runs  # ten thousand records take half a GB
    real = [row for row in rows if not row["emulated"]]
    measured = [row for row in real if row["backend"] != NULL]
    groups = _groups(measured)
    many = len(distinct((row["device"], row["run"]) for row in measured)) > 1
    sections = [_model(group, many) for group in groups]
    null = [row for row in real if row["backend"] == NULL]
    sections += [
        _overhead([row for row in null if row["run"] == run], many) for run in distinct(r["run"] for r in null)
    ]
    played = [row for row in rows if row["emulated"]]
    if played:
        sections.append(Section("Emulated devices", [tables.emulated(played)], [_EMULATED]))
    return Report(cautions, sections, frame_of(rows))


_EMULATED = (
    "These cells ran on an emulated CPU. They show that the artifacts load and what they put out; times and memory "
    "mean nothing there, so that they are left out here and kept out of every comparison."
)


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows by model, then device and run: cells of two devices never share a ranking."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    by_model: dict[str, list[Row]] = {}
    for row in rows:
        by_model.setdefault(row["model"], []).append(row)
    for model, group in by_model.items():
        for row in group:
            found.setdefault((model, row["device"], row["run"]), []).append(row)
    return list(found.values())


def _model(rows: list[Row], many: bool) -> Section:
    notes = Footnotes(rows)
    scenarios = {name: [row for row in rows if row["scenario"] == name] for name in SCENARIOS}
    scenarios = {name: group for name, group in scenarios.items() if group}
    found = []
    if any(row["status"] != "not run yet" for row in rows):
        found = [tables.summary(rows, notes, devices=many)]
        found += [tables.ranking(name, group, notes, devices=many) for name, group in scenarios.items()]
        found.append(artifacts.artifacts(rows, notes, devices=many))
        times = artifacts.where_time_goes(rows, devices=many)
        found += [times] if times else []
    if any(row["status"] != "ok" for row in rows):
        found.append(tables.not_measured(rows))
    if notes.entries():
        found.append(tables.notes_table(rows, notes))
    first = rows[0]
    title = f"{first['model']} on {first['device_name']}" + (f" (run {first['run']})" if many else "")
    answers = [answer(name, group) for name, group in scenarios.items()]
    return Section(title, found, _model_cautions(rows), answers)


def _model_cautions(rows: list[Row]) -> list[str]:
    cautions = []
    if any(row["weights_kind"] == "random" for row in rows):
        name = next(row["weights"] for row in rows if row["weights_kind"] == "random")
        cautions.append(f"Weights: {name}. Accuracy means nothing; speed and size are real. "
                        "For a real network: make run WEIGHTS=pretrained, or WEIGHTS=FILE.")  # fmt: skip
    missing = sum(row["status"] == "not run yet" for row in rows)
    if missing:
        cautions.append(f"The run ended early: {missing} of {len(rows)} cells have not been run yet. "
                        "To go on: the same command with --resume.")  # fmt: skip
    return cautions


def _overhead(rows: list[Row], many: bool) -> Section:
    title = "Harness overhead" + (f" on {rows[0]['device_name']} (run {rows[0]['run']})" if many else "")
    caution = "No model ran here: LoadGen and edgeq alone. This much of every other figure is not the framework's."
    return Section(title, [tables.overhead(rows)], [caution])


def _cautions(results: Path, runs: Sequence[Run], named: Sequence[Path] | None) -> list[str]:
    found = [f"{note.text}; {note.hint}." for run in runs for note in run.notes]
    for run in runs:
        found += [f"{note.text}. To do: {note.hint}." for note in run.corrupt.values()]
    if any(run.emulated for run in runs):
        found.append("Cells of emulated devices are kept out of the comparison; they stand in a table of their own.")
    left = [] if named else older_runs(results, runs)
    if left:
        names = ", ".join(path.name for path in left[-5:]) + (", …" if len(left) > 5 else "")
        found.append(f"The newest run of each device is shown; {len(left)} other runs are not ({names}). "
                     "To see them: edgeq report RUN …")  # fmt: skip
    return found
