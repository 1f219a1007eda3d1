from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from edgeq.report.frames import frame, records_of
from edgeq.report.runs import load_runs
from edgeq.run.record import Record
from edgeq.spec.note import Note
from tests.report.factory import PI, QEMU, artifact, record, study, write_run

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
