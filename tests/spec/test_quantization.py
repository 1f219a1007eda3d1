from __future__ import annotations

import pytest

from edgeq.spec.errors import RequestError
from edgeq.spec.names import BACKENDS
from edgeq.spec.quantization import (
    GRANULARITIES,
    INT8_SCHEMES,
    METHODS,
    QuantizationOptions,
    check_layers,
    check_options,
    resolve,
)

NO_OPTIONS = QuantizationOptions()


def test_the_tables_name_every_framework_and_int8_scheme() -> None:
    pairs = {(backend, scheme) for backend in BACKENDS for scheme in INT8_SCHEMES}
    assert set(METHODS) == set(GRANULARITIES) == pairs
    assert all(GRANULARITIES.values())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scheme", INT8_SCHEMES)
def test_no_option_resolves_to_names(backend: str, scheme: str) -> None:
    found = resolve(NO_OPTIONS, backend, scheme).settings()
    assert found["granularity"] == "per-channel"
    assert ("calibration_method" in found) == bool(METHODS[backend, scheme])


def test_what_a_framework_lacks_is_refused_with_what_it_offers() -> None:
    with pytest.raises(RequestError) as caught:
        check_options(QuantizationOptions(method="entropy"), ["openvino"], ["fp32", "int8-static"])
    error = caught.value
    assert error.code == "not-offered"
    assert "mean-min-max, min-max, median-min-max, percentile, mse" in error.why
    assert "--backend onnxruntime" in error.hint


def test_a_mistyped_method_names_the_nearest() -> None:
    with pytest.raises(RequestError) as caught:
        check_options(QuantizationOptions(method="min-maxx"), BACKENDS, ["int8-static"])
    assert (caught.value.code, caught.value.hint) == ("unknown-name", "did you mean 'min-max'?")


def test_a_scheme_that_calibrates_nothing_takes_no_method() -> None:
    options = QuantizationOptions(method="entropy")
    check_options(options, ["onnxruntime"], ["int8-static", "int8-dynamic"])
    assert resolve(options, "onnxruntime", "int8-dynamic").method is None


@pytest.mark.parametrize(
    ("options", "schemes"),
    [
        (QuantizationOptions(method="min-max"), ["fp32", "fp16"]),
        (QuantizationOptions(method="min-max"), ["int8-dynamic"]),
        (QuantizationOptions(granularity="per-tensor"), ["fp32"]),
        (QuantizationOptions(float_layers=("a",)), ["fp16"]),
    ],
)
def test_an_option_without_effect_is_refused(options: QuantizationOptions, schemes: list[str]) -> None:
    with pytest.raises(RequestError):
        check_options(options, ["onnxruntime"], schemes)


def test_no_options_are_always_fine() -> None:
    check_options(NO_OPTIONS, BACKENDS, ["fp32"])


def test_a_layer_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(RequestError) as caught:
        check_layers(QuantizationOptions(float_layers=("features.0.O",)), "net", ["features.0.0", "classifier"])
    assert "features.0.0" in caught.value.hint


def test_layers_are_added_once() -> None:
    assert QuantizationOptions(float_layers=("a",)).keeping(["b", "a"]).float_layers == ("a", "b")
