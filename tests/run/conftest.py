from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgeq.backends import installed
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


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path) -> None:
    """Nothing is kept yet, and children find edgeq."""
    monkeypatch.setenv("EDGEQ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(repo))


@pytest.fixture
def needs_tflite() -> None:
    if not installed("tflite"):
        pytest.skip("tflite is not installed")


def no_child(*_: Any, **__: Any) -> Any:
    """In place of ``Child.start``, where no child is to be started."""
    raise AssertionError("a child was started")
