from __future__ import annotations

import math

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
    assert numbers.times(value) == f"{numbers.significant(value)}x ±?"


@given(st.floats(min_value=0, max_value=1))
def test_a_share_is_all_or_nothing_only_where_it_is(value: float) -> None:
    assert (numbers.share(value) == "100 %") == (value == 1)
    assert (numbers.share(value) == "0 %") == (value == 0)


def test_percent_and_friends() -> None:
    assert [numbers.percent(0.8034), numbers.whole(12.6), numbers.tenth(3.94)] == ["80.3", "13", "3.9"]
    assert {numbers.percent(None), numbers.whole(None), numbers.tenth(None), numbers.times(None)} == {"-"}


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (12.345, 11.93, 12.76, "12.3 ±0.4"), (12.345, 12.0, 12.69, "12.35 ±0.35"), (12.345, 12.22, 12.47, "12.35 ±0.12"),
        (12.3, 11.9, 13.4, "12.3 (11.9 to 13.4)"),
        (1234.0, 1178.0, 1290.0, "1230 ±60"), (4.0, 0.0, 34.0, "4 (0 to 34)"), (12.3456, 12.3454, 12.3458, "12.35 ±0.01"),
        (12.345, 12.345, 12.345, "12.35 ±0.01"),
        (0.0123, 0.0119, 0.0127, "0.0123 ±0.0004"), (5.0, 4.904, 5.096, "5.00 ±0.10"),
        (12.345, None, None, "12.3 ±?"), (None, None, None, "-"), (0.0, 0.0, 0.0, "0 ±1"),
    ],
)  # fmt: skip
def test_the_digits_of_a_figure_follow_from_its_interval(
    value: float | None, low: float | None, high: float | None, shown: str
) -> None:
    assert numbers.spread(value, low, high) == shown.replace(" to ", numbers.TO)


def test_no_interval_is_wide_for_a_difference() -> None:
    assert numbers.spread(0.0, -1.8, 1.8, difference=True) == "0.0 ±1.8"
    assert numbers.spread(0.01, -1.8, 1.8, difference=True) == "0.0 ±1.8"
    assert numbers.percent_spread(0.803, 0.760, 0.841) == "80.3 ±4.3"
    assert numbers.percent_spread(0.803, None, None) == "80.3"


FIGURE = st.floats(min_value=1e-3, max_value=1e6)
SIDE = st.floats(min_value=1e-4, max_value=3.0)


@given(FIGURE, SIDE, SIDE)
def test_no_digit_lies_beyond_what_the_interval_resolves(value: float, below: float, above: float) -> None:
    low, high = max(0.0, value * (1 - below)), value * (1 + above)
    shown = numbers.spread(value, low, high)
    figure = shown.split(" ")[0]
    half = (high - low) / 2
    unit = 10.0 ** -numbers.decimals(value, half)
    assert unit >= half / 35.6
    # Nor is it coarser than the interval, unless four digits are enough anyway.
    assert unit <= max(half, 10.0 ** (math.floor(math.log10(value)) - 3)) * 1.001
    assert len(figure.partition(".")[2]) == max(0, numbers.decimals(value, half))
    assert abs(float(figure) - value) <= 0.5001 * unit


@given(FIGURE, SIDE, SIDE)
def test_a_printed_interval_holds_its_figure(value: float, below: float, above: float) -> None:
    low, high = max(0.0, value * (1 - below)), value * (1 + above)
    figure, ends = numbers.spread(value, low, high).split(" ", 1)
    if ends.startswith("±"):
        assert float(ends[1:]) > 0
        return
    first, last = (float(end) for end in ends.strip("()").split(numbers.TO))
    assert first <= float(figure) <= last


@pytest.mark.parametrize(
    ("ratio", "low", "high", "shown"),
    [
        (1.844, 1.794, 1.901, "1.84x (1.79 to 1.90)"), (1.02, 0.95, 1.08, "~1 (0.95 to 1.08)"),
        (1.02, 1.001, 1.04, "~1 (1.00 to 1.04)"),
        (0.3733, 0.3728, 0.3749, "0.373x (0.373 to 0.375)"), (3.0, 1.2, 5.2, "3.0x (1.2 to 5.2)"),
        (5.38, None, None, "5.38x ±?"), (1.1, 1e-6, 1e6, "~1 (<0.01 to >100)"),
        (21.34, 20.9, 21.7, "21.3x (20.9 to 21.7)"), (None, None, None, "-"),
        (1.02, 1.01, 1.03, "1.02x (1.01 to 1.03)"),
    ],
)  # fmt: skip
def test_a_speed_up_is_written_with_both_ends(
    ratio: float | None, low: float | None, high: float | None, shown: str
) -> None:
    assert numbers.times(ratio, low, high) == shown.replace(" to ", numbers.TO)


@given(st.floats(min_value=0.02, max_value=50), SIDE, SIDE)
def test_a_speed_up_whose_interval_holds_one_is_never_written_as_one(ratio: float, below: float, above: float) -> None:
    low, high = ratio / (1 + below), ratio * (1 + above)
    shown = numbers.times(ratio, low, high)
    assert shown.startswith("~1 ") == numbers.holds_one(low, high)
    if low <= 1 <= high:
        assert shown.startswith("~1 ")
    if not shown.startswith("~1 "):
        first, last = (float(end.strip("<>")) for end in shown.split("(")[1].rstrip(")").split(numbers.TO))
        assert first > 1 or last < 1


def test_what_computed_names_even_a_small_share() -> None:
    assert numbers.executed({"fp32": 1.0}) == "fp32"
    assert numbers.executed({"int8": 0.0043, "fp32": 0.9957}) == ">99 % fp32, 0.4 % int8"
    assert numbers.executed({"int8": 0.98, "fp32": 0.02}) == "98 % int8, 2.0 % fp32"
    assert numbers.executed({}) == "unknown"
    assert numbers.counted({"Add": 10, "Softmax": 1, "Mul": 2, "Pow": 1}) == "10 Add, 2 Mul, 1 Pow, 1 other"
    assert numbers.counted({}) == ""


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


@pytest.mark.parametrize("code", ["unsteady", "drift", "busy-neighbour"])
def test_what_one_round_cannot_know_gates_there_and_not_over_rounds(code: str) -> None:
    assert gate("ok", [code], None, None) == (code,)
    assert gate("ok", [code], None, None, over_rounds=True) == ()


@pytest.mark.parametrize(
    "code", ["saturation", "bimodal", "outliers", "rounds-differ", "not-steady", "round-lost", "no-profile"]
)
def test_what_is_said_and_does_not_gate(code: str) -> None:
    assert gate("ok", [code], None, None) == ()


@pytest.mark.parametrize("over_rounds", [False, True])
def test_a_wrong_output_gates_however_often_it_was_measured(over_rounds: bool) -> None:
    codes = ["saturation", "throttled", "low-agreement"]
    assert gate("ok", codes, 0.2, None, over_rounds=over_rounds) == ("accuracy-loss", "low-agreement", "throttled")
