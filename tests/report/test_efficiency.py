"""The share of the machine's peak: which rate it is of, what the tables say of it, and when they say nothing."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from edgeq.peaks import Peaks, Rate, best
from edgeq.report.document import build
from edgeq.report.efficiency import achieved, rate
from edgeq.report.frames import frame, records_of
from edgeq.report.render import cells_csv, markdown, show
from edgeq.report.runs import load_runs
from edgeq.run.record import Record
from edgeq.spec.note import Note
from tests.report.factory import record, write_run

MACS = 300_000_000
PEAKS = best([Rate("fp32", "tflite", 100e9), Rate("int8", "onnxruntime", 400e9)], threads=2)
DISTURBED = PEAKS.model_copy(update={"notes": [Note(code="peak-disturbed", text="something else ran", hint="wait")]})


def _with(found: Record, peaks: Peaks | None = PEAKS, macs: int | None = MACS, **changes: Any) -> Record:
    assert found.artifact is not None
    artifact = found.artifact.model_copy(update={"macs": macs})
    return found.model_copy(update={"artifact": artifact, "peaks": peaks, **changes})


def _cells(results: Path, *records: Record) -> list[dict[str, Any]]:
    return records_of(frame(load_runs(results, [write_run(results, records)])))


def test_a_latency_is_the_median_of_one_query_at_a_time() -> None:
    # The factory's median is 0.88 of its p90, which is 10 ms a sample.
    assert rate(record("m/tflite/fp32/single-stream", 10.0)) == pytest.approx(1000 / 8.8)
    assert rate(record("m/tflite/fp32/multi-stream", 10.0)) == pytest.approx(8 * 1000 / 70.4)
    assert rate(record("m/tflite/fp32/offline", 10.0)) == pytest.approx(100)
    assert rate(record("m/tflite/fp32/server", 10.0)) == pytest.approx(100)


def test_a_cell_has_its_rate_and_share(tmp_path: Path) -> None:
    rows = _cells(
        tmp_path,
        _with(record("m/tflite/fp32/offline", 10.0)),
        _with(record("m/onnxruntime/int8-static/offline", 3.0, macs={"int8": 0.5, "fp32": 0.5})),
    )
    assert rows[0]["macs_per_sample"] == MACS
    assert rows[0]["macs_per_second"] == pytest.approx(30e9)
    assert rows[0]["peak_share"] == pytest.approx(0.3)
    assert rows[0]["peak_library"] == "tflite"
    # Half of 300 MMAC at 400 GMAC/s and half at 100: 1.875 ms of 3.
    assert rows[1]["peak_share"] == pytest.approx(0.625)
    assert rows[1]["peak_library"] == "int8: onnxruntime, fp32: tflite"


@pytest.mark.parametrize(
    "found",
    [
        _with(record("m/tflite/fp32/offline"), peaks=None),
        _with(record("m/tflite/fp32/offline"), macs=None),
        _with(record("m/tflite/fp32/offline"), effective=None),
        _with(record("m/pytorch/fp16/offline", macs={"fp16": 1.0})),
        _with(record("m/tflite/fp32/offline", warnings=[Note(code="macs-unaccounted", text="not all were found")])),
        _with(record("m/tflite/fp32/single-stream"), latency_ms=None),
    ],
)
def test_what_is_not_known_has_no_share(found: Record) -> None:
    assert achieved(found) is None


def test_above_the_peak_is_shown_with_a_note_and_not_clipped(tmp_path: Path) -> None:
    over = _with(record("m/tflite/fp32/offline", 2.5))
    (row,) = _cells(tmp_path, over)
    assert row["peak_share"] == pytest.approx(1.2)
    (note,) = (note for note in row["notes"] if note.code == "above-peak")
    assert "120 %" in note.text
    assert "above-peak" in row["warnings"].split()
    assert row["gates"] == ""
    page = markdown(build(tmp_path))
    assert "| 120 % |" in page
    assert "**above-peak**" in page


def test_at_the_peak_there_is_no_note(tmp_path: Path) -> None:
    (row,) = _cells(tmp_path, _with(record("m/tflite/fp32/offline", 3.0)))
    assert row["peak_share"] == pytest.approx(1.0)
    assert "above-peak" not in row["warnings"]


def test_a_disturbed_peak_is_said_of_each_share_of_it_and_of_no_other_cell(tmp_path: Path) -> None:
    rows = _cells(
        tmp_path,
        _with(record("m/tflite/fp32/offline"), peaks=DISTURBED),
        _with(record("m/pytorch/fp16/offline", macs={"fp16": 1.0}), peaks=DISTURBED),
    )
    assert ["peak-disturbed" in row["warnings"] for row in rows] == [True, False]


def test_the_page_and_the_csv_have_the_column_with_its_legend(tmp_path: Path) -> None:
    write_run(tmp_path, [_with(record("m/tflite/fp32/offline", 10.0)), record("m/tflite/int8-static/offline", 3.0)])
    report = build(tmp_path)
    page = markdown(report)
    assert "| of peak |" in page
    assert "| 30 % |" in page
    assert "Of peak: the time that a sample's multiply-adds would take" in page
    assert "(fp32 100 GMAC/s (tflite), int8 400 GMAC/s (onnxruntime), 2 threads)" in page
    rows = list(csv.DictReader(io.StringIO(cells_csv(report))))
    assert float(rows[0]["macs_per_second"]) == pytest.approx(30e9)
    assert float(rows[0]["peak_share"]) == pytest.approx(0.3)
    assert rows[0]["peak_library"] == "tflite"
    assert rows[1]["peak_share"] == ""


def _terminal(results: Path, width: int) -> str:
    out = io.StringIO()
    show(build(results), Console(file=out, width=width))
    return out.getvalue()


def test_a_wide_terminal_has_the_column_and_a_narrow_one_names_it(tmp_path: Path) -> None:
    write_run(tmp_path, [_with(record("m/tflite/fp32/offline", 10.0))])
    assert "30 %" in _terminal(tmp_path, 220)
    narrow = _terminal(tmp_path, 150)
    assert "30 %" not in narrow
    assert "offline of peak" in narrow


def test_a_report_of_older_records_has_no_such_column(tmp_path: Path) -> None:
    write_run(tmp_path, [record("m/tflite/fp32/offline", 10.0)])
    assert "of peak" not in markdown(build(tmp_path)).lower()
