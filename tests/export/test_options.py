"""Every option of int8 that a framework offers, on a small network, through the session that would be measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.spec.names import BACKENDS
from edgeq.spec.quantization import GRANULARITIES, INT8_SCHEMES, METHODS, QuantizationOptions
from tests.export.exported import Exported, export, sqnr_db

pytest.importorskip("torch")
NEEDS = {"openvino": "nncf", "tflite": "litert_quantizer", "onnxruntime": "onnxruntime", "pytorch": "torch"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder a framework, so that its float graph is converted once."""
    return {backend: tmp_path_factory.mktemp(backend) for backend in BACKENDS}


def run(exported: Exported) -> tuple[float, dict[str, float]]:
    """SQNR of the logits, in dB, and the executed share of multiply-adds by precision."""
    session = open_session(exported.manifest, exported.path, SessionOptions(threads=1))
    try:
        return sqnr_db(session.infer(exported.samples), exported.logits), session.effective().macs
    finally:
        session.close()


def pairs(table: object) -> list[tuple[str, str, str]]:
    assert isinstance(table, dict)
    return [(backend, scheme, name) for (backend, scheme), names in table.items() for name in names]


@pytest.mark.parametrize(("backend", "scheme", "method"), pairs(METHODS))
def test_every_method_on_offer_works(folders: dict[str, Path], backend: str, scheme: str, method: str) -> None:
    pytest.importorskip(NEEDS[backend])
    exported = export(backend, scheme, folders[backend], options=QuantizationOptions(method=method))
    found, macs = run(exported)
    assert found > 12
    assert macs["int8"] > 0.1
    assert exported.manifest.details["calibration_method"] == method


@pytest.mark.parametrize(("backend", "scheme", "granularity"), pairs(GRANULARITIES))
def test_every_granularity_on_offer_works(
    folders: dict[str, Path], backend: str, scheme: str, granularity: str
) -> None:
    pytest.importorskip(NEEDS[backend])
    exported = export(backend, scheme, folders[backend], options=QuantizationOptions(granularity=granularity))
    assert run(exported)[0] > 8
    assert exported.manifest.details["granularity"] == granularity
    assert "default" not in str(exported.manifest.details)


@pytest.mark.parametrize("scheme", INT8_SCHEMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_kept_in_float_are_executed_in_float_and_no_others(
    folders: dict[str, Path], backend: str, scheme: str
) -> None:
    pytest.importorskip(NEEDS[backend])
    plain = export(backend, scheme, folders[backend])
    macs = {layer.name: layer.macs for layer in plain.manifest.layers}
    before = run(plain)[1]
    for kept in (["linear"], ["point.0", "stem.0"], ["depth.0"]):
        found = run(export(backend, scheme, folders[backend], options=QuantizationOptions(float_layers=tuple(kept))))[1]
        lost = round((before.get("int8", 0) - found.get("int8", 0)) * sum(macs.values()))
        if (backend, scheme) == ("openvino", "int8-dynamic"):  # what computes in int8 is the plugin's choice
            assert lost in (0, macs["linear"] if "linear" in kept else 0)
        else:
            assert lost == sum(macs[name] for name in kept if is_int8(backend, scheme, name))


def is_int8(backend: str, scheme: str, name: str) -> bool:
    """Which layers of the small network each framework puts in int8 by default."""
    if scheme == "int8-static":
        return True
    if backend == "pytorch":
        return name == "linear"
    return name != "depth.0" and (backend, name) != ("tflite", "stem.0")


@pytest.mark.parametrize("scheme", INT8_SCHEMES)
@pytest.mark.parametrize("backend", BACKENDS)
def test_all_layers_may_stay_in_float(folders: dict[str, Path], backend: str, scheme: str) -> None:
    pytest.importorskip(NEEDS[backend])
    names = ("stem.0", "depth.0", "point.0", "head.0", "linear")
    found, macs = run(export(backend, scheme, folders[backend], options=QuantizationOptions(float_layers=names)))
    assert macs == {"fp32": 1.0}
    assert found > 15
