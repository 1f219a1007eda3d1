"""A figure that a tuned setting gave is marked, in tables and in files."""

from __future__ import annotations

from pathlib import Path

from edgeq.report.footnotes import Footnotes
from edgeq.report.frames import frame, plain, records_of
from edgeq.report.runs import load_runs
from edgeq.report.tables import ranking, summary
from edgeq.report.wording import TUNED
from edgeq.run.record import Record, Requested
from tests.report.factory import record, write_run


def one(cell: str, setting: str, ms: float) -> Record:
    requested = Requested.model_validate(
        {"threads": 2, "streams": 2, "batch": 4 if setting == "tuned" else 1, "setting": setting, "profile": "quick"}
    )
    return record(cell, ms, requested=requested)


def test_a_tuned_figure_is_marked_and_the_mark_is_told(tmp_path: Path) -> None:
    write_run(tmp_path, [one("m/tflite/fp32/offline", "tuned", 5.0), one("m/openvino/fp32/offline", "default", 4.0)])
    table = frame(load_runs(tmp_path))
    rows = records_of(table)
    assert dict(zip(plain(table)["backend"], plain(table)["setting"], strict=True)) == {
        "tflite": "tuned", "openvino": "default",
    }  # fmt: skip
    for made in (
        summary(rows, Footnotes(rows), devices=False),
        ranking("offline", rows, Footnotes(rows), devices=False),
    ):
        marked = {str(row): TUNED in str(row) for row in made.rows}
        assert [tuned for text, tuned in marked.items() if "tflite" in text] == [True]
        assert [tuned for text, tuned in marked.items() if "openvino" in text] == [False]
        assert f"{TUNED} threads, streams and batch by edgeq tune" in made.context


def test_defaults_have_no_mark(tmp_path: Path) -> None:
    write_run(tmp_path, [one("m/tflite/fp32/offline", "default", 5.0), record("m/openvino/fp32/offline", 4.0)])
    rows = records_of(frame(load_runs(tmp_path)))
    made = summary(rows, Footnotes(rows), devices=False)
    assert TUNED not in made.context + str(made.rows)
