"""The first import of a framework, in a child: what dies or hangs there becomes advice, and what works is asked once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeq.backends import wheels
from edgeq.events import Child
from edgeq.files import cache_dir
from edgeq.host.device import describe
from edgeq.run import stepping
from edgeq.run.imports import Imported, check_import
from tests.run.conftest import no_child

pytestmark = pytest.mark.usefixtures("fresh_cache")

Fake = Callable[[str], Imported]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repo: Path) -> Fake:
    """Imports an ``onnxruntime`` made of the given lines."""

    def make(code: str) -> Imported:
        package = tmp_path / "fake" / "onnxruntime"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{repo}")
        return check_import("onnxruntime", describe(), 1)

    return make


@pytest.mark.parametrize(("signal", "code", "text"), [
    (4, "illegal-instruction", "uses an instruction this CPU lacks"), (11, "crashed", "SIGSEGV"), (6, "crashed", "SIGABRT"),
])  # fmt: skip
def test_a_signal_becomes_advice(fake: Fake, signal: int, code: str, text: str) -> None:
    found = fake(f"import os\nprint('setting up', flush=True)\nos.kill(os.getpid(), {signal})\n")
    assert found.note is not None
    assert found.note.code == code
    assert text in found.note.text
    assert "setting up" in found.note.text, "what it said last helps whoever reads it"
    assert found.note.hint
    assert found.peak_rss is None
    assert not (cache_dir() / "imports").exists(), "what failed is tried again"


def test_an_illegal_instruction_names_what_works(fake: Fake) -> None:
    note = fake("import os\nos.kill(os.getpid(), 4)\n").note
    assert note is not None
    assert "onnxruntime 1.21" in note.hint
    assert "pip install 'onnxruntime>=1.22'" in note.hint


def test_one_that_hangs_is_stopped(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepping, "LIMIT_S", 0.0)
    note = fake("import time\ntime.sleep(600)\n").note
    assert note is not None
    assert note.code == "hung"
    assert "import had not ended" in note.text


def test_one_that_python_refuses_says_why(fake: Fake) -> None:
    note = fake("raise ImportError('numpy.core.multiarray failed to import')\n").note
    assert note is not None
    assert note.code == "import-failed"
    assert "numpy.core.multiarray" in note.text


def test_what_works_is_asked_once_and_tells_its_memory(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    found = fake("ballast = bytearray(64 << 20)\n")
    assert found.note is None
    assert found.peak_rss is not None
    assert found.peak_rss > 64 << 20
    monkeypatch.setattr(Child, "start", no_child)
    assert check_import("onnxruntime", describe(), 1) == found
    other = {**describe(), "isa": ["neon"]}
    with pytest.raises(AssertionError, match="started"):
        check_import("onnxruntime", other, 1)
    with pytest.raises(AssertionError, match="started"):
        check_import("onnxruntime", describe(), 1, again=True)


A72 = {"target": "aarch64", "isa": ["neon"], "cpu": "Cortex-A72"}
A76 = {"target": "aarch64", "isa": ["dotprod", "fp16", "lse", "neon"], "cpu": "Cortex-A76"}


@pytest.mark.parametrize(("backend", "version", "dies"), [
    ("pytorch", "2.3.1", False), ("pytorch", "2.4.0", True), ("pytorch", "2.4.1", False), ("pytorch", "2.6.0+cpu", True),
    ("pytorch", "2.9.1", False), ("pytorch", "2.10.0", True), ("pytorch", "2.11.0", False), ("pytorch", "unknown", False),
    ("onnxruntime", "1.20.1", False), ("onnxruntime", "1.21.0", True), ("onnxruntime", "1.21.1", True),
    ("onnxruntime", "1.22.0", False), ("tflite", "2.14.0", False),
])  # fmt: skip
def test_known_wheels_are_told_before_they_are_tried(backend: str, version: str, dies: bool) -> None:
    distribution = {"pytorch": "torch", "tflite": "tflite-runtime"}.get(backend, backend)
    note = wheels.deadly(backend, {distribution: version}, A72)
    assert (note is not None) is dies
    if note is not None:
        assert note.hint.startswith("run: pip install")
        assert version in note.text
        assert "#" in note.text, "the thread that tells of it"
    assert wheels.deadly(backend, {distribution: version}, A76) is None
    assert wheels.deadly(backend, {distribution: version}, {"target": "x86_64", "isa": [], "cpu": "old"}) is None


def test_what_edgeq_installs_on_arm_is_none_of_them(repo: Path) -> None:
    pins = {}
    for line in (repo / "constraints.txt").read_text().splitlines():
        name, _, rest = line.partition("==")
        version, _, marker = rest.partition(";")
        if not marker or '== "aarch64"' in marker:
            pins[name.strip()] = version.strip()
    for backend in ("pytorch", "onnxruntime"):
        assert wheels.deadly(backend, pins, A72) is None
