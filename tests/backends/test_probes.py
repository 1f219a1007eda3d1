"""Saturation probes: which answers count as right, which probe belongs to which artifact, and what this CPU gives."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeq.artifact import TARGETS
from edgeq.backends import installed, probes
from edgeq.backends.session import Array
from edgeq.host.cpu import isa_flags
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import BACKENDS
from tests.manifests import manifest

INT8 = [(backend, recipe) for backend in BACKENDS for recipe in probes.recipes(backend)]
#: Right only where the CPU sums products in 32 bits.
NEED_VNNI = {
    ("openvino", "int8-static-nofix"), ("openvino", "int8-static-first"), ("onnxruntime", "int8-static-u8s8"),
    ("onnxruntime", "int8-static-s8s8"), ("pytorch", "int8-static-onednn"),
}  # fmt: skip
#: Right on no x86 CPU.
NEVER = ("pytorch", "int8-static-x86-8bit")
OUTPUTS = sum(probes.PATHS.values())


def _logits(changed: dict[int, float] | None = None) -> Array:
    logits = np.full((1, OUTPUTS), probes.EXPECTED, np.float32)
    for index, value in (changed or {}).items():
        logits[0, index] = value
    return logits


@pytest.mark.parametrize(("backend", "recipe"), [each for each in INT8 if each != NEVER], ids="-".join)
def test_this_device_gives_the_known_answer(backend: str, recipe: str) -> None:
    if not installed(backend):
        pytest.skip(f"{backend} is not installed")
    if (backend, recipe) in NEED_VNNI and not {"avx512_vnni", "neon"} & set(isa_flags()):
        pytest.skip("this CPU has no VNNI: tests/traps/test_trap_01_saturation.py has this case")
    found = probes.probe(backend, recipe, 1)
    assert found.ok, found
    assert found.expected == pytest.approx(63.36)


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="an engine of torch on x86")
def test_torch_s_x86_engine_saturates_in_depthwise_layers_of_many_channels_even_with_vnni() -> None:
    pytest.importorskip("torch")
    found = probes.probe(*NEVER, 1)
    assert "wide depthwise convolution" in found.wrong
    assert found.found < 0.6 * probes.EXPECTED


def test_every_packaged_file_belongs_to_a_probe() -> None:
    named = {
        f"{backend}-{name}{known.suffix}" for backend, all_ in probes.PROBES.items() for name, known in all_.items()
    }
    assert {file.name for file in probes.FILES.iterdir() if file.suffix != ".bin"} == named


@given(st.integers(0, OUTPUTS - 1), st.floats(-200, 200))
def test_one_wrong_output_is_enough(index: int, value: float) -> None:
    found = probes.judge("r", _logits({index: value}))
    assert found.ok == (abs(float(np.float32(value)) - probes.EXPECTED) <= probes.TOLERANCE)
    if not found.ok:
        assert found.found == pytest.approx(value)
        assert found.wrong == (found.layer,)


def test_a_value_that_is_no_number_is_wrong() -> None:
    found = probes.judge("r", _logits({OUTPUTS - 1: float("nan"), 0: 32.3}))
    assert not found.ok
    assert (found.layer, found.wrong) == ("linear layer", ("1x1 convolution", "linear layer"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_float_scheme_has_no_saturation_probe(backend: str) -> None:
    for scheme in ("fp32", "fp16"):
        assert probes.recipe_of(manifest(backend=backend, scheme=scheme)) is None


def test_number_formats_tell_recipes_apart_and_nothing_else_does() -> None:
    details = {"activations": "uint8", "weights": "int8", "granularity": "per-tensor", "kept_float": ["features.0.0"]}
    of = manifest(backend="onnxruntime", scheme="int8-static", details=details)
    assert probes.recipe_of(of) == "int8-static-u8s8"
    reduced = of.model_copy(update={"details": {**details, "reduce_range": True}})
    assert probes.recipe_of(reduced) == "int8-static-u8s7"
    unknown = of.model_copy(update={"details": {**details, "weights": "int4"}})
    assert probes.recipe_of(unknown) is None
    dynamic = manifest(backend="onnxruntime", scheme="int8-dynamic", details={"weights": "uint8"})
    assert probes.recipe_of(dynamic) == "int8-dynamic"
    assert probes.recipe_of(manifest(backend="null", scheme="int8-static")) is None


def test_an_unknown_probe_and_a_missing_file_are_said(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    with pytest.raises(EdgeqError) as unknown:
        probes.probe("tflite", "int3", 1)
    assert unknown.value.code == "no-probe"
    monkeypatch.setattr(probes, "FILES", tmp_path)
    with pytest.raises(EdgeqError) as missing:
        probes.probe("tflite", "int8-static", 1)
    assert missing.value.code == "no-artifact"


def _wrong(recipe: str) -> probes.Probed:
    return probes.Probed(recipe, probes.EXPECTED, 32.3, False, "1x1 convolution", ("1x1 convolution",))


def test_the_warning_names_the_cure_as_a_command() -> None:
    note = probes.probe_note("onnxruntime", _wrong("int8-static-u8s8"), "x86_64")
    assert note.code == "saturation"
    assert "63.36 gives 32.30" in note.text
    assert "u8 x s8" in note.text
    assert note.hint == "run: edgeq export --backend onnxruntime --scheme int8-static --target x86_64"
    elsewhere = probes.probe_note("onnxruntime", _wrong("int8-static-u8s8"), "x86_64-vnni")
    assert elsewhere.hint.startswith(note.hint + ", then remove the artifact for x86_64-vnni")
    assert "--target aarch64" in probes.probe_note("pytorch", _wrong("int8-static-x86-8bit"), "aarch64").hint
    outdated = probes.probe_note("pytorch", _wrong("int8-static-x86-8bit"), "x86_64-vnni")
    assert outdated.hint == "run: edgeq export --backend pytorch --scheme int8-static --target x86_64-vnni"


def test_the_warning_says_where_there_is_no_further_cure() -> None:
    cured = probes.probe_note("openvino", _wrong("int8-static-first"), "x86_64")
    assert cured.hint.startswith("this is already the recipe for x86_64")
    assert "edgeq export" not in cured.hint
    assert "no other recipe" in probes.probe_note("pytorch", _wrong("int8-dynamic"), "x86_64").hint


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_target_has_its_recipe(backend: str) -> None:
    assert set(probes.MADE_FOR[backend]) == set(TARGETS)
    assert set(probes.MADE_FOR[backend].values()) <= set(probes.recipes(backend))
