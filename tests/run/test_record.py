from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from edgeq.artifact import CalibrationInfo, FileEntry, InputInfo, Manifest, Reference, WeightsInfo
from edgeq.run.record import (
    ArtifactInfo,
    Latency,
    LoadgenInfo,
    Record,
    RunInfo,
    read_record,
    record_path,
    write_record,
)
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import Cell
from edgeq.spec.note import Note

CELL = Cell("mobilenet_v2", "tflite", "int8-static", "single-stream")
RUN = RunInfo(id="r1", profile="quick", title="quick look", started="2026-01-02T03:04:05+00:00", order=0)
REASON = Note(code="killed", text="the worker was killed (signal 9)", hint="run again")
LATENCY = Latency(mean=1.0, p50=1.0, p90=2.0, p95=2.5, p99=3.0, max=4.0)
VALID = LoadgenInfo(version="6.0.17", scenario="SingleStream", valid=True, percentile=0.9)


def _ok(**changes: Any) -> Record:
    fields: dict[str, Any] = {"cell": CELL, "status": "ok", "run": RUN, "latency_ms": LATENCY, "loadgen": VALID}
    return Record(**{**fields, **changes})


def _manifest() -> Manifest:
    return Manifest(
        model="mobilenet_v2", backend="tflite", scheme="int8-static", target="any", status="ok",
        files=[FileEntry(name="int8-static.tflite", sha256="a" * 64, bytes=10),
               FileEntry(name="extra.bin", sha256="b" * 64, bytes=5)],
        key="k", weights=WeightsInfo(kind="random", name="random, seed 0", sha256="c" * 64, seed=0),
        calibration=CalibrationInfo(kind="folder", path="images", count=128, seed=0, sha256="d" * 64,
                                    images=["e" * 64] * 128),
        input=InputInfo(shape=(224, 224, 3), layout="NHWC"), classes=1000,
        reference=Reference(file="../reference.npz", sha256="f" * 64),
    )  # fmt: skip


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = record_path(tmp_path, CELL)
    record = _ok(artifact=ArtifactInfo.of(_manifest(), "models/x.tflite"), warnings=[REASON])
    write_record(path, record)
    assert read_record(path) == record
    assert path.relative_to(tmp_path).as_posix() == "mobilenet_v2/tflite/int8-static/single-stream/record.json"


def test_the_file_reads_with_json_alone(tmp_path: Path) -> None:
    write_record(tmp_path / "record.json", _ok())
    value = json.loads((tmp_path / "record.json").read_text())
    assert value["schema"] == 4
    assert value["cell"] == CELL.as_dict()
    assert value["latency_ms"]["p90"] == 2.0


def test_an_artifact_keeps_the_count_of_its_calibration_images_and_not_their_list() -> None:
    info = ArtifactInfo.of(_manifest(), "models/x.tflite")
    assert info.bytes == 15
    assert info.calibration.count == 128
    assert "images" not in info.calibration.model_dump()


def test_a_record_travels_between_processes() -> None:
    assert pickle.loads(pickle.dumps(_ok())) == _ok()


@pytest.mark.parametrize("make", [Record.failed, Record.skipped])
def test_constructors_keep_what_was_found_out(make: Any) -> None:
    record = make(CELL, REASON, RUN, peak_rss_mb=12.5)
    assert record.status == make.__name__
    assert (record.reason, record.peak_rss_mb) == (REASON, 12.5)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "failed"},
        {"reason": REASON},
        {"latency_ms": None},
        {"loadgen": None},
        {"loadgen": VALID.model_copy(update={"valid": False})},
        {"loadgen": VALID.model_copy(update={"errors": ["no"]})},
        {"cell": Cell("m", "tflite", "fp32", "offline")},
        {"latency_typo": 1},
    ],
)
def test_a_record_cannot_claim_more_than_it_holds(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        _ok(**changes)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_no_figure_is_nan(number: float, tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        _ok(peak_rss_mb=number)
    with pytest.raises(EdgeqError) as caught:
        write_record(tmp_path / "record.json", _ok(device={"ghz": number}))
    assert caught.value.code == "bad-record"
    assert list(tmp_path.iterdir()) == []


def test_a_newer_schema_is_named_as_such(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(json.dumps({"schema": 5, "cell": "changed beyond recognition"}))
    with pytest.raises(EdgeqError) as caught:
        read_record(path)
    assert caught.value.code == "newer-schema"
    assert str(path) in caught.value.what


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"schema": "1"}', '{"schema": true}', '{"schema": 1}', '{"schema": NaN}',
             "[" * 100_000],
)  # fmt: skip
def test_a_corrupt_record_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(EdgeqError) as caught:
        read_record(path)
    assert caught.value.code == "bad-record"
    assert str(path) in caught.value.what


def test_bytes_that_are_not_text_are_corrupt_and_a_missing_file_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EdgeqError, match="is not a record"):
        read_record(path)
    with pytest.raises(EdgeqError) as caught:
        read_record(tmp_path / "gone.json")
    assert caught.value.code == "no-record"


@given(cut=st.integers(min_value=0, max_value=400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_a_truncated_record_never_passes(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    write_record(path, _ok())
    whole = path.read_text()
    path.write_text(whole.rstrip()[:-1][:cut])
    with pytest.raises(EdgeqError):
        read_record(path)


def test_importing_the_record_loads_nothing_heavy() -> None:
    code = (
        "import sys, edgeq.run.record;"
        "print([m for m in ('pandas','torch','numpy','onnxruntime','openvino','rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_record_of_schema_1_is_read_as_one_without_rounds() -> None:
    """As edgeq 0.1.0 wrote it, before there were rounds, intervals, probes and operator profiles."""
    record = read_record(Path(__file__).with_name("record-schema-1.json"))
    assert record.status == "ok"
    assert record.latency_ms is not None
    assert record.latency_ms.p90 == 12.794847
    assert record.requested is not None
    assert record.requested.rounds == 1
    assert (record.rounds, record.intervals, record.profile, record.probe) == ([], {}, None, None)


def test_a_record_of_schema_2_is_read_as_one_without_peaks() -> None:
    """As it was written before there were settings, multiply-adds and peaks."""
    record = read_record(Path(__file__).with_name("record-schema-2.json"))
    assert record.status == "ok"
    assert record.latency_ms is not None
    assert record.latency_ms.p50 > 0
    assert record.profile is not None
    assert record.artifact is not None
    assert record.requested is not None
    assert (record.artifact.macs, record.peaks) == (None, None)
    assert (record.requested.setting, record.requested.batch) == ("default", 1)


def test_a_record_of_schema_3_is_read_as_one_that_nobody_watched() -> None:
    """As it was written before a sampler told what the device did during the measurement."""
    record = read_record(Path(__file__).with_name("record-schema-3.json"))
    assert record.status == "ok"
    assert record.peaks is not None
    assert [each.status for each in record.rounds] == ["ok", "ok"]
    for host in (record.host, *(each.host for each in record.rounds)):
        assert host.before is not None
        assert (host.during, host.slowed_by) == (None, [])
