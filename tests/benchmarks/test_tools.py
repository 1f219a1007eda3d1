"""What benchmark_app (2026.4.1) and litert-benchmark (2.3.0) wrote, and what is read of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import litert, openvino_app
from edgeq.spec.errors import EdgeqError

APP: dict[str, Any] = {
    "cmd_options": {"-m": "int8-static.xml", "-d": "CPU", "-hint": "throughput", "-json_stats": ""},
    "configuration_setup": {
        "topology": "Model1", "target device": "CPU", "API": "async", "inference_only": True,
        "precision": "UNSPECIFIED", "batch size": "1", "number of iterations": "None",
        "number of parallel infer requests": "2", "duration (ms)": "3000",
    },
    "execution_results": {
        "read model time (ms)": "99.67", "compile model time (ms)": "829.19", "first inference time (ms)": "17.69",
        "total execution time (ms)": "3008.91", "total number of iterations": "968", "latency (ms)": "5.79",
        "avg latency": "6.07", "min latency": "2.76", "max latency": "44.00", "throughput": "321.71",
    },
}  # fmt: skip

LITERT: dict[str, Any] = {
    "model": "int8-static.tflite", "model_size_mb": 3.91, "accelerators": ["CPU"], "signature": "serving_default",
    "fully_accelerated": True, "num_threads": 2,
    "latency": {
        "init_ms": 30.74, "warmup_first_ms": 15.74, "warmup_avg_ms": 13.71, "num_warmup_runs": 50, "avg_ms": 14.4,
        "min_ms": 2.87, "max_ms": 39.86, "median_ms": 14.74, "std_ms": 6.35, "p5_ms": 3.8, "p95_ms": 24.77,
        "num_runs": 400,
    },
    "throughput_mb_s": 39.87,
}  # fmt: skip

anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def test_benchmark_apps_report_is_read() -> None:
    assert openvino_app.parse_report(json.dumps(APP)) == openvino_app.Report(5.79, 321.71, 968, 2)


def test_litert_benchmarks_result_is_read() -> None:
    assert litert.parse_result(json.dumps(LITERT)) == litert.Result(14.74, 400, 2, True)


@pytest.mark.parametrize("lost", ["latency (ms)", "throughput", "total number of iterations"])
def test_a_report_without_a_figure_is_an_error_and_no_zero(lost: str) -> None:
    results = {key: value for key, value in APP["execution_results"].items() if key != lost}
    with pytest.raises(EdgeqError) as raised:
        openvino_app.parse_report(json.dumps({**APP, "execution_results": results}))
    assert raised.value.code == "no-figure"


@given(st.text() | anything.map(json.dumps))
def test_whatever_a_tool_writes_is_a_result_or_an_error_in_words(text: str) -> None:
    for parse in (openvino_app.parse_report, litert.parse_result):
        with pytest.raises(EdgeqError):
            parse(text)


def test_benchmark_app_is_asked_for_the_same_computation() -> None:
    argv = openvino_app.arguments(Path("benchmark_app"), Path("m.xml"), "latency")
    options = dict(zip(argv[1::2], argv[2::2], strict=False))
    assert options["-hint"] == "latency"
    assert options["-infer_precision"] == options["-ip"] == "f32"
    assert "-nthreads" not in argv  # it refuses that beside a hint
    assert options["-load_config"] == "threads.json"


@pytest.mark.parametrize(("expected_ms", "runs"), [(2.0, 1250), (1e6, litert.FEWEST_RUNS)])
def test_litert_benchmark_runs_for_half_of_the_time(expected_ms: float, runs: int) -> None:
    argv = litert.arguments(Path("litert-benchmark"), Path("m.tflite"), 2, expected_ms)
    options = dict(zip(argv[1::2], argv[2::2], strict=True))
    assert options["--num_threads"] == "2"
    assert options["--num_runs"] == str(runs)
    assert int(options["--warmup_runs"]) >= litert.FEWEST_RUNS
