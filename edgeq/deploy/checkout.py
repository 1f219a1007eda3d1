"""The checkout that edgeq runs from: its wheel, and the list of what a device installs beside it."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import edgeq
from edgeq.deploy.pip import pip
from edgeq.spec.errors import EdgeqError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: Versions of Python that a device may have: those of Debian bookworm and trixie, and the one between.
PYTHONS = ("3.11", "3.12", "3.13")
#: The same sources give the same wheel: its files are dated so, the earliest that a zip can hold.
_EPOCH = "315532800"
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "edgeq")


def checkout() -> Path:
    """The folder with edgeq's sources and ``constraints.txt``.

    Raises:
        EdgeqError: edgeq does not run from its checkout (code ``no-checkout``).
    """
    root = Path(edgeq.__file__).resolve().parents[1]
    if all((root / name).exists() for name in (*_SOURCES, "constraints.txt")):
        return root
    raise EdgeqError(
        "edgeq does not run from a checkout",
        f"its wheel is built from its sources, and beside {Path(edgeq.__file__).parent} there is no pyproject.toml",
        "run it in a clone of the project: make setup, then .venv/bin/edgeq bundle",
        code="no-checkout",
    )


def build_wheel(root: Path, folder: Path) -> Path:
    """Builds edgeq's wheel in ``folder``, from a copy of its sources: what an earlier build left beside them stays out.

    Raises:
        EdgeqError: pip could not build it (code ``no-wheel``).
    """
    with tempfile.TemporaryDirectory(prefix="edgeq-wheel-") as scratch:
        copy = Path(scratch) / "edgeq"
        copy.mkdir()
        for name in _SOURCES:
            if (root / name).is_dir():
                shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(root / name, copy / name)
        # With a setuptools at hand that is new enough, nothing need be downloaded.
        alone = [] if _setuptools() < (77,) else ["--no-build-isolation"]
        pip(
            ["wheel", "--quiet", "--no-deps", *alone, "--wheel-dir", str(folder), str(copy)],
            what="edgeq's wheel could not be built", hint="run: make setup, then try again", code="no-wheel",
            environment={"SOURCE_DATE_EPOCH": _EPOCH},
        )  # fmt: skip
    (found,) = folder.glob("edgeq-*.whl")
    return found


def _setuptools() -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in importlib.metadata.version("setuptools").split(".")[:1])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return (0,)


def requirements(root: Path, extras: Iterable[str], machine: str) -> list[str]:
    """``name==version`` lines of all that a device of ``machine`` installs beside edgeq's wheel, sorted.

    Starts from ``pyproject.toml``, follows what packages require, and takes the versions of ``constraints.txt``. A package of
    which the device has another version than this machine (torch) is taken to require what it does here, as far as that is
    pinned for the device.

    Args:
        extras: Of edgeq's, such as ``tflite``.
        machine: As ``uname -m`` gives it.

    Raises:
        EdgeqError: ``constraints.txt`` lacks one of edgeq's own requirements (code ``unpinned``).
    """
    from packaging.requirements import Requirement

    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    environments = [_environment(machine, version) for version in PYTHONS]
    pins = _pins(root / "constraints.txt", environments)
    left, seen = [Requirement(line) for line in wanted], set[tuple[str, frozenset[str]]]()
    while left:
        each = left.pop()
        name = _plain(each.name)
        if (name, frozenset(each.extras)) in seen or not _applies(each, environments, ("",)):
            continue
        seen.add((name, frozenset(each.extras)))
        if _is_installed(name):
            required = (Requirement(line) for line in importlib.metadata.requires(name) or [])
            left += [
                one for one in required if _applies(one, environments, ("", *each.extras)) and _plain(one.name) in pins
            ]
    names = sorted({name for name, _ in seen})
    lacking = [name for name in names if name not in pins]
    if lacking:
        raise EdgeqError(
            f"constraints.txt has no version of {', '.join(lacking)}",
            "a device installs the versions that edgeq was tested with",
            "add a line for each to constraints.txt",
            code="unpinned",
        )
    return [f"{name}=={pins[name]}" for name in names]


def _environment(machine: str, version: str) -> dict[str, str]:
    return {"platform_machine": machine, "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
            "python_version": version, "python_full_version": f"{version}.0",
            "implementation_name": "cpython", "platform_python_implementation": "CPython"}  # fmt: skip


def _applies(requirement: Requirement, environments: Sequence[dict[str, str]], extras: Sequence[str]) -> bool:
    marker: Any = requirement.marker
    return marker is None or any(marker.evaluate({**each, "extra": extra}) for each in environments for extra in extras)


def _pins(path: Path, environments: Sequence[dict[str, str]]) -> dict[str, str]:
    from packaging.requirements import Requirement

    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    pins = [Requirement(line) for line in lines if line]
    return {_plain(pin.name): str(pin.specifier).removeprefix("==")
            for pin in pins if _applies(pin, environments, ("",))}  # fmt: skip


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _plain(name: str) -> str:
    """A distribution's name as packaging compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
