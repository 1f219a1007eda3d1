"""What the device did while it was measured, as the tables and files show it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from edgeq.report.document import build
from edgeq.report.frames import frame, records_of
from edgeq.report.render import cells_csv, markdown, show
from edgeq.report.runs import load_runs
from edgeq.run.during import Clocks, During, Extent
from edgeq.run.record import HostStates, Record
from edgeq.spec.note import Note
from tests.report.factory import record, with_rounds, write_run

DURING = During(
    samples=5, span_s=4.0, temperature_c={"x86_pkg_temp": Extent(min=50, max=77), "acpitz": Extent(min=20, max=25)},
    frequency_mhz=Clocks(min=800, median=2700, max=2900), available_mb=3000, swap_mb=12, watts=24.0, energy_j=72.0,
    joules_per_sample=0.2404,
)  # fmt: skip
SLOWED = Note(code="unsteady", text="the board's firmware reports …: throttled (during)")


def _watched(during: During | None = DURING, slowed_by: tuple[str, ...] = ()) -> Record:
    host = HostStates(before={}, during=during, after={}, slowed_by=list(slowed_by))
    return record("m/tflite/fp32/offline", 10.0, host=host, warnings=[SLOWED] if slowed_by else [])


def test_energy_is_a_column_where_a_record_has_it(tmp_path: Path) -> None:
    write_run(tmp_path, [_watched(), record("m/openvino/fp32/offline", 12.0)])
    page = markdown(build(tmp_path))
    assert "| J/sample |" in page
    assert "| 0.240 |" in page
    assert "offline J/sample" in page
    assert "what they take when idle is in it" in page
    (cell,) = [row for row in csv.DictReader(io.StringIO(cells_csv(build(tmp_path)))) if row["backend"] == "tflite"]
    assert float(cell["joules_per_sample"]) == 0.2404
    assert (cell["watts"], cell["temperature_max_c"], cell["frequency_median_mhz"]) == ("24.0", "77.0", "2700.0")


@pytest.mark.parametrize("during", [None, DURING.model_copy(update={"joules_per_sample": None, "watts": None})])
def test_no_record_with_energy_no_column(tmp_path: Path, during: During | None) -> None:
    write_run(tmp_path, [_watched(during)])
    assert "J/sample" not in markdown(build(tmp_path))


@pytest.mark.parametrize("rounds", [False, True])
def test_a_cell_that_the_device_slowed_down_has_no_rank_and_says_why(tmp_path: Path, rounds: bool) -> None:
    slowed, fine = _watched(slowed_by=("under-voltage", "throttled")), record("m/openvino/fp32/offline", 12.0)
    measured = [with_rounds(each, (1, 1, 1)) for each in (slowed, fine)] if rounds else [slowed, fine]
    write_run(tmp_path, measured)
    found = {row["backend"]: row for row in records_of(frame(load_runs(tmp_path)))}
    assert "throttled" in found["tflite"]["gates"].split()
    assert (found["tflite"]["rank"], found["openvino"]["rank"]) == (None, 1)
    assert "the device held itself back (under-voltage, throttled)" in markdown(build(tmp_path))
    console = Console(width=120, file=io.StringIO(), record=True)
    show(build(tmp_path), console)
    text = " ".join(console.export_text().split())
    assert "not ranked" in text
    assert "unsteady (tflite fp32): the board's firmware reports" in text


def test_a_record_of_schema_3_keeps_its_gate(tmp_path: Path) -> None:
    throttled = Note(code="throttled", text="the firmware reports: throttled")
    folder = write_run(tmp_path, [record("m/tflite/fp32/offline", 10.0, warnings=[throttled])])
    path = next(folder.rglob("record.json"))
    value = json.loads(path.read_text())
    value["host"] = {"before": {}, "after": {}}
    path.write_text(json.dumps({**value, "schema": 3}))
    (row,) = records_of(frame(load_runs(tmp_path)))
    assert (row["gates"], row["slowed_by"], row["joules_per_sample"]) == ("throttled", None, None)
