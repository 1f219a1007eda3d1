"""Run as a process of its own: exports the small network, calibrated on each of some numbers of samples in turn, and
prints the process's peak memory after each, in kB.

``python -m tests.export.streaming BACKEND METHOD COUNT COUNT …``
"""

from __future__ import annotations

import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edgeq.spec.quantization import QuantizationOptions
from tests.export.exported import SHAPE, export, network


class Stream:
    """Samples made one at a time: what is not held here is held by the tool."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        generator = np.random.default_rng(0)
        for _ in range(self._count):
            yield generator.standard_normal(SHAPE, dtype=np.float32)


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(backend: str, method: str, counts: list[int]) -> None:
    options = QuantizationOptions(method=method)
    module = network()
    with tempfile.TemporaryDirectory() as folder:
        for count in counts:
            export(backend, "int8-static", Path(folder), module, options=options, calibration=Stream(count))
            print(peak_kb())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(count) for count in sys.argv[3:]])
