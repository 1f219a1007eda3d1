from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeq.backends import open_session
from edgeq.backends.onnxruntime_profile import executed, float_ops, parse
from edgeq.backends.session import SessionOptions
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import SCHEMES
from tests.backends.sessions import (
    check_a_failing_done,
    check_a_failing_sample,
    check_batches,
    check_inference,
    check_refused_batch,
    effective,
)
from tests.export.exported import Exported, export, sqnr_db

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytest.importorskip("onnxconverter_common")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("onnxruntime")
    return {scheme: export("onnxruntime", scheme, folder, target="x86_64") for scheme in SCHEMES}


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("scheme", ["fp32", "fp16", "int8-static"])
def test_every_way_to_infer_gives_the_same(artifacts: dict[str, Exported], scheme: str, streams: int) -> None:
    assert sqnr_db(check_inference(artifacts[scheme], streams), artifacts[scheme].logits) > 15


def test_dynamic_ranges_are_of_one_sample_where_samples_are_inferred_one_by_one(
    artifacts: dict[str, Exported],
) -> None:
    assert sqnr_db(check_inference(artifacts["int8-dynamic"], 2), artifacts["int8-dynamic"].logits) > 15


@pytest.mark.parametrize("streams", [1, 2])
def test_a_failure_in_done_is_raised(artifacts: dict[str, Exported], streams: int) -> None:
    check_a_failing_done(artifacts["fp32"], streams)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_sample_of_a_wrong_shape_is_raised(artifacts: dict[str, Exported], streams: int) -> None:
    check_a_failing_sample(artifacts["fp32"], streams)


def test_float32_computes_in_float32(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["fp32"])
    assert found.macs == {"fp32": 1.0}
    assert found.warnings == ()
    assert found.float_ops == {}


def test_float16_says_what_its_operators_take(artifacts: dict[str, Exported]) -> None:
    """Trap 8: without float16 kernels the provider widens, and the artifact is only stored in half."""
    found = effective(artifacts["fp16"])
    half = any(name.startswith(("Conv(float16", "FusedConv(float16")) for name in found.extra["operators"])
    assert set(found.macs) <= ({"fp16", "fp32"} if half else {"fp32"})
    assert found.warnings == ()


def test_static_int8_runs_in_int8(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["int8-static"])
    assert found.macs == {"int8": 1.0}
    assert found.float_ops == {}


def test_dynamic_int8_leaves_depthwise_convolutions_in_float(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["int8-dynamic"])
    layers = artifacts["int8-dynamic"].manifest.layers
    share = sum(layer.macs for layer in layers if layer.op == "depthwise") / sum(layer.macs for layer in layers)
    assert found.macs == pytest.approx({"fp32": share, "int8": 1 - share})
    assert found.float_ops["Conv"] == 1


@pytest.mark.parametrize(
    ("threads", "streams", "expected"),
    [(1, 1, (1, 1, 1)), (2, 1, (2, 1, 1)), (2, 2, (2, 2, 1)), (3, 2, (2, 2, 1)), (4, 2, (4, 2, 2)), (1, 4, (1, 1, 1))],
)
def test_threads_are_divided_among_streams(
    artifacts: dict[str, Exported], threads: int, streams: int, expected: tuple[int, int, int]
) -> None:
    """Threads, streams and sessions: streams of one thread share a session, and its weights."""
    found = effective(artifacts["fp32"], threads, streams)
    assert (found.threads, found.streams, found.extra["sessions"]) == expected
    assert found.extra["providers"] == ["CPUExecutionProvider"]


@pytest.mark.parametrize("content", [None, b"", b"not a model"], ids=["truncated", "empty", "garbage"])
def test_a_broken_file_is_a_load_failure(artifacts: dict[str, Exported], tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.onnx"
    whole = artifacts["fp32"].path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(EdgeqError) as caught:
        open_session(artifacts["fp32"].manifest, path, SessionOptions(1))
    assert caught.value.code == "load-failed"
    assert "\n" not in caught.value.why


def test_the_profile_leaves_nothing_behind(
    artifacts: dict[str, Exported], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    effective(artifacts["fp32"])
    assert list(tmp_path.iterdir()) == []


def event(op: str, inputs: list[dict[str, list[int]]], output: dict[str, list[int]]) -> dict[str, Any]:
    args = {"op_name": op, "input_type_shape": inputs, "output_type_shape": [output]}
    return {"cat": "Node", "name": "n_kernel_time", "args": args}


def test_a_batch_norm_executed_as_a_convolution_is_no_layer() -> None:
    nodes = parse([event("Conv", [{"float": [1, 64, 8, 8]}, {"float": [64, 1, 1, 1]}], {"float": [1, 64, 8, 8]})])
    assert executed(nodes) == []


def test_a_matrix_product_quantized_on_the_way_is_int8_and_no_float_operator() -> None:
    nodes = parse([
        event("DynamicQuantizeMatMul", [{"float": [1, 8]}, {"int8": [8, 3]}], {"float": [1, 3]}),
        event("QLinearConcat", [{"float": []}, {"uint8": []}, {"uint8": [1, 8]}], {"uint8": [1, 8]}),
        event("Add", [{"float": [1, 3]}, {"float": [3]}], {"float": [1, 3]}),
        {"cat": "Session", "name": "model_run", "args": {}},
    ])  # fmt: skip
    assert [(ran.precision, ran.macs) for ran in executed(nodes)] == [("int8", 24)]
    assert float_ops(nodes) == {"Add": 1}


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "int8-dynamic"])
def test_samples_in_batches_keep_their_own_logits(artifacts: dict[str, Exported], scheme: str, streams: int) -> None:
    check_batches(artifacts[scheme], streams)


def test_a_batch_that_would_mix_its_samples_is_refused(artifacts: dict[str, Exported]) -> None:
    check_refused_batch(artifacts["int8-dynamic"])
