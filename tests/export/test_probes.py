"""The packaged probes are what the exporters of today make, and every int8 recipe has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeq.artifact import TARGETS
from edgeq.backends import probes
from edgeq.export import probes as making
from edgeq.export.macs import layers
from edgeq.spec.names import BACKENDS
from edgeq.spec.quantization import GRANULARITIES, METHODS, QuantizationOptions


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """All probes of a backend, made anew once."""
    folders: dict[str, Path] = {}

    def of(backend: str) -> Path:
        if backend not in folders:
            folders[backend] = tmp_path_factory.mktemp(backend)
            making.write(backend, list(probes.PROBES[backend]), folders[backend])
        return folders[backend]

    return of


def test_the_float_network_gives_the_answer() -> None:
    import torch

    with torch.no_grad():
        logits = making.network()(torch.ones(1, probes.CHANNELS, probes.HEIGHT, probes.WIDTH))
    assert logits.shape == (1, sum(probes.PATHS.values()))
    assert (logits - 63.36).abs().max() < 1e-3


def test_its_layers_are_as_the_session_is_told() -> None:
    assert layers(making.network(), making.spec()) == probes.LAYERS


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rebuilt_probe_is_the_packaged_one(backend: str, rebuilt: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = {name: _runs(backend, name) for name in probes.PROBES[backend]}
    monkeypatch.setattr(probes, "FILES", rebuilt(backend))
    assert {name: _runs(backend, name) for name in probes.PROBES[backend]} == packaged


def _runs(backend: str, name: str) -> Any:
    answer = probes.probe(backend, name, 1)
    macs = probes.computes(backend, name, 1).macs
    return (round(answer.found, 3), answer.wrong, macs)  # ranges taken on another CPU differ in the last bit


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scheme", ["int8-static", "int8-dynamic"])
@pytest.mark.parametrize("target", TARGETS)
def test_every_recipe_of_an_exporter_has_its_probe(backend: str, scheme: str, target: str) -> None:
    asked = [QuantizationOptions(method=m) for m in METHODS[backend, scheme]]
    asked += [QuantizationOptions(granularity=g) for g in GRANULARITIES[backend, scheme]]
    asked += [QuantizationOptions(), QuantizationOptions(float_layers=("point",))]
    for options in asked:
        settings = making.exporter_of(backend).recipe(scheme, target, options).settings
        found = probes.recipe_of(probes.manifest_of(backend, scheme, settings))
        assert found == (probes.MADE_FOR[backend][target] if scheme == "int8-static" else scheme), options


def test_reduced_range_holds_weights_to_seven_bits(rebuilt: Any) -> None:
    import onnx
    from onnx import numpy_helper

    for folder in (probes.FILES, rebuilt("onnxruntime")):
        model = onnx.load(folder / "onnxruntime-int8-static-u8s7.onnx")
        weights = [numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8]
        assert weights
        assert max(abs(w.astype(int)).max(initial=0) for w in weights) <= 64


def test_no_file_tells_where_it_was_made(rebuilt: Any) -> None:
    import zipfile

    for folder in (probes.FILES, rebuilt("pytorch")):
        for file in folder.glob("*.pt"):
            with zipfile.ZipFile(file) as archive:
                assert not any(
                    str(Path(making.__file__).parent).encode() in archive.read(n) for n in archive.namelist()
                )
