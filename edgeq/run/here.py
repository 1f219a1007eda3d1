"""What an answer of a framework on this device hangs on: where all of it is the same, so is the answer, and it is kept."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

import edgeq
from edgeq import __version__
from edgeq.backends import REGISTRY, installed
from edgeq.files import sha256_file, write_json
from edgeq.host.threads import environment
from edgeq.spec.errors import EdgeqError
from edgeq.spec.note import Note

#: Beginnings of variables by which frameworks and their libraries choose other kernels, or another precision, than they
#: would by themselves: ``ONEDNN_MAX_CPU_ISA``, ``ATEN_CPU_CAPABILITY``, ``DNNL_DEFAULT_FPMATH_MODE`` …
_CHOOSING = (
    "ATEN_",
    "DNNL_",
    "GLIBC_TUNABLES",
    "MKL_",
    "ONEDNN_",
    "OPENBLAS_",
    "OPENVINO_",
    "ORT_",
    "OV_",
    "QEMU_",
    "TORCH_",
    "XNN",
)

#: What of ``edgeq.host.describe()`` says which kernels there are.
_DEVICE = ("slug", "machine", "cpu", "isa", "kernel", "emulated")


def conditions(backend: str, device: dict[str, Any], threads: int, code: list[Path]) -> dict[str, Any]:
    """JSON values: the device, its kernels and threads; versions of framework, Python, numpy and edgeq; the files ``code``.

    The same in a worker and in its parent: variables that ``edgeq.host.threads.environment`` sets are left to ``threads``.

    Args:
        backend: A name of ``edgeq.backends.REGISTRY``; another has no framework, such as ``numpy``.
        device: ``edgeq.host.describe()``.
        threads: Of the session.
        code: Files of edgeq's, or of any other kind, by name and content.
    """
    ours = environment(threads)
    return {
        "edgeq": __version__,
        "code": [[file.name, sha256_file(file)] for file in sorted(code)],
        "versions": {**(installed(backend) if backend in REGISTRY else {}), "numpy": metadata.version("numpy")},
        "python": [sys.executable, sys.version],
        "device": {key: device.get(key) for key in _DEVICE},
        "environment": {
            name: value for name, value in sorted(os.environ.items()) if name.startswith(_CHOOSING) and name not in ours
        },
        "threads": threads,
    }


def package_files(*folders: str) -> list[Path]:
    """All Python files of these folders of edgeq, such as ``backends``."""
    root = Path(edgeq.__file__).parent
    return [file for folder in folders for file in (root / folder).glob("*.py")]


Kept = TypeVar("Kept", bound=BaseModel)


def kept(file: Path, kind: type[Kept]) -> Kept | None:
    """What ``file`` holds. One that is absent or not whole only means that it is to be found out again."""
    try:
        return kind.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def keep(file: Path, found: BaseModel) -> Note | None:
    """Writes ``file``, for ``kept``; returns why it can't be written, where it can't."""
    try:
        write_json(file, found.model_dump(mode="json"))
    except EdgeqError as error:
        return Note.of(error)
    return None
