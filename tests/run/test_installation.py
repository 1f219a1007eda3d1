"""What doctor says of what is installed: one line a fault, with the one command that mends it."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from edgeq.run import installation

ARM: dict[str, Any] = {"target": "aarch64", "isa": ["neon"], "cpu": "Cortex-A72"}
PC: dict[str, Any] = {"target": "x86_64", "isa": ["avx2"], "cpu": "x"}


@pytest.fixture
def no_loadgen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "mlperf_loadgen" else real(name))


def _loadgen(device: dict[str, Any]) -> Any:
    (note,) = [note for note in installation.broken({"tflite": {"ai-edge-litert": "2.3"}}, device)
               if note.code == "no-loadgen"]  # fmt: skip
    return note


@pytest.mark.usefixtures("no_loadgen")
@pytest.mark.parametrize(("compiler", "headers", "packages", "told"), [
    (False, False, "g++ python3-dev", "missing for that: a C++ compiler, Python's headers ("),
    (False, True, "g++", "missing for that: a C++ compiler"),
    (True, False, "python3-dev", "Python.h)"),
])  # fmt: skip
def test_what_loadgen_lacks_on_arm_is_one_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiler: bool, headers: bool, packages: str, told: str
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/g++" if compiler and name == "g++" else None)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    if headers:
        (tmp_path / "Python.h").touch()
    note = _loadgen(ARM)
    assert told in note.text
    assert note.hint == f"run: sudo apt install -y {packages} && pip install -c constraints.txt mlcommons-loadgen"


@pytest.mark.usefixtures("no_loadgen")
def test_where_all_is_there_to_build_it_pip_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/c++")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    (tmp_path / "Python.h").touch()
    assert _loadgen(ARM).hint == "run: pip install -c constraints.txt mlcommons-loadgen"
    assert "apt" not in _loadgen(PC).hint, "on x86-64 there is a wheel"


def test_this_environment_lacks_no_loadgen() -> None:
    pytest.importorskip("mlperf_loadgen")
    assert "no-loadgen" not in {note.code for note in installation.broken({"tflite": {"ai-edge-litert": "2.3"}}, ARM)}


@pytest.mark.parametrize(("numpy", "runtime", "broken", "known"), [
    ("2.4.6", "tflite-runtime", True, False), ("1.26.4", "tflite-runtime", False, True),
    ("2.4.6", "ai-edge-litert", False, False),
])  # fmt: skip
def test_the_pairs_that_work_are_named(
    monkeypatch: pytest.MonkeyPatch, numpy: str, runtime: str, broken: bool, known: bool
) -> None:
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: numpy if name == "numpy" else real(name))
    backends = {"tflite": {runtime: "2.14.0"}}
    wrong = [note for note in installation.broken(backends, PC) if note.code == "tflite-numpy"]
    fine = installation.worth_knowing(backends)
    assert (bool(wrong), bool(fine)) == (broken, known)
    for note in [*wrong, *fine]:
        assert "ai-edge-litert 2.3 with numpy 2" in note.hint
        assert "tflite-runtime 2.14 with numpy<2 (Python 3.11)" in note.hint


def test_an_empty_environment_is_told_what_to_install() -> None:
    notes = {note.code: note for note in installation.broken({"tflite": {}, "pytorch": {}}, PC)}
    assert "edgeq[tflite]" in notes["no-backend"].hint
