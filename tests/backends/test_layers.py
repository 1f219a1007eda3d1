"""Per-layer SQNR, in every framework, on the small network; and on one with branches, pooling and no residual."""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import Layer
from edgeq.backends import layers as subject
from edgeq.backends import open_session
from edgeq.backends.layers import Activations, LayerError, LayerReport, Tap, layer_errors, layer_report
from edgeq.backends.macs import Executed
from edgeq.backends.session import Array, SessionOptions
from edgeq.logits import distance
from edgeq.spec.errors import EdgeqError
from edgeq.spec.quantization import QuantizationOptions
from tests.export.exported import Exported, Samples, export, network
from tests.manifests import manifest

pytest.importorskip("torch")

NEEDS = {
    "openvino": ("openvino", "nncf"),
    "tflite": ("ai_edge_litert", "litert_torch", "litert_quantizer"),
    "onnxruntime": ("onnxruntime", "onnx", "onnxconverter_common"),
    "pytorch": ("torch",),
}
FRAMEWORKS = sorted(NEEDS)
LAYERS = ["stem.0", "depth.0", "point.0", "head.0", "linear"]
#: A float layer fed with float values differs from float by rounding, if at all.
ROUNDING_DB = 90.0

Export = Callable[..., Exported]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Export:
    """``export``, once for the same arguments."""
    folder, made = tmp_path_factory.mktemp("layers"), {}

    def get(backend: str, scheme: str, module: str = "network", **options: Any) -> Exported:
        for package in NEEDS[backend]:
            pytest.importorskip(package)
        key = (backend, scheme, module, *options.items())
        if key not in made:
            kind = QuantizationOptions(**options)
            made[key] = export(backend, scheme, folder / backend / module, _MODULES[module](), options=kind)
        return made[key]

    return get


def coarse() -> Any:
    """The small network with its depthwise weights rounded to a few values: one layer is off, and only that one."""
    import torch

    module = network()
    with torch.no_grad():
        weight = module.depth[0].weight
        step = weight.abs().max() / 2
        weight.copy_((weight / step).round() * step)
    return module


def branched() -> Any:
    """A convolution without bias, pooling, a concatenation, batch norm before its convolution, no fused clamp."""
    import torch
    from torch import nn

    class Branched(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
            self.pool = nn.MaxPool2d(2)
            self.norm = nn.BatchNorm2d(8)
            self.grow = nn.Conv2d(8, 16, 3, 1, 1, bias=False)
            self.mix = nn.Conv2d(24, 16, 1)
            self.hidden = nn.Linear(16, 20)
            self.linear = nn.Linear(20, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.pool(torch.relu(self.stem(x)))
            x = torch.cat([x, self.grow(torch.relu(self.norm(x)))], 1)
            x = torch.flatten(nn.functional.adaptive_avg_pool2d(self.mix(x), 1), 1)
            return self.linear(torch.relu(self.hidden(x)))

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Branched().eval()


_MODULES: dict[str, Callable[[], Any]] = {"network": network, "coarse": coarse, "branched": branched}


def samples() -> Array:
    return Samples(8, seed=2).array


def report(fp32: Exported, other: Exported) -> LayerReport:
    return layer_report((fp32.manifest, fp32.path), (other.manifest, other.path), samples())


def logits(exported: Exported) -> Array:
    """As a session gives them, one sample at a time."""
    with closing(open_session(exported.manifest, exported.path, SessionOptions(1))) as session:
        return np.concatenate([session.infer(sample[None]) for sample in exported.samples])


def decibels(value: float | None) -> float:
    return math.inf if value is None else value


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_float32_against_itself_has_no_error(exports: Export, backend: str) -> None:
    fp32 = exports(backend, "fp32")
    found = report(fp32, fp32)
    assert [layer.name for layer in found.layers] == LAYERS
    assert [layer.op for layer in found.layers] == ["conv", "depthwise", "conv", "conv", "linear"]
    assert {layer.precision for layer in found.layers} == {"fp32"}
    assert all(layer.sqnr_db is None and layer.local_sqnr_db is None for layer in found.layers)
    assert found.notes == ()


@pytest.mark.parametrize("scheme", ["fp16", "int8-static", "int8-dynamic"])
@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_the_last_layer_is_as_far_off_as_the_logits(exports: Export, backend: str, scheme: str) -> None:
    fp32, other = exports(backend, "fp32"), exports(backend, scheme)
    found = report(fp32, other)
    expected = distance(logits(other), logits(fp32)).sqnr_db
    assert expected is not None
    assert decibels(found.layers[-1].sqnr_db) == pytest.approx(expected, abs=1.0 if scheme == "fp16" else 0.01)
    assert decibels(found.logits_sqnr_db) == pytest.approx(expected, abs=0.01)
    assert found.notes == ()


@pytest.mark.parametrize("scheme", ["fp16", "int8-static", "int8-dynamic"])
@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_the_first_layer_alone_is_the_first_layer(exports: Export, backend: str, scheme: str) -> None:
    first = report(exports(backend, "fp32"), exports(backend, scheme)).layers[0]
    assert min(decibels(first.sqnr_db), 100) == pytest.approx(min(decibels(first.local_sqnr_db), 100), abs=0.01)


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_errors_add_up_with_depth(exports: Export, backend: str) -> None:
    found = report(exports(backend, "fp32"), exports(backend, "int8-static")).layers
    assert {layer.precision for layer in found} == {"int8"}
    assert decibels(found[0].sqnr_db) > decibels(found[-1].sqnr_db)
    assert all(10 < decibels(layer.local_sqnr_db) < 60 for layer in found)
    assert np.mean([decibels(layer.local_sqnr_db) for layer in found]) > np.mean(
        [decibels(layer.sqnr_db) for layer in found]
    )


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_a_coarse_layer_alone_is_found(exports: Export, backend: str) -> None:
    """Both files are float32, of weights that differ in one layer: every other layer is right, but for its input."""
    changed = exports(backend, "fp32", "coarse")
    named_otherwise = changed.manifest.model_copy(update={"scheme": "int8-static"})
    fp32 = exports(backend, "fp32")
    found = layer_errors((fp32.manifest, fp32.path), (named_otherwise, changed.path), samples())
    assert decibels(found[0].sqnr_db) > ROUNDING_DB
    assert all(decibels(layer.sqnr_db) < 40 for layer in found[1:])
    assert [decibels(layer.local_sqnr_db) > ROUNDING_DB for layer in found] == [True, False, True, True, True]


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_a_coarse_layer_is_the_worst_of_a_quantized_network(exports: Export, backend: str) -> None:
    found = report(exports(backend, "fp32"), exports(backend, "int8-static", "coarse")).layers
    assert _worst(found) == "depth.0"


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_a_layer_kept_in_float_is_right_alone(exports: Export, backend: str) -> None:
    """Its input is quantized by the layer before, its output for the layer after: neither is its own."""
    found = report(exports(backend, "fp32"), exports(backend, "int8-static", float_layers=("depth.0",))).layers
    assert [layer.precision for layer in found] == ["int8", "fp32", "int8", "int8", "int8"]
    assert [decibels(layer.local_sqnr_db) > ROUNDING_DB for layer in found] == [False, True, False, False, False]
    assert decibels(found[1].sqnr_db) < ROUNDING_DB


@pytest.mark.parametrize("scheme", ["fp16", "int8-static", "int8-dynamic"])
@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_branches_and_pooling(exports: Export, backend: str, scheme: str) -> None:
    fp32, other = exports(backend, "fp32", "branched"), exports(backend, scheme, "branched")
    found = report(fp32, other)
    assert [layer.name for layer in found.layers] == ["stem", "grow", "mix", "hidden", "linear"]
    assert found.notes == ()
    assert all(decibels(layer.local_sqnr_db) > 15 for layer in found.layers)
    expected = decibels(distance(logits(other), logits(fp32)).sqnr_db)
    assert decibels(found.layers[-1].sqnr_db) == pytest.approx(expected, abs=1.0 if scheme == "fp16" else 0.01)


@pytest.mark.parametrize("backend", FRAMEWORKS)
def test_layers_missing_from_the_file_are_told(exports: Export, backend: str) -> None:
    fp32, other = exports(backend, "fp32"), exports(backend, "int8-static")
    longer = [*fp32.manifest.layers, Layer(name="more", op="conv", macs=1)]
    manifests = [one.manifest.model_copy(update={"layers": longer}) for one in (fp32, other)]
    with pytest.raises(EdgeqError, match="5 convolution and linear layers, the model 6") as caught:
        layer_errors((manifests[0], fp32.path), (manifests[1], other.path), samples())
    assert caught.value.code == "layers-unmatched"


@pytest.mark.parametrize(
    ("backend", "missing"), [("onnxruntime", "onnx"), ("tflite", "ai_edge_litert.schema_py_generated")]
)
def test_a_device_without_the_tools_is_told_what_to_install(
    exports: Export, monkeypatch: pytest.MonkeyPatch, backend: str, missing: str
) -> None:
    fp32 = exports(backend, "fp32")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(EdgeqError) as caught:
        report(fp32, fp32)
    assert caught.value.code == "not-installed"
    assert "pip install" in caught.value.hint


def test_an_artifact_of_other_weights_is_refused() -> None:
    one, other = manifest(scheme="fp32"), manifest(scheme="fp16", model="n")
    with pytest.raises(EdgeqError) as caught:
        layer_errors((one, Path("a")), (other, Path("b")), np.zeros((1, 3, 8, 8), np.float32))
    assert caught.value.code == "wrong-artifact"


def test_no_samples_are_an_error() -> None:
    one = manifest(scheme="fp32")
    with pytest.raises(ValueError, match="n at least 1"):
        layer_errors((one, Path("a")), (one, Path("a")), np.zeros((0, 3, 8, 8), np.float32))


class _Fixed:
    """Taps that give what they are told, for a model of two layers on 1x1 pixels."""

    tool = "fixed"

    def __init__(self, keys: list[str], outputs: list[float], alone: list[float]) -> None:
        self.layers = [Tap(key, "conv", (1, 1, 1, 1)) for key in keys]
        self._outputs, self._alone = outputs, alone

    def run(self, sample: Array) -> Activations:
        values = [np.full((1, 1, 1, 1), value, np.float32) for value in self._outputs]
        return Activations(np.full((1, 2), self._outputs[-1], np.float32), values, copy.copy(values))

    def alone(self, inputs: Any) -> list[Array]:
        return [np.full((1, 1, 1, 1), value, np.float32) for value in self._alone]

    def executed(self) -> list[Executed]:
        return [Executed("int8", 1), Executed("fp32", 1)]

    def close(self) -> None:
        return None


def _compare(fp32: _Fixed, other: _Fixed, names: tuple[str, str] = ("a", "b")) -> list[LayerError]:
    layers = [Layer(name=name, op="conv", macs=1) for name in names]
    compared = subject._Compared(layers, fp32, other)
    sample = np.zeros((1, 1, 1, 1), np.float32)
    compared.add(sample, sample)
    compared.add(sample, sample)
    return compared.errors(other.executed())


def test_the_ratio_is_of_powers() -> None:
    found = _compare(_Fixed(["", ""], [1.0, 10.0], []), _Fixed(["", ""], [1.1, 10.0], [1.0, 10.1]))
    assert found[0] == LayerError("a", "conv", "int8", pytest.approx(20, abs=1e-4), None)
    assert found[1] == LayerError("b", "conv", "fp32", None, pytest.approx(40, abs=1e-3))


def test_layers_are_paired_by_name_where_files_have_names() -> None:
    fp32 = _Fixed(["/b/Conv", "/a/Conv"], [2.0, 1.0], [])
    other = _Fixed(["/a/Conv", "/b/Conv"], [1.1, 2.0], [1.1, 2.0])
    assert [(layer.name, decibels(layer.sqnr_db)) for layer in _compare(fp32, other)] == [
        ("a", pytest.approx(20, abs=1e-4)),
        ("b", math.inf),
    ]


def test_values_that_are_not_finite_name_the_layer() -> None:
    with pytest.raises(EdgeqError, match="layer b ") as caught:
        _compare(_Fixed(["", ""], [1.0, 1.0], []), _Fixed(["", ""], [1.0, math.inf], [1.0, 1.0]))
    assert caught.value.code == "not-finite"


def test_a_disturbed_network_is_told() -> None:
    layers = [LayerError("a", "conv", None, 20.0, 20.0)]
    assert subject._disturbed(20.4, layers) == ()
    assert [note.code for note in subject._disturbed(26.0, layers)] == ["layers-disturbed"]
    assert subject._disturbed(120.0, [LayerError("a", "conv", None, None, None)]) == ()


def _worst(found: list[LayerError]) -> str:
    return min(found, key=lambda layer: decibels(layer.local_sqnr_db)).name
