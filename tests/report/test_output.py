from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from edgeq.report import require
from edgeq.report.numbers import TO
from edgeq.report.output import as_json, build, print_report, write_report
from edgeq.report.render import escape, show_table
from edgeq.report.table import Table
from edgeq.report.wording import Answer, queries_for_interval
from edgeq.run.intervals import within_run
from edgeq.run.record import Interval, Record
from edgeq.spec.errors import EdgeqError, RequestError
from edgeq.spec.note import Note
from tests.report.factory import (
    PI,
    QEMU,
    SATURATES,
    SATURATION,
    null_record,
    profile,
    record,
    run_info,
    study,
    with_rounds,
    write_run,
)


def page(results: Path, out: Path) -> str:
    write_report(results, None, out, {"md"})
    return (out / "report.md").read_text()


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_the_answer_comes_first_and_names_figure_gain_and_cost(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    text = page(tmp_path / "r", tmp_path / "o")
    assert text.index("## Answers") < text.index("### Summary")
    assert (
        f"single-stream: openvino int8-static is fastest, 2.60 ±0.05 ms at p90, 5.38x (5.17{TO}5.60) as fast as the slowest "
        "framework's fp32 (tflite, 14.00 ±0.28 ms at p90). Top-1 79.5 ±4.4 % of 372 images, 0.8 ±1.8 points below its own "
        "fp32."
    ) in text
    assert "20.8 ±0.4 ms at p90 a query of 8 samples" in text


def test_a_lossy_cell_is_shown_flagged_and_not_ranked(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    text = page(tmp_path / "r", tmp_path / "o")
    ranked = [line for line in text.splitlines() if line.startswith("| - | pytorch | int8-static")]
    assert len(ranked) == 3
    assert all("loses too much accuracy (18.0 ±6.5 points of top-1) | [1]" in line for line in ranked)
    assert any("62.3 ±5.0" in line and "[1] not ranked" in line for line in text.splitlines())
    assert "[1] **accuracy-loss** (pytorch int8-static): top-1 is 18.0 points below" in text


def test_skipped_failed_and_invalid_cells_stand_with_reason_and_hint(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    write_report(tmp_path / "r", None, tmp_path / "o", {"csv"})
    found = {(row["framework"], row["scheme"]): row for row in rows_of(tmp_path / "o/not-measured.csv")}
    assert found["pytorch", "fp16"]["scenario"] == "multi-stream, offline"
    assert found["pytorch", "fp16"]["why"].startswith("too-slow: the canary took 409 ms")
    assert found["onnxruntime", "int8-dynamic"]["what to do"] == "run it again with --resume"
    assert "not valid: 71.4 ±1.4 samples/s" in found["tflite", "int8-dynamic"]["why"]


def test_no_two_tables_disagree(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    write_report(tmp_path / "r", None, tmp_path / "o", {"csv"})
    summary = {(row["framework"], row["precision"]): row for row in rows_of(tmp_path / "o/summary.csv")}
    assert "single-stream against its fp32" in next(iter(summary.values()))
    columns = ("single-stream p90 ms", "multi-stream p90 ms (8 samples a query)", "offline samples/s")
    checked = 0
    for row in rows_of(tmp_path / "o/ranking.csv"):
        column = next(name for name in columns if name.split()[0] in row["table"])
        shown = summary.get((row["framework"], row["precision"]))
        if shown and row[column] != "-":
            assert shown[column] == row[column]
            assert shown[f"{column.split()[0]} against its fp32"] == row["against its fp32"]
            checked += 1
    assert checked > 35


def test_every_csv_row_says_device_run_weights_profile_and_warnings(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    for path in write_report(tmp_path / "r", None, tmp_path / "o", {"csv"}):
        for row in rows_of(path):
            assert (row["device"], row["run"], row["profile"]) == ("xeon", "r1", "quick")
            assert {"weights", "warnings"} <= row.keys()
    cells = rows_of(tmp_path / "o/cells.csv")
    assert len(cells) == 48
    assert {row["warnings"] for row in cells} == {"", "accuracy-loss", "high-memory"}


def test_random_weights_are_said_over_every_table_and_in_the_answer(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study(weights="random"))
    text = page(tmp_path / "r", tmp_path / "o")
    lines = [line for line in text.splitlines() if line.startswith("*device: ")]
    assert len(lines) == 7
    assert all("random, seed 0 (accuracy means nothing; speed and size are real)" in line for line in lines)
    assert "> Weights: random, seed 0. Accuracy means nothing" in text
    assert "The weights are random, so that this says nothing of accuracy" in text
    assert "top-1 % (n = 372)" not in text
    assert "**random-weights** (all measured cells)" in text


def test_an_interrupted_run_shows_its_gaps(tmp_path: Path) -> None:
    write_run(
        tmp_path / "r",
        study(["single-stream"]),
        planned=["mobilenet_v2/tflite/fp32/offline", "vgg19/tflite/fp32/offline"],
    )
    text = page(tmp_path / "r", tmp_path / "o")
    assert "The run ended early: 1 of 17 cells have not been run yet" in text
    assert "offline: no cell can be ranked (1 not run yet)" in text
    assert "| tflite | fp32 | offline | not run yet |" in text
    assert "## vgg19 on" in text


def test_a_corrupt_record_is_named_in_the_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", study(["offline"]))
    (folder / "mobilenet_v2/tflite/fp32/offline/record.json").write_text("{")
    text = page(tmp_path / "r", tmp_path / "o")
    assert "tflite/fp32/offline/record.json is not a record" in text
    assert re.search(r"\| tflite \| fp32 \| offline \| corrupt \|", text)


def test_emulated_figures_are_kept_out_of_every_comparison(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study(["offline"]))
    write_run(tmp_path / "r", [record("mobilenet_v2/tflite/int8-static/offline", 0.0123, device=QEMU)], device=QEMU)
    text = page(tmp_path / "r", tmp_path / "o")
    assert "kept out of the comparison" in text
    assert "81301" not in text
    assert "## Emulated devices" in text
    assert "offline: openvino int8-static is fastest" in text


def test_two_devices_never_share_a_ranking_and_each_row_says_its_device(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study(["offline"]))
    write_run(tmp_path / "r", [record("mobilenet_v2/tflite/fp32/offline", 99, device=PI)], device=PI)
    write_report(tmp_path / "r", None, tmp_path / "o", {"md", "csv"})
    text = (tmp_path / "o/report.md").read_text()
    assert text.count("### Ranking, offline") == 2
    assert "| Raspberry Pi 4 Model B | 1 | tflite | fp32 | 10.10 ±0.20 |" in text


def test_overhead_has_a_table_of_its_own(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [*study(["offline"]), null_record("single-stream", 3.7)])
    text = page(tmp_path / "r", tmp_path / "o")
    assert "## Harness overhead" in text
    assert "| null" not in text
    assert "| 3.70 ±? | 64 |" in text
    assert "±?: no interval (one round has one time of the run" in text
    assert "null" not in text.split("## Harness overhead")[0]


def test_older_runs_are_mentioned(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study(["offline"]))
    write_run(tmp_path / "r", [record("vgg19/tflite/fp32/offline", run=run_info("old", day="2025-01-01"))], run="old")
    assert "1 other runs are not (old)" in page(tmp_path / "r", tmp_path / "o")


def test_an_unknown_format_names_those_there_are_and_writes_nothing(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study(["offline"]))
    with pytest.raises(RequestError, match="md, csv") as caught:
        write_report(tmp_path / "r", None, tmp_path / "o", {"md", "html"})
    assert caught.value.code == "unknown-format"
    assert not (tmp_path / "o").exists()


def test_markdown_tables_have_as_many_cells_in_every_row(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    width = None
    for line in page(tmp_path / "r", tmp_path / "o").splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = len(re.findall(r"(?<!\\)\|", line))
        assert width in (None, cells)
        width = cells


@pytest.mark.parametrize("width", [60, 110, 200])
def test_the_terminal_shows_answers_and_summary_whatever_its_width(width: int, tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    console = Console(width=width, file=io.StringIO(), record=True)
    print_report(tmp_path / "r", None, console)
    text = console.export_text()
    assert "int8-static is fastest" in text
    assert ("top-5 %" in text.split("Cells without")[0].split("In report.md")[0]) == (width == 200)
    assert "[1] accuracy-loss" in text


def test_accuracy_that_was_kept_from_an_earlier_run_says_so(tmp_path: Path) -> None:
    measured = record("m/tflite/fp32/offline", top1=0.8)
    assert measured.accuracy is not None
    write_run(tmp_path / "a", [measured])
    assert "kept from there" not in page(tmp_path / "a", tmp_path / "o")
    kept = measured.accuracy.model_copy(update={"kept_from": "run-of-monday"})
    write_run(tmp_path / "b", [measured.model_copy(update={"accuracy": kept})])
    assert "since run run-of-monday: kept from there" in page(tmp_path / "b", tmp_path / "o")


def test_the_json_is_strict_and_whole(tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    value = json.loads(json.dumps(as_json(build(tmp_path / "r")), allow_nan=False))
    assert len(value["cells"]) == 48
    assert len(next(iter(value["answers"].values()))) == 3


@given(st.text())
def test_an_escaped_cell_is_one_line_and_ends_nothing(text: str) -> None:
    shown = escape(text)
    assert "\n" not in shown
    assert "<" not in shown
    assert not re.search(r"(?<!\\)(\\\\)*\|", shown)


def test_a_device_without_pandas_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EdgeqError, match="pandas is not installed") as caught:
        require()
    assert "edgeq[report]" in caught.value.hint


def test_paths_in_notes_come_through_whole(tmp_path: Path) -> None:
    note = Note(code="x", text="see ../shared/a.txt.", hint="use ../b ...")
    write_run(tmp_path / "r", [record("m/tflite/fp32/offline", warnings=[note])])
    assert "see ../shared/a.txt. *To do:* use ../b ..." in page(tmp_path / "r", tmp_path / "o")


S = "single-stream"


def answers(tmp_path: Path, *records: Record) -> list[Answer]:
    write_run(tmp_path / "r", records)
    return build(tmp_path / "r").sections[0].answers


def test_a_winner_is_named_only_where_its_interval_stands_apart(tmp_path: Path) -> None:
    (found,) = answers(
        tmp_path,
        record(f"m/openvino/fp32/{S}", 10.0, top1=0.8),
        record(f"m/tflite/fp32/{S}", 10.2, top1=0.8),
        record(f"m/pytorch/fp32/{S}", 12.0, top1=0.8),
    )
    assert not found.sure
    assert (
        f"{S}: openvino fp32 (10.00 ±0.20 ms at p90) can't be told apart by this run from tflite fp32 (10.20 ±0.20 ms at "
        "p90), whose interval overlaps its own."
    ) in found.text
    assert "fastest" not in found.text
    assert "pytorch fp32 (" not in found.text
    assert "openvino fp32: Top-1" in found.text
    assert "tflite fp32: Top-1" in found.text


def test_many_that_share_the_first_place_are_counted(tmp_path: Path) -> None:
    cells = [f"m/{backend}/{scheme}/{S}" for backend in ("openvino", "tflite") for scheme in ("fp32", "fp16")]
    (found,) = answers(tmp_path, *(record(cell, 10.0) for cell in cells), record(f"m/pytorch/fp32/{S}", 10.1))
    assert "and 2 more, each of whose intervals overlaps its own." in found.text


def test_one_record_without_an_interval_leaves_no_winner(tmp_path: Path) -> None:
    (found,) = answers(tmp_path, record(f"m/openvino/fp32/{S}", 2.0, spread=None), record(f"m/tflite/fp32/{S}", 10.0))
    assert not found.sure
    assert "openvino fp32 has the best figure, 2.00 ms at p90" in found.text
    assert "it has no interval, so that nothing says how sure this is: use --rounds 3" in found.text
    assert "fastest" not in found.text


def test_a_gain_that_may_be_none_is_not_called_faster(tmp_path: Path) -> None:
    (found,) = answers(
        tmp_path,
        record(f"m/openvino/int8-static/{S}", 9.9, spread=0.001),
        record(f"m/openvino/fp32/{S}", 10.0, spread=0.008),
    )
    assert "can't be told apart" not in found.text
    assert (
        f"not shown to be faster than the slowest framework's fp32 (openvino, 10.00 ±0.08 ms at p90): ~1 (1.00{TO}1.02)"
        in (found.text)
    )


def test_only_a_sure_answer_is_green(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [record("m/openvino/fp32/offline", 5.0), record("m/tflite/fp32/offline", 10.0),
                               record(f"m/openvino/fp32/{S}", 10.0), record(f"m/tflite/fp32/{S}", 10.1)])  # fmt: skip
    console = Console(width=200, file=io.StringIO(), record=True, force_terminal=True, color_system="standard")
    print_report(tmp_path / "r", None, console)
    lines = console.export_text(styles=True).splitlines()
    green = [line for line in lines if "\x1b[1;32m> " in line]
    assert len(green) == 1
    assert "offline: openvino fp32 is fastest" in green[0]


def test_a_speed_up_that_may_be_none_stands_as_none_in_every_table(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [record(f"m/openvino/fp32/{S}", 10.0), record(f"m/openvino/fp16/{S}", 9.9)])
    text = page(tmp_path / "r", tmp_path / "o")
    assert f"~1 (0.97{TO}1.05)" in text
    assert "1.01x" not in text
    assert "~1: no difference was shown." in text


@pytest.mark.parametrize(
    ("factors", "legend"),
    [
        ((), "±: 95 % interval within one run, which knows nothing of how runs differ; use --rounds 3."),
        ((1.0, 1.01, 0.99), "±: 95 % interval over 3 rounds."),
    ],
)
def test_the_legend_says_how_the_interval_was_got(factors: tuple[float, ...], legend: str, tmp_path: Path) -> None:
    found = record("m/tflite/fp32/offline", 10.0)
    write_run(tmp_path / "r", [with_rounds(found, factors) if factors else found])
    text = page(tmp_path / "r", tmp_path / "o")
    assert text.count(legend) == 2
    console = Console(width=80, file=io.StringIO(), record=True)
    print_report(tmp_path / "r", None, console)
    assert legend in " ".join(console.export_text().split())


def test_a_record_of_schema_1_is_reported_with_a_mark(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "r", [record("m/tflite/fp32/offline", 10.0, spread=None)])
    path = next(folder.rglob("record.json"))
    value = json.loads(path.read_text())
    for name in ("intervals", "rounds", "profile", "probe"):
        del value[name]
    path.write_text(json.dumps({**value, "schema": 1}))
    text = page(tmp_path / "r", tmp_path / "o")
    assert "| 100 ±? |" in text
    assert "±?: no interval (an older record, or too few queries in one round), and so no rank; use --rounds 3." in text


def test_what_ran_says_requested_executed_accuracy_and_probe(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [
        record(f"m/onnxruntime/fp32/{S}", 10.0, top1=0.80, mb=14.0),
        record(f"m/onnxruntime/int8-static/{S}", 4.0, top1=0.78, mb=3.5, macs={"int8": 0.98, "fp32": 0.02}, probe=SATURATES,
               warnings=[SATURATION]),
        record(f"m/onnxruntime/fp16/{S}", 10.0, top1=0.80, mb=7.0, macs={"fp32": 1.0}),
    ])  # fmt: skip
    write_report(tmp_path / "r", None, tmp_path / "o", {"md", "csv"})
    found = {row["requested"]: row for row in rows_of(tmp_path / "o/artifacts.csv")}
    assert found["fp16"]["executed"] == "fp32"
    static = found["int8-static"]
    assert (static["executed"], static["int8 MACs"]) == ("98 % int8, 2.0 % fp32", "98 %")
    assert (static["top-1 % (n = 372)"], static["points below fp32"]) == ("78.0 ±4.5", "2.0 ±1.8")
    assert (static["size MB"], static["of fp32's size"]) == ("3.5", "25 %")
    assert static["int8 probe"] == "wrong: 32.3 for 63.4 (u8 x s8)"
    text = (tmp_path / "o/report.md").read_text()
    assert "**saturation** (onnxruntime int8-static)" in text
    # Its accuracy is what decides, and that is kept.
    assert "| 1 | onnxruntime | int8-static" in text


def test_where_the_time_goes_and_why_slower(tmp_path: Path) -> None:
    slow = profile(30.0, convolution=0.3, convert=0.6)
    write_run(tmp_path / "r", [
        record(f"m/onnxruntime/fp32/{S}", 10.0, profile=profile(10.0, convolution=0.9)),
        record(f"m/onnxruntime/fp16/{S}", 30.0, profile=slow),
    ])  # fmt: skip
    text = page(tmp_path / "r", tmp_path / "o")
    assert "### Where the time goes" in text
    row = next(line for line in text.splitlines() if line.startswith("| onnxruntime | fp16 | 28.5 | 30.0 |"))
    assert [cell.strip() for cell in row.split("|")[5:11]] == ["30", "0", "0", "60", "0", "10"]
    note = next(line for line in text.splitlines() if "**slower-than-fp32** (onnxruntime fp16)" in line)
    assert "3.0 times as slow as fp32" in note
    assert f"edgeq explain m/onnxruntime/fp16/{S}" in note


@pytest.mark.parametrize("width", [80, 120, 160, 180])
def test_no_column_is_cut_off_in_the_terminal(width: int, tmp_path: Path) -> None:
    write_run(tmp_path / "r", study())
    console = Console(width=width, file=io.StringIO(), record=True)
    print_report(tmp_path / "r", None, console)
    text = console.export_text()
    assert all(len(line) <= width for line in text.splitlines())
    assert "385 ±8" in text
    assert "ranked" in text.split("Cells without")[0]


def test_a_cell_without_an_interval_has_no_rank_and_is_said_to_lack_it(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [
        record(f"m/openvino/fp32/{S}", 10.0, spread=None), record(f"m/tflite/fp32/{S}", 10.01, spread=None),
        record(f"m/pytorch/fp32/{S}", 10.02, spread=0.3), record(f"m/onnxruntime/fp32/{S}", 5.0, stable=False),
    ])  # fmt: skip
    report = build(tmp_path / "r")
    table = next(table for table in report.sections[0].tables if table.kind == "ranking")
    shown = [(row[0], row[1], row[-2]) for row in table.rows]
    assert shown == [
        ("1", "pytorch", ""), ("-", "openvino", "no interval: use --rounds 3"),
        ("-", "tflite", "no interval: use --rounds 3"), ("-", "onnxruntime", "its output is not the model's"),
    ]  # fmt: skip
    assert "it takes 100 at p90), and so no rank; use --rounds 3." in table.legend
    (found,) = report.sections[0].answers
    assert "openvino fp32 has the best figure, 10.0 ms at p90" in found.text
    assert "fastest" not in found.text


def test_a_slow_board_gets_an_answer_from_one_round_without_intervals(tmp_path: Path) -> None:
    (found,) = answers(tmp_path, record(f"m/openvino/fp32/{S}", 400.0, spread=None),
                       record(f"m/openvino/int8-static/{S}", 200.0, spread=None))  # fmt: skip
    assert found.text.startswith(
        f"{S}: openvino int8-static has the best figure, 200 ms at p90, 2.00x (no interval) as fast"
    )
    assert "use --rounds 3" in found.text


def test_a_tie_names_no_gain_over_one_it_is_tied_with_and_says_whose_intervals_overlap(tmp_path: Path) -> None:
    def within(low: float, high: float) -> dict[str, Interval]:
        return {"latency_ms.p90": Interval(low=low, high=high, n=10, of="blocks")}

    (found,) = answers(
        tmp_path,
        record(f"m/openvino/fp32/{S}", 4.0, intervals=within(1, 7.5)),
        record(f"m/tflite/fp32/{S}", 5.0, intervals=within(4.9, 5.1)),
        record(f"m/pytorch/fp32/{S}", 7.0, intervals=within(6.9, 7.1)),
    )
    assert "can't be told apart by this run from tflite fp32" in found.text
    assert "each of whose intervals overlaps its own" in found.text
    assert "slowest framework" not in found.text
    assert not found.sure


def test_a_tie_still_says_what_its_best_gains_over_one_that_is_slower(tmp_path: Path) -> None:
    (found,) = answers(tmp_path, record(f"m/openvino/int8-static/{S}", 5.0), record(f"m/tflite/int8-static/{S}", 5.05),
                       record(f"m/openvino/fp32/{S}", 10.0))  # fmt: skip
    assert f"openvino int8-static: 2.00x (1.92{TO}2.08) as fast as the slowest framework's fp32" in found.text


def test_what_disagrees_with_float_is_shown_with_the_figure_that_says_so(tmp_path: Path) -> None:
    write_run(tmp_path / "r", [record(f"m/openvino/fp32/{S}", 10.0, weights="random"),
                               record(f"m/openvino/int8-static/{S}", 3.0, weights="random", sqnr=1.0)])  # fmt: skip
    text = page(tmp_path / "r", tmp_path / "o")
    assert "agrees too little with float (logits 1.0 dB from float's)" in text
    assert "**low-agreement** (openvino int8-static)" in text
    assert "logits less than 10 dB (SQNR) from torch's float32" in text


def test_overhead_says_what_its_columns_are_and_has_no_query_in_offline(tmp_path: Path) -> None:
    nulls = [with_rounds(null_record(scenario, 3.7), [1.0, 1.1, 1.2]) for scenario in (S, "offline")]
    rounds = [each.model_copy(update={"duration_s": 3.0 + each.round / 100, "samples": 64}) for each in nulls[0].rounds]
    write_run(tmp_path / "r", [each.model_copy(update={"rounds": rounds}) for each in nulls])
    (table,) = build(tmp_path / "r").sections[-1].tables
    assert table.header[2:4] == ("µs a query (LoadGen's median latency)", "µs a sample (time of the run)")
    assert table.rows[0][2].startswith("3.70 (")
    assert table.rows[1][2] == "-"
    assert all("?" not in row[3] for row in table.rows)
    assert "95 % interval over 3 rounds" in table.legend


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_the_legend_names_the_fewest_queries_that_have_an_interval(quantile: float) -> None:
    count = queries_for_interval(quantile)
    assert within_run(np.arange(count, dtype=np.float64), 1.0, quantile) is not None
    assert within_run(np.arange(count - 1, dtype=np.float64), 1.0, quantile) is None


def test_the_terminal_tells_many_alike_notes_by_one_of_them_but_each_that_counts(tmp_path: Path) -> None:
    rows = [("[1]", "outliers", f"{n} % of the queries", f"cell {n}", "run again") for n in range(5)]
    rows += [("[2]", "slower-than-fp32", f"{n} times as slow", f"cell {n}", "-") for n in range(5)]
    notes = Table(
        kind="notes", title="Notes", context="", header=("note", "code", "what", "bears on", "what to do"), rows=rows,
        tags=[{}] * len(rows), text=frozenset(range(5)),
    )  # fmt: skip
    console = Console(width=200, file=io.StringIO())
    show_table(notes, console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line for line in lines if "outliers" in line] == [
        "[1] outliers (cell 0): 0 % of the queries -> run again",
        "[1] outliers, likewise in 4 more, in their own words in report.md: cell 1; cell 2; cell 3; cell 4",
    ]
    assert sum("times as slow" in line for line in lines) == 5
