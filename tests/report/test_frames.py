from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from edgeq.report.figures import Estimate, overlaps, ranks
from edgeq.report.frames import frame, records_of
from edgeq.report.runs import load_runs
from edgeq.run.record import Record
from edgeq.spec.note import Note
from tests.report.factory import PI, QEMU, SATURATES, artifact, profile, record, study, with_rounds, write_run

UNSTEADY = Note(code="unsteady", text="p99 is 9 times p50")
S = "single-stream"


def rows(tmp_path: Path, records: Iterable[Record]) -> dict[str, dict[str, Any]]:
    write_run(tmp_path, records)
    found = records_of(frame(load_runs(tmp_path)))
    return {f"{row['backend']}/{row['scheme']}/{row['scenario']}": row for row in found}


def test_speedup_is_time_saved_in_latency_and_rate_gained_in_offline(tmp_path: Path) -> None:
    names = [f"m/tflite/{scheme}/{scenario}" for scheme in ("fp32", "int8-static") for scenario in (S, "offline")]
    found = rows(tmp_path, [record(name, ms) for name, ms in zip(names, (10, 10, 4, 2), strict=True)])
    assert found["tflite/int8-static/single-stream"]["speedup"] == pytest.approx(2.5)
    assert found["tflite/int8-static/offline"]["speedup"] == pytest.approx(5)
    assert found["tflite/fp32/offline"]["speedup"] == pytest.approx(1)


def test_speedup_never_crosses_frameworks_models_or_a_doubtful_baseline(tmp_path: Path) -> None:
    found = rows(tmp_path, [
        record(f"m/tflite/fp32/{S}", 10, warnings=[UNSTEADY]), record(f"m/tflite/fp16/{S}", 5),
        record(f"m/openvino/fp16/{S}", 5), record(f"other/openvino/fp32/{S}", 10),
    ])  # fmt: skip
    assert found["tflite/fp16/single-stream"]["speedup"] is None
    assert found["openvino/fp16/single-stream"]["speedup"] is None


def test_ranks_leave_out_what_is_gated(tmp_path: Path) -> None:
    found = rows(tmp_path, [
        record(f"m/tflite/fp32/{S}", 10, top1=0.80), record(f"m/openvino/fp32/{S}", 8, top1=0.80),
        record(f"m/tflite/int8-static/{S}", 2, top1=0.76), record(f"m/openvino/int8-static/{S}", 3, top1=0.775),
        record(f"m/pytorch/fp32/{S}", 1, stable=False), record(f"m/onnxruntime/fp32/{S}", 1, warnings=[UNSTEADY]),
    ])  # fmt: skip
    ranks = {name: (row["rank"], row["gates"]) for name, row in found.items()}
    assert ranks == {
        "openvino/int8-static/single-stream": (1, ""), "openvino/fp32/single-stream": (2, ""),
        "tflite/fp32/single-stream": (3, ""), "tflite/int8-static/single-stream": (None, "accuracy-loss"),
        "pytorch/fp32/single-stream": (None, "output-differs"), "onnxruntime/fp32/single-stream": (None, "unsteady"),
    }  # fmt: skip


def test_devices_and_models_are_ranked_apart_and_emulation_never(tmp_path: Path) -> None:
    for device in (None, PI, QEMU):
        write_run(tmp_path, [record(f"{m}/tflite/fp32/{S}", 9, device=device) for m in ("a", "b")], device=device)
    found = records_of(frame(load_runs(tmp_path)))
    assert {(row["device"], row["model"]): row["rank"] for row in found} == {
        ("xeon", "a"): 1, ("xeon", "b"): 1, ("pi4", "a"): 1, ("pi4", "b"): 1, ("qemu", "a"): None, ("qemu", "b"): None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("percentile", "judged"), [(0.9, "p90"), (0.99, "p99"), (0.5, "p50"), (0.97, "p99"), (0.999, "max")]
)
def test_the_figure_is_the_percentile_that_loadgen_judged(percentile: float, judged: str, tmp_path: Path) -> None:
    found = rows(tmp_path, [record(f"m/tflite/fp32/{S}", 10, percentile=percentile)])[f"tflite/fp32/{S}"]
    assert found["judged"] == judged
    assert found["figure"] == found["max_ms" if judged == "max" else f"{judged}_ms"]


def test_accuracy_is_shared_by_the_scenarios_of_one_artifact_only(tmp_path: Path) -> None:
    told = record(f"m/tflite/fp32/{S}", top1=0.8)
    other = artifact("fp32").model_copy(update={"key": "another"})
    found = rows(
        tmp_path, [told, record("m/tflite/fp32/offline"), record("m/tflite/fp32/multi-stream", artifact=other)]
    )
    assert found["tflite/fp32/offline"]["top1"] == 0.8
    assert found["tflite/fp32/multi-stream"]["top1"] is None


def test_random_weights_have_no_accuracy(tmp_path: Path) -> None:
    found = rows(tmp_path, [record(f"m/tflite/fp32/{S}", top1=0.5, weights="random")])[f"tflite/fp32/{S}"]
    assert (found["top1"], found["top5"], found["agreement_with_fp32"]) == (None, None, 0.97)


def test_every_cell_of_a_study_is_one_row(tmp_path: Path) -> None:
    found = rows(tmp_path, study())
    assert len(found) == 48
    assert {row["status"] for row in found.values()} == {"ok", "failed", "skipped", "invalid"}
    assert all(row["rank"] is None for row in found.values() if row["status"] != "ok")


def test_cells_that_cannot_be_told_apart_share_a_rank(tmp_path: Path) -> None:
    found = rows(tmp_path, [
        record(f"m/openvino/fp32/{S}", 10.0), record(f"m/tflite/fp32/{S}", 10.3), record(f"m/pytorch/fp32/{S}", 10.6),
        record(f"m/onnxruntime/fp32/{S}", 13.0, spread=0.3),
    ])  # fmt: skip
    assert {name.split("/")[0]: row["rank"] for name, row in found.items()} == {
        "openvino": 1, "tflite": 1, "onnxruntime": 1, "pytorch": 4,
    }  # fmt: skip


def test_a_speedup_has_an_interval_paired_by_round_where_there_are_rounds(tmp_path: Path) -> None:
    found = rows(tmp_path, [
        with_rounds(record(f"m/tflite/fp32/{S}", 10.0), [0.8, 1.0, 1.2], 0.5),
        with_rounds(record(f"m/tflite/fp16/{S}", 5.0), [0.8, 1.01, 1.2], 0.5),
        record(f"m/pytorch/fp32/{S}", 10.0), record(f"m/pytorch/fp16/{S}", 8.0),
        record(f"m/openvino/fp32/{S}", 10.0, spread=None), record(f"m/openvino/fp16/{S}", 5.0),
    ])  # fmt: skip
    paired = found[f"tflite/fp16/{S}"]
    assert (paired["speedup"], paired["speedup_n"], paired["speedup_of"]) == (pytest.approx(2.0), 3, "rounds")
    assert 1.9 < paired["speedup_low"] <= 2.0 <= paired["speedup_high"] < 2.1
    worst = found[f"pytorch/fp16/{S}"]
    assert worst["speedup_of"] == "intervals"
    ends = (pytest.approx(1.25 * 0.98 / 1.02), pytest.approx(1.25 * 1.02 / 0.98))
    assert (worst["speedup_low"], worst["speedup_high"]) == ends
    unknown = found[f"openvino/fp16/{S}"]
    assert (unknown["speedup"], unknown["speedup_low"]) == (pytest.approx(2.0), None)


def test_only_what_is_surely_slower_gets_the_note(tmp_path: Path) -> None:
    names = ("openvino", 10.2, 0.02), ("tflite", 11.0, 0.02), ("pytorch", 30.0, None), ("onnxruntime", 10.3, None)
    records = [record(f"m/{name}/fp32/{S}", 10.0) for name, _, _ in names]
    records += [record(f"m/{name}/fp16/{S}", ms, spread=spread) for name, ms, spread in names]
    found = rows(tmp_path, records)
    told = {name.split("/")[0]: row["warnings"] for name, row in found.items() if "fp16" in name}
    assert told == {"openvino": "", "tflite": "slower-than-fp32", "pytorch": "slower-than-fp32", "onnxruntime": ""}
    assert "slower than its fp32 (no interval)" in found[f"pytorch/fp16/{S}"]["notes"][0].text
    assert found[f"tflite/fp16/{S}"]["gates"] == ""


@pytest.mark.parametrize(
    ("own", "base", "text"),
    [
        (None, None, "as it has no profile"), (30.0, None, "as its fp32 has no profile"),
        (None, 10.0, "as it has no profile"),
        (30.0, 10.0, "3.0 times as slow as fp32"),
        (10.0, 10.0, "measured slower than its fp32, which its profile does not show"),
    ],
)  # fmt: skip
def test_the_note_says_why_or_that_nothing_says_it(
    own: float | None, base: float | None, text: str, tmp_path: Path
) -> None:
    found = rows(tmp_path, [
        record(f"m/tflite/fp32/{S}", 10.0, profile=profile(base, convolution=0.9) if base else None),
        record(f"m/tflite/fp16/{S}", 30.0, profile=profile(own, convolution=0.3, convert=0.6) if own else None),
    ])  # fmt: skip
    (note,) = found[f"tflite/fp16/{S}"]["notes"]
    assert note.code == "slower-than-fp32"
    assert text in note.text
    assert note.hint.endswith(f"edgeq explain m/tflite/fp16/{S}")


def test_profile_and_probe_are_shared_by_the_scenarios_of_one_artifact_only(tmp_path: Path) -> None:
    other = artifact("int8-static").model_copy(update={"key": "another"})
    told = record(f"m/tflite/int8-static/{S}", profile=profile(4.0, convolution=0.7), probe=SATURATES)
    found = rows(tmp_path, [told, record("m/tflite/int8-static/offline"),
                            record("m/tflite/int8-static/multi-stream", artifact=other)])  # fmt: skip
    shared, apart = found["tflite/int8-static/offline"], found["tflite/int8-static/multi-stream"]
    assert (shared["probe_ok"], shared["ms_convolution"], shared["profiled_ms"]) == (False, pytest.approx(2.8), 4.0)
    assert "70 % of 4.00 ms" in shared["verdict"]
    assert (apart["probe_ok"], apart["profiled_ms"], apart["verdict"]) == (None, None, None)


def test_all_scenarios_of_an_artifact_share_one_note(tmp_path: Path) -> None:
    names = [f"m/tflite/{scheme}/{scenario}" for scheme in ("fp32", "fp16") for scenario in (S, "offline")]
    found = rows(tmp_path, [record(name, 30.0 if "fp16" in name else 10.0) for name in names])
    notes = {note for row in found.values() for note in row["notes"]}
    assert len(notes) == 1


def test_a_neighbour_gates_one_round_and_not_several(tmp_path: Path) -> None:
    note = Note(code="busy-neighbour", text="other processes kept 1.0 of 2 CPUs busy")
    one = record(f"m/tflite/fp32/{S}", warnings=[note])
    found = rows(tmp_path, [one, with_rounds(record(f"m/openvino/fp32/{S}", warnings=[note]), [1.0, 1.1])])
    assert found[f"tflite/fp32/{S}"]["gates"] == "busy-neighbour"
    assert found[f"openvino/fp32/{S}"]["rank"] == 1


def test_a_thousand_records_are_no_work() -> None:
    """Work grows with the cells, not with their square: counted in comparisons, not in seconds."""
    calls = 0
    found = overlaps

    def counting(*pair: Any) -> bool:
        nonlocal calls
        calls += 1
        return found(*pair)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgeq.report.figures.overlaps", counting)
        ranks([Estimate(10.0, 9.0, 11.0)] * 1000, rate=False)
    assert calls < 1000


def disagreeing(cell: str, ms: float, agreement: float | None, **known: Any) -> Record:
    found = record(cell, ms, **known)
    assert found.accuracy is not None
    return found.model_copy(update={"accuracy": found.accuracy.model_copy(update={"agreement_with_fp32": agreement})})


def test_a_cell_far_from_float_is_not_ranked_first(tmp_path: Path) -> None:
    """Three as fast as can be, none of them the network: by images, by its logits with random weights, without images."""
    found = rows(tmp_path, [
        record(f"m/openvino/fp32/{S}", 10, top1=0.80), disagreeing(f"m/openvino/int8-static/{S}", 3, 0.30, top1=0.79),
        record(f"m/tflite/fp32/{S}", 10), record(f"m/tflite/int8-static/{S}", 3, sqnr=1.0, agreement=0.0),
        record(f"m/pytorch/fp32/{S}", 10, weights="random", top1=0.001),
        disagreeing(f"m/pytorch/int8-static/{S}", 3, 0.02, weights="random", top1=0.001),
        disagreeing(f"m/onnxruntime/int8-static/{S}", 3, None, top1=0.01, sqnr=2.0),
    ])  # fmt: skip
    gated = {name: row["gates"] for name, row in found.items() if "int8" in name}
    assert set(gated.values()) == {"low-agreement"}
    assert all(found[name]["rank"] is None for name in gated)
    assert [note.code for note in found[f"tflite/int8-static/{S}"]["notes"]] == ["low-agreement"]


def test_a_measured_top1_weighs_more_than_an_sqnr_of_a_few_samples(tmp_path: Path) -> None:
    """MobileNetV2 with two layers in float: 8.7 dB, top-1 kept. The note of the device stays, and does not decide."""
    note = Note(code="low-agreement", text="logits lie 8.7 dB from float32")
    kept = record(f"m/onnxruntime/int8-static/{S}", 4, top1=0.795, sqnr=8.7, agreement=0.5, warnings=[note])
    found = rows(tmp_path, [record(f"m/onnxruntime/fp32/{S}", 10, top1=0.80), kept])
    assert (found[f"onnxruntime/int8-static/{S}"]["gates"], found[f"onnxruntime/int8-static/{S}"]["rank"]) == ("", 1)


def test_a_note_of_low_agreement_is_not_doubled_and_does_not_decide_against_the_figures(tmp_path: Path) -> None:
    note = Note(code="low-agreement", text="logits lie 8.7 dB from float32")
    found = rows(tmp_path, [record(f"m/openvino/int8-static/{S}", sqnr=8.7, warnings=[note]),
                            record(f"m/tflite/int8-static/{S}", sqnr=13.0, warnings=[note])])  # fmt: skip
    assert found[f"openvino/int8-static/{S}"]["gates"] == "low-agreement"
    assert found[f"openvino/int8-static/{S}"]["notes"] == [note]
    assert found[f"tflite/int8-static/{S}"]["gates"] == ""


def told(tmp_path: Path, ms: float, own: float, *, spread: float | None = 0.02) -> dict[str, Any]:
    """An int8 cell of ``ms`` against 10 ms of fp32, whose profiles say ``own`` against 10 ms."""
    return rows(tmp_path, [
        record(f"m/onnxruntime/fp32/{S}", 10.0, profile=profile(10.0, convolution=0.9), spread=spread),
        record(f"m/onnxruntime/int8-static/{S}", ms, spread=spread, profile=profile(own, convolution=0.6, convert=0.3)),
    ])[f"onnxruntime/int8-static/{S}"]  # fmt: skip


def test_a_verdict_never_says_the_opposite_of_what_was_measured(tmp_path: Path) -> None:
    found = told(tmp_path, 8.0, 11.2)
    assert found["verdict"].startswith("measured 1.25x (")
    assert "its profile does not show why; by the profile 60 % of its time goes into convolutions" in found["verdict"]
    assert "slow" not in found["verdict"]


@pytest.mark.parametrize(
    ("ms", "spread", "starts"),
    [
        (10.1, 0.02, "no difference from its fp32 was shown, ~1 ("),
        (5.0, None, "measured 2.00x ±? as fast as its fp32 (no in"),
    ],
)
def test_an_unsure_difference_has_no_cause(ms: float, spread: float | None, starts: str, tmp_path: Path) -> None:
    verdict = told(tmp_path, ms, 5.0, spread=spread)["verdict"]
    assert verdict.startswith(starts)
    assert "because" not in verdict
    assert "times as" not in verdict


def test_a_sure_difference_that_the_profile_shows_is_explained(tmp_path: Path) -> None:
    assert told(tmp_path, 5.0, 5.0)["verdict"].startswith("2.0 times as fast as fp32")


def test_slower_by_far_without_an_interval_names_no_cause(tmp_path: Path) -> None:
    (note,) = told(tmp_path, 30.0, 30.0, spread=None)["notes"]
    assert note.text.startswith("measured slower than its fp32 (no interval)")
    assert "because" not in note.text
