from __future__ import annotations

import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import Layer
from edgeq.backends.pytorch import PytorchSession, _choose_engine, open_session
from edgeq.backends.pytorch_graph import Found, macs_by_precision
from edgeq.backends.session import Effective, SessionOptions
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import SCHEMES
from tests.backends.sessions import check_batches, check_refused_batch
from tests.export.exported import Exported, export

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("pytorch")
    return {scheme: export("pytorch", scheme, folder) for scheme in SCHEMES}


def opened(exported: Exported, threads: int = 1, streams: int = 1) -> PytorchSession:
    return open_session(exported.manifest, exported.path, SessionOptions(threads, streams))


def effective(exported: Exported, threads: int = 1, streams: int = 1) -> Effective:
    session = opened(exported, threads, streams)
    try:
        return session.effective()
    finally:
        session.close()


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_infer_many_gives_what_infer_gives(artifacts: dict[str, Exported], scheme: str, streams: int) -> None:
    exported = artifacts[scheme]
    session = opened(exported, threads=2, streams=streams)
    one_by_one = np.concatenate([session.infer(sample[np.newaxis]) for sample in exported.samples])
    found = np.zeros_like(one_by_one)

    def done(position: int, logits: Any) -> None:
        found[position : position + len(logits)] = logits

    session.infer_many(list(exported.samples), done)
    together = session.infer(exported.samples)
    session.close()
    assert one_by_one.shape == (8, 10)
    assert one_by_one.dtype == np.float32
    np.testing.assert_allclose(found, one_by_one, rtol=1e-5, atol=1e-5)
    # A batch in one call is blocked in another way: float16 sums differ by a rounding.
    np.testing.assert_allclose(together, one_by_one, rtol=1e-2, atol=5e-3)


def test_a_result_is_not_changed_by_the_next_inference(artifacts: dict[str, Exported]) -> None:
    session = opened(artifacts["fp32"])
    first = session.infer(artifacts["fp32"].samples[:1])
    kept = first.copy()
    session.infer(artifacts["fp32"].samples[1:2])
    np.testing.assert_array_equal(first, kept)


def test_samples_that_cannot_be_written_are_inferred_without_a_warning(artifacts: dict[str, Exported]) -> None:
    session = opened(artifacts["fp32"])
    samples = artifacts["fp32"].samples[:1].copy()
    samples.flags.writeable = False
    with warnings.catch_warnings(record=True) as caught:
        session.infer(samples)
    assert not caught


def test_a_failure_in_a_stream_is_raised(artifacts: dict[str, Exported]) -> None:
    session = opened(artifacts["fp32"], threads=2, streams=2)
    wrong = [*artifacts["fp32"].samples, np.zeros((1, 1, 1), np.float32)]
    with pytest.raises(RuntimeError):
        session.infer_many(wrong, lambda _position, _logits: None)
    session.close()


@pytest.mark.parametrize(("scheme", "macs"), [("fp32", {"fp32": 1.0}), ("fp16", {"fp16": 1.0})])
def test_float_artifacts_compute_in_the_type_of_their_weights(
    artifacts: dict[str, Exported], scheme: str, macs: dict[str, float]
) -> None:
    found = effective(artifacts[scheme])
    assert found.macs == macs
    assert found.float_ops == {}
    assert found.warnings == ()
    if scheme == "fp16":
        assert ("reference" in found.engine) != bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


def test_int8_static_has_no_float_operators(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["int8-static"])
    assert found.macs == {"int8": 1.0}
    assert found.float_ops == {}
    assert found.extra["quantized_engine"] in torch.backends.quantized.supported_engines


def test_int8_static_without_vnni_keeps_depthwise_layers_in_float_and_says_so(tmp_path: Path) -> None:
    exported = export("pytorch", "int8-static", tmp_path, target="x86_64")
    found = effective(exported)
    layers = exported.manifest.layers
    share = sum(layer.macs for layer in layers if layer.op == "depthwise") / sum(layer.macs for layer in layers)
    assert found.macs == {"int8": pytest.approx(1 - share), "fp32": pytest.approx(share)}
    assert found.float_ops == {"_convolution": 1, "hardtanh": 1}


def test_int8_dynamic_quantizes_linear_layers_only(artifacts: dict[str, Exported]) -> None:
    """Trap 16."""
    found = effective(artifacts["int8-dynamic"])
    layers = artifacts["int8-dynamic"].manifest.layers
    share = sum(layer.macs for layer in layers if layer.op == "linear") / sum(layer.macs for layer in layers)
    assert found.macs["int8"] == pytest.approx(share)
    assert found.float_ops["_convolution"] == 4


def test_threads_are_divided_among_streams(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["fp32"], threads=4, streams=2)
    assert (found.threads, found.streams, found.extra["threads_per_stream"]) == (4, 2, 2)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a model", None])
def test_a_broken_file_is_refused(artifacts: dict[str, Exported], tmp_path: Path, content: bytes | None) -> None:
    whole = artifacts["fp32"].path.read_bytes()
    cut = tmp_path / "fp32.pt"
    cut.write_bytes(whole[: len(whole) // 2] if content is None else content)
    with pytest.raises(EdgeqError) as caught:
        opened(replace(artifacts["fp32"], path=cut))
    assert caught.value.code == "load-failed"


@pytest.mark.parametrize(
    ("machine", "supported", "exported_for", "chosen"),
    [
        ("x86_64", ["none", "onednn", "x86", "fbgemm", "qnnpack"], "x86", "x86"),
        ("x86_64", ["none", "x86", "fbgemm", "qnnpack"], "qnnpack", "qnnpack"),
        ("x86_64", ["none", "fbgemm"], "x86", "fbgemm"),
        ("aarch64", ["none", "onednn", "x86", "qnnpack"], "x86", "qnnpack"),
        ("aarch64", ["none", "qnnpack"], None, "qnnpack"),
    ],
)
def test_the_engine_follows_the_architecture(
    monkeypatch: pytest.MonkeyPatch, machine: str, supported: list[str], exported_for: str | None, chosen: str
) -> None:
    """Trap 17."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert _choose_engine(fake_torch(supported), exported_for) == chosen


def test_no_engine_for_the_architecture_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(EdgeqError) as caught:
        _choose_engine(fake_torch(["none", "x86"]), "x86")
    assert caught.value.code == "no-quantized-engine"


def fake_torch(engines: list[str]) -> Any:
    return SimpleNamespace(backends=SimpleNamespace(quantized=SimpleNamespace(supported_engines=engines)))


def test_a_session_needs_no_torchvision(artifacts: dict[str, Exported]) -> None:
    exported = artifacts["int8-static"]
    code = (
        "import sys, numpy\n"
        "from pathlib import Path\n"
        "from edgeq.artifact import Manifest\n"
        "from edgeq.backends import open_session\n"
        "from edgeq.backends.session import SessionOptions\n"
        "manifest = Manifest.model_validate_json(sys.stdin.read())\n"
        f"session = open_session(manifest, Path({str(exported.path)!r}), SessionOptions(1))\n"
        "session.infer(numpy.zeros((1, 3, 32, 32), numpy.float32))\n"
        "session.effective()\n"
        "print('loaded:', [name for name in ('torchvision', 'openvino', 'onnxruntime') if name in sys.modules])\n"
    )
    document = exported.manifest.model_dump_json(by_alias=True)
    done = subprocess.run([sys.executable, "-c", code], input=document, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "loaded: []"
    assert done.stderr == ""


def test_layers_that_do_not_match_are_unknown_not_guessed() -> None:
    layers = [Layer(name="a", op="conv", macs=3), Layer(name="b", op="linear", macs=1)]
    right = [Found("conv", "int8"), Found("linear", "fp32")]
    assert macs_by_precision(right, layers) == ({"int8": 0.75, "fp32": 0.25}, ())
    for wrong in (right[::-1], right[:1]):
        macs, notes = macs_by_precision(wrong, layers)
        assert macs == {"unknown": 1.0}
        assert [note.code for note in notes] == ["macs-unaccounted"]


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "int8-dynamic"])
def test_samples_in_batches_keep_their_own_logits(artifacts: dict[str, Exported], scheme: str, streams: int) -> None:
    check_batches(artifacts[scheme], streams)


def test_a_batch_that_would_mix_its_samples_is_refused(artifacts: dict[str, Exported]) -> None:
    check_refused_batch(artifacts["int8-dynamic"])
