"""Wheels of all that a device installs, for a device without a network (``edgeq bundle --wheels 3.11``)."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from edgeq.deploy.headers import DEBIAN
from edgeq.deploy.loadgen import NAME as LOADGEN
from edgeq.deploy.pip import pip
from edgeq.files import cache_dir, sha256_json

#: manylinux tags that Debian bookworm (glibc 2.36) and newer systems take; pip does not infer the older ones of a given one.
_GLIBC = (17, 24, 26, 27, 28, 31, 34, 35, 36)


def wheels(requirements: Sequence[str], python: str, machine: str) -> list[Path]:
    """The wheel of each of ``requirements``, from pip's index or as kept; on ARM, LoadGen's is ``edgeq.deploy.loadgen``'s.

    Args:
        requirements: Lines ``name==version``, with all that they require.
        python: Of the device, such as ``3.11``.
        machine: As ``uname -m`` gives it.

    Raises:
        EdgeqError: one has no wheel for this Python and machine, or there is no network (code ``no-wheel``).
    """
    wanted = [line for line in requirements if machine not in DEBIAN or not line.startswith(f"{LOADGEN}==")]
    folder = cache_dir() / "wheels" / f"{machine}-{python}-{sha256_json(wanted)[:12]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".partial-") as temporary:
            _download(wanted, python, machine, Path(temporary) / "wheels")
            (Path(temporary) / "wheels").rename(folder)
    return sorted(folder.glob("*.whl"))


def _download(wanted: Sequence[str], python: str, machine: str, folder: Path) -> None:
    tags = [f"manylinux_2_{minor}_{machine}" for minor in _GLIBC] + [f"manylinux2014_{machine}", f"linux_{machine}"]
    # Markers of requirements are evaluated for this machine, whatever --platform says (pypa/pip#11664): hence --no-deps.
    asked = ["--no-deps", "--only-binary", ":all:", "--python-version", python, "--implementation", "cp"]
    asked += [word for tag in tags for word in ("--platform", tag)]
    pip(
        ["download", "--quiet", *asked, "--dest", str(folder), *wanted],
        what=f"not all wheels for Python {python} on {machine} can be had",
        hint="check the network; or leave out --wheels, and the device installs from its own", code="no-wheel",
    )  # fmt: skip
