from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.report import numbers
from edgeq.report.gating import explain, gate
from edgeq.report.numbers import precision_label


@pytest.mark.parametrize(
    ("scheme", "macs", "backend", "label"),
    [
        ("fp32", {"fp32": 1.0}, "tflite", "fp32"),
        ("fp32", {"bf16": 1.0}, "openvino", "fp32 (computes bf16)"),
        ("fp16", {"fp32": 1.0}, "openvino", "fp16 (computes fp32)"),
        ("fp16", {"fp16": 0.62, "fp32": 0.38}, "onnxruntime", "fp16 (62 % of MACs in fp16, rest fp32)"),
        ("int8-static", {"int8": 1.0}, "tflite", "int8-static"),
        ("int8-static", {"int8": 0.996, "fp32": 0.004}, "tflite", "int8-static"),
        ("int8-static", {"int8": 0.98, "fp32": 0.02}, "tflite", "int8-static (98 % of MACs in int8, rest fp32)"),
        ("int8-static", {"fp16": 0.9, "int8": 0.06, "fp32": 0.04}, "openvino",
         "int8-static (6.0 % of MACs in int8, 90 % in fp16, 4.0 % in fp32)"),
        ("int8-static", {"fp16": 0.7, "fp32": 0.3}, "openvino", "int8-static (computes fp16 and fp32)"),
        ("int8-dynamic", {"int8": 0.0043, "fp32": 0.9957}, "pytorch",
         "int8-dynamic (linear layers only, 0.4 % of MACs in int8)"),
        ("int8-dynamic", {"int8": 0.0004, "fp32": 0.9996}, "pytorch",
         "int8-dynamic (linear layers only, <0.1 % of MACs in int8)"),
        ("int8-dynamic", {"int8": 0.0043, "fp32": 0.9957}, "openvino",
         "int8-dynamic (0.4 % of MACs in int8, rest fp32)"),
        ("int8-dynamic", {"fp32": 1.0}, "pytorch", "int8-dynamic (computes fp32)"),
        ("fp32", {}, "tflite", "fp32 (executed precision unknown)"),
        ("fp32", None, None, "fp32 (executed precision unknown)"),
        ("none", None, "null", "none"),
    ],
)  # fmt: skip
def test_a_label_says_what_computed(scheme: str, macs: dict[str, float] | None, backend: str, label: str) -> None:
    assert precision_label(scheme, macs, backend) == label


@given(st.floats(min_value=0, max_value=1), st.sampled_from(["fp32", "fp16", "int8-static", "int8-dynamic"]))
def test_a_bare_scheme_means_that_nearly_all_of_it_ran_so(kept: float, scheme: str) -> None:
    promised = "int8" if scheme.startswith("int8") else scheme
    label = precision_label(scheme, {promised: kept, "other": 1 - kept})
    assert (label == scheme) == (kept >= 0.995)
    assert "100 %" not in label


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.0, "0.00"),
     (0.0123, "0.0123"), (0.4567, "0.457"), (4.1249, "4.12"), (9.996, "10.0"), (14.04, "14.0"),
     (99.96, "100"), (152.4, "152"), (12345.6, "12346")],
)  # fmt: skip
def test_figures_have_three_digits(value: float | None, shown: str) -> None:
    assert numbers.significant(value) == shown


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_rounding_moves_a_figure_by_half_a_percent_at_most(value: float) -> None:
    assert float(numbers.significant(value)) == pytest.approx(value, rel=0.0051)
    assert float(numbers.times(value)[:-1]) == pytest.approx(value, rel=0.06)


@given(st.floats(min_value=0, max_value=1))
def test_a_share_is_all_or_nothing_only_where_it_is(value: float) -> None:
    assert (numbers.share(value) == "100 %") == (value == 1)
    assert (numbers.share(value) == "0 %") == (value == 0)


def test_percent_and_friends() -> None:
    assert [numbers.percent(0.8034), numbers.whole(12.6), numbers.tenth(3.94)] == ["80.3", "13", "3.9"]
    assert {numbers.percent(None), numbers.whole(None), numbers.tenth(None), numbers.times(None)} == {"-"}
    assert [numbers.times(0.98), numbers.times(0.005), numbers.times(21.3)] == ["0.98x", "0.005x", "21.3x"]


@pytest.mark.parametrize(
    ("status", "codes", "drop", "stable", "gates"),
    [
        ("ok", [], None, None, ()),
        ("ok", ["random-weights", "target-mismatch", "slower-than-float"], 0.03, True, ()),
        ("ok", ["unsteady", "accuracy-loss"], None, None, ("accuracy-loss", "unsteady")),
        ("ok", [], 0.031, None, ("accuracy-loss",)),
        ("ok", [], None, False, ("output-differs",)),
        ("invalid", [], None, None, ("invalid",)),
        ("failed", ["accuracy-loss"], 0.5, False, ("failed",)),
    ],
)
def test_gating(status: str, codes: list[str], drop: float | None, stable: bool | None, gates: tuple[str, ...]) -> None:
    assert gate(status, codes, drop, stable) == gates
    assert bool(explain(gates)) == bool(gates)
