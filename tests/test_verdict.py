"""The verdict: true to the figures whatever they are, and a cause only where it is proven."""

from __future__ import annotations

import math
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
        "2.2 times as slow as fp32 (22.0 ms against 10.0 ms): 55 % of its time goes into Cast (fp32: 0 %), because ONNX "
        "Runtime computes it in fp32 and casts from and to fp16 around that (this CPU has no FP16 arithmetic)"
    )


@pytest.mark.parametrize("isa", [SAPPHIRE_RAPIDS, ("fp16", "neon"), ()], ids=["x86", "arm", "unknown"])
def test_a_cpu_that_has_fp16_arithmetic_or_may_have_it_is_not_blamed(isa: tuple[str, ...]) -> None:
    cell = profile(CONV, op("Cast", "convert", 12))
    assert "no FP16" not in say(cell, profile(CONV), "fp16", isa, fp32=1.0)
    half = profile(op("Conv", "convolution", 40, "fp16"))
    assert say(half, profile(CONV), "fp16", isa, fp16=1.0).endswith("convolutions take 40.0 ms instead of 10.0 ms")


def test_what_the_cpu_lacks_stands_beside_a_slow_kernel_and_is_no_cause() -> None:
    said = say(profile(op("Conv", "convolution", 400, "fp16")), profile(CONV), "fp16", fp16=1.0)
    assert said.endswith("convolutions take 400 ms instead of 10.0 ms (this CPU has no FP16 arithmetic)")


def test_layout_changes_name_the_operator_that_runs_by_itself() -> None:
    cell = profile(CONV, op("ReorderInput", "convert", 8), op("Clip", "other", 1))
    said = say(cell, profile(CONV), "fp16", SAPPHIRE_RAPIDS, fp32=1.0)
    assert said.endswith(
        "goes into ReorderInput (fp32: 0 %) (it computes in fp32; Clip runs by itself, which it does not in fp32)"
    )


@pytest.mark.parametrize("isa", [X86, SAPPHIRE_RAPIDS], ids=["avx2", "fp16"])
def test_an_operator_that_is_no_conversion_is_not_put_down_to_fp32(isa: tuple[str, ...]) -> None:
    cell = profile(CONV, op("Resize", "other", 12, "fp32"))
    assert say(cell, profile(CONV), "fp16", isa, fp32=1.0).endswith("55 % of its time goes into Resize (fp32: 0 %)")


def test_a_cause_stands_beside_its_own_share() -> None:
    cell = profile(CONV, op("Concat", "other", 8), op("DynamicQuantizeLinear", "convert", 6.5))
    assert say(cell, profile(CONV), "int8-dynamic", SAPPHIRE_RAPIDS, fp32=1.0).endswith(
        "33 % of its time goes into Concat (fp32: 0 %); and 27 % of its time goes into DynamicQuantizeLinear (fp32: 0 %), "
        "because activations are quantized at each inference"
    )


@pytest.mark.parametrize(
    ("profiled", "plain"),
    [
        ((35.0, 32.7), (40.6, 24.6)),  # a seventh of the difference
        ((21.62, 21.61), (19.26, 17.15)),  # none of it
        ((20.0, 22.0), (12.0, 10.0)),  # the other way round
        ((40.0, 10.0), (9.0, 8.0)),  # thirty times as much
    ],
)
def test_profiles_that_do_not_show_the_difference_explain_nothing(
    profiled: tuple[float, float], plain: tuple[float, float]
) -> None:
    cell, twin = (profile(op("Conv", "convolution", ms), plain=wall) for ms, wall in zip(profiled, plain, strict=True))
    assert say(cell, twin, "int8-dynamic").endswith("; the operators' times do not show why")


def test_times_with_the_profiler_on_are_told_where_they_differ_from_those_without() -> None:
    cell = profile(op("Conv", "convolution", 26), plain=20)
    said = say(cell, profile(op("Conv", "convolution", 13), plain=10), "int8-dynamic")
    assert said == (
        "2.0 times as slow as fp32 (20.0 ms against 10.0 ms); with the profiler on (26.0 ms against 13.0 ms), convolutions "
        "take 26.0 ms instead of 13.0 ms"
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


def test_slow_int8_convolutions_stand_beside_what_the_cpu_lacks_and_float_ones_do_not() -> None:
    slow = profile(op("QLinearConv", "convolution", 20, "int8"))
    assert say(slow, profile(CONV), "int8-static", X86, int8=1.0).endswith(
        "(this CPU has no VNNI instructions for int8)"
    )
    assert "(this CPU has no dot-product" in say(slow, profile(CONV), "int8-static", ("neon",), int8=1.0)
    assert "VNNI" not in say(slow, profile(CONV), "int8-static", SAPPHIRE_RAPIDS, int8=1.0)
    # In fp32 they are float, too: that is no cause.
    left = profile(op("Conv", "depthwise", 20, "fp32"))
    assert say(left, profile(op("Conv", "depthwise", 10, "fp32")), "int8-dynamic").endswith(
        "depthwise convolutions take 20.0 ms instead of 10.0 ms"
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
    assert said.endswith("(100 % of the model's multiply-adds are int8)")


def test_rounds_that_show_no_difference_give_no_winner_and_no_cause() -> None:
    said = verdict(
        profile(CONV, op("Cast", "convert", 2)),
        profile(CONV),
        backend="b",
        scheme="fp16",
        macs=None,
        isa=(),
        certain=False,
    )
    assert said == "not to be told apart from fp32 (12.0 ms against 10.0 ms): the rounds do not show which is faster"


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
#: Whose times with the profiler on lie near those without, as real ones do.
likely = st.builds(
    lambda entries, part: profile(*entries, plain=part * sum(entry.ms for entry in entries)),
    st.lists(times.filter(lambda entry: entry.ms > 1e-3), min_size=1, max_size=5),
    st.floats(0.7, 1.1),
)
either = profiles | likely
macs = (
    st.none()
    | st.sampled_from([{"fp32": 1.0}, {"fp16": 1.0}, {"int8": 1.0}])
    | st.dictionaries(st.sampled_from(["fp32", "fp16", "int8"]), st.floats(0, 1), max_size=3)
)
isas = st.lists(st.sampled_from(["avx2", "avx512_fp16", "vnni", "neon", "dotprod", "fp16"]), unique=True)


@given(either, either, st.sampled_from(BACKENDS), st.sampled_from(SCHEMES[1:]), macs, isas)
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
    named = _named(said, cell, fp32)
    if named:
        gap = cell.plain_ms - fp32.plain_ms
        shown = sum(ms for _, ms in named) / gap
        assert shown >= 0.5
        assert 0.5 <= (cell.profiled_ms - fp32.profiled_ms) / gap <= 2
        assert all(ms * gap > 0 for _, ms in named)
    else:
        assert "because" not in said
    assert "stay in float" not in said
    beside = re.findall(r"([^;:]*), because ([^;:]*)", re.sub(r" \(fp32: [^)]*\)", "", said))
    for words, cause in beside:
        assert "this CPU" not in cause.split("(")[0]
        proof = CAUSES[next(text for text in CAUSES if text in cause)]
        assert proof & {name for name in NAMES if name in words} or "conversions" in words
        if "conversions" in words:
            whole = cell.groups["convert"] - fp32.groups["convert"]
            assert sum(_gap(cell, fp32, name, "convert") for name in proof) >= 0.5 * whole
    assert said.count("because") == len(beside)


#: What a sentence calls a group whose time is told as a whole; longer names first, as they hold the shorter ones.
WORDS: dict[str, Group] = {
    "depthwise convolutions": "depthwise",
    "convolutions": "convolution",
    "fully connected layers": "fully connected",
    "conversions": "convert",
    "other operators": "other",
}
#: What each cause can be the cause of.
CAUSES = {
    "casts from and to fp16": {"Cast"},
    "activations are quantized": {"Cast", "DynamicQuantizeLinear"},
}
SHARE = re.compile(
    rf"(?:: |, |; and | and )({'|'.join(WORDS)}|{'|'.join(NAMES)}) takes? [\d.,]+ ms instead"
    rf"|% of its time goes into ({'|'.join(WORDS)}|{'|'.join(sorted(NAMES, key=len, reverse=True))})"
)


def _gap(cell: OperatorProfile, fp32: OperatorProfile, name: str, group: str) -> float:
    """Milliseconds that an operator takes longer than in fp32."""
    own, before = (
        sum(each.ms for each in of.operators if (each.operator, each.group) == (name, group)) for of in (cell, fp32)
    )
    return own - before


def _named(said: str, cell: OperatorProfile, fp32: OperatorProfile) -> list[tuple[str, float]]:
    """Each group or operator that a sentence puts the difference down to, and the milliseconds that it differs by."""
    gap = (cell.plain_ms or 0.0) - (fp32.plain_ms or 0.0)

    def ms(name: str) -> float:
        if name in WORDS:
            return cell.groups[WORDS[name]] - fp32.groups[WORDS[name]]
        gaps = [_gap(cell, fp32, name, group) for group in ("convert", "other")]
        return max(gaps, key=lambda each: math.copysign(1, gap) * each)

    return [(name, ms(name)) for name in (first or second for first, second in SHARE.findall(said))]


def test_the_test_itself_sees_a_sentence_that_its_figures_do_not_prove() -> None:
    cell, fp32 = profile(op("Conv", "convolution", 31), op("Cast", "convert", 2), plain=40), profile(CONV, plain=24)
    false = "1.7 times as slow as fp32 (40.0 ms against 24.0 ms): 6 % of its time goes into Cast (fp32: 0 %)"
    assert _named(false, cell, fp32) == [("Cast", 2.0)]


@given(either, either, macs, isas)
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
            assert max(_gap(cell, fp32, name, group) for group in ("convert", "other")) > 0
