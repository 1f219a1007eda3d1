"""Hints name a command that works where edgeq runs."""

from __future__ import annotations

import shlex
import sys

import pytest

from edgeq.backends import require
from edgeq.installing import BUNDLE, pip_install
from edgeq.spec.errors import EdgeqError


def test_in_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BUNDLE, raising=False)
    assert pip_install("edgeq[tflite]") == "pip install -c constraints.txt 'edgeq[tflite]'"
    assert pip_install("numpy<2", pinned=False) == "pip install 'numpy<2'"


def test_on_a_device_by_its_own_python_and_with_the_bundle_s_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BUNDLE, "/home/pi/edgeq aarch64")
    words = shlex.split(pip_install("edgeq[tflite]"))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert words[4:6] == ["-c", "/home/pi/edgeq aarch64/constraints.txt"]
    assert words[6:] == ["--find-links", "/home/pi/edgeq aarch64/wheels", "edgeq[tflite]"]
    assert "-c" not in shlex.split(pip_install("numpy<2", pinned=False))[4:]


def test_an_error_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeq.backends._present", lambda backend: [])
    monkeypatch.setenv(BUNDLE, "/home/pi/edgeq-aarch64")
    with pytest.raises(EdgeqError) as raised:
        require("tflite")
    assert "/home/pi/edgeq-aarch64/constraints.txt" in raised.value.hint
