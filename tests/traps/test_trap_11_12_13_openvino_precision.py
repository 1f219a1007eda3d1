"""OpenVINO computes in another precision than its file's or its user's: openvinotoolkit/openvino#22654 and #15439 (an
FP16 file computed in FP32), #22839 ("FP32" computed in f16), openvino_build_deploy#440 (most of an INT8 model in FP16).
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from edgeq.backends import open_session
from edgeq.backends.session import Effective, SessionOptions
from edgeq.report.numbers import precision_label
from tests.export.exported import Exported
from tests.traps.conftest import Artifact


def _effective(made: Exported) -> Effective:
    session = open_session(made.manifest, made.path, SessionOptions(threads=1))
    try:
        return session.effective()
    finally:
        session.close()


def _raw(made: Exported, **hints: Any) -> tuple[str, Counter[str]]:
    """OpenVINO's own word: the precision in force, and the precisions in its convolution kernels' names.

    Not ``runtimePrecision``: on a CPU without float16 arithmetic that is ``f16`` where only the weights are stored so, and
    the kernel is ``brgconv_avx512_f32`` (2026.4.1).
    """
    openvino = pytest.importorskip("openvino")
    compiled = openvino.Core().compile_model(str(made.path), "CPU", hints)
    layers: Counter[str] = Counter()
    for op in compiled.get_runtime_model().get_ops():
        info = op.get_rt_info()
        if "Convolution" in str(info["layerType"].value):
            layers[str(info["primitiveType"].value).rsplit("_", 1)[-1]] += 1
    return str(compiled.get_property("INFERENCE_PRECISION_HINT")), layers


CHILD = """
import json, sys
from pathlib import Path
from edgeq.artifact import Manifest
from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
manifest = Manifest.model_validate_json(sys.stdin.read())
print(json.dumps(open_session(manifest, Path(sys.argv[1]), SessionOptions(threads=1)).effective().macs))
"""


def test_trap_11_float16_weights_computed_in_float32_are_called_so(artifact: Artifact, repo: Path) -> None:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("oneDNN's switch to an older CPU is x86's")
    made = artifact("openvino", "fp16")
    assert (
        made.path.with_suffix(".bin").stat().st_size
        < artifact("openvino", "fp32").path.with_suffix(".bin").stat().st_size
    )
    # On a CPU without float16 arithmetic, which the plugin's library can be told to see here.
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(made.path)], input=made.manifest.model_dump_json(by_alias=True),
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "PYTHONPATH": str(repo)},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    macs = json.loads(done.stdout.splitlines()[-1])
    assert macs == {"fp32": 1.0}
    assert precision_label("fp16", macs, "openvino") == "fp16 (computes fp32)"


def test_trap_11_float16_is_claimed_as_the_run_time_graph_has_it(artifact: Artifact) -> None:
    made = artifact("openvino", "fp16")
    found = _effective(made)
    hint = "f16" if "fp16" in found.macs else "f32"
    _, layers = _raw(made, INFERENCE_PRECISION_HINT=hint)
    assert set(layers) == {hint}


def test_trap_12_float32_is_asked_for_and_had(artifact: Artifact) -> None:
    made = artifact("openvino", "fp32")
    found = _effective(made)
    assert found.macs == {"fp32": 1.0}
    _, asked = _raw(made, INFERENCE_PRECISION_HINT="f32")
    assert set(asked) == {"f32"}
    default, layers = _raw(made)
    if "float32" not in default and "f32" not in default:
        # The control: left to itself, the plugin computes this float32 file in half precision on this CPU.
        assert set(layers) - {"f32"}


def test_trap_13_the_share_of_macs_is_the_run_time_graph_s(artifact: Artifact) -> None:
    static, dynamic = _effective(artifact("openvino", "int8-static")), _effective(artifact("openvino", "int8-dynamic"))
    assert static.macs == {"int8": 1.0}
    # Compressed weights are int8 in the file, and yet the convolutions compute in float.
    assert sum(dynamic.macs.values()) == pytest.approx(1)
    assert dynamic.macs.get("int8", 0) < 0.1
    assert "of MACs in int8" in precision_label("int8-static", {"fp16": 0.8, "int8": 0.2}, "openvino")
