from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgeq.report.runs import load_runs, older_runs
from edgeq.spec.errors import RequestError
from edgeq.spec.names import Cell
from tests.report.factory import PI, null_record, record, run_info, write_run

CELL = "mobilenet_v2/tflite/fp32/single-stream"


def test_no_results_no_records_and_an_unknown_run_are_the_requests_fault(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        load_runs(tmp_path / "gone")
    assert (caught.value.code, caught.value.exit_code) == ("no-results", 2)
    write_run(tmp_path, [], planned=[CELL])
    with pytest.raises(RequestError) as caught:
        load_runs(tmp_path)
    assert caught.value.code == "no-records"
    write_run(tmp_path, [record(CELL)], run="2026-01-02a")
    with pytest.raises(RequestError) as caught:
        load_runs(tmp_path, [Path("2026-01-03a")])
    assert caught.value.code == "unknown-name"
    assert "2026-01-02a" in caught.value.hint


def test_cells_without_a_record_are_missing_and_not_absent(tmp_path: Path) -> None:
    write_run(tmp_path, [record(CELL)], planned=["mobilenet_v2/tflite/fp32/offline"])
    (run,) = load_runs(tmp_path)
    assert run.missing == [Cell.parse("mobilenet_v2/tflite/fp32/offline")]


def test_the_newest_run_of_each_device_is_chosen_by_when_it_ran(tmp_path: Path) -> None:
    write_run(tmp_path, [record(CELL, run=run_info("b", day="2026-01-01"))], run="b")
    write_run(tmp_path, [record(CELL, run=run_info("a", day="2026-01-05"))], run="a")
    write_run(tmp_path, [record(CELL, device=PI)], device=PI, run="c")
    write_run(tmp_path, [], run="empty", planned=[CELL])
    chosen = load_runs(tmp_path)
    assert sorted(run.id for run in chosen) == ["a", "c"]
    assert sorted(path.name for path in older_runs(tmp_path, chosen)) == ["b", "empty"]


def test_a_later_overhead_run_does_not_hide_the_models(tmp_path: Path) -> None:
    write_run(tmp_path, [record(CELL)], run="models")
    info = run_info("null", day="2026-02-01")
    write_run(tmp_path, [null_record("offline", 1.2, info)], run="null")
    assert [run.id for run in load_runs(tmp_path)] == ["models", "null"]


@pytest.mark.parametrize("name", ["r1", "xeon/r1"])
def test_a_run_is_named_by_id_device_or_folder(name: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path, [record(CELL)])
    for each in (Path(name), folder):
        assert [run.path for run in load_runs(tmp_path, [each, each])] == [folder]


def test_a_corrupt_record_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [record(CELL), record("mobilenet_v2/tflite/fp16/offline")])
    broken = folder / CELL / "record.json"
    broken.write_text("{")
    (run,) = load_runs(tmp_path)
    assert len(run.records) == 1
    assert str(broken) in run.corrupt[Cell.parse(CELL)].text
    assert run.missing == []


def test_a_record_in_another_cells_folder_is_not_taken_for_that_cell(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [record(CELL)])
    other = folder / "vgg19/tflite/fp32/single-stream/record.json"
    other.parent.mkdir(parents=True)
    (folder / CELL / "record.json").rename(other)
    (run,) = load_runs(tmp_path)
    assert run.records == {}
    assert list(run.corrupt) == [Cell.parse("vgg19/tflite/fp32/single-stream")]


@pytest.mark.parametrize("text", [None, "{", "[]", '{"schema": 9}', '{"schema": 1, "cells": ["nonsense"]}'])
def test_a_bad_run_file_is_said_and_the_records_are_shown(text: str | None, tmp_path: Path) -> None:
    folder = write_run(tmp_path, [record(CELL)])
    (folder / "run.json").unlink()
    if text is not None:
        (folder / "run.json").write_text(text)
    (run,) = load_runs(tmp_path)
    assert list(run.records) == [Cell.parse(CELL)]
    assert [note.code for note in run.notes] == ["bad-run-file"]
    assert run.device["slug"] == "xeon"


def test_a_record_that_no_run_file_lists_is_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path, [record(CELL)])
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, "cells": []}))
    assert load_runs(tmp_path)[0].cells == [Cell.parse(CELL)]
