from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import InputInfo
from edgeq.backends.session import Effective, SessionOptions
from edgeq.backends.tflite import TfliteSession, open_session
from edgeq.backends.tflite_graph import Graph, Node, Tensor
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import SCHEMES
from tests.backends.sessions import check_batches
from tests.export.exported import Exported, export

pytest.importorskip("ai_edge_litert")
pytest.importorskip("litert_torch")
pytest.importorskip("litert_quantizer")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("tflite")
    return {scheme: export("tflite", scheme, folder) for scheme in SCHEMES}


def opened(exported: Exported, threads: int = 1, streams: int = 1) -> TfliteSession:
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
    np.testing.assert_array_equal(found, one_by_one)
    np.testing.assert_array_equal(together, one_by_one)


def test_a_result_is_not_changed_by_the_next_inference(artifacts: dict[str, Exported]) -> None:
    session = opened(artifacts["fp32"])
    first = session.infer(artifacts["fp32"].samples[:1])
    kept = first.copy()
    session.infer(artifacts["fp32"].samples[1:2])
    np.testing.assert_array_equal(first, kept)


def test_a_failure_in_a_stream_is_raised(artifacts: dict[str, Exported]) -> None:
    session = opened(artifacts["fp32"], threads=2, streams=2)
    wrong = [*artifacts["fp32"].samples, np.zeros((1, 1, 3), np.float32)]
    with pytest.raises(ValueError, match="mismatch"):
        session.infer_many(wrong, lambda _position, _logits: None)
    session.close()


@pytest.mark.parametrize("scheme", ["fp32", "fp16"])
def test_float_artifacts_compute_in_fp32_however_they_are_stored(artifacts: dict[str, Exported], scheme: str) -> None:
    found = effective(artifacts[scheme])
    assert found.macs == {"fp32": 1.0}
    assert found.float_ops == {}
    assert found.warnings == ()
    assert found.batch == 1


def test_fp16_weights_are_computed_in_float32(artifacts: dict[str, Exported], tmp_path: Path) -> None:
    """The label above, checked by arithmetic: float32 over weights rounded to float16 gives the same logits."""
    from torch.fx.experimental.optimization import fuse

    from tests.export.exported import network

    rounded = export("tflite", "fp32", tmp_path, _weights_rounded_to_half(fuse(network())))
    session, reference = opened(artifacts["fp16"]), opened(rounded)
    found, expected = session.infer(rounded.samples), reference.infer(rounded.samples)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert error < 2e-5


def _weights_rounded_to_half(module: Any) -> Any:
    for name, parameter in module.named_parameters():
        if name.endswith("weight"):
            parameter.data = parameter.data.half().float()
    return module


def test_int8_static_computes_in_int8_without_float_operators(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["int8-static"], threads=2)
    assert found.macs == {"int8": 1.0}
    assert found.float_ops == {}
    assert found.threads == 2
    assert found.engine.startswith("XNNPACK (")
    assert found.extra["delegated_nodes"] == found.extra["nodes"]


def test_int8_dynamic_leaves_depthwise_layers_and_a_padded_first_one_in_float_and_stays_in_one_partition(
    artifacts: dict[str, Exported],
) -> None:
    found = effective(artifacts["int8-dynamic"])
    layers = artifacts["int8-dynamic"].manifest.layers
    left = [layer.macs for layer in layers if layer.op == "depthwise" or layer.name == "stem.0"]
    share = sum(left) / sum(layer.macs for layer in layers)
    assert found.macs["fp32"] == pytest.approx(share)
    assert found.macs["int8"] == pytest.approx(1 - share)
    assert found.float_ops["DEPTHWISE_CONV_2D"] == 1
    assert found.extra["delegate_partitions"] == 1


def test_int8_dynamic_really_quantizes_activations(artifacts: dict[str, Exported]) -> None:
    """The label int8 for float activations over int8 weights, checked by arithmetic: logits move in steps, so that a
    tiny change of the input leaves most of them exactly where they were."""
    session = opened(artifacts["int8-dynamic"])
    sample = artifacts["int8-dynamic"].samples[:1]
    dynamic = session.infer(sample) - artifacts["int8-dynamic"].logits[:1]
    plain = opened(artifacts["fp32"]).infer(sample) - artifacts["fp32"].logits[:1]
    assert np.abs(dynamic).max() > 100 * np.abs(plain).max()


def test_threads_are_divided_among_streams(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["fp32"], threads=4, streams=2)
    assert (found.threads, found.streams, found.extra["threads_per_stream"]) == (4, 2, 2)


def test_a_truncated_file_is_refused_before_the_runtime_sees_it(artifacts: dict[str, Exported], tmp_path: Path) -> None:
    whole = artifacts["fp32"]
    cut = tmp_path / whole.path.name
    cut.write_bytes(whole.path.read_bytes()[:2000])
    with pytest.raises(EdgeqError, match=f"2000 bytes of {whole.path.stat().st_size}") as caught:
        opened(replace(whole, path=cut))
    assert caught.value.code == "load-failed"


def test_a_file_that_is_no_model_is_refused(artifacts: dict[str, Exported], tmp_path: Path) -> None:
    junk = tmp_path / "fp32.tflite"
    junk.write_bytes(b"not a model " * 10_000)
    with pytest.raises(EdgeqError) as caught:
        opened(replace(artifacts["fp32"], path=junk))
    assert caught.value.code == "load-failed"


def test_an_input_other_than_declared_is_refused(artifacts: dict[str, Exported]) -> None:
    exported = artifacts["fp32"]
    other = exported.manifest.model_copy(update={"input": InputInfo(shape=(3, 32, 32), layout="NCHW")})
    with pytest.raises(EdgeqError, match="load") as caught:
        opened(replace(exported, manifest=other))
    assert caught.value.code == "load-failed"


def test_integer_inputs_are_refused(artifacts: dict[str, Exported], tmp_path: Path) -> None:
    """Trap 22: an int8 input fed without scale and zero point answers wrongly and says nothing."""
    from litert_quantizer import quantizer, recipe

    tool = quantizer.Quantizer(str(artifacts["fp32"].path), recipe.static_wi8_ai8())
    statistics = tool.calibrate({"serving_default": [{"args_0": artifacts["fp32"].samples[:1]}]})
    path = tmp_path / "integer.tflite"
    tool.quantize(statistics, enable_progress_report=False).export_model(str(path))
    with pytest.raises(EdgeqError, match="int8") as caught:
        opened(replace(artifacts["fp32"], path=path))
    assert caught.value.code == "integer-input"


def test_int8_dynamic_is_refused_where_the_runtime_would_compute_it_wrongly(
    artifacts: dict[str, Exported], monkeypatch: pytest.MonkeyPatch
) -> None:
    """tflite-runtime 2.14 reads one scale where linear weights have one a channel: noise, and no error."""
    from ai_edge_litert.interpreter import Interpreter

    monkeypatch.setattr("edgeq.backends.tflite._interpreter_class", lambda: (Interpreter, "tflite-runtime 2.14.0"))
    with pytest.raises(EdgeqError) as caught:
        opened(artifacts["int8-dynamic"])
    assert caught.value.code == "runtime-too-old"
    opened(artifacts["int8-static"]).close()


def test_a_session_loads_no_other_framework(artifacts: dict[str, Exported]) -> None:
    exported = artifacts["int8-static"]
    code = (
        "import sys, numpy\n"
        "from pathlib import Path\n"
        "from edgeq.artifact import Manifest\n"
        "from edgeq.backends import open_session\n"
        "from edgeq.backends.session import SessionOptions\n"
        "manifest = Manifest.model_validate_json(sys.stdin.read())\n"
        f"session = open_session(manifest, Path({str(exported.path)!r}), SessionOptions(1))\n"
        "session.infer(numpy.zeros((1, 32, 32, 3), numpy.float32))\n"
        "session.effective()\n"
        "heavy = ['torch', 'torchvision', 'onnxruntime', 'openvino', 'tensorflow', 'litert_torch']\n"
        "print('loaded:', [name for name in heavy if name in sys.modules])\n"
    )
    document = exported.manifest.model_dump_json(by_alias=True)
    done = subprocess.run([sys.executable, "-c", code], input=document, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "loaded: []"


def test_delegated_nodes_are_found_from_a_partition_s_outputs_back_to_its_inputs() -> None:
    tensors = {n: Tensor((1, 2), "float32") for n in range(8)}
    chain = [Node("ADD", (n, 7), (n + 1,)) for n in range(5)]
    partition = Node("DELEGATE", (1, 7), (3,))
    graph = Graph((*chain, partition), tensors)
    assert graph.delegated() == (chain[1], chain[2])
    assert len(graph.originals) == 5


def test_macs_are_counted_from_shapes() -> None:
    tensors = {
        0: Tensor((1, 8, 8, 6), "int8"),
        1: Tensor((4, 3, 3, 6), "int8"),
        2: Tensor((1, 8, 8, 4), "int8"),
        3: Tensor((1, 3, 3, 4), "float32"),
        4: Tensor((1, 8, 8, 4), "float32"),
    }
    graph = Graph((Node("CONV_2D", (0, 1), (2,)), Node("DEPTHWISE_CONV_2D", (4, 3), (4,))), tensors)
    total = {"int8": 0, "fp32": 0}
    for layer in graph.executed():
        total[layer.precision] += layer.macs
    assert total == {"int8": 64 * 4 * 54, "fp32": 64 * 4 * 9}


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_samples_in_batches_keep_their_own_logits(artifacts: dict[str, Exported], scheme: str, streams: int) -> None:
    check_batches(artifacts[scheme], streams)
