"""Calibration on 1,000 samples takes no more memory than on 100."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgeq.spec.quantization import METHODS

NEEDS = {"openvino": "nncf", "tflite": "litert_torch", "onnxruntime": "onnxruntime", "pytorch": "torch"}
#: Each framework's default, and ONNX Runtime's histograms, which left alone hold every activation of every sample.
CHOICES = [*((backend, METHODS[backend, "int8-static"][0]) for backend in NEEDS), ("onnxruntime", "percentile")]
#: One sample's activations in the small network, all tensors: 3 x 32 x 32 + 6 x (16 x 16 x 16) + 2 x (32 x 8 x 8)
#: float32. Held for 900 more samples they would be 114 MB; a few numbers a tensor and sample, which NNCF keeps, and
#: what allocators leave behind stay far below a fifth of that.
ALLOWED_KB = 900 * 4 * (3072 + 6 * 4096 + 2 * 2048) // 1000 // 5


@pytest.mark.parametrize(("backend", "method"), CHOICES)
def test_memory_does_not_grow_with_the_samples(repo: Path, backend: str, method: str) -> None:
    pytest.importorskip(NEEDS[backend])
    command = [sys.executable, "-m", "tests.export.streaming", backend, method, "2", "100", "1000"]
    done = subprocess.run(command, cwd=repo, capture_output=True, text=True, check=True)
    _, few, many = (int(word) for word in done.stdout.split()[-3:])
    assert many - few < ALLOWED_KB, f"{few} kB for 100 samples, {many} kB for 1,000"
    assert many < 1.05 * few
