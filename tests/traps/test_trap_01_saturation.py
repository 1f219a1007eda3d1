"""microsoft/onnxruntime#12072: INT8 accuracy near zero on a CPU without VNNI, where u8 x s8 products saturate in 16 bits.

A 1x1 convolution with 64 channels in, weights 1.0 and 0.98 in turn and an input of ones must give 63.36; ONNX Runtime
gives 32.30 on AVX2. The packaged probe has this convolution first. This machine's own CPU decides which of the two is
seen here; a CPU without VNNI is played by qemu-user where that is installed (EDGEQ_QEMU_X86, or qemu-x86_64 on PATH).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgeq.backends import installed, probes
from edgeq.export import onnxruntime as exporter
from edgeq.host.cpu import isa_flags

pytestmark = pytest.mark.skipif(not installed("onnxruntime"), reason="onnxruntime is not installed")

#: AVX2, and neither AVX-512 nor VNNI.
CPU = "EPYC"
CODE = """
import json, numpy, onnxruntime
from edgeq.backends import probes
found = {name: [p.ok, p.found] for name in probes.recipes("onnxruntime") for p in [probes.probe("onnxruntime", name, 1)]}
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(str(probes.FILES / "onnxruntime-int8-static-u8s8.onnx"), options)
ones = numpy.ones((1, probes.CHANNELS, probes.HEIGHT, probes.WIDTH), numpy.float32)
found["unoptimized"] = [True, float(session.run(None, {"input": ones})[0][0, 0])]
print(json.dumps(found))
"""


def _emulator() -> str:
    if platform.machine().lower() not in ("x86_64", "amd64"):
        pytest.skip("an x86 trap: this Python is not an x86 program")
    named = os.environ.get("EDGEQ_QEMU_X86")
    found = named or shutil.which("qemu-x86_64-static") or shutil.which("qemu-x86_64")
    if not found:
        pytest.skip(
            "needs qemu-x86_64 to play a CPU without VNNI (apt install qemu-user-static, or set EDGEQ_QEMU_X86)"
        )
    return found


def test_without_vnni_the_probe_catches_the_recipe_and_clears_the_cure(repo: Path) -> None:
    done = subprocess.run(
        [_emulator(), "-cpu", CPU, sys.executable, "-c", CODE], env={**os.environ, "PYTHONPATH": str(repo)},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)
    ok, value = found["int8-static-u8s8"]
    assert not ok
    assert value == pytest.approx(32.3, abs=0.3)
    assert not found["int8-static-s8s8"][0]
    for cured in ("int8-static-u8u8", "int8-static-u8s7", "int8-dynamic"):
        ok, value = found[cured]
        assert ok, cured
        assert value == pytest.approx(63.36, abs=probes.TOLERANCE)
    # A check under other options hides the fault: probes go through the session that cells use.
    assert found["unoptimized"][1] == pytest.approx(63.36, abs=0.3)


def test_on_this_cpu_the_probe_says_what_its_kernels_do() -> None:
    found = probes.probe("onnxruntime", "int8-static-u8s8", 1)
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    saturates = x86 and "vnni" not in isa_flags()
    assert found.found == pytest.approx(32.3 if saturates else 63.36, abs=0.5)
    assert found.ok is not saturates
    assert probes.probe("onnxruntime", "int8-static-u8u8", 1).ok


def test_export_for_a_cpu_without_vnni_makes_the_recipe_that_is_exact() -> None:
    settings = exporter.recipe("int8-static", "x86_64").settings
    assert probes.recipe_of(probes.manifest_of("onnxruntime", "int8-static", settings)) == "int8-static-u8u8"
