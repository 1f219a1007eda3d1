"""The verdict: true to the figures whatever they are, and a cause only where it is proven."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.operators import GROUPS, Group, OperatorProfile, OperatorTime, profile_of
from edgeq.spec.names import BACKENDS, SCHEMES, Cell
from edgeq.verdict import SAME, slower, slower_note, verdict

X86 = ("avx2", "fma")
SAPPHIRE_RAPIDS = ("avx2", "avx512_fp16", "avx512_vnni", "vnni")
NAMES = ("Cast", "Conv", "ConvInteger", "DynamicQuantizeLinear", "Mul", "Pad", "ReorderInput")


def op(operator: str, group: Group, ms: float, precision: str | None = None) -> OperatorTime:
    return OperatorTime(name=operator.lower(), operator=operator, group=group, precision=precision, ms=ms)


def profile(*times: OperatorTime, wall: float | None = None, plain: float | None = None) -> OperatorProfile:
    whole = sum(entry.ms for entry in times)
    return profile_of(
        times, tool="t", threads=1, inferences=1, profiled_ms=wall or whole, plain_ms=plain or wall or whole
    )


def say(
    cell: OperatorProfile, twin: OperatorProfile | None, scheme: str, isa: tuple[str, ...] = X86, **macs: float
) -> str:
    return verdict(cell, twin, backend="onnxruntime", scheme=scheme, macs=macs or None, isa=isa)


CONV = op("Conv", "convolution", 10, "fp32")


def test_casts_on_a_cpu_without_fp16_arithmetic_are_put_down_to_it() -> None:
    cell = profile(CONV, op("Cast", "convert", 12))
    said = say(cell, profile(CONV), "fp16", fp32=1.0)
    assert said == (
        "2.2 times as slow as fp32 (22.0 ms against 10.0 ms): 55 % of its time goes into Cast (fp32: 0 %), because this CPU "
        "has no FP16 arithmetic: ONNX Runtime computes it in fp32 and casts from and to fp16 around that"
    )


@pytest.mark.parametrize("isa", [SAPPHIRE_RAPIDS, ("fp16", "neon"), ()], ids=["x86", "arm", "unknown"])
def test_a_cpu_that_has_fp16_arithmetic_or_may_have_it_is_not_blamed(isa: tuple[str, ...]) -> None:
    cell = profile(CONV, op("Cast", "convert", 12))
    assert "no FP16" not in say(cell, profile(CONV), "fp16", isa, fp32=1.0)
    half = profile(op("Conv", "convolution", 40, "fp16"))
    assert say(half, profile(CONV), "fp16", isa, fp16=1.0).endswith("convolutions take 40.0 ms instead of 10.0 ms")


def test_a_reference_kernel_in_fp16_is_put_down_to_the_cpu() -> None:
    said = say(profile(op("Conv", "convolution", 400, "fp16")), profile(CONV), "fp16", fp16=1.0)
    assert said.endswith("take 400 ms instead of 10.0 ms, because this CPU has no FP16 arithmetic")


def test_layout_changes_name_the_operator_that_they_are_made_for() -> None:
    cell = profile(CONV, op("ReorderInput", "convert", 8), op("Clip", "other", 1))
    said = say(cell, profile(CONV), "fp16", SAPPHIRE_RAPIDS, fp32=1.0)
    assert said.endswith(
        "because ONNX Runtime computes it in fp32 and changes the layout around Clip, which does not run by itself in fp32"
    )


def test_fp16_that_is_only_stored_says_so() -> None:
    said = say(profile(CONV), profile(CONV), "fp16", fp32=1.0)
    assert said == "about as fast as fp32 (10.0 ms against 10.0 ms): it computes in fp32, only storage is halved"


def test_dynamic_quantization_is_named_only_where_it_and_casts_take_the_time() -> None:
    float_twin = profile(CONV)
    quantizes = op("DynamicQuantizeLinear", "convert", 9)
    cell = profile(CONV, quantizes, op("ReorderInput", "convert", 3))
    assert "activations are quantized" in say(cell, float_twin, "int8-dynamic", int8=1.0)
    cell = profile(CONV, op("DynamicQuantizeLinear", "convert", 1), op("ReorderInput", "convert", 11))
    assert "activations are quantized" not in say(cell, float_twin, "int8-dynamic", int8=1.0)


def test_int8_convolutions_without_vnni_are_put_down_to_the_cpu_and_float_ones_are_not() -> None:
    slow = profile(op("QLinearConv", "convolution", 20, "int8"))
    assert "no VNNI" in say(slow, profile(CONV), "int8-static", X86, int8=1.0)
    assert "no dot-product" in say(slow, profile(CONV), "int8-static", ("neon",), int8=1.0)
    assert "no VNNI" not in say(slow, profile(CONV), "int8-static", SAPPHIRE_RAPIDS, int8=1.0)
    left = profile(op("Conv", "depthwise", 20, "fp32"))
    assert say(left, profile(op("Conv", "depthwise", 10, "fp32")), "int8-dynamic").endswith(
        "because they stay in float"
    )


def test_few_int8_multiply_adds_explain_why_nothing_is_gained() -> None:
    said = say(profile(CONV), profile(CONV), "int8-dynamic", int8=0.004, fp32=0.996)
    assert said.endswith("under 1 % of its multiply-adds are int8")


def test_a_faster_cell_says_what_got_faster() -> None:
    cell = profile(op("QLinearConv", "convolution", 3.1, "int8"), op("QuantizeLinear", "convert", 0.3))
    said = say(cell, profile(op("Conv", "convolution", 9.8, "fp32")), "int8-static", int8=1.0)
    assert said.startswith(
        "2.9 times as fast as fp32 (3.40 ms against 9.80 ms): convolutions take 3.10 ms instead of 9.80 ms"
    )
    assert said.endswith("because 100 % of the multiply-adds are int8")


def test_rounds_that_overlap_give_no_winner() -> None:
    said = verdict(
        profile(CONV, op("Cast", "convert", 2)),
        profile(CONV),
        backend="b",
        scheme="fp16",
        macs=None,
        isa=(),
        certain=False,
    )
    assert said.startswith("not to be told apart from fp32")


def test_without_a_twin_only_the_cell_itself_is_described() -> None:
    assert say(profile(CONV), None, "fp16") == (
        "100 % of 10.0 ms goes into convolutions; there is no fp32 profile to compare with"
    )
    assert say(profile(CONV), profile(CONV), "fp32") == "100 % of 10.0 ms goes into convolutions"


def test_the_note_names_the_command() -> None:
    note = slower_note(Cell("m", "tflite", "fp16", "offline"), "slow")
    assert (note.code, note.text) == ("slower-than-fp32", "slow")
    assert note.hint.endswith("edgeq explain m/tflite/fp16/offline")


times = st.builds(
    op,
    st.sampled_from(NAMES),
    st.sampled_from([group for group in GROUPS if group != "untimed"]),
    st.floats(0, 1e5, allow_nan=False),
    st.sampled_from([None, "fp32", "fp16", "int8"]),
)
profiles = st.builds(
    lambda entries, wall, plain: profile(*entries, wall=wall, plain=plain),
    st.lists(times, max_size=8),
    st.floats(1e-3, 1e6),
    st.floats(1e-3, 1e6),
)
macs = st.none() | st.dictionaries(st.sampled_from(["fp32", "fp16", "int8"]), st.floats(0, 1), max_size=3)
isas = st.lists(st.sampled_from(["avx2", "avx512_fp16", "vnni", "neon", "dotprod", "fp16"]), unique=True)


@given(profiles, profiles, st.sampled_from(BACKENDS), st.sampled_from(SCHEMES[1:]), macs, isas)
def test_every_sentence_is_true_of_its_figures(
    cell: OperatorProfile,
    fp32: OperatorProfile,
    backend: str,
    scheme: str,
    macs: dict[str, float] | None,
    isa: list[str],
) -> None:
    said = verdict(cell, fp32, backend=backend, scheme=scheme, macs=macs, isa=isa)
    assert not re.search(r"\b(nan|inf)\b", said)
    assert "\n" not in said
    assert all(int(share) <= 100 for share in re.findall(r"(\d+) %", said))
    assert cell.plain_ms is not None
    assert fp32.plain_ms is not None
    assert ("times as slow" in said) == (cell.plain_ms > SAME * fp32.plain_ms) == slower(cell, fp32)
    assert ("times as fast" in said) == (fp32.plain_ms > SAME * cell.plain_ms)


@given(profiles, profiles, macs, isas)
def test_no_operator_and_no_group_is_blamed_that_takes_less_time_than_in_fp32(
    cell: OperatorProfile, fp32: OperatorProfile, macs: dict[str, float] | None, isa: list[str]
) -> None:
    said = verdict(cell, fp32, backend="onnxruntime", scheme="int8-dynamic", macs=macs, isa=isa)
    if "times as slow" not in said:
        return
    for group, words in (("convolution", ": convolutions take"), ("depthwise", "depthwise convolutions take")):
        assert words not in said or cell.groups[group] > fp32.groups[group]
    for name in NAMES:
        if re.search(rf"(goes into|above all|and) {name}\b", said):
            gaps = [
                sum(t.ms for t in cell.operators if (t.operator, t.group) == (name, group))
                - sum(t.ms for t in fp32.operators if (t.operator, t.group) == (name, group))
                for group in ("convert", "other")
            ]
            assert max(gaps) > 0
