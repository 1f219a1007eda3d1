"""Records come home beside what is there: never over another run's, never a damaged one over a whole one."""

from __future__ import annotations

import json
from pathlib import Path

from edgeq.deploy.records import merge

CELL = "m/tflite/fp32/offline"


def run_of(folder: Path, started: str = "now", status: str | None = "ok", **files: str) -> Path:
    run = folder / "board" / "20260101T000000Z-quick"
    cell = run / CELL
    cell.mkdir(parents=True, exist_ok=True)
    (run / "run.json").write_text(json.dumps({"started": started}))
    if status is not None:
        (cell / "record.json").write_text(json.dumps({"status": status, "cell": {"model": "m"}}))
    for name, text in files.items():
        (cell / name).write_text(text)
    return run


def status(folder: Path) -> str:
    found = next(folder.glob(f"*/*/{CELL}/record.json"))
    return str(json.loads(found.read_text())["status"])


def test_a_new_run_arrives_whole_and_later_cells_follow(tmp_path: Path) -> None:
    device, here = tmp_path / "device", tmp_path / "here"
    run_of(device, status=None, log="half")
    assert merge(device, here) == []
    assert not list(here.glob(f"*/*/{CELL}/record.json"))
    run_of(device, log="whole")
    assert merge(device, here) == []
    assert status(here) == "ok"
    assert next(here.glob(f"*/*/{CELL}/log")).read_text() == "whole"


def test_one_that_was_tried_again_replaces_its_own_earlier_record(tmp_path: Path) -> None:
    device, here = tmp_path / "device", tmp_path / "here"
    run = run_of(device, status="failed")
    merge(device, here)
    (run / CELL / "record.json").rename(run / CELL / "record.try-1.json")
    run_of(device, status="ok")
    assert merge(device, here) == []
    assert status(here) == "ok"
    assert json.loads(next(here.glob(f"*/*/{CELL}/record.try-1.json")).read_text())["status"] == "failed"


def test_another_run_of_the_same_name_stays(tmp_path: Path) -> None:
    device, here = tmp_path / "device", tmp_path / "here"
    run_of(here, started="here", status="invalid", log="mine")
    run_of(device, started="there", status="ok", other="theirs")
    (note,) = merge(device, here)
    assert note.code == "other-run"
    assert status(here) == "invalid"
    assert not list(here.glob(f"*/*/{CELL}/other"))


def test_what_a_card_has_damaged_does_not_replace_what_came_home(tmp_path: Path) -> None:
    device, here = tmp_path / "device", tmp_path / "here"
    run = run_of(device)
    merge(device, here)
    for damage in ("", '{"status": "ok", "ce', "[]"):
        (run / CELL / "record.json").write_text(damage)
        (note,) = merge(device, here)
        assert note.code == "damaged-record"
        assert status(here) == "ok"


def test_what_is_only_here_is_left_alone(tmp_path: Path) -> None:
    device, here = tmp_path / "device", tmp_path / "here"
    run_of(device)
    other = here / "pc" / "20250101T000000Z-quick" / "run.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    merge(device, here)
    assert other.read_text() == "{}"
    assert merge(device, here) == []
