from __future__ import annotations

import pytest

from edgeq.peaks import Peak, Peaks

PEAKS = Peaks(
    by={
        "fp32": Peak(macs_per_s=1e11, library="tflite", computed="fp32"),
        "int8": Peak(macs_per_s=4e11, library="onnxruntime", computed="int8"),
    },
    threads=1,
)


@pytest.fixture(autouse=True)
def _known_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring the machine's peaks would take seconds a framework in every test that runs a cell."""
    monkeypatch.setattr("edgeq.run.runner.measure_peaks", lambda *_: PEAKS)
