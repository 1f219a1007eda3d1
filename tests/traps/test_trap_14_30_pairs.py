"""Pairs of packages that do not go together: openvinotoolkit/nncf#4087, and tflite-runtime 2.14 beside numpy 2."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from edgeq.artifact import InputInfo
from edgeq.backends import open_session
from edgeq.backends.session import SessionOptions
from edgeq.run import diagnosis
from edgeq.spec.errors import EdgeqError
from tests.manifests import manifest


def _versions(monkeypatch: pytest.MonkeyPatch, **given: str | None) -> None:
    """``metadata.version`` with other answers for some distributions (``_`` for ``-``); None: not installed."""
    real = metadata.version

    def version(name: str) -> str:
        key = name.replace("-", "_")
        if key not in given:
            return real(name)
        found = given[key]
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)


def _codes(monkeypatch: pytest.MonkeyPatch, backends: dict[str, dict[str, str]]) -> dict[str, diagnosis.Finding]:
    monkeypatch.setattr(diagnosis, "installed", lambda backend: backends.get(backend, {}))
    return {finding.note.code: finding for finding in diagnosis.diagnose(probe=False).findings}


@pytest.mark.parametrize(("openvino", "nncf", "told"), [
    ("2024.6.0", "3.4.0", True), ("2026.4.1", "2.14.0", True), ("2026.4.1", "3.4.0", False), ("2026.4.1", None, False),
])  # fmt: skip
def test_trap_14_doctor_checks_the_pair(
    monkeypatch: pytest.MonkeyPatch, openvino: str, nncf: str | None, told: bool
) -> None:
    _versions(monkeypatch, openvino=openvino, nncf=nncf)
    found = _codes(monkeypatch, {"openvino": {"openvino": openvino}})
    assert ("openvino-nncf" in found) is told
    if told:
        assert found["openvino-nncf"].wrong
        assert "pip install -c constraints.txt" in found["openvino-nncf"].note.hint


@pytest.mark.parametrize(("numpy", "told"), [("2.4.6", True), ("1.26.4", False)])
def test_trap_30_doctor_names_the_pair_that_works(monkeypatch: pytest.MonkeyPatch, numpy: str, told: bool) -> None:
    _versions(monkeypatch, numpy=numpy)
    found = _codes(monkeypatch, {"tflite": {"tflite-runtime": "2.14.0"}})
    assert ("tflite-numpy" in found) is told
    if told:
        assert found["tflite-numpy"].wrong
        assert "numpy<2" in found["tflite-numpy"].note.hint
        assert "ai-edge-litert" in found["tflite-numpy"].note.hint


def test_trap_30_a_session_says_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The control is a module that fails to import as tflite-runtime does beside numpy 2."""
    package = tmp_path / "tflite_runtime"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "interpreter.py").write_text("raise ImportError('numpy.core.multiarray failed to import')")
    monkeypatch.syspath_prepend(str(tmp_path))
    from edgeq.backends import tflite

    monkeypatch.setattr(tflite, "_RUNTIMES", {"tflite_runtime": "tflite-runtime"})
    (tmp_path / "a.tflite").write_bytes(b"x")
    made = manifest(input=InputInfo(shape=(8, 8, 3), layout="NHWC"))
    try:
        with pytest.raises(EdgeqError) as caught:
            open_session(made, tmp_path / "a.tflite", SessionOptions(threads=1))
    finally:
        for name in [name for name in sys.modules if name.startswith("tflite_runtime")]:
            del sys.modules[name]
    assert caught.value.code == "import-failed"
    assert f"numpy {np.__version__}" in caught.value.why
    assert "numpy<2" in caught.value.hint
