"""LoadGen for a device: no wheel of it is published for aarch64, so a bundle brings one, or what it is built from."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from edgeq.files import cache_dir
from edgeq.spec.errors import EdgeqError

#: What the sdist is built with on the device; pip looks for them among the bundle's wheels.
_TOOLS = ("pybind11", "setuptools", "wheel")


def packed(target: str, pythons: Sequence[str]) -> list[Path]:
    """The files that a bundle for ``target`` holds of LoadGen: wheels for ``pythons`` (``3.11``, …) as far as there are
    any in the cache's ``wheels/``, the sdist, and the wheels that building it takes.

    Raises:
        EdgeqError: the sdist is not in the cache, and can't be downloaded (code ``no-loadgen``).
    """
    folder = cache_dir() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    version = importlib.metadata.version("mlcommons-loadgen")
    sdist = folder / f"mlcommons_loadgen-{version}.tar.gz"
    if not sdist.is_file():
        _download(folder, f"mlcommons-loadgen=={version}", "--no-binary", "mlcommons-loadgen")
    found = [sdist]
    for tool in _TOOLS:
        pattern = f"{tool}-*-none-any.whl"
        if not any(folder.glob(pattern)):
            _download(folder, tool, "--only-binary", ":all:")
        found.append(max(folder.glob(pattern)))
    machine = "aarch64" if target == "aarch64" else "x86_64"
    tags = [f"cp{each.replace('.', '')}" for each in pythons]
    wheels = sorted(folder.glob(f"mlcommons_loadgen-{version}-*{machine}.whl"))
    return [*(wheel for wheel in wheels if wheel.name.split("-")[2] in tags), *found]


def _download(folder: Path, what: str, *how: str) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", *how]
    done = subprocess.run([*command, "--dest", str(folder), what], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["pip said nothing"]
        raise EdgeqError(
            f"{what} could not be downloaded", said[-1], "connect to a network, then try again", code="no-loadgen"
        )
