from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from benchmarks import __main__ as main
from benchmarks import output, prepare
from benchmarks.bars import Bar, Claim, Measured, Row
from benchmarks.bench import Bench, Step
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.note import Note

GOOD, BAD = Bar("at least", 1.0), Bar("at most", 1.0)


def step(name: str, ours: float, bar: Bar | None = GOOD) -> Step:
    claim = Claim(name, "ours against theirs", "samples/s", bar)
    return Step((claim,), lambda turn: {name: Measured(ours + turn / 100, 1.0)})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command over ``steps``, with nothing to export; its results are under ``tmp_path``."""

    def call(steps: list[Step], *options: str) -> Result:
        monkeypatch.setattr(main, "all_steps", lambda bench: steps)
        monkeypatch.setattr(prepare, "export_missing", lambda *what: None)
        argv = ["--results", str(tmp_path), "--rounds", "2", *options]
        return CliRunner().invoke(main.command, argv, standalone_mode=False)

    return call


def document(folder: Path) -> dict[str, object]:
    (path,) = folder.glob("*.json")
    found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return found


def test_the_last_line_counts_the_bars_and_all_figures_are_kept(run: Callable[..., Result], tmp_path: Path) -> None:
    done = run([step("a/one", 2.0), step("a/two", 3.0), step("b/told", 0.5, None)])
    assert done.exception is None
    assert done.return_value == 0
    assert done.stdout.splitlines()[-1] == "2 of 2 bars met"
    kept = document(tmp_path)
    assert (kept["met"], kept["of"], kept["stopped"], kept["rounds"]) == (2, 2, False, 2)
    rows = kept["rows"]
    assert isinstance(rows, list)
    assert [row["name"] for row in rows] == ["a/one", "a/two", "b/told"]
    assert [one["ours"] for one in rows[0]["rounds"]] == [2.0, 2.01]
    assert kept["device"]
    assert kept["versions"]


def test_a_bar_that_is_not_met_is_exit_code_1(run: Callable[..., Result]) -> None:
    done = run([step("a/one", 2.0), step("a/two", 3.0, BAD)])
    assert done.return_value == 1
    assert done.stdout.splitlines()[-1] == "1 of 2 bars met"


def test_only_rows_asked_for_are_measured(run: Callable[..., Result]) -> None:
    done = run([step("a/one", 2.0), step("b/two", 0.5)], "--only", "a/")
    assert done.return_value == 0
    assert "b/two" not in done.stdout


def test_a_name_that_is_no_row_is_told_with_the_nearest(run: Callable[..., Result]) -> None:
    done = run([step("harness/tflite", 2.0)], "--only", "harnes/tflite")
    assert isinstance(done.exception, RequestError)
    assert "harness/tflite" in done.exception.hint


def test_listing_measures_nothing(run: Callable[..., Result], tmp_path: Path) -> None:
    done = run([step("a/one", 2.0)], "--list")
    assert done.return_value == 0
    assert "a/one" in done.stdout
    assert "≥ 1" in done.stdout
    assert "ours against theirs" in done.stdout
    assert not list(tmp_path.glob("*.json"))


def test_ctrl_c_keeps_what_is_there(run: Callable[..., Result], tmp_path: Path) -> None:
    def interrupted(turn: int) -> Mapping[str, Measured]:
        raise KeyboardInterrupt

    done = run([step("a/one", 2.0), Step((Claim("a/two", "", "s", GOOD),), interrupted)])
    assert done.return_value == 1
    assert done.stdout.splitlines()[-1] == "1 of 1 bars met"
    kept = document(tmp_path)
    assert kept["stopped"] is True
    assert isinstance(kept["rows"], list)
    assert len(kept["rows"]) == 1


def test_a_failed_row_says_why_below_the_table() -> None:
    console = Console(record=True, width=160)
    notes = EdgeqError("benchmark_app gave no figure", "it broke", "mend it")
    row = Row(Claim("a/one", "", "ms", GOOD), (), (Note.of(notes),), True)
    output.print_table([row], console)
    assert "a/one failed: benchmark_app gave no figure: it broke" in console.export_text()


def test_the_table_names_ratio_bar_and_verdict() -> None:
    claim = Claim("a/one", "", "ms", Bar("at most", 1.02, slack=0.05))
    row = Row(claim, (Measured(1.0, 2.0), Measured(1.0, 2.0)))
    assert output.cells(row) == ["a/one", "1.00 ms", "2.00 ms", "0.500", "0.500 to 0.500", "≤ 1.02 or +0.05 ms"]
    assert row.verdict == "met"


def test_a_row_that_misses_its_bar_says_where_its_time_goes() -> None:
    def parts(callback_ms: float) -> dict[str, object]:
        return {"where_ms": {"callback": callback_ms, "invoke": 3.2, "warm-up": 1234.0}}

    rounds = (Measured(2.0, 1.0, parts(0.02)), Measured(2.0, 1.0, parts(0.04)), Measured(2.0, 1.0, parts(0.9)))
    missed, met = (Row(Claim(name, "", "ms", BAD if name == "a/one" else GOOD), rounds) for name in ("a/one", "a/two"))
    console = Console(record=True, width=160)
    output.print_table([missed, met], console)
    text = console.export_text()
    assert "a/one, where the time goes: callback +40 µs, invoke 3.20 ms, warm-up 1.23 s" in text
    assert "a/two, where" not in text
    assert missed.as_json()["where_ms"] == {"callback": 0.04, "invoke": 3.2, "warm-up": 1234.0}


@pytest.mark.parametrize(
    ("value", "text"), [(0.01234, "0.0123"), (4.5678, "4.57"), (123.4, "123"), (1234.5, "1234"), (999.9, "1000")]
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert output.digits(value) == text


def test_every_row_has_a_name_of_its_group_and_no_two_the_same() -> None:
    names = [claim.name for found in main.all_steps(Bench(Path(), 2, 1, "x86_64", Path())) for claim in found.claims]
    assert len(set(names)) == len(names)
    assert {name.split("/")[0] for name in names} <= set(main.GROUPS)


def test_artifacts_that_are_not_there_are_to_be_exported(tmp_path: Path) -> None:
    assert len(prepare.missing(tmp_path, "x86_64")) == 4 * len(prepare.SCHEMES)


def test_an_export_that_fails_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(EdgeqError) as raised:  # no model.toml there
        prepare.export_missing(tmp_path, "x86_64", "random", None)
    assert raised.value.code == "export-failed"


def test_a_busy_machine_is_told() -> None:
    codes: list[list[str]] = [["busy-neighbour", "drift"], [], ["drift"]]
    row = Row(Claim("a/one", "", "ms", GOOD), tuple(Measured(1.0, 1.0, {"warnings": one}) for one in codes))
    silent = Row(Claim("a/two", "", "ms", GOOD), (Measured(1.0, 1.0),))
    assert output.disturbed([row, silent]) == (1, 3)
    console = Console(record=True, width=160)
    output.print_table([row, silent], console)
    assert "1 of 3 cells ran while other programs used the CPU" in console.export_text()
