"""Environments with what a device installs, and nothing of an exporting machine's: made by pip, kept between test runs.

They lie in ``$EDGEQ_TEST_ENVIRONMENTS``, else in the temporary folder, each under a hash of what is installed in it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
#: What the tests themselves take in such an environment.
TOOLS = ("hypothesis", "pytest", "pytest-timeout")
#: pip's words where it is the network that is missing, not the package.
_NO_NETWORK = re.compile(
    "Temporary failure in name resolution|Failed to establish a new connection|Network is unreachable"
    "|ProxyError|from versions: none|Name or service not known|Read timed out"
)


def requirements(*extras: str) -> list[str]:
    """What ``pip install edgeq[extras]`` asks for, as ``pyproject.toml`` has it."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]


def interpreter(version: str) -> str:
    """A CPython of ``version`` (``3.12``); skips where there is none. ``$EDGEQ_PYTHONS`` may list more, as ``$PATH`` does."""
    named = [path for path in os.environ.get("EDGEQ_PYTHONS", "").split(os.pathsep) if path]
    pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python3"))
    for candidate in [sys.executable, *named, f"python{version}", *map(str, pyenv)]:
        code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
        try:
            done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        except OSError:
            continue
        if done.stdout.strip() == version:
            return candidate
    pytest.skip(f"needs Python {version} with venv (on the PATH, or named in EDGEQ_PYTHONS)")


def environment(python: str, wanted: Sequence[str], constraints: Path) -> str:
    """The Python of a fresh environment with ``wanted`` and ``TOOLS``; skips where pip has no network."""
    everything = [*wanted, *TOOLS]
    folder = kept(python, everything, constraints.read_text())
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").is_file():
            subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True, timeout=300)
            pip(str(folder / "bin" / "python"), "install", "--constraint", str(constraints), *everything)
            (folder / "whole").touch()
    return str(folder / "bin" / "python")


def kept(*hangs_on: object) -> Path:
    """A place for what is worth keeping between test runs while nothing of ``hangs_on`` changes."""
    base = Path(os.environ.get("EDGEQ_TEST_ENVIRONMENTS") or Path(tempfile.gettempdir()) / "edgeq-test-environments")
    base.mkdir(parents=True, exist_ok=True)
    return base / hashlib.sha256(repr(hangs_on).encode()).hexdigest()[:16]


def pip(python: str, *arguments: str) -> str:
    """What pip printed; skips where it had no network, fails where it refused."""
    command = [python, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-input", "--retries", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode == 0:
        return done.stdout
    if _NO_NETWORK.search(done.stderr + done.stdout):
        pytest.skip(f"pip can't reach its index: {done.stderr.strip().splitlines()[-1]}")
    raise AssertionError(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")


def run(python: str, *arguments: str, cwd: Path = REPO, cache: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``python arguments`` with this checkout's edgeq, and nothing else of this process's Python."""
    alien = ("PYTHON", "VIRTUAL_ENV", "PYTEST_")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(alien)}
    variables |= {"PYTHONPATH": str(REPO), "PYTHONDONTWRITEBYTECODE": "1"}
    variables |= {} if cache is None else {"EDGEQ_CACHE": str(cache)}
    return subprocess.run(
        [python, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, timeout=1200, check=False
    )
