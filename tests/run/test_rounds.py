"""The order of rounds, and one record made of several; no worker runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.operators import OperatorProfile
from edgeq.run.accuracy import with_accuracy
from edgeq.run.judged import figure_of, judged
from edgeq.run.progress import CellProgress
from edgeq.run.record import (
    FILE_NAME,
    Accuracy,
    HostStates,
    Interval,
    Latency,
    LoadgenInfo,
    OutputCheck,
    ProbeInfo,
    Record,
    RunInfo,
    read_record,
    write_record,
)
from edgeq.run.rounds import closed, merged, steps, with_round
from edgeq.run.store import RunFolder
from edgeq.spec.matrix import matrix
from edgeq.spec.names import SCHEMES, STUDY_SCENARIOS, Cell
from edgeq.spec.note import Note

CELL = Cell("m", "tflite", "int8-static", "single-stream")
SLOW = Note(code="too-slow", text="it is too slow")
KILLED = Note(code="killed", text="the worker was killed")
INVALID = Note(code="loadgen-invalid", text="LoadGen calls the run invalid")
RANDOM = Note(code="random-weights", text="the weights are random")


def _info(number: int) -> RunInfo:
    return RunInfo(id="r", profile="quick", title="t", started="2026-01-02T03:04:05+00:00", order=number, round=number)


def _ok(number: int, ms: float, **changes: Any) -> Record:
    latency = Latency(mean=ms, p50=ms, p90=ms, p95=ms, p99=ms, max=3 * ms)
    fields: dict[str, Any] = {
        "cell": CELL, "status": "ok", "run": _info(number), "latency_ms": latency, "queries": 100, "samples": 100,
        "duration_s": 3.0, "peak_rss_mb": 100.0 + ms, "load_ms": ms, "cpu_per_wall": 2.0,
        "loadgen": LoadgenInfo(version="6", scenario="SingleStream", valid=True, percentile=0.9, log_dir="loadgen",
                               early_stopping_ms=ms + 1),
        "host": HostStates(before={"round": number}, after={"round": number}),
    }  # fmt: skip
    return with_round(Record(**{**fields, **changes}), f"round-{number}")


def _not_ok(number: int, status: str, reason: Note, **known: Any) -> Record:
    record = Record.model_validate({"cell": CELL, "status": status, "reason": reason, "run": _info(number), **known})
    return with_round(record, f"round-{number}")


PLANNED = matrix(("a", "b"), ("tflite", "openvino"), SCHEMES, STUDY_SCENARIOS)


def test_one_round_goes_by_the_matrix() -> None:
    assert [step.plan for step in steps(PLANNED, 1, 7)] == list(PLANNED)


@given(rounds=st.integers(2, 5), seed=st.integers(0, 1000))
def test_each_round_has_all_cells_in_an_order_of_its_own(rounds: int, seed: int) -> None:
    found = steps(PLANNED, rounds, seed)
    assert found == steps(PLANNED, rounds, seed), "the same from the same seed"
    assert [step.order for step in found] == list(range(len(PLANNED) * rounds))
    orders = [[step.plan.cell for step in found if step.round == number] for number in range(1, rounds + 1)]
    for cells in orders:
        assert sorted(cells) == sorted(plan.cell for plan in PLANNED)
    assert len({tuple(cells) for cells in orders}) == rounds
    assert [step.plan for step in found] != [step.plan for step in steps(PLANNED, rounds, seed + 1)]


def test_figures_are_medians_and_peaks_are_peaks_and_counts_add_up() -> None:
    record = merged([_ok(1, 10.0), _ok(2, 12.0), _ok(3, 11.0)], 3)
    assert record.latency_ms is not None
    assert (record.latency_ms.p90, record.latency_ms.max) == (11.0, 36.0)
    assert (record.load_ms, record.peak_rss_mb, record.queries, record.duration_s) == (11.0, 112.0, 300, 9.0)
    assert record.loadgen is not None
    assert (record.loadgen.early_stopping_ms, record.loadgen.log_dir) == (12.0, "round-1/loadgen")
    assert (record.host.before, record.host.after) == ({"round": 1}, {"round": 3})
    assert [each.folder for each in record.rounds] == ["round-1", "round-2", "round-3"]
    interval = record.intervals["latency_ms.p90"]
    assert (interval.n, interval.of) == (3, "rounds")
    assert interval.low == pytest.approx(11 - 4.3027 * 1 / 3**0.5, rel=1e-4)
    assert set(record.intervals) == {f"latency_ms.{name}" for name in ("mean", "p50", "p90", "p95", "p99")}


def test_a_single_round_is_the_record_itself() -> None:
    record = _ok(1, 10.0)
    assert merged([record], 1) is record


def test_a_lost_round_is_told_and_its_figures_left_out() -> None:
    record = merged([_ok(1, 10.0), _not_ok(2, "failed", KILLED), _ok(3, 12.0)], 3)
    assert record.status == "ok"
    assert record.latency_ms is not None
    assert record.latency_ms.p90 == 11.0
    (note,) = [note for note in record.warnings if note.code == "round-lost"]
    assert "2 of 3 rounds" in note.text
    assert "round 2 failed: the worker was killed" in note.text
    assert [each.status for each in record.rounds] == ["ok", "failed", "ok"]
    assert "--resume" in note.hint
    (slow,) = [n for n in merged([_ok(1, 10.0), _not_ok(2, "skipped", SLOW)], 2).warnings if n.code == "round-lost"]
    assert "--resume" not in slow.hint, "it is not tried again"


def test_one_ok_round_of_many_keeps_the_interval_from_within_it() -> None:
    interval = Interval(low=9, high=11, n=10, of="blocks")
    record = merged([_not_ok(1, "failed", KILLED), _ok(2, 10.0, intervals={"latency_ms.p90": interval})], 2)
    assert record.intervals == {"latency_ms.p90": interval}


def test_without_an_ok_round_the_first_reason_stands() -> None:
    record = merged([_not_ok(1, "failed", KILLED), _not_ok(2, "skipped", SLOW)], 2)
    assert (record.status, record.reason) == ("failed", KILLED)
    assert len(record.rounds) == 2
    assert "round-lost" not in {note.code for note in record.warnings}


def test_a_run_that_has_rounds_to_come_says_so() -> None:
    assert "rounds-missing" in {note.code for note in merged([_ok(1, 10.0)], 3).warnings}
    assert "rounds-missing" not in {note.code for note in merged([_not_ok(1, "skipped", SLOW)], 3).warnings}


def test_rounds_that_lie_apart_are_told() -> None:
    assert "rounds-differ" in {note.code for note in merged([_ok(1, 10.0), _ok(2, 12.0)], 2).warnings}


def test_warnings_of_all_rounds_are_told_once_with_their_rounds() -> None:
    busy = [Note(code="cpu-time", text=f"1.{n} CPU seconds", hint="h") for n in range(3)]
    record = merged(
        [
            _ok(1, 10.0, warnings=[RANDOM, busy[0]]),
            _ok(2, 10.0, warnings=[RANDOM]),
            _ok(3, 10.0, warnings=[RANDOM, busy[2]]),
        ],
        3,
    )
    assert record.warnings == [
        RANDOM,
        Note(code="cpu-time", text="1.0 CPU seconds (in round 1; likewise in 3)", hint="h"),
    ]
    assert record.rounds[2].warnings == ["random-weights", "cpu-time"]


def test_what_any_round_found_out_is_kept() -> None:
    probe = ProbeInfo(recipe="u8 x s8", expected=63.36, found=32.3, ok=False)
    checks = [
        OutputCheck(sqnr_db=sqnr, top1_agreement=1, n=4, stable=stable) for sqnr, stable in ((40, True), (30, False))
    ]
    record = merged([_ok(1, 10.0, output_check=checks[0]), _ok(2, 10.0, output_check=checks[1], probe=probe)], 2)
    assert record.probe == probe
    assert record.output_check == checks[1]


@pytest.mark.parametrize("code", ["saturation", "no-probe", "no-profile", "cut-short", "single-inference"])
def test_what_is_told_once_a_cell_holds_in_all_its_rounds(code: str) -> None:
    note = Note(code=code, text="a convolution gives 32.3")
    assert merged([_ok(1, 10.0, warnings=[note]), _ok(2, 10.0), _ok(3, 10.0)], 3).warnings == [note]


def test_an_invalid_round_may_be_the_one_that_was_probed_and_profiled() -> None:
    probe = ProbeInfo(recipe="u8 x s8", expected=63.36, found=32.3, ok=False)
    profile = OperatorProfile(tool="t", threads=1, inferences=9, profiled_ms=1.0, groups={}, operators=[])
    note = Note(code="saturation", text="a convolution gives 32.3")
    asked = _not_ok(1, "invalid", INVALID, probe=probe, profile=profile, warnings=[note, RANDOM])
    record = merged([asked, _ok(2, 10.0)], 2)
    assert (record.probe, record.profile) == (probe, profile)
    assert note in record.warnings
    assert RANDOM not in record.warnings, "of the round that is not ok"
    assert merged([_not_ok(1, "invalid", INVALID), _not_ok(2, "invalid", INVALID, probe=probe)], 2).probe == probe


_KINDS = st.sampled_from(["ok", "failed", "skipped"])


@given(kinds=st.lists(_KINDS, min_size=1, max_size=6), ms=st.lists(st.floats(1e-3, 1e5), min_size=6, max_size=6))
def test_any_mixture_of_rounds_makes_a_record(kinds: list[str], ms: list[float]) -> None:
    records = [
        _ok(n, ms[n - 1]) if kind == "ok" else _not_ok(n, kind, SLOW if kind == "skipped" else KILLED)
        for n, kind in enumerate(kinds, 1)
    ]
    record = Record.model_validate(merged(records, len(kinds)).model_dump()) if len(kinds) > 1 else records[0]
    assert record.status == ("ok" if "ok" in kinds else kinds[0])
    assert [each.status for each in record.rounds] == kinds
    if "ok" in kinds:
        assert record.latency_ms is not None
        good = [value for kind, value in zip(kinds, ms, strict=False) if kind == "ok"]
        assert min(good) <= record.latency_ms.p90 <= max(good)
    assert closed(records) == ("skipped" in kinds and "ok" not in kinds)


def _progress(path: Path, rounds: int = 3) -> CellProgress:
    return CellProgress(RunFolder(path, "r", {}, ()), CELL, rounds)


def _measured(progress: CellProgress, record: Record) -> None:
    write_record(progress.folder(record.run.round) / FILE_NAME, record)


def test_progress_goes_on_where_it_was_left(tmp_path: Path) -> None:
    first = _progress(tmp_path)
    _measured(first, _ok(1, 10.0))
    first.add(1, _ok(1, 10.0))
    again = _progress(tmp_path)
    assert [again.wants(number) for number in (1, 2, 3)] == [False, True, True]
    assert again.left == 2
    assert again.record == read_record(again.path)


def test_a_kill_between_a_round_and_the_cells_record_loses_nothing(tmp_path: Path) -> None:
    progress = _progress(tmp_path)
    for number in (1, 2):
        _measured(progress, _ok(number, 10.0))
    again = _progress(tmp_path)
    again.settle()
    assert len(read_record(again.path).rounds) == 2


def test_a_failed_round_is_tried_again_and_a_slow_cell_is_not(tmp_path: Path) -> None:
    progress = _progress(tmp_path / "failed")
    _measured(progress, _ok(1, 10.0))
    _measured(progress, _not_ok(2, "failed", KILLED))
    assert [_progress(tmp_path / "failed").wants(number) for number in (1, 2, 3)] == [False, True, True]
    progress = _progress(tmp_path / "slow")
    _measured(progress, _not_ok(1, "skipped", SLOW))
    assert _progress(tmp_path / "slow").left == 0


def test_a_refused_cell_is_refused_once_and_its_record_kept_when_it_runs_at_last(tmp_path: Path) -> None:
    refused = _progress(tmp_path)
    refused.refuse(Record.failed(CELL, KILLED, _info(1)))
    assert refused.left == 0
    again = _progress(tmp_path)
    assert again.left == 3
    _measured(again, _ok(1, 10.0))
    again.add(1, _ok(1, 10.0))
    assert read_record(again.path).status == "ok"
    assert read_record(again.path.with_name("record.try-1.json")).status == "failed"
    skipped = _progress(tmp_path / "skipped")
    skipped.refuse(Record.skipped(CELL, SLOW, _info(1)))
    assert _progress(tmp_path / "skipped").left == 0


@pytest.mark.parametrize(("status", "reason"), [("failed", KILLED), ("invalid", INVALID)])
def test_a_lost_round_is_tried_again_and_the_record_that_told_of_it_is_kept(
    tmp_path: Path, status: str, reason: Note
) -> None:
    first = _progress(tmp_path)
    for record in (_not_ok(1, status, reason), _ok(2, 10.0), _not_ok(3, status, reason)):
        _measured(first, record)
        first.add(record.run.round, record)
    assert len(read_record(first.path).rounds) == 3
    again = _progress(tmp_path)
    assert [again.wants(number) for number in (1, 2, 3)] == [True, False, True]
    again.settle()
    assert [each.round for each in read_record(again.path).rounds] == [2]
    kept = read_record(again.path.with_name("record.try-1.json"))
    assert [each.status for each in kept.rounds] == [status, "ok", status]
    third = _progress(tmp_path)
    third.settle()
    third.add(1, _ok(1, 10.0))
    assert len(list(first.path.parent.glob("record.try-*"))) == 1, "nothing new was told in between"


def test_a_cell_that_was_invalid_in_every_round_keeps_what_it_said(tmp_path: Path) -> None:
    first = _progress(tmp_path, 2)
    for number in (1, 2):
        _measured(first, _not_ok(number, "invalid", INVALID))
        first.add(number, _not_ok(number, "invalid", INVALID))
    again = _progress(tmp_path, 2)
    assert again.left == 2
    again.add(1, _ok(1, 10.0))
    assert len(read_record(again.path.with_name("record.try-1.json")).rounds) == 2


def test_an_invalid_cell_of_one_round_is_tried_again_as_its_note_says(tmp_path: Path) -> None:
    progress = _progress(tmp_path, 1)
    write_record(progress.path, _not_ok(1, "invalid", INVALID))
    assert _progress(tmp_path, 1).left == 1


def test_a_late_accuracy_keeps_the_rounds(tmp_path: Path) -> None:
    lacks = [Note(code="accuracy-failed", text="the worker was killed"), RANDOM]
    first = _progress(tmp_path, 2)
    for number in (1, 2):
        _measured(first, _ok(number, 10.0 + number, warnings=lacks))
        first.add(number, _ok(number, 10.0 + number, warnings=lacks))
    again = _progress(tmp_path, 2)
    assert again.left == 0, "what was timed is timed"
    accuracy = Accuracy(top1=0.5, top5=0.9, n=10, dataset="d", preprocessing="p")
    loss = Note(code="accuracy-loss", text="30 points")

    def change(record: Record) -> Record:
        return with_accuracy(record, accuracy, [loss, RANDOM])

    again.change(change)
    record = read_record(again.path)
    assert record.accuracy == accuracy
    assert record.warnings == [RANDOM, loss]
    assert [each.warnings for each in record.rounds] == [["random-weights", "accuracy-loss"]] * 2
    assert record.latency_ms is not None
    assert record.latency_ms.p90 == 11.5
    third = _progress(tmp_path, 2)
    third.change(change)
    assert third.record == record
    for folder in (again.path.parent, again.folder(1), again.folder(2)):
        assert [path.name for path in folder.glob("record.try-*")] == ["record.try-1.json"]


def test_an_accuracy_that_fails_again_changes_nothing(tmp_path: Path) -> None:
    record = _ok(1, 10.0, warnings=[Note(code="accuracy-failed", text="killed")])
    assert with_accuracy(record, None, [Note(code="accuracy-failed", text="killed again")]) is record
    whole = _ok(1, 10.0)
    assert with_accuracy(whole, Accuracy(top1=1, top5=1, n=1, dataset="d", preprocessing="p"), []) is whole


@pytest.mark.parametrize(
    ("percentile", "name"), [(0.9, "p90"), (0.95, "p95"), (0.99, "p99"), (0.97, "p99"), (0.999, "max"), (None, "p90")]
)
def test_the_figure_judged_is_one_that_the_record_holds(percentile: float | None, name: str) -> None:
    record = _ok(1, 10.0)
    assert record.loadgen is not None
    record = record.model_copy(update={"loadgen": record.loadgen.model_copy(update={"percentile": percentile})})
    assert judged(record) == f"latency_ms.{name}"
    assert figure_of(record, judged(record)) == (30.0 if name == "max" else 10.0)
    offline = record.model_copy(update={"cell": Cell("m", "tflite", "fp32", "offline"), "samples_per_second": 7.0})
    assert figure_of(offline, judged(offline)) == 7.0
