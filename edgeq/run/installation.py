"""Is what is installed here whole, and does it go together? Read off package metadata: nothing is imported."""

from __future__ import annotations

import importlib.util
import shutil
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from edgeq.backends import wheels
from edgeq.installing import pip_install
from edgeq.spec.note import Note

#: Two TFLite runtimes, and what each goes with (trap 30): both were run on exported files (``tests/device``).
TFLITE_PAIRS = (
    "ai-edge-litert 2.3 with numpy 2 (Python 3.11 to 3.13), or tflite-runtime 2.14 with numpy<2 (Python 3.11)"
)

#: The oldest of each that work together (trap 14, openvinotoolkit/nncf#4087): older ones import, and then break. They are
#: those of ``pyproject.toml``.
_OPENVINO, _NNCF = (2026, 4), (3, 4)


def broken(backends: Mapping[str, Mapping[str, str]], device: Mapping[str, Any]) -> list[Note]:
    """What keeps something from working, each with the command that mends it.

    Args:
        backends: Backend → distribution → version (``edgeq.backends.installed``).
        device: ``edgeq.host.describe()``.
    """
    found = []
    if not any(backends.values()):
        hint = f"run: {pip_install('edgeq[tflite]')} (or openvino, onnxruntime, pytorch)"
        found.append(Note(code="no-backend", text="no framework is installed", hint=hint))
    tflite, numpy = backends.get("tflite", {}), metadata.version("numpy")
    if _old_runtime(tflite) and wheels.release(numpy) >= (2,):
        text = f"tflite-runtime {tflite['tflite-runtime']} does not import beside numpy {numpy}"
        hint = f"run: {pip_install('numpy<2', pinned=False)} (pairs that work: {TFLITE_PAIRS})"
        found.append(Note(code="tflite-numpy", text=text, hint=hint))
    return found + _openvino_nncf(backends.get("openvino", {})) + _loadgen(device)


def worth_knowing(backends: Mapping[str, Mapping[str, str]]) -> list[Note]:
    """What is as it should be, and has limits."""
    tflite, numpy = backends.get("tflite", {}), metadata.version("numpy")
    if not _old_runtime(tflite) or wheels.release(numpy) >= (2,):
        return []
    text = (
        f"tflite-runtime {tflite['tflite-runtime']} beside numpy {numpy} is a pair that works; int8-dynamic is refused, as "
        "its linear layers would come out wrong, and there is no operator profile"
    )
    hint = (
        f"for all schemes: {pip_install('ai-edge-litert', 'numpy>=2', pinned=False)} (pairs that work: {TFLITE_PAIRS})"
    )
    return [Note(code="tflite-runtime", text=text, hint=hint)]


def _old_runtime(tflite: Mapping[str, str]) -> bool:
    return "tflite-runtime" in tflite and "ai-edge-litert" not in tflite


def _openvino_nncf(openvino: Mapping[str, str]) -> list[Note]:
    try:
        nncf = metadata.version("nncf")
    except metadata.PackageNotFoundError:  # a device that only runs artifacts
        return []
    version = openvino.get("openvino")
    if version is None or (wheels.release(version) >= _OPENVINO and wheels.release(nncf) >= _NNCF):
        return []
    text = f"openvino {version} and nncf {nncf} are not a pair that edgeq was tested with: export may break"
    hint = f"run: {pip_install('edgeq[export]')}"
    return [Note(code="openvino-nncf", text=text, hint=hint)]


def _loadgen(device: Mapping[str, Any]) -> list[Note]:
    if importlib.util.find_spec("mlperf_loadgen") is not None:
        return []
    mend = pip_install("mlcommons-loadgen")
    if device["target"] != "aarch64":
        return [Note(code="no-loadgen", text="MLPerf LoadGen is not installed", hint=f"run: {mend}")]
    lacking = lacking_to_build()
    text = "MLPerf LoadGen is not installed, and pip builds it from source here, as there is no wheel for ARM"
    if not lacking:
        return [Note(code="no-loadgen", text=f"{text}; it takes minutes", hint=f"run: {mend}")]
    text = f"{text}; missing for that: {', '.join(lacking.values())}"
    hint = f"run: sudo apt install -y {' '.join(lacking)} && {mend}"
    return [Note(code="no-loadgen", text=text, hint=hint)]


def lacking_to_build() -> dict[str, str]:
    """What building LoadGen takes and is not here: Debian's package → the thing itself."""
    found = {}
    if shutil.which("g++") is None and shutil.which("c++") is None:
        found["g++"] = "a C++ compiler"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        found["python3-dev"] = f"Python's headers ({header})"
    return found
