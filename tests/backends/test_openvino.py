from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeq.artifact import write_manifest
from edgeq.backends import open_session
from edgeq.backends.openvino import load_hint
from edgeq.backends.openvino_graph import Node, executed, float_ops
from edgeq.backends.session import SessionOptions
from edgeq.spec.errors import EdgeqError
from edgeq.spec.names import SCHEMES
from tests.backends.sessions import (
    check_a_failing_done,
    check_a_failing_sample,
    check_batches,
    check_inference,
    check_refused_batch,
    effective,
)
from tests.export.exported import Exported, export, sqnr_db

openvino = pytest.importorskip("openvino")
pytest.importorskip("nncf")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("openvino")
    return {scheme: export("openvino", scheme, folder, target="x86_64") for scheme in SCHEMES}


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_way_to_infer_gives_the_same(artifacts: dict[str, Exported], scheme: str, streams: int) -> None:
    assert sqnr_db(check_inference(artifacts[scheme], streams), artifacts[scheme].logits) > 15


@pytest.mark.parametrize("streams", [1, 2])
def test_a_failure_in_done_is_raised(artifacts: dict[str, Exported], streams: int) -> None:
    check_a_failing_done(artifacts["fp32"], streams)


@pytest.mark.parametrize("streams", [1, 2])
def test_a_sample_of_a_wrong_shape_is_raised(artifacts: dict[str, Exported], streams: int) -> None:
    check_a_failing_sample(artifacts["fp32"], streams)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_read_only_sample_is_inferred(artifacts: dict[str, Exported], batch: int) -> None:
    """OpenVINO refuses to share one: what comes from a file that is mapped, say."""
    chosen = artifacts["fp32"]
    session = open_session(chosen.manifest, chosen.path, SessionOptions(threads=1, batch=batch))
    samples = chosen.samples[:2].copy()
    expected = session.infer(samples[:1]), session.infer(samples[1:])
    samples.setflags(write=False)
    found = session.infer(samples[:1]), session.infer(samples[1:])
    session.close()
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(*found)


def test_float32_computes_in_float32_whatever_the_device_prefers(artifacts: dict[str, Exported]) -> None:
    """Trap 12: left to itself the plugin takes bf16 or f16 on CPUs that have it."""
    found = effective(artifacts["fp32"])
    assert found.macs == {"fp32": 1.0}
    assert found.extra["hints"]["INFERENCE_PRECISION_HINT"] == "f32"
    assert found.warnings == ()
    assert found.float_ops == {}


def test_float16_is_claimed_only_where_the_plugin_computes_it(artifacts: dict[str, Exported]) -> None:
    """Trap 11: on most CPUs an fp16 IR is only stored in half."""
    capable = "FP16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert effective(artifacts["fp16"]).macs == {"fp16" if capable else "fp32": 1.0}


def test_static_int8_runs_in_int8(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["int8-static"])
    assert found.macs == {"int8": 1.0}
    assert found.warnings == ()


def test_compressed_convolutions_are_not_called_int8(artifacts: dict[str, Exported]) -> None:
    found = effective(artifacts["int8-dynamic"])
    linear = next(layer.macs for layer in artifacts["int8-dynamic"].manifest.layers if layer.op == "linear")
    share = linear / sum(layer.macs for layer in artifacts["int8-dynamic"].manifest.layers)
    assert found.macs.get("int8", 0) == pytest.approx(share if found.extra["dynamic_quantization"] else 0)
    assert found.float_ops["Convolution"] == 4


def test_threads_and_streams_are_read_back(artifacts: dict[str, Exported]) -> None:
    one = effective(artifacts["fp32"], threads=1)
    assert (one.threads, one.streams, one.extra["infer_requests"]) == (1, 1, 1)
    two = effective(artifacts["fp32"], threads=2, streams=2)
    assert (two.threads, two.streams) == (2, 2)
    assert two.extra["hints"]["PERFORMANCE_HINT"] == "THROUGHPUT"


def test_more_streams_than_threads_are_not_claimed(artifacts: dict[str, Exported]) -> None:
    assert effective(artifacts["fp32"], threads=1, streams=4).streams == 1


@pytest.mark.parametrize("suffix", [".xml", ".bin"])
def test_a_truncated_file_is_a_load_failure(artifacts: dict[str, Exported], tmp_path: Path, suffix: str) -> None:
    path = _copy(artifacts["fp32"], tmp_path)
    broken = path.with_suffix(suffix)
    broken.write_bytes(broken.read_bytes()[: broken.stat().st_size // 2])
    with pytest.raises(EdgeqError) as caught:
        open_session(artifacts["fp32"].manifest, path, SessionOptions(1))
    assert caught.value.code == "load-failed"
    assert str(path) in caught.value.what


def test_a_missing_weights_file_is_a_load_failure(artifacts: dict[str, Exported], tmp_path: Path) -> None:
    path = _copy(artifacts["fp32"], tmp_path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(EdgeqError, match="cannot load"):
        open_session(artifacts["fp32"].manifest, path, SessionOptions(1))


def _copy(exported: Exported, folder: Path) -> Path:
    for suffix in (".xml", ".bin"):
        shutil.copy(exported.path.with_suffix(suffix), folder)
    return folder / exported.path.name


def node(kind: str, inputs: tuple[str, ...], output: str = "f32", shapes: tuple[tuple[int, ...], ...] = ()) -> Node:
    return Node(kind, "", inputs, shapes or ((1, 4), (3, 4)), output, (1, 3))


def test_a_compressed_linear_layer_is_int8_only_where_activations_are_quantized() -> None:
    layer = node("FullyConnected", ("f32", "i8"))
    assert [ran.precision for ran in executed([layer], dynamic=False)] == ["fp32"]
    assert [ran.precision for ran in executed([layer], dynamic=True)] == ["int8"]
    assert executed([layer], dynamic=True)[0].macs == 12


def test_what_only_quantizes_or_moves_data_is_no_float_operator() -> None:
    nodes = [node("Subgraph", ("f32",), "u8"), node("Reorder", ("f32",)), node("Pooling", ("f32",)),
             node("Convolution", ("u8", "i8"), "f32")]  # fmt: skip
    assert float_ops(nodes, dynamic=False) == {"Pooling": 1}


def test_inputs_are_left_as_they_were(artifacts: dict[str, Exported]) -> None:
    before = artifacts["int8-static"].samples.copy()
    check_inference(artifacts["int8-static"], 2)
    np.testing.assert_array_equal(artifacts["int8-static"].samples, before)


def test_compressed_weights_have_a_model_a_stream(artifacts: dict[str, Exported]) -> None:
    """The streams of one model race for their weights while it is compiled, and then give wrong logits for ever."""
    found = effective(artifacts["int8-dynamic"], threads=2, streams=2)
    assert (found.threads, found.streams, found.extra["compiled_models"]) == (2, 2, 2)
    assert effective(artifacts["fp32"], threads=2, streams=2).extra["compiled_models"] == 1


def test_a_cpu_without_a_dynamic_kernel_runs_without_and_says_so(
    artifacts: dict[str, Exported], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on kernels for AVX2: dynamic quantization is on by default, and refused when the model is compiled."""
    real = openvino.Core.compile_model

    def compile_model(core: Any, path: str, device: str, config: dict[str, Any]) -> Any:
        if config.get("DYNAMIC_QUANTIZATION_GROUP_SIZE") != "0":
            raise RuntimeError("could not create a primitive descriptor for the inner product")
        return real(core, path, device, config)

    monkeypatch.setattr(openvino.Core, "compile_model", compile_model)
    found = effective(artifacts["int8-dynamic"])
    assert found.macs == {"fp32": 1.0}
    assert [note.code for note in found.warnings] == ["no-dynamic-quantization"]
    with pytest.raises(EdgeqError) as caught:
        open_session(artifacts["fp32"].manifest, artifacts["fp32"].path, SessionOptions(1))
    assert caught.value.code == "load-failed"


@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("scheme", [name for name in SCHEMES if name != "int8-dynamic"])
def test_samples_in_batches_keep_their_own_logits(artifacts: dict[str, Exported], scheme: str, streams: int) -> None:
    check_batches(artifacts[scheme], streams)


def test_a_batch_that_would_change_its_samples_is_refused(artifacts: dict[str, Exported]) -> None:
    check_refused_batch(artifacts["int8-dynamic"])


FIRST = """
import sys
from pathlib import Path
import numpy as np
from edgeq.artifact import read_manifest
from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions

manifest = read_manifest(Path(sys.argv[1]))
session = open_session(manifest, Path(sys.argv[2]), SessionOptions(threads=2, streams=2))
samples = [np.zeros(manifest.input.shape, np.float32)] * 8
session.infer_many(samples, lambda *_: None)
"""


def test_a_process_may_begin_with_several_streams(artifacts: dict[str, Exported], tmp_path: Path, repo: Path) -> None:
    """The bindings (2026.4.1) hang for ever where two threads convert the first arrays of a process at once."""
    made = artifacts["fp32"]
    write_manifest(tmp_path / "fp32.json", made.manifest)
    for _ in range(5):
        subprocess.run(
            [sys.executable, "-c", FIRST, str(tmp_path / "fp32.json"), str(made.path)],
            cwd=repo,
            check=True,
            timeout=120,
        )


def test_a_cpu_without_int8_convolutions_is_told_from_a_damaged_file() -> None:
    """As OpenVINO 2026.4.1 says it on a Cortex-A72 of a file that a Cortex-A76 compiles."""
    said = "Exception from …/core.cpp:132:\nException from …/plugin.cpp:59:\nobject is not initialized\n\n"
    assert "on tflite or onnxruntime" in load_hint(said)
    assert "edgeq export" in load_hint("Exception from …: Incorrect weights in bin file!")
