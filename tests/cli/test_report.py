from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeq.cli.main import cli
from edgeq.spec.errors import RequestError
from tests.report.factory import record, study, write_run


def test_report_writes_and_prints_at_once(tmp_path: Path) -> None:
    write_run(tmp_path / "results", study(["offline"]))
    done = CliRunner().invoke(cli, ["report", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "offline: openvino int8-static is fastest, 385 ±8 samples/s" in " ".join(done.output.split())
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.md", "cells.csv", "summary.csv", "ranking.csv", "artifacts.csv", "not-measured.csv", "notes.csv",
    }  # fmt: skip


def test_overlap_prints_and_writes_nothing(tmp_path: Path) -> None:
    for run in ("a", "b"):
        write_run(tmp_path, [record("m/tflite/fp32/offline")], run=run)
    done = CliRunner().invoke(cli, ["report", "a", "b", "--overlap", "--results", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "1 of 1 cells overlap (100 %)." in done.output
    assert not (tmp_path / "report").exists()


def test_overlap_of_one_run_says_what_to_type(tmp_path: Path) -> None:
    write_run(tmp_path, [record("m/tflite/fp32/offline")], run="a")
    with pytest.raises(RequestError) as caught:
        CliRunner().invoke(cli, ["report", "a", "--overlap", "--results", str(tmp_path)], catch_exceptions=False)
    assert "edgeq report RUN RUN --overlap" in caught.value.hint


@pytest.mark.parametrize("options", [["--format", "md"], ["--out", "x"]])
def test_overlap_refuses_options_of_files(options: list[str], tmp_path: Path) -> None:
    asked = ["report", "a", "b", "--overlap", *options, "--results", str(tmp_path)]
    with pytest.raises(RequestError, match=f"{options[0]} with --overlap") as caught:
        CliRunner().invoke(cli, asked, catch_exceptions=False)
    assert caught.value.code == "bad-value"
