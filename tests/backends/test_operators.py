"""Operator profiles: of each real framework on the small network, and of recorded events where those can't vary."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq import backends
from edgeq.artifact import Layer, Manifest
from edgeq.backends import profile_operators, unseen_by_profiler
from edgeq.backends.layers import layer_report
from edgeq.backends.onnxruntime_operators import _runs, _times
from edgeq.backends.onnxruntime_profile import Node, parse
from edgeq.backends.operators import alternate, is_depthwise
from edgeq.backends.pytorch_graph import Found
from edgeq.backends.pytorch_operators import Op
from edgeq.backends.pytorch_operators import times_of as torch_times
from edgeq.backends.session import SessionOptions
from edgeq.backends.tflite_capi import CompiledModel, Event
from edgeq.backends.tflite_operators import times_of as tflite_times
from edgeq.operators import OperatorProfile
from edgeq.run.diagnosis import Diagnosis
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import BACKENDS, SCHEMES
from tests.export.exported import Exported, export
from tests.manifests import manifest

FRAMEWORK = {"openvino": "openvino", "tflite": "litert_torch", "onnxruntime": "onnxruntime", "pytorch": "torch"}
LAYERS = [
    Layer(name="stem", op="conv", macs=1),
    Layer(name="depth", op="depthwise", macs=1),
    Layer(name="head", op="linear", macs=1),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operators")


def exported(backend: str, scheme: str, folder: Path) -> Exported:
    pytest.importorskip(FRAMEWORK[backend])
    return export(backend, scheme, folder / backend)


def profile(of: Exported, seconds: float = 0.05) -> OperatorProfile:
    return profile_operators(of.manifest, of.path, SessionOptions(threads=1), of.samples, seconds)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_every_layer_is_timed_in_its_group_and_the_sum_is_the_whole(backend: str, scheme: str, folder: Path) -> None:
    found = profile(exported(backend, scheme, folder))
    counts = dict.fromkeys(found.groups, 0)
    for total in found.operators:
        counts[total.group] += total.count
    # The small network: three convolutions that are not depthwise, one that is, one linear layer.
    assert (counts["convolution"], counts["depthwise"], counts["fully connected"]) == (3, 1, 1)
    assert sum(found.groups.values()) == pytest.approx(found.profiled_ms)
    assert found.plain_ms is not None
    assert all(math.isfinite(ms) and ms >= 0 for ms in found.groups.values())
    assert found.inferences >= 1
    assert found.slowest == sorted(found.slowest, key=lambda node: -node.ms)
    precisions = {total.precision for total in found.operators if total.group == "convolution"}
    assert precisions == {"int8"} if scheme == "int8-static" else precisions <= {"fp32", "fp16", "int8"}


def test_an_inference_that_fills_the_time_is_profiled_once(folder: Path) -> None:
    for backend in ("onnxruntime", "pytorch"):
        assert profile(exported(backend, "fp32", folder), seconds=1e-6).inferences == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_profiler_says_what_it_does_not_see(backend: str) -> None:
    assert len(unseen_by_profiler(backend)) > 20


def test_a_profile_leaves_no_file_behind(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = exported("onnxruntime", "fp32", folder)
    monkeypatch.chdir(tmp_path)
    profile(of)
    assert list(tmp_path.iterdir()) == []


class _Clockwork:
    """Sessions whose inferences take as long as they say."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.kept, self.forgotten = seconds, 0, 0

    def plain(self, count: int) -> list[float]:
        return [self.seconds] * count

    def profiled(self, count: int) -> list[float]:
        self.kept += count
        return [2 * self.seconds] * count

    def forget(self) -> None:
        self.forgotten, self.kept = self.kept, 0


def test_warm_up_is_forgotten_and_both_kinds_take_turns() -> None:
    sessions = _Clockwork(0.01)
    timing = alternate(sessions, 1.0)
    assert sessions.forgotten == 1
    assert timing.inferences == sessions.kept >= 20
    assert (timing.profiled_ms, timing.plain_ms) == (pytest.approx(20), pytest.approx(10))


def test_no_more_are_profiled_than_can_be_read_in_time() -> None:
    timing = alternate(_Clockwork(0.01), 1.0, most=4)
    assert timing.inferences == 4


def test_a_slow_model_is_profiled_in_one_inference_after_one_that_is_forgotten() -> None:
    sessions = _Clockwork(60)
    timing = alternate(sessions, 2.0)
    assert (timing.inferences, sessions.kept, sessions.forgotten) == (1, 1, 1)


class _Cold(_Clockwork):
    """The first inference of each kind takes a minute, as one that makes its kernels first."""

    def plain(self, count: int) -> list[float]:
        return [self._of(each) for each in super().plain(count)]

    def profiled(self, count: int) -> list[float]:
        return [self._of(each) for each in super().profiled(count)]

    def _of(self, seconds: float) -> float:
        self.cold = {**getattr(self, "cold", {}), seconds: seconds in getattr(self, "cold", {})}
        return seconds if self.cold[seconds] else 60.0


@pytest.mark.parametrize(("seconds", "single"), [(0.01, False), (5.0, True)])
def test_a_first_inference_neither_decides_nor_counts(seconds: float, single: bool) -> None:
    timing = alternate(_Cold(seconds), 1.0)
    assert (timing.inferences == 1) == single
    assert (timing.profiled_ms, timing.plain_ms) == (pytest.approx(2e3 * seconds), pytest.approx(1e3 * seconds))


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    """Of a backend that is a session and nothing else, as CONTRIBUTING.md's recipe leaves it."""
    (tmp_path / "bare_backend.py").write_text("open_session = None\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(backends.REGISTRY, "bare", backends.Backend("bare_backend", ("numpy",), "bare"))
    return manifest(backend="bare", scheme="fp32")


def test_a_backend_without_a_profiler_or_probes_is_told_so(bare: Manifest, tmp_path: Path) -> None:
    asks: list[tuple[str, Callable[[], object]]] = [
        (
            "no-profiler",
            lambda: profile_operators(
                bare, tmp_path, SessionOptions(threads=1), np.zeros((1, 3, 8, 8), np.float32), 1.0
            ),
        ),
        ("no-profiler", lambda: unseen_by_profiler("bare")),
        ("no-layers", lambda: layer_report((bare, tmp_path), (bare, tmp_path), np.zeros((1, 3, 8, 8), np.float32))),
    ]
    for code, ask in asks:
        with pytest.raises(EdgeqError, match="bare") as caught:
            ask()
        assert caught.value.code == code
    assert Diagnosis({"target": "x86_64"}, {"bare": {}}, {}).exported_here("bare") is None


def test_depthwise_needs_more_than_one_input_channel() -> None:
    assert is_depthwise((8, 1, 3, 3), 8)
    assert is_depthwise((8, 1, 1, 3, 3), 8)
    assert not is_depthwise((8, 1, 3, 3), 1)
    assert not is_depthwise((8, 4, 3, 3), 8)


def kernel(name: str, op: str, micros: int, *inputs: dict[str, list[int]]) -> dict[str, Any]:
    args = {"op_name": op, "input_type_shape": list(inputs), "output_type_shape": [{"float": [1, 8, 4, 4]}]}
    return {"cat": "Node", "name": f"{name}_kernel_time", "dur": micros, "args": args}


def test_onnxruntime_joins_times_with_the_weights_that_prepacking_hides() -> None:
    data = {"float": [1, 8, 4, 4]}
    events = [
        kernel("warm", "Conv", 900, data), {"cat": "Session", "name": "model_run"},
        kernel("a", "Conv", 100, data), kernel("b", "Cast", 30, data), {"cat": "Session", "name": "model_run"},
        kernel("a", "Conv", 300, data), kernel("b", "Cast", 10, data), {"cat": "Session", "name": "model_run"},
    ]  # fmt: skip
    whole = parse([kernel("a", "Conv", 0, data, {"float": [8, 1, 3, 3]}), kernel("b", "Cast", 0, data)])
    known: dict[str, Node] = {node.name: node for node in whole}
    found = {time.name: time for time in _times(_runs(events)[-2:], known)}
    assert (found["a"].group, found["a"].precision, found["a"].ms) == ("depthwise", "fp32", pytest.approx(0.2))
    assert (found["b"].group, found["b"].precision, found["b"].ms) == ("convert", None, pytest.approx(0.02))


@pytest.mark.parametrize("dynamic", ["QD8", "QDU8"])
def test_tflite_tells_a_pointwise_convolution_from_a_linear_layer_by_order(dynamic: str) -> None:
    names = [f"Convert (NC, F32, {dynamic})", f"Fully Connected (NC, {dynamic}, F32, QC8W) GEMM",
             "Convolution (NHWC, F32) DWConv", "Fully Connected (NC, F32) GEMM"]  # fmt: skip
    runs = [[Event(name, 1000 * turn, True) for name in names] for turn in (1, 3)]
    found = tflite_times(runs, LAYERS)
    assert [(time.name, time.group, time.precision, time.ms) for time in found[1:]] == [
        ("stem", "convolution", "int8", 2.0), ("depth", "depthwise", "fp32", 2.0), ("head", "fully connected", "fp32", 2.0)
    ]  # fmt: skip
    assert (found[0].group, found[0].precision) == ("convert", None)


def test_tflite_operators_that_are_not_the_models_layers_keep_their_own_names() -> None:
    found = tflite_times([[Event("Fully Connected (NC, F32) GEMM", 5, True)]], LAYERS)
    assert (found[0].group, found[0].name) == ("fully connected", "Fully Connected (NC, F32) GEMM, node 0")


def test_tflite_runs_of_different_operators_are_refused() -> None:
    with pytest.raises(EdgeqError) as caught:
        tflite_times([[Event("Add (ND)", 5, True)], []], LAYERS)
    assert caught.value.code == "no-profiler"


def test_an_unknown_version_of_litert_is_not_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    monkeypatch.setattr("importlib.metadata.version", lambda _: "9.0.0")
    with pytest.raises(EdgeqError, match=r"9\.0\.0") as caught:
        CompiledModel(tmp_path / "none.tflite", 1)
    assert caught.value.code == "no-profiler"


def test_tflite_runtime_alone_has_no_profiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(EdgeqError, match="tflite-runtime") as caught:
        CompiledModel(tmp_path / "none.tflite", 1)
    assert caught.value.code == "no-profiler"


def test_torch_conversions_are_told_apart_from_the_layer_that_asks_for_them() -> None:
    run = [
        Op(("quantized::conv2d_relu",), 0, 3.0),
        Op(("quantized::conv2d_relu", "aten::contiguous", "aten::clone"), 0, 2.0),
        Op(("aten::_convolution",), 1, 0.1),
        Op(("aten::_convolution", "aten::mkldnn_convolution"), 1, 4.0),
        Op(("aten::clamp",), 2, 1.0),
        Op(("aten::linear", "aten::addmm"), 3, 5.0),
        Op(("aten::dequantize",), 4, 0.5),
    ]
    ran = [Found("conv", "int8"), Found("conv", "fp32"), Found("linear", "fp16")]
    found = {(time.name, time.group): time for time in torch_times([run, run], LAYERS, ran)}
    assert found["stem", "convolution"].ms == pytest.approx(3.0)
    assert found["stem", "convolution"].precision == "int8"
    assert found["stem, conversion", "convert"].ms == pytest.approx(2.0)
    assert found["depth", "depthwise"].operator == "aten::mkldnn_convolution"
    assert found["depth", "depthwise"].ms == pytest.approx(4.1)
    assert found["head", "fully connected"].precision == "fp16"
    assert sum(time.ms for time in found.values()) == pytest.approx(15.6)
